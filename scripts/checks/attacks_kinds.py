"""The attacks, in their order. Each is a class with its setup, its requests and its checks."""

import asyncio
import html
import itertools
import json
import re
import socket
import time
import urllib.parse

from attacks_rig import IN_TIME, Answer, NoAnswer, talk


class Attack:
    """The base of all attacks, with an empty setup."""

    seconds = 10           # how long it lasts
    waits_for_end = False  # whether it lasts until `run` returns, two minutes at most
    must_end = False       # whether it also fails if `run` has not returned by then
    log = None             # the most bytes in gavel's log
    files = None           # the most files that gavel may open, if it is not the system's
    tools = ()             # that chat messages may use, beside `lookup`
    children = {}          # stdio servers: the kind of each
    agents = {}            # agent files, by name
    threads_by = "helper"  # the agent that answers in threads
    policy = ""            # the operator's policy
    project = "attack"
    notes = ()             # printed below the row

    def __init__(self):
        self.arguments = {}  # arguments of the model's tool calls, by key
        self.servers = {}    # hostile servers over HTTP: tools, calls, stream
        self.prepare()

    def prepare(self):
        pass

    def scripts(self, at):
        """The scripts of sessions, by key; `at` has the address of the world."""
        return {}

    def entries(self, at):
        """Further entries of mcp.json."""
        return {}

    def env(self, at, folder):
        """Further settings in gavel's environment."""
        return {}

    async def run(self, attacker):
        """The attacker; cancelled at the end."""

    async def beside(self, watch):
        """Further requests of the other tenant; cancelled at the end."""

    async def check(self, watch, folder):
        """Checks before gavel is stopped. Returns the failures."""
        return []


def tool(name, schema=None, **more):
    return {"name": name, "description": "Takes what it is given.", "inputSchema": schema or {"type": "object"}, **more}


def takes(schema):
    """Arguments whose `x` has this schema."""
    return {"type": "object", "properties": {"x": schema}}


def reporter(schema):
    """An agent whose output has this schema."""
    return {
        "name": "reporter", "description": "Reports.", "approval": "never", "runConfig": {"max_turns": 3},
        "promptConfig": {"query": "${query}", "systemPrompt": "Report."},
        "outputConfig": {"outputName": "report", "description": "It.", "schema": schema},
    }


def agent(name, query="${query}", system="Do it.", **more):
    prompt = {"query": query, "systemPrompt": system}
    return {"name": name, "description": "Works.", "approval": "never", "promptConfig": prompt,
            "runConfig": {"max_turns": 3}, **more}


class SchemasListed(Attack):
    """Tools, listed repeatedly, whose schemas double by references, are circular, deep or huge."""

    name = "schemas-listed"
    tools = ("fine", "doubling_0", "circle", "chain", "output")

    def prepare(self):
        def defs(combine, levels=31, last=None):
            parts = {f"a{n}": combine({"$ref": f"#/$defs/a{n + 1}"}) for n in range(levels)}
            return {"type": "object", "properties": {"x": {"$ref": "#/$defs/a0"}},
                    "$defs": {**parts, f"a{levels}": last or {"type": "string"}}}
        all_of = defs(lambda next: {"allOf": [next, next]})
        any_of = defs(lambda next: {"anyOf": [next, next]})
        circle = defs(lambda next: next, last={"$ref": "#/$defs/a0"})
        chain = defs(lambda next: next, levels=5_000)
        wide = takes({"properties": {f"p{n}": {"type": "object", "required": [f"q{n}"]} for n in range(9_000)}})
        listed = [tool("fine"), tool("circle", circle), tool("chain", chain), tool("output", outputSchema=all_of)]
        listed += [tool(f"doubling_{n}", all_of if n % 2 else any_of) for n in range(200)]
        listed += [tool(f"wide_{n}", outputSchema=wide) for n in range(3)]
        self.servers = {"hostile": {"tools": listed, "stream": "changes"}, "again": {"tools": listed[4:]}}

    async def run(self, attacker):
        def make(number, turn):
            return attacker.chat(f"[[call {self.tools[(number + turn) % 5]} n=1]]", f"m{number}")
        await attacker.always(10, make, pause=0.05)

    async def check(self, watch, folder):
        ready = (await watch.ann.ask("GET", "/readyz")).json()
        away = {one["tool"]: one["reason"] or "" for one in ready["tools_unavailable"]}
        self.notes = [f"{name}: {away[name][:110]}" for name in self.tools if name in away]
        expected = {"doubling_0": "schemas for one value", "circle": "cycle", "chain": "allowed",
                    "output": "output schema"}
        wrong = [f"{name} is not omitted for its schema: {away.get(name)}" for name, words in expected.items()
                 if words not in away.get(name, "")]
        return wrong + (["the valid tool is unavailable"] if "fine" in away else [])


class SchemasHeavy(Attack):
    """Large values for schemas within the cost estimate, 30 calls at once, and the same as the output of agents."""

    name = "schemas-heavy"
    seconds = 15
    tools = ("unique", "union", "contains", "unevaluated", "items", "objects")

    def prepare(self):
        numbers = list(range(60_000))
        deep = 1
        for _ in range(55):
            deep = [deep, 1, 2]
        branch = {"anyOf": [{"type": "object", "required": [f"r{n}"]} for n in range(20)]}
        both = {"allOf": [branch, branch]}
        nested = {"anyOf": [{"allOf": [both, {"required": ["z"]}]} for _ in range(19)] + [both]}
        unions = {"anyOf": [{"properties": {f"p{n}": {"type": "string"}}} for n in range(90)],
                  "unevaluatedProperties": {"type": "number"}}
        prefixes = [{"prefixItems": [True] * n, "unevaluatedItems": False} for n in range(1, 60)]
        self.schemas = {
            "unique": ({"allOf": [{"uniqueItems": True}] * 300}, numbers),
            "union": ({"items": nested}, [{"r19": n} for n in range(20_000)]),
            "contains": ({"allOf": [{"contains": {"const": 59_999 - n}} for n in range(300)]}, numbers),
            "unevaluated": (unions, {f"q{n}": n for n in range(30_000)}),
            "items": ({"anyOf": prefixes}, numbers),
            "objects": ({"type": "array"}, [{"a": 1}] * 150_000),
            "twice": ({"allOf": [{"items": {"$ref": "#/properties/x"}}] * 2}, deep),
        }
        self.arguments = {name: {"x": value} for name, (_, value) in self.schemas.items()}
        self.arguments |= {f"out_{name}": {"report": {"x": value}} for name, (_, value) in self.schemas.items()}
        listed = [tool(name, takes(self.schemas[name][0])) for name in self.tools]
        self.servers = {"hostile": {"tools": listed}}

    async def run(self, attacker):
        async def chats(number, turn):
            name = self.tools[(number + turn) % len(self.tools)]
            await attacker.chat(f"[[again {name} {name}]]", f"m{number % 6}")

        async def runs(number, turn):
            name = list(self.schemas)[(number + turn) % len(self.schemas)]
            await attacker.put(f"p{number}", "reporter", reporter(takes(self.schemas[name][0])))
            message = {"query": f"[[again complete_task out_{name}]]"}
            await attacker.trigger("reporter", message, f"m{number % 6}", f"p{number}", deadline=40)
        await asyncio.gather(attacker.always(30, chats), attacker.always(6, runs))

    async def check(self, watch, folder):
        ready = (await watch.ann.ask("GET", "/readyz")).json()
        return [f"{one['tool']}: {one['reason']}" for one in ready["tools_unavailable"]]


class Patterns(Attack):
    """512 KiB of patterns in one tool list, and patterns with lookahead over 2,000 texts, 20 calls at once."""

    name = "patterns"
    tools = ("patient", "many_0", "many_16")

    def prepare(self):
        ahead = [{"pattern": f"^(?=.*[a-z])(?=.*\\d)[a-z]*{n}$"} for n in range(300)]
        patient = takes({"items": {"not": {"anyOf": ahead}}})
        many = [tool(f"many_{n}", takes({"items": {"anyOf": [
            {"pattern": f"^[a-z]{{{k % 90},{k % 90 + n}}}\\w*.{k}$" + "x" * 100} for k in range(250)]}}))
            for n in range(17)]
        self.servers = {"many": {"tools": many, "stream": "changes"}, "patient": {"tools": [tool("patient", patient)]}}
        self.arguments = {"texts": {"x": ["ab" * 100 + f"-{n}-" for n in range(2_000)]}}

    async def run(self, attacker):
        def make(number, turn):
            return attacker.chat(f"[[again {self.tools[(turn % 4) // 3]} texts]]", f"m{number}")
        await attacker.always(20, make)

    async def check(self, watch, folder):
        ready = (await watch.ann.ask("GET", "/readyz")).json()
        away = {one["tool"]: one["reason"] or "" for one in ready["tools_unavailable"]}
        self.notes = [f"{name}: {reason[:110]}" for name, reason in away.items()]
        return [] if list(away) == ["many_16"] else [f"the omitted tools are not exactly those beyond 256 KiB: {away}"]


class ServerRequests(Attack):
    """Servers that flood with requests: children over stdio, on the server's own stream, in the answer to a call."""

    name = "server-requests"
    seconds = 15
    log = 2 << 20
    tools = ("flood",)
    children = {f"child-{kind}": kind for kind in ("ping", "large-ids", "sampling", "unknown", "stderr")}

    def prepare(self):
        self.servers = {"stream": {"tools": [tool("of_stream")], "stream": "flood"},
                        "calls": {"tools": [tool("flood")], "calls": "flood"}}

    async def run(self, attacker):
        await attacker.always(10, lambda number, turn: attacker.chat("[[call flood n=1]]", f"m{number}"), pause=0.05)

    async def beside(self, watch):
        """Records which servers were down for their flood; they are reconnected after a while."""
        self.down = {}
        while True:
            ready = (await watch.ann.ask("GET", "/readyz")).json()
            self.down |= {one["server"]: one["detail"] for one in ready["mcp"] if one["state"] == "down"}
            await asyncio.sleep(0.1)

    async def check(self, watch, folder):
        self.notes = [f"{name} was down: {detail[:100]}" for name, detail in sorted(self.down.items())]
        expected = {"stream", *self.children} - {"child-stderr"}
        return [f"{name} floods and was never down" for name in expected if "sends more" not in self.down.get(name, "")]


class Bodies(Attack):
    """1,500 incomplete bodies of one user, of a known length and chunked, and connections that start with HTTP/2."""

    name = "bodies"
    seconds = 38

    async def run(self, attacker):
        half = b'{"message":"' + b"x" * (512 << 10)

        async def body(number, turn):
            await asyncio.sleep(number / 300 if turn == 0 else 0)
            is_chunked = number % 3 == 0
            more = {"transfer-encoding": "chunked"} if is_chunked else {}
            head = attacker.head("POST", "/v1/chat", headers=more, length=None if is_chunked else 1 << 20)
            pieces = [b"%x\r\n" % (1 << 20) + half] if is_chunked else [half]
            await attacker.counted(self.answered(attacker.port, head, *pieces), 35)

        async def http_2(number, turn):
            preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"
            answer = await attacker.counted(self.answered(attacker.port, preface), 5)
            if answer and answer.status != 505:
                raise ValueError(f"HTTP/2 is answered with {answer.status}")
        await asyncio.gather(attacker.always(1_500, body, pause=8), attacker.always(4, http_2, pause=0.3))

    async def answered(self, port, *pieces):
        return Answer(await talk(port, *pieces))


class Streams(Attack):
    """1,000 event streams of one user, of threads and of chats, with a slow model; the other tenant streams too."""

    name = "streams"
    seconds = 15

    async def run(self, attacker):
        async def stream(number, turn):
            await asyncio.sleep(number / 300 if turn == 0 else 0)
            words = "[[slow 6]]"
            if number % 2:
                path, body, user = "/api/agent/run/stream", {"prompt": words}, "m"
            else:
                path, body, user = "/v1/chat/stream", {"message": words, "user_id": "m"}, None
            await attacker.counted(self.last(attacker, path, body, user))
        await attacker.always(1_000, stream, pause=2)

    async def last(self, client, path, body, user):
        """The response, or the last line of a stream."""
        data = json.dumps(body).encode()
        answer = Answer(await talk(client.port, client.head("POST", path, user, length=len(data)), data))
        if answer.status != 200:
            return answer
        return f"200 … {json.loads(answer.body.splitlines()[-1])['type']}"

    async def beside(self, watch):
        def wrong(last):
            if not str(last).startswith(("200 … decision", "200 … result")):
                return f"a stream: {last if isinstance(last, str) else last.label()}"
        while True:
            for path, key in (("/v1/chat/stream", "message"), ("/api/agent/run/stream", "prompt")):
                user = {"user_id": "s"} if key == "message" else {}
                request = self.last(watch.ann, path, {key: "[[slow 1]]", **user}, "s" if not user else None)
                await watch.serve(request, wrong)


class Templates(Attack):
    """Definitions that use a 900 KB input as often as allowed, flows whose steps multiply it, 20 runs at once."""

    name = "templates"
    seconds = 15
    project = "templates"

    def prepare(self):
        self.arguments = {"text": "y" * 700_000, "printed": {"result": {"text": "y" * 700}}}

    async def run(self, attacker):
        echo = agent("echo")
        output = {"outputName": "result", "description": "It.", "schema": {"type": "object"}}
        definitions = [
            agent("often", system="${query} " * 10_000),
            agent("twice", query="${query}${query}"),
            echo,
            {"name": "grows", "description": "Grows.", "flow_type": "loop", "max_iterations": 50, "steps": [
                {"name": "first", "agent": "echo", "input": {"query": "${query}${second}"}},
                {"name": "second", "agent": "echo", "input": {"query": "${first}${first}"}}]},
            {"name": "steps", "description": "Grows.", "flow_type": "sequential", "steps": [
                {"name": f"s{n}", "agent": "twice", "input": {"query": "${query}" if n == 0 else f"${{s{n - 1}}}" * 2}}
                for n in range(12)]},
            agent("printed", outputConfig=output, processOutput="${result}" * 9_000),
        ]
        for definition in definitions:
            await attacker.put(self.project, definition["name"], definition)
        long = "z" * 900_000
        queries = {"often": long, "twice": long, "echo": long, "grows": "[[text text]]", "steps": "[[text text]]",
                   "printed": "[[call complete_task printed]]"}

        async def make(number, turn):
            name = list(queries)[(number + turn) % len(queries)]
            await attacker.trigger(name, {"query": queries[name]}, f"m{number % 5}", self.project, deadline=40)
        await attacker.always(20, make)


class Answers(Attack):
    """250 calls at once to a server that answers each with 15 MB, as JSON and as events."""

    name = "answers"
    seconds = 15
    tools = ("large",)

    def prepare(self):
        self.servers = {"hostile": {"tools": [tool("large")], "calls": "large"}}

    async def run(self, attacker):
        async def make(number, turn):
            await asyncio.sleep(number / 250 if turn == 0 else 0)
            await attacker.chat(f"[[call large n={number}]]", f"m{number % 9}")
        await attacker.always(250, make, pause=1)


class Console(Attack):
    """Calls with 1 MiB of arguments that wait for approval, and their console pages, fetched repeatedly."""

    name = "console"
    seconds = 15
    tools = ("post",)
    threads_by = "desk"
    agents = {"desk": "---\nname: desk\ndescription: Posts.\napproval: side_effects\ntools: [post]\n---\n\nPost.\n"}

    def prepare(self):
        self.servers = {"hostile": {"tools": [tool("post", {"type": "object", "properties": {
            "text": {"type": "string", "contentMediaType": "text/html"}}})]}}
        row = "<table><tr><td style='color:red'><a href='https://a.example/'>https://b.example</a><div><b>"
        self.arguments = {
            "html": {"text": row * 8_000},
            "many": {f"field_{n}": ["\u202e&<>" * 4, {"a": n}] for n in range(9_000)},
            "long": {"text": "\u200b<&\u202e" * 60_000},
            "deep": {"x": json.loads("[" * 50 + ",".join(["1"] * 60_000) + "]" * 50)},
        }

    async def run(self, attacker):
        keys = itertools.cycle(self.arguments)
        threads = []

        async def ask(number, turn):
            if turn < 7:
                message = {"prompt": f"[[call post {next(keys)}]]"}
                answer = await attacker.ask("POST", "/api/agent/run", message, user="m", deadline=30)
                threads.extend([answer.json()["threadId"]] if answer and answer.status == 200 else [])
            else:
                await asyncio.sleep(60)

        async def pages(number, turn):
            if turn % 20 == 0:
                self.cookies = await self.log_in(attacker)
            pages = ["/console/approvals", "/console/threads", "/api/agent/approvals/pending", *map(
                "/console/threads/{}".format, threads[-3:])]
            path = pages[(number + turn) % len(pages)]
            headers = {"cookie": self.cookies} if path.startswith("/console") else {}
            answer = await attacker.ask("GET", path, user="m", headers=headers, deadline=30)
            links = set(re.findall(rb"/console/approvals/[0-9a-f-]{36}", answer.body if answer else b""))
            for link in list(links)[:2]:
                await attacker.ask("GET", link.decode(), headers={"cookie": self.cookies}, deadline=30)
        await asyncio.gather(attacker.always(4, ask), attacker.always(8, pages, pause=0.02))

    async def log_in(self, attacker):
        """Exchanges the key for a cookie."""
        origin = {"origin": f"http://127.0.0.1:{attacker.port}", "sec-fetch-site": "same-origin"}
        page = await attacker.ask("GET", "/console/login")
        cookies = [value.split(";")[0] for name, value in page.headers if name == "set-cookie"]
        token = re.search(rb'name="form_token" value="([^"]+)"', page.body)[1].decode()
        secret = attacker.head("GET", "/").split(b"Bearer ")[1].split(b"\r\n")[0].decode()
        form = urllib.parse.urlencode({"form_token": html.unescape(token), "credential": secret, "user": "m"}).encode()
        headers = {"cookie": "; ".join(cookies), "content-type": "application/x-www-form-urlencoded", **origin}
        answer = await attacker.ask("POST", "/console/login", form, headers=headers)
        return "; ".join(value.split(";")[0] for name, value in answer.headers if name == "set-cookie")


class Readers(Console):
    """60 connections that request the list of waiting 1 MiB calls, and read nothing of it."""

    name = "readers"
    seconds = 20

    async def run(self, attacker):
        for _ in range(8):
            await attacker.ask("POST", "/api/agent/run", {"prompt": "[[call post many]]"}, user="m", deadline=30)
        head = attacker.head("GET", "/api/agent/approvals/pending", "m", length=None)

        async def hold(number, turn):
            await asyncio.sleep(number / 10)
            await attacker.counted(held(attacker.port, head, attacker), 100)
        await attacker.always(60, hold)


async def held(port, head, attacker):
    """Sends a request and reads nothing until gavel closes the connection or is stopped."""
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.setblocking(False)
        await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", port))
        await asyncio.get_running_loop().sock_sendall(peer, head)
        while not attacker.stopping:
            await asyncio.sleep(0.5)
    return "held"


class Definitions(Attack):
    """Definitions in nasty YAML and JSON: aliases, deep, 1 MiB of small values, 100,000 placeholders; 8 at once."""

    name = "definitions"

    def prepare(self):
        begin = "name: nasty\ndescription: Nasty.\nsystemPrompt: It.\n"
        laughs = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))
        placeholders = "${query} " * 100_000
        schema = "outputConfig: {outputName: o, description: d, schema: "
        steps = [{"name": f"s{n}", "agent": "nasty", "input": {"query": "${query}"}} for n in range(500)]
        inputs = {f"i{n}": {"description": "d", "type": "string"} for n in range(512)}
        named = " ".join(f"${{i{n}}}" for n in range(512)) * 19
        self.bodies = [
            ("application/yaml", begin + laughs),
            ("application/yaml", begin + "x: &x [1]\ny: [" + "*x," * 300_000 + "]\n"),
            ("application/yaml", begin + "x: " + "[" * 500_000),
            ("application/yaml", begin + "x: " + "{a: " * 200_000),
            ("application/yaml", begin + "".join(f"{' ' * n}- \n{' ' * n}  -\n" for n in range(900))),
            ("application/yaml", begin + "x: [" + "1," * 500_000 + "]\n"),
            ("application/yaml", begin + "tools: [" + "t," * 500_000 + "]\n"),
            ("application/yaml", begin + "? " * 400_000),
            ("application/yaml", begin + "\n" * 900_000),
            ("application/yaml", begin + "- &a !!t |\n" * 80_000),
            ("application/yaml", begin + f"query: \"{placeholders}\"\n"),
            ("application/yaml", begin + schema + "{allOf: [" + "{items: " * 9_000 + "{}" + "}" * 9_000 + "]}}\n"),
            ("application/json", json.dumps(agent("nasty", query=placeholders))),
            ("application/json", json.dumps({**agent("nasty", query=named), "inputConfig": {"inputs": inputs}})),
            ("application/json", json.dumps({"name": "nasty", "description": "d", "steps": steps})),
            ("application/json", "[" * 1_000_000),
            ("application/json", json.dumps(agent("nasty", tools=["*"] * 512, unknown=[{}] * 200_000))),
            ("text/markdown", "---\n" + begin.replace("systemPrompt: It.\n", "") + "---\n" + "${quer} " * 120_000),
            ("application/x-protobuf", b"\x0a\x05nasty" + b"\x52\x02\x0a\x00" * 250_000),
        ]

    async def run(self, attacker):
        bodies = itertools.cycle(self.bodies)

        async def make(number, turn):
            kind, body = next(bodies)
            body = body if isinstance(body, bytes) else body.encode()
            await attacker.put(f"p{number}", "nasty", body[:(1 << 20) - 1], kind)
        await attacker.always(8, make)


class Policy(Attack):
    """A policy whose conditions take almost the maximum number of steps, calls with large arguments, 30 at once."""

    name = "policy"
    tools = ("refund", "wide", "texts")
    policy = "rules:\n" + "".join(
        f"- {{name: r{n}, tools: [{tool}], when: {json.dumps(when)}, then: deny, reason: it is so}}\n"
        for n, (tool, when) in enumerate(
            [("refund", "arguments.x.exists(a, arguments.x.exists(b, a + b < 0))")]
            + [("wide", f"arguments.x.exists(a, a < 0 || a == -{n})") for n in range(3)]
            + [("texts", f"arguments.x.exists(t, t.matches('[xy]*{n}x[xy]{{12}}z'))") for n in range(2)]))

    def prepare(self):
        self.servers = {"hostile": {"tools": [tool(name) for name in self.tools]}}
        self.arguments = {f"refund_{n}": {"x": list(range(n))} for n in (100, 280, 400, 2_000)}
        self.arguments |= {f"wide_{n}": {"x": list(range(n))} for n in (3_000, 16_000, 30_000, 200_000)}
        self.arguments |= {f"texts_{n}": {"x": ["xy" * 100] * n} for n in (100, 500, 2_000, 5_000)}

    async def run(self, attacker):
        keys = list(self.arguments)

        async def make(number, turn):
            key = keys[(number + turn) % len(keys)]
            await attacker.chat(f"[[again {key.split('_')[0]} {key}]]", f"m{number % 6}")
        await attacker.always(30, make)


class Labels(Attack):
    """20,000 requests that vary possible metric labels: models, tools, users, agents, paths, methods."""

    name = "labels"
    waits_for_end = True

    async def run(self, attacker):
        numbers = iter(range(20_000))

        async def plain(number):
            method = f"M{number}" if number % 2 else ["GET", "PUT", "DELETE", "PATCH"][number // 2 % 4]
            path = [f"/v1/x{number}", f"/v{number}/chat", f"/api/runs/r{number}", f"/console/threads/t{number}",
                    f"/api/projects/p{number}/agents/a{number}"][number % 5]
            await attacker.ask(method, path, user=f"u{number}")

        async def one(number):
            if number % 50 == 1:
                model = {"modelConfig": {"model": f"model-{number}"}}
                await attacker.put("models", f"a{number % 800}", agent(f"a{number % 800}", **model))
                await attacker.trigger(f"a{number % 800}", {"query": "Go."}, f"u{number}", "models")
            elif number % 20 == 2:
                await attacker.chat(f"[[call tool_{number} n={number}]]", f"u{number}")
            else:
                await plain(number)

        async def worker():
            for number in numbers:
                await one(number)
        await asyncio.gather(*(worker() for _ in range(16)))

    async def check(self, watch, folder):
        answer = await watch.ann.ask("GET", "/metrics")
        names = len(re.findall(rb'model="([^"]+)"', answer.body))
        self.notes = [f"/metrics: {len(answer.body) / 1024:.0f} KiB, {answer.body.count(b'model=')} lines with a model"]
        return [] if len(answer.body) < 1 << 20 and names < 5_000 else ["/metrics is too large"]


class Background(Attack):
    """300 slow background runs of one tenant; a run of the other tenant ends soon after its model has answered."""

    name = "background"
    seconds = 20

    async def run(self, attacker):
        begun = iter(range(300))

        async def one():
            for number in begun:
                await attacker.trigger("helper", {"query": "[[slow 5]]"}, f"m{number % 3}", headers={
                    "prefer": "respond-async"})
        await asyncio.gather(*(one() for _ in range(8)))
        await asyncio.sleep(600)

    async def beside(self, watch):
        longest = 0
        while True:
            begun = time.monotonic()
            is_late = lambda took: f"a background run took {took:.1f} s" if took > 6 else None  # noqa: E731
            await watch.serve(self.done(watch.ann), is_late)
            longest = max(longest, time.monotonic() - begun)
            self.notes = [f"the other tenant's background runs, of 1 s of the model: longest {longest:.1f} s"]

    async def done(self, ann):
        """The duration of a background run."""
        begun = time.monotonic()
        run = await ann.trigger("helper", {"query": "[[slow 1]]"}, "b", headers={"prefer": "respond-async"})
        if run.status != 202:
            raise NoAnswer(run.label())
        while time.monotonic() - begun < IN_TIME:
            await asyncio.sleep(0.1)
            now = (await ann.ask("GET", f"/api/runs/{run.json()['id']}", user="b")).json() or {}
            if now.get("status") not in ("queued", "running"):
                break
        if now.get("status") != "completed":
            raise NoAnswer(f"a background run: {now}")
        return time.monotonic() - begun


FLOODS = [SchemasListed, SchemasHeavy, Patterns, ServerRequests, Bodies, Streams, Templates, Answers, Console, Readers,
       Definitions, Policy, Labels, Background]
