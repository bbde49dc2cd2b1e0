"""What a model can know: errors as it reads them."""

import base64
import json

from attacks_planning import BUNDLED, CONTINUES, Planning, Session, asked, done, here, results, script, step

CANARY = "canary-9f2c41d07b6e4a35"
REGION = "eu-central-region-77"
IMAGES = "localhost/build-with-make"


class Masked(Planning):
    """Errors of servers: a model reads which images are permitted and an ordinary header, and no secret in any form."""

    name = "masked"
    bundled = ("github", "docker")
    agents = {"prober": """---
name: prober
description: Probes.
approval: never
tools: [createContainer, leak]
max_turns: 20
---

Probe.
"""}

    def entries(self, at):
        headers = {"Authorization": f"Bearer {CANARY}", "X-Api-Key": CANARY[::-1], "X-Region": REGION}
        stand_in = {"url": f"{at['world']}/docker", "headers": headers, "includeTools": ["leak"],
                    "gavel": {"trustHints": True, "exposeErrors": True}}
        return super().entries(at) | {"docker": BUNDLED["docker"], "leaky": stand_in}

    def env(self, at, folder):
        # The images are looked at before the engine is asked.
        return super().env(at, folder) | {"DOCKER_HOST": f"unix://{folder}/engine.sock", "DOCKER_IMAGES": IMAGES}

    def scripts(self, at):
        return {"masked": {"reads": [
            ["createContainer", {"options": {"image": "docker.io/library/evil"}}],
            *[["leak", {"how": how}] for how in ("plain", "base64")]]}}

    async def run(self, attacker):
        await attacker.trigger("prober", {"query": "[[session masked]]"}, "m")
        requests = asked(attacker.folder, "masked")
        refused, *leaks = map(json.dumps, results(requests[-1]))
        attacker.holds(IMAGES in refused, f"the model cannot learn which images are permitted: {refused[:300]}")
        declared = json.dumps(requests[0].get("tools"))
        attacker.holds(IMAGES in declared, "the description of createContainer does not name the permitted images")
        attacker.holds(REGION in leaks[0], f"what is no secret is masked: {leaks[0][:300]}")
        for secret in (CANARY, CANARY[::-1]):
            for form in (secret, encoded(secret), encoded(f"Bearer {secret}")):
                is_read = form in json.dumps(requests)
                attacker.holds(not is_read, f"the model reads a secret of mcp.json: {form}")


def encoded(text):
    """A text in base64, without what depends on how it goes on."""
    return base64.b64encode(text.encode()).decode().rstrip("=")[:-1]


class Codes(Planning):
    """Six calls of one tool fail in different ways: no persistent error, and the codes are in the steps and the log."""

    name = "codes"
    FAILS = {"src": "is_directory", "large.txt": "too_large", "binary.bin": "not_text", "forbidden.txt": "forbidden",
             "odd.txt": "validation_failed", "moved.txt": "conflict"}

    def scripts(self, at):
        fails = [step("getFileContents", here(path=path), CONTINUES) for path in self.FAILS]
        reads = step("getFileContents", here(path="README.md"), done(len(fails) + 1, "It parses calendar dates"))
        return script("codes", fails + [reads])

    async def run(self, attacker):
        session = await Session.start(attacker, "codes")
        ended = await session.worked()
        why = ended["plan"][0]["statusReason"]
        attacker.holds(ended["status"] == "COMPLETED", f"six different errors ended the session: {why}")
        for where, path in {"steps": "/tasks/t1", "log": "/log"}.items():
            shown = json.dumps(await session.ask("GET", path))
            missing = [code for code in self.FAILS.values() if f'"{code}"' not in shown]
            attacker.holds(not missing, f"the codes {missing} are not in the {where}")
        read = json.dumps(results(asked(attacker.folder, "codes")[-1]))
        missing = [code for code in self.FAILS.values() if code not in read]
        attacker.holds(not missing, f"the model does not read the codes {missing}")


KNOWN = [Masked, Codes]
