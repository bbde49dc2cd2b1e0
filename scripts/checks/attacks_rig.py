"""Shared parts of the attacks: an HTTP client, processes, the checks of gavel during an attack, the attacker's tally."""

import asyncio
import collections
import hashlib
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
# Gavel's drain time. After it, interrupted answers and connections take up to 5 s each.
DRAIN = 3
AFTER_DRAIN = 10
# The longest chat, from the constitution below.
CHAT_SECONDS = 12
# The longest time of an answer that counts as in time; the machine may be busy.
IN_TIME = CHAT_SECONDS + 8
KEYS = {"mallory": ("attack", ["operator", "approver"]), "ann": ("honest", [])}


def key(name):
    return f"{name}-key-0123456789abcdef0123456789abcdef"


class NoAnswer(Exception):
    pass


class Answer:
    def __init__(self, raw):
        head, _, body = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        if not lines[0].startswith("HTTP/1.1 ") or b"\r\n\r\n" not in raw:
            raise NoAnswer("cut off" if raw else "closed")
        self.status = int(lines[0].split()[1])
        self.headers = [tuple(line.lower().split(": ", 1)[:1]) + (line.split(": ", 1)[1],) for line in lines[1:]
                        if ": " in line]
        if ("transfer-encoding", "chunked") in self.headers:
            body = unchunked(body)
        self.body = body

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    def label(self):
        """A short summary: the status, and the code, outcome or state that explains it."""
        body = self.json()
        if not isinstance(body, dict):
            return str(self.status)
        words = [self.status]
        if "runId" in body or "stop_reason" in body:
            words += ["run", body.get("state") or body["status"], body.get("stop_reason")]
            words += sorted({action.get("errorCode") or "" for action in body.get("actions") or []})
        elif "outcome_category" in body:
            errors = [call["result"]["error"] for call in body["tool_calls"] if call["result"]]
            words += [body["outcome_category"], *sorted({error["code"] for error in errors if error})]
        else:
            words.append(body.get("code"))
        return " ".join(str(word) for word in words if word)


def unchunked(raw):
    body, at = [], 0
    while at < len(raw):
        end = raw.find(b"\r\n", at)
        size = int(raw[at:end], 16) if end > at else 0
        if size == 0:
            break
        body.append(raw[end + 2:end + 2 + size])
        at = end + 4 + size
    return b"".join(body)


async def talk(port, *pieces, pause=0, until=None):
    """Sends the pieces over a new connection and returns everything received until it is closed.

    It reads while it sends, because a request may be refused before it is complete. `until` may end it earlier.
    """
    loop = asyncio.get_running_loop()
    peer = socket.socket()
    peer.setblocking(False)
    sending = None
    answer = bytearray()
    try:
        await loop.sock_connect(peer, ("127.0.0.1", port))

        async def send():
            for n, piece in enumerate(pieces):
                if n and pause:
                    await asyncio.sleep(pause)
                await loop.sock_sendall(peer, piece)

        sending = asyncio.ensure_future(send())
        while True:
            read = await loop.sock_recv(peer, 1 << 18)
            answer += read
            if not read or until and until(answer):
                return bytes(answer)
    except OSError as error:
        if answer:
            return bytes(answer)
        raise NoAnswer(type(error).__name__) from error
    finally:
        if sending:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        peer.close()


def request_head(port, method, path, headers, length):
    lines = [f"{method} {path} HTTP/1.1", f"host: 127.0.0.1:{port}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if length is not None:
        lines.append(f"content-length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Client:
    """Sends requests as the holder of one key."""

    def __init__(self, port, name):
        self.port, self.name = port, name

    def head(self, method, path, user=None, headers=None, length=0):
        given = {"authorization": f"Bearer {key(self.name)}", "content-type": "application/json"}
        given.update({"x-gavel-user": user} if user else {})
        given.update(headers or {})
        return request_head(self.port, method, path, given, length)

    async def ask(self, method, path, data=None, *, user=None, headers=None, timeout=IN_TIME):
        body = data if isinstance(data, bytes) else b"" if data is None else json.dumps(data).encode()
        head = self.head(method, path, user, headers, len(body))
        try:
            return Answer(await asyncio.wait_for(talk(self.port, head, body), timeout))
        except asyncio.TimeoutError:
            raise NoAnswer("timeout") from None

    async def chat(self, message, user, **more):
        return await self.ask("POST", "/v1/chat", {"message": message, "user_id": user}, **more)

    async def trigger(self, agent, inputs, user, project="default", **more):
        return await self.ask("POST", f"/api/projects/{project}/agents/{agent}/trigger", inputs, user=user, **more)

    async def put(self, project, agent, definition, kind="application/json"):
        data = definition if isinstance(definition, bytes) else json.dumps(definition).encode()
        return await self.ask("PUT", f"/api/projects/{project}/agents/{agent}", data, headers={"content-type": kind})


class Attacker(Client):
    """An attack's own requests, each with a deadline, counted by their answers; and what the attack found."""

    def __init__(self, port, binary, folder):
        super().__init__(port, "mallory")
        self.binary, self.folder = binary, folder
        self.at = json.loads((folder / "at.json").read_text())  # the addresses of the stand-ins
        self.wrong, self.notes = [], []
        self.answers, self.late = collections.Counter(), collections.Counter()
        self.longest, self.at_stop, self.stopping = 0, 0, False

    async def counted(self, request, deadline=IN_TIME):
        """Waits for an answer and returns it, or `None` if there is none."""
        begun = time.monotonic()
        answer = None
        try:
            answer = await asyncio.wait_for(request, deadline + 10)
            label = answer.label() if isinstance(answer, Answer) else answer
        except (NoAnswer, asyncio.TimeoutError) as error:
            label = f"NONE {error or 'timeout'}"
        took = time.monotonic() - begun
        if self.stopping:
            # A request in progress at the shutdown may be cut off, and a later one is refused.
            self.at_stop += 1
            await asyncio.sleep(0.2)
            return answer
        self.answers[label] += 1
        self.longest = max(self.longest, took)
        if took > deadline:
            self.late[label] += 1
        return answer

    async def ask(self, method, path, data=None, *, deadline=IN_TIME, **more):
        return await self.counted(super().ask(method, path, data, timeout=deadline + 10, **more), deadline)

    async def always(self, count, make, pause=0.0):
        """Runs this many workers, each with its number, which repeat the same until the attack ends."""
        async def worker(number):
            turn = 0
            while True:
                await make(number, turn)
                turn += 1
                await asyncio.sleep(pause)
        await asyncio.gather(*(worker(number) for number in range(count)))

    def holds(self, is_so, otherwise):
        """Counts a condition that holds, or notes what happened otherwise."""
        self.answers.update({"held": 1} if is_so else {})
        self.wrong += [] if is_so else [otherwise]

    def tally(self):
        return {"answers": dict(self.answers.most_common()), "late": dict(self.late), "longest": self.longest,
                "at_stop": self.at_stop, "wrong": self.wrong, "notes": self.notes}


async def be_attacker(attack, port, binary, folder):
    """Runs an attack until standard input ends, and prints its tally. An input line means that gavel is being stopped."""
    os.nice(5)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    attacker = Attacker(port, pathlib.Path(binary), pathlib.Path(folder))
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    attacking = asyncio.ensure_future(attack.run(attacker))
    attacking.add_done_callback(lambda task: print(json.dumps({"done": failure(task)}), flush=True))
    while await lines.readline():
        attacker.stopping = True
    attacking.cancel()
    await asyncio.gather(attacking, return_exceptions=True)
    print(json.dumps(attacker.tally()), flush=True)


def failure(task):
    error = None if task.cancelled() else task.exception()
    return f"{type(error).__name__}: {error}" if error else None


class Processes:
    """Processes that are always ended, each by its id."""

    def __init__(self):
        self.all = []

    def start(self, command, **more):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, **more)
        self.all.append(process)
        return process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.all):
            process.stdin.close()
            if process.poll() is None:
                process.kill()
            process.wait()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def auth_keys():
    return json.dumps([{"name": name, "sha256": hashlib.sha256(key(name).encode()).hexdigest(), "tenant": tenant,
                        "roles": roles} for name, (tenant, roles) in KEYS.items()])


CONSTITUTION = """---
name: tester
description: Calls tools.
tools: {tools}
approval: never
run_config: {{max_turns: 3, deadline_seconds: {seconds}}}
---

Call the tools.
"""
HELPER = "---\nname: helper\ndescription: Helps.\napproval: never\ntools: [lookup]\nmax_turns: 3\n---\n\nHelp.\n"


def start_gavel(processes, binary, folder, attack, at, port=None):
    """Starts the release build with its folder's database, the honest server, and the servers of the attack.

    `at` has the addresses of the stand-ins. With a port it is one that ran there before.
    """
    port = port or free_port()
    servers = {"honest": {"url": f"{at['model']}/honest", "gavel": {"tools": {"lookup": {"sideEffect": False}}}}}
    for name in attack.servers:
        settings = {tool: {"sideEffect": False} for tool in attack.tools if tool != "post"}
        servers[name] = {"url": f"{at['hostile']}/{name}", "gavel": {"tools": settings, "maxConcurrent": 1000}}
    for name, kind in attack.children.items():
        servers[name] = {"command": sys.executable, "args": [str(HERE / "attacks_servers.py"), "child", kind]}
    servers |= attack.entries(at)
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    text = CONSTITUTION.format(tools=json.dumps(["lookup", *attack.tools]), seconds=CHAT_SECONDS)
    (folder / "constitution.md").write_text(text)
    (folder / "agents").mkdir(exist_ok=True)
    for name, definition in {"helper": HELPER, **attack.agents}.items():
        (folder / "agents" / f"{name}.md").write_text(definition)
    env = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "GAVEL_LISTEN": f"127.0.0.1:{port}", "GEMINI_API_KEY": "x",
        "GEMINI_MODEL": "scripted", "GEMINI_BASE_URL": at["model"], "DATABASE_URL": f"sqlite://{folder}/gavel.db",
        "GAVEL_MCP_CONFIG": str(folder / "mcp.json"), "GAVEL_CONSTITUTION": str(folder / "constitution.md"),
        "GAVEL_AUTH_MODE": "api_key", "GAVEL_AUTH_KEYS": auth_keys(), "GAVEL_DRAIN_SECONDS": str(DRAIN),
        "GAVEL_RUNS_AGENT": attack.threads_by, "GAVEL_AGENTS": str(folder / "agents"),
        # The attacks test the limits behind the rate limit.
        "GAVEL_RATE_LIMIT_PER_MINUTE": "1000000", "GAVEL_RATE_LIMIT_BURST": "1000000", **attack.env(at, folder),
    }
    if attack.policy:
        (folder / "policy.yaml").write_text(attack.policy)
        env["GAVEL_POLICY"] = str(folder / "policy.yaml")
    limited = ["prlimit", f"--nofile={attack.files}"] if attack.files else []
    with (folder / "log").open("ab") as log:
        return processes.start([*limited, str(binary), "serve"], cwd=folder, env=env, stdout=log, stderr=log), port


class Watch:
    """Checks gavel during an attack: `/livez`, its memory, and the chats of another tenant."""

    def __init__(self, process, port):
        self.process, self.port = process, port
        self.ann = Client(port, "ann")
        self.livez, self.memory = 0.0, 0.0
        self.served, self.failed, self.longest = 0, 0, 0.0
        self.problems = []
        self.under_way = set()

    def tell(self, problem):
        if len(self.problems) < 5:
            self.problems.append(problem)

    def every(self, seconds, look):
        """Starts a check each time, even if the previous one has not ended."""
        async def loop():
            for number in range(1_000_000):
                task = asyncio.ensure_future(look(number))
                self.under_way.add(task)
                task.add_done_callback(self.ended)
                await asyncio.sleep(seconds)
        return asyncio.ensure_future(loop())

    def ended(self, task):
        self.under_way.discard(task)
        if not task.cancelled() and task.exception():
            self.tell(f"a check failed: {failure(task)}")

    async def finish(self, *loops):
        for loop in loops:
            loop.cancel()
        if self.under_way:
            await asyncio.wait(set(self.under_way), timeout=IN_TIME + 5)

    async def look(self, _):
        self.read_memory()
        begun = time.monotonic()
        head = request_head(self.port, "GET", "/livez", {}, None)
        try:
            status = Answer(await asyncio.wait_for(talk(self.port, head), 5)).status
        except (NoAnswer, asyncio.TimeoutError) as error:
            status = f"no answer {error}"
        took = time.monotonic() - begun
        self.livez = max(self.livez, took)
        if status != 200 or took > 1:
            self.tell(f"/livez: {status} after {took:.1f} s")

    def read_memory(self):
        try:
            lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        except OSError:
            return
        peak = [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")]
        self.memory = max(peak, default=self.memory)

    async def chat(self, number):
        """One message of the other tenant, with one call to the honest server."""
        answer = self.ann.chat(f"[[call lookup n={1_000_000 + number}]]", f"u{number % 7}")

        def wrong(answer):
            body = answer.json() or {}
            calls = body.get("tool_calls") or []
            if answer.status != 200 or body.get("outcome_category") != "SUCCESS:TASK_COMPLETED" or len(calls) != 1:
                return f"a chat: {answer.label()}: {answer.body[:300]}"
            if str(1_000_000 + number) not in json.dumps(calls[0]["result"]["data"]):
                return f"a chat: another result: {answer.body[:300]}"
        await self.serve(answer, wrong)

    async def serve(self, request, wrong):
        """Counts a request of the other tenant; `wrong` returns the problem with its answer."""
        begun = time.monotonic()
        try:
            problem = wrong(await request)
        except NoAnswer as error:
            problem = f"another tenant got no answer: {error}"
        self.longest = max(self.longest, time.monotonic() - begun)
        self.served += not problem
        self.failed += bool(problem)
        if problem:
            self.tell(problem)


def ends_by_sigterm(process):
    """Sends SIGTERM. Returns the seconds until the end, and the exit status or `None` if the process did not end."""
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(DRAIN + AFTER_DRAIN + 20)
    except subprocess.TimeoutExpired:
        pass
    return time.monotonic() - begun, process.returncode
