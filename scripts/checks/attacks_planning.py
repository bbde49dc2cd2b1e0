"""The rig of the attacks on planning sessions: what gavel needs for them, a session as its user sees it, and a gavel of
an attack's own, which may be killed."""

import asyncio
import datetime
import json
import time

from attacks_kinds import Attack
from attacks_rig import ROOT, Client, NoAnswer, start_gavel

TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
BUNDLED = json.loads((ROOT / "mcp.json").read_text())["mcpServers"]
# The longest wait for a condition; the machine may be busy.
PATIENCE = 60


class Planning(Attack):
    """The base of attacks by planning sessions about acme/dates."""

    waits_for_end = must_end = True
    agents = {name: (ROOT / "agents" / f"{name}.md").read_text() for name in ("planner", "task_worker")}
    bundled = ("github",)  # the servers that are started as gavel's own mcp.json says
    settings = {}          # further settings in the environment

    def entries(self, at):
        # As the docker server's: bound to the session by the server, and repeated after a crash.
        tools = {name: {"idempotency": "key", "scope": {}} for name in ("createContainer", "executeScript")}
        docker = {"url": f"{at['world']}/docker", "timeout": 600_000, "gavel": {"trustHints": True, "tools": tools}}
        return {"docker": docker} | {name: BUNDLED[name] for name in self.bundled}

    def env(self, at, folder):
        return {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": at["world"], "GAVEL_PLANNING_SESSIONS": "1000",
                "GAVEL_PLANNING_SESSIONS_PER_USER": "100",
                "GAVEL_PLANNING_REPOSITORIES": "attack:acme/*,honest:acme/*", **self.settings}


def here(**more):
    """Arguments of a call in the repository of the session."""
    return {"owner": "acme", "repo": "dates", **more}


def done(step, quote, summary="It is done."):
    return {"is_task_complete": True, "summary": summary, "evidence": [{"observation": step, "quote": quote}]}


CONTINUES = {"is_task_complete": False, "summary": "Not done yet."}
GIVES_UP = {**CONTINUES, "give_up": "There is no way."}


def step(tool, arguments, *says, wait=0):
    return {"call": [tool, arguments], "says": list(says), "wait": wait}


def script(key, *tasks, reads=()):
    """The script of a session whose tasks have these steps. The plan names every tool that they use."""
    plan, work = [], {}
    for number, steps in enumerate(tasks, 1):
        tools = sorted({each["call"][0] for each in steps})
        plan.append({"title": f"Task {number}", "goal": f"It is task {number}. [[session {key}]]",
                     "doneWhen": "a tool shows it", "tools": tools})
        work[f"t{number}"] = steps
    return {key: {"plan": plan, "work": work, "reads": list(reads)}}


def seen(folder, *methods):
    """The requests that reached the world, those of these methods if any are named."""
    lines = (folder / "world.jsonl").read_text().splitlines()
    return [each for each in map(json.loads, lines) if each["method"] in methods or not methods]


def calls(folder, tool):
    """The calls of a tool that reached the stand-in for the docker server."""
    posts = [each for each in seen(folder, "POST") if each["path"] == "/docker"]
    bodies = [json.loads(each["body"]) for each in posts]
    return [body["params"] for body in bodies if body["method"] == "tools/call" and body["params"]["name"] == tool]


def asked(folder, key):
    """The requests to the model that a script answered."""
    kept = folder / f"asked-{key}.jsonl"
    return [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []


def results(request):
    """The results of the calls, as the model reads them."""
    parts = [part for turn in request["contents"] for part in turn["parts"]]
    return [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]


async def until(what, is_there, patience=PATIENCE, pause=0.1):
    """Waits for a condition, and returns its value."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        found = await is_there()
        if found:
            return found
        await asyncio.sleep(pause)
    raise AssertionError(f"after {patience} s it was still waited for {what}")


class Session:
    """A planning session, as its user sees it."""

    def __init__(self, client, id, user):
        # What it asks is not counted among the attacker's requests: it waits for conditions, so it asks often.
        self.client, self.id, self.user = Client(client.port, client.name), id, user

    @classmethod
    async def start(cls, client, key, user="mallory", minutes=30):
        ends = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=minutes)
        body = {"prompt": f"Accept ISO weeks. [[session {key}]]", "repoUrl": "https://github.com/acme/dates",
                "deadline": ends.isoformat()}
        answer = await client.ask("POST", "/v1/sessions", body, user=user, headers={"prefer": "respond-async"})
        if answer.status not in (201, 202):
            raise AssertionError(f"no session was started: {answer.status} {answer.body[:300]}")
        return cls(client, answer.json()["sessionId"], user)

    async def ask(self, method, rest="", body=None):
        """The answer's JSON; `None` while gavel does not answer."""
        try:
            return (await self.client.ask(method, f"/v1/sessions/{self.id}{rest}", body, user=self.user)).json()
        except NoAnswer:
            return None

    async def decide(self, session, decision):
        """Answers each approval request that the session waits for. Returns how many there are."""
        asks = [wait for wait in (session or {}).get("waitingFor") or [] if wait["kind"] == "approval"]
        for wait in asks:
            body = {"approvalId": wait["approvalId"], "decision": decision}
            body |= {"reason": "no"} if decision == "reject" else {}
            await self.client.ask("POST", "/api/agent/approvals/resolve", body, user=self.user)
        return len(asks)

    async def planned(self):
        """The session with its plan. What the planner asks for is rejected; `self.asked` counts it."""
        self.asked = 0

        async def is_there():
            session = await self.ask("GET")
            self.asked += await self.decide(session, "reject")
            return session if session and session["status"] != "PLANNING" else None
        session = await until("a plan", is_there)
        assert session["status"] == "AWAITING_CONFIRMATION", f"there is no plan: {session['statusReason']}"
        return session

    async def confirm(self):
        await self.planned()
        await self.ask("POST", "/execute", {})

    async def ended(self, decision):
        """The session at its end, with all approval requests answered by this; `self.asked` counts them."""
        self.asked = 0

        async def is_there():
            session = await self.ask("GET")
            self.asked += await self.decide(session, decision)
            return session if session and session.get("completedAt") and session.get("result") else None
        return await until("the end of the session", is_there)

    async def worked(self, decision="reject"):
        await self.confirm()
        return await self.ended(decision)


class Gavel(Client):
    """A gavel of the attack's own, beside the one that serves others: it may be killed, and starts again as it was."""

    def __init__(self, attacker, processes, attack, name):
        super().__init__(None, "mallory")
        self.binary, self.at, self.processes, self.attack = attacker.binary, attacker.at, processes, attack
        self.folder = attacker.folder / name
        self.folder.mkdir()

    async def start(self):
        self.process, self.port = start_gavel(
            self.processes, self.binary, self.folder, self.attack, self.at, self.port)

        async def serves():
            assert self.process.poll() is None, f"gavel ended: {(self.folder / 'log').read_text()[-600:]}"
            try:
                ready = (await self.ask("GET", "/readyz", timeout=5)).json()
                return ready and all(server["state"] == "up" for server in ready["mcp"])
            except NoAnswer:
                return False
        await until("gavel to serve", serves)
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()
