"""The stand-ins of the attacks: a scripted Gemini with the honest MCP server, hostile servers and children.

    attacks_servers.py model DIRECTORY      Gemini, and the honest server at /honest
    attacks_servers.py hostile DIRECTORY    one server for each entry of DIRECTORY/servers.json, at /NAME
    attacks_servers.py child KIND           a server over stdio that floods with requests of a kind

The first two print their port and end with their standard input. The model follows the last command in double brackets
in a request, until a function response follows it:

    [[call TOOL KEY]]      calls the tool once; KEY names arguments in DIRECTORY/arguments.json, or is n=NUMBER
    [[again TOOL KEY]]     calls it in every turn
    [[text KEY]]           answers that text
    [[slow SECONDS]]       answers after this time
    [[session KEY]]        follows a script, see Script

It only searches for these commands and parses nothing but the requests of scripts, so that an attacker's requests do
not slow it down for others.
"""

import asyncio
import json
import os
import pathlib
import re
import sys
import threading

ASKED = re.compile(rb"\[\[(\w+) ([^\]\s]+)(?: ([^\]\s]+))?\]\]")
LARGE = b"x" * (15 << 20)
PIECE = 1 << 16
PING = '{"jsonrpc":"2.0","id":%s,"method":"ping"}'
FLOODS = {
    "ping": PING % 1,
    "large-ids": PING % json.dumps("i" * 20_000),
    "sampling": json.dumps({"jsonrpc": "2.0", "id": "s" * 900, "method": "sampling/createMessage", "params": {}}),
    "unknown": json.dumps({"jsonrpc": "2.0", "id": 7, "method": "x/y"}),
    "stderr": None,
}


async def requests(reader):
    """Each request of a connection: its method, path, body and head."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        method, path = head.split(b" ", 2)[:2]
        yield method.decode(), path.decode(), body, head


def http(body, kind="application/json", status="200 OK", more=""):
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{more}content-length: {len(body)}\r\n\r\n".encode() + body


def candidate(*parts, finish="STOP"):
    one = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    one.update({"finishReason": finish} if finish else {})
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}
    return json.dumps({"candidates": [one], "usageMetadata": usage, "modelVersion": "scripted"}).encode()


class Script:
    """A model without a memory, which reads in each request how far its script is. DIRECTORY/arguments.json has it:

      reads   the calls of the first turns, each a tool and its arguments, and possibly the seconds before it
      plan    the tasks that are then handed in; without them the run ends
      work    the steps of each task: `call`, `says` (its reflections, in order), `wait` (seconds before the call)

    Each request is kept, as a line of DIRECTORY/asked-KEY.jsonl.
    """

    def __init__(self, script, body, kept):
        with kept.open("ab") as lines:
            lines.write(body + b"\n")
        self.script, self.request = script, json.loads(body)
        parts = [part for turn in self.request["contents"] if turn["role"] == "model" for part in turn["parts"]]
        self.called = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        self.acts = [at for at, name in enumerate(self.called) if name != "reflect"]

    def reply(self):
        """The seconds after which it is given, and the part."""
        asked = self.request.get("toolConfig", {}).get("functionCallingConfig", {})
        task = re.search(r"Your task is (t\d+)", json.dumps(self.request["contents"][0]))
        if not task:
            return self.opening()
        steps = self.script["work"][task[1]]
        if asked["mode"] == "NONE":
            return 0, {"text": "This comes next."}
        if asked["allowedFunctionNames"] == ["reflect"]:
            says = steps[len(self.acts) - 1]["says"]
            return 0, call("reflect", says[min(len(self.called) - self.acts[-1], len(says)) - 1])
        step = steps[min(len(self.acts), len(steps) - 1)]
        return step.get("wait", 0), call(*step["call"])

    def opening(self):
        reads = self.script.get("reads", [])
        if len(self.called) < len(reads):
            name, arguments, *wait = reads[len(self.called)]
            return sum(wait), call(name, arguments)
        if "plan" not in self.script:
            return 0, {"text": "Done."}
        return 0, call("complete_task", {"plan": {"summary": "In short.", "tasks": self.script["plan"]}})


def call(name, arguments):
    return {"functionCall": {"name": name, "args": arguments}}


class Model:
    def __init__(self, folder):
        self.folder = folder
        self.arguments = json.loads((folder / "arguments.json").read_text())
        self.made = {}

    def call(self, name, key):
        if (name, key) not in self.made:
            arguments = {"n": int(key[2:])} if key.startswith("n=") else self.arguments[key]
            reply = candidate(call(name, arguments))
            if key.startswith("n="):
                return reply
            self.made[name, key] = reply
        return self.made[name, key]

    async def answer(self, path, body, writer):
        streamed = ":stream" in path
        last = max(body.rfind(b"[[" + verb) for verb in (b"call ", b"again ", b"text ", b"slow ", b"session "))
        found = ASKED.match(body, last) if last >= 0 else None
        verb, first, second = (part and part.decode() for part in found.groups()) if found else ("", "", "")
        answered = found and body.find(b'"functionResponse"', found.end()) >= 0
        if verb == "slow":
            return await self.slow(float(first), streamed, writer)
        if verb == "session":
            script = Script(self.arguments[first], body, self.folder / f"asked-{first}.jsonl")
            seconds, part = script.reply()
            await asyncio.sleep(seconds)
            reply = candidate(part)
        elif verb == "again" or verb == "call" and not answered:
            reply = self.call(first, second)
        else:
            reply = candidate({"text": self.arguments[first] if verb == "text" else "Done."})
        event = b"data: " + reply + b"\r\n\r\n"
        writer.write(http(event, "text/event-stream") if streamed else http(reply))

    async def slow(self, seconds, streamed, writer):
        if not streamed:
            await asyncio.sleep(seconds)
            writer.write(http(candidate({"text": "Done."})))
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        pieces = max(1, int(seconds / 0.5))
        for number in range(pieces):
            await asyncio.sleep(seconds / pieces)
            last = number + 1 == pieces
            event = b"data: " + candidate({"text": "word "}, finish="STOP" if last else None) + b"\r\n\r\n"
            writer.write(b"%x\r\n%s\r\n" % (len(event), event) + (b"0\r\n\r\n" if last else b""))
            await writer.drain()


class Server:
    """An MCP server over streamable HTTP. `calls` is how calls are answered, `stream` the content of its own stream."""

    def __init__(self, tools, calls="echo", stream=None):
        self.tools = json.dumps({"tools": tools}).encode()
        self.calls, self.stream = calls, stream

    async def answer(self, method, body, writer):
        if method == "GET" and self.stream:
            return await self.tell(writer)
        if method != "POST":
            writer.write(http(b"", status="405 Method Not Allowed"))
            return
        message = json.loads(body)
        called = message.get("method", "")
        number = json.dumps(message.get("id")).encode()
        session = "mcp-session-id: one\r\n" if self.stream else ""
        start = b'{"jsonrpc":"2.0","id":' + number + b',"result":'
        if called == "initialize":
            about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}},
                     "serverInfo": {"name": "stand-in", "version": "1"}}
            writer.write(http(start + json.dumps(about).encode() + b"}", more=session))
        elif called == "tools/list":
            writer.write(http(start + self.tools + b"}"))
        elif called == "tools/call":
            await self.call(start, message["params"].get("arguments") or {}, writer)
        elif "id" not in message:
            writer.write(http(b"", status="202 Accepted"))
        else:
            error = {"code": -32601, "message": "method not found"}
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})
            writer.write(http(body.encode()))

    async def call(self, start, arguments, writer):
        if self.calls == "flood":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            return await self.flood(writer)
        if self.calls == "large":
            begin = start + b'{"content":[{"type":"text","text":"'
            end = b'"}]}}'
            kind = "application/json"
            if arguments.get("n", 0) % 2:
                begin, end, kind = b"data: " + begin, end + b"\n\n", "text/event-stream"
            length = len(begin) + len(LARGE) + len(end)
            head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
            writer.write(head.encode() + begin)
            # In pieces, so that data that gavel does not read is not buffered.
            for at in range(0, len(LARGE), PIECE):
                writer.write(LARGE[at:at + PIECE])
                await writer.drain()
            writer.write(end)
            return
        value = {"n": arguments.get("n")}
        result = {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}
        writer.write(http(start + json.dumps(result).encode() + b"}"))

    async def tell(self, writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        if self.stream == "flood":
            await asyncio.sleep(3)
            return await self.flood(writer)
        event = b'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
        while not writer.is_closing():
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
            await writer.drain()
            await asyncio.sleep(0.05)

    async def flood(self, writer):
        event = "".join(f"data: {line}\n\n" for line in FLOODS.values() if line).encode()
        piece = b"%x\r\n%s\r\n" % (len(event), event)
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()


async def serve(answer):
    async def connection(reader, writer):
        try:
            async for method, path, body, head in requests(reader):
                await answer(method, path, body, writer, head)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=1024, limit=1 << 20)
    print(listening.sockets[0].getsockname()[1], flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    await lines.read()
    os._exit(0)


async def be_model(folder):
    model = Model(folder)
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    honest = Server([{"name": "lookup", "description": "Looks up.", "inputSchema": schema}])

    async def answer(method, path, body, writer, _):
        await (honest.answer(method, body, writer) if path == "/honest" else model.answer(path, body, writer))
    await serve(answer)


async def be_hostile(folder):
    os.nice(5)
    told = json.loads((folder / "servers.json").read_text())
    servers = {f"/{name}": Server(**entry) for name, entry in told.items()}

    async def answer(method, path, body, writer, _):
        await servers[path].answer(method, body, writer)
    await serve(answer)


def be_child(kind):
    """A server over stdio that floods as soon as its tools are known. It ends with its standard input."""
    os.nice(5)

    def flood():
        line = ((FLOODS[kind] or "words " * 200) + "\n").encode() * 20
        to = 1 if FLOODS[kind] else 2
        while True:
            os.write(to, line)

    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if "id" not in message or not method:
            continue
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        if method == "initialize":
            answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                                "serverInfo": {"name": "child", "version": "1"}}
        elif method == "tools/list":
            answer["result"] = {"tools": [{"name": f"of_{kind.replace('-', '_')}", "inputSchema": {"type": "object"}}]}
        else:
            answer["error"] = {"code": -32601, "message": "no such method"}
        os.write(1, (json.dumps(answer) + "\n").encode())
        if method == "tools/list":
            threading.Timer(2, flood).start()
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "child":
        be_child(sys.argv[2])
    else:
        asyncio.run({"model": be_model, "hostile": be_hostile}[sys.argv[1]](pathlib.Path(sys.argv[2])))
