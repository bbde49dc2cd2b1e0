"""What survives a crash: gavels of the attack's own are killed (kill -9) at chosen moments and started again."""

import asyncio
import json
import time

from attacks_planning import (
    CONTINUES, Gavel, Planning, Session, asked, calls, done, here, script, seen, step, until)
from attacks_rig import Processes

LEASE = {"GAVEL_RUNS_LEASE_SECONDS": "1"}


class Crash(Planning):
    """The base: one gavel of the attack's own, whose leases expire soon."""

    settings = LEASE

    async def run(self, attacker):
        with Processes() as processes:
            gavel = await Gavel(attacker, processes, self, "own").start()
            await self.crash(attacker, gavel)

    async def again(self, gavel):
        gavel.kill()
        await gavel.start()


class Progress(Crash):
    """A session is killed twice in each of its five steps, without progress in between; it completes all the same."""

    name = "crash-progress"
    STEPS = 5

    def scripts(self, at):
        # The same call again and again would be a doom loop.
        paths = (["README.md", "src/lib.rs"] * self.STEPS)[:self.STEPS - 1]
        reads = [step("getFileContents", here(path=path), CONTINUES, wait=0.7) for path in paths]
        shown = done(self.STEPS, "https://github.com/acme/dates/issues")
        issue = step("createIssue", here(title="Weeks are missing in dates"), shown, wait=0.7)
        return script("progress", reads + [issue])

    async def crash(self, attacker, gavel):
        session = await Session.start(gavel, "progress")
        await session.confirm()
        kills = 0
        for number in range(2 * self.STEPS):
            async def is_asked():
                calls_of_step = [made for made in acts(attacker.folder, "progress") if made == number // 2]
                return len(calls_of_step) > number % 2 or ((await session.ask("GET")) or {}).get("completedAt")
            await until(f"call {number // 2 + 1}", is_asked)
            if (await session.ask("GET"))["completedAt"]:
                break
            await self.again(gavel)
            kills += 1
        ended = await session.ended("reject")
        attacker.notes.append(f"{kills} kills, two in each step")
        status, why = ended["status"], ended["statusReason"]
        attacker.holds(status == "COMPLETED", f"after {kills} kills, two in each step: {status}: {why}")
        made = [one for one in seen(attacker.folder, "POST") if one["path"] == "/repos/acme/dates/issues"]
        attacker.holds(len(made) == 1, f"{len(made)} issues were made, not one")


def acts(folder, key):
    """For each request to the model for the call of a step: how many steps had been made."""
    made = []
    for request in asked(folder, key):
        config = request.get("toolConfig", {}).get("functionCallingConfig", {})
        if config.get("mode") == "ANY" and config["allowedFunctionNames"] != ["reflect"]:
            parts = [part for turn in request["contents"] for part in turn["parts"]]
            names = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
            made.append(sum(name != "reflect" for name in names))
    return made


class Lost(Crash):
    """A session is lost for good in a call: its cleanup is done, its result is truthful, nothing executes for ever."""

    name = "crash-lost"
    TASKS = [[step("createContainer", {"options": {"image": "localhost/build"}}, CONTINUES),
              step("executeScript", {"containerId": "container-1", "script": "hangs"}, CONTINUES)]]

    def scripts(self, at):
        return script("lost", *self.TASKS)

    async def crash(self, attacker, gavel):
        session = await Session.start(gavel, "lost")
        await session.confirm()
        kills = 0
        while kills < 8 and await hangs(session, attacker.folder, kills):
            kills += 1
            await self.again(gavel)
        ended = await session.ended("reject")
        # The first one of them may count as the loss of a process that had made progress.
        is_few = 3 <= kills <= 4
        attacker.holds(is_few, f"the session ended after {kills} losses without progress: {ended['statusReason']}")
        cleaned = calls(attacker.folder, "cleanupGroupContainers")
        cleanup = ended["result"]["cleanup"]
        told = json.dumps(cleanup)
        attacker.holds(cleaned, f"nothing was cleaned up, and the result says {told}")
        attacker.holds("container-1" in told, f"the result says nothing of the container: {told}")
        log = (await session.ask("GET", "/log"))["actions"]
        open_ = [one["tool"] for one in log if one["status"] == "executing"]
        attacker.holds(not open_, f"the log says of a session that has ended: executing {open_}")


async def hangs(session, folder, before=0):
    """Waits for one more call that hangs than before. Returns whether there is one, and not the session's end."""
    async def is_there():
        told = await session.ask("GET")
        await session.decide(told, "approve_once")
        return "call" if len(calls(folder, "executeScript")) > before else told and told["completedAt"]
    return await until("the call", is_there) == "call"


class Cancelled(Planning):
    """A session is cancelled in a call: its result appears once its cleanup has ended, and names the container."""

    name = "cancelled"

    def scripts(self, at):
        return script("cancelled", *Lost.TASKS)

    async def run(self, attacker):
        session = await Session.start(attacker, "cancelled")
        await session.confirm()
        await hangs(session, attacker.folder)
        cancelling = asyncio.ensure_future(session.ask("POST", "/cancel", {"reason": "not today"}))

        async def has_result():
            told = await session.ask("GET")
            return told if told["result"] else None
        ended = await until("the result", has_result, pause=0.01)
        await cancelling
        cleanup = ended["result"]["cleanup"]
        attacker.holds("container-1" in json.dumps(cleanup), f"the first result says of the cleanup: {cleanup}")


class CleanupCut(Crash):
    """The process is lost during the cleanup: the next one does it, or the result says what may be left."""

    name = "crash-cleanup"

    def scripts(self, at):
        return script("cut", *Lost.TASKS)

    async def crash(self, attacker, gavel):
        session = await Session.start(gavel, "cut")
        await session.confirm()
        await hangs(session, attacker.folder)
        cancelling = asyncio.ensure_future(session.ask("POST", "/cancel", {"reason": "not today"}))

        async def cleans():
            return calls(attacker.folder, "cleanupGroupContainers")
        await until("the cleanup", cleans)
        await self.again(gavel)
        ended = await session.ended("reject")
        await cancelling
        times, told = len(await cleans()), ended["result"]["cleanup"]
        attacker.notes.append(f"the cleanup was tried {times} times; the result says {told}")
        attacker.holds(times == 2 or told["left"], "a cleanup that was cut short left nothing, says the result")


class TimeLimit(Crash):
    """A run with a time limit of 8 s is killed after 6 s of work: 8 s of work in all, not 14."""

    name = "crash-time"
    LIMIT, KILL = 8, 6
    agents = {"slow": f"---\nname: slow\ndescription: Is slow.\napproval: never\ntools: [listContainers]\n"
              f"default_timeout: {LIMIT}\n---\n\nWork.\n"}

    def scripts(self, at):
        # One long turn, after which there is nothing to tell how long it took.
        return {"slow": {"reads": [["listContainers", {}, 600]]}}

    async def crash(self, attacker, gavel):
        begun = await gavel.trigger("slow", {"query": "[[session slow]]"}, "m", headers={"prefer": "respond-async"})
        id = begun.json()["id"]
        requests = lambda: len(asked(attacker.folder, "slow"))  # noqa: E731

        async def works():
            return requests() > 0
        await until("the run to begin", works)
        first = time.monotonic()
        await asyncio.sleep(self.KILL)
        before, worked = requests(), time.monotonic() - first
        await self.again(gavel)

        async def works_again():
            return requests() > before
        await until("the run to be taken up", works_again)
        second = time.monotonic()

        async def is_limited():
            run = (await gavel.ask("GET", f"/api/runs/{id}", user="m")).json()
            # Then the model is asked once more, for a summary.
            return requests() > before + 1 or run["status"] not in ("queued", "running")
        await until("the limit of the run", is_limited)
        worked += time.monotonic() - second
        attacker.notes.append(f"until its limit of {self.LIMIT} s it worked {worked:.1f} s")
        is_kept = worked < self.LIMIT + 3
        attacker.holds(is_kept, f"a run with a limit of {self.LIMIT} s worked {worked:.1f} s over a crash")


CRASHES = [Progress, Lost, Cancelled, CleanupCut, TimeLimit]
