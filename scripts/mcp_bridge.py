"""Serves a stdio MCP server over HTTP on loopback, so that the conformance suite, which knows only HTTP, can ask it.

    mcp_bridge.py COMMAND [ARGUMENT ...]

Prints its URL. It passes each message on as it is: an initialize request starts a process and a session, and every
other request without a session goes to one process that has not been initialized. Ends at SIGTERM, with its processes.
"""

import json
import queue
import signal
import subprocess
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PATIENCE = 30  # seconds for one answer


class Process:
    """One stdio server. Requests get ids of their own, because several clients may use the same."""

    def __init__(self, command):
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lock = threading.Lock()
        self.waiting = {}
        self.last = 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.child.stdout:
            message = json.loads(line)
            waiting = self.waiting.pop(message.get("id"), None)
            if waiting and "method" not in message:
                waiting.put(message)

    def send(self, message):
        self.child.stdin.write(json.dumps(message).encode() + b"\n")
        self.child.stdin.flush()

    def ask(self, message):
        answer = queue.Queue()
        with self.lock:
            self.last += 1
            number = self.last
            self.waiting[number] = answer
            self.send({**message, "id": number})
        return {**answer.get(timeout=PATIENCE), "id": message["id"]}

    def tell(self, message):
        with self.lock:
            self.send(message)


class Bridge(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, command):
        super().__init__(("127.0.0.1", 0), Handler)
        self.command = command
        self.sessions = {None: Process(command)}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=None, headers=()):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in [("Content-Length", str(len(data))), ("Content-Type", "application/json"), *headers]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply(405)

    def do_DELETE(self):
        process = self.server.sessions.pop(self.headers.get("mcp-session-id"), None)
        if process:
            process.child.terminate()
        self.reply(200 if process else 404)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = []
        session = self.headers.get("mcp-session-id")
        if message.get("method") == "initialize":
            session = uuid.uuid4().hex
            self.server.sessions[session] = Process(self.server.command)
            headers = [("Mcp-Session-Id", session)]
        process = self.server.sessions.get(session)
        if process is None:
            return self.reply(404)
        if "id" not in message or "method" not in message:
            process.tell(message)
            return self.reply(202)
        answer = process.ask(message)
        # The HTTP transport's own statuses (2026-07-28, "Transports"): unknown methods, versions that are not supported.
        code = answer.get("error", {}).get("code")
        status = {-32601: 404, -32020: 400, -32021: 400, -32022: 400, -32602: 400}.get(code, 200)
        is_in_session = session and (message["method"] != "initialize" or "result" in answer)
        self.reply(200 if is_in_session else status, answer, headers)


def main():
    bridge = Bridge(sys.argv[1:])

    def end(*_):
        for process in bridge.sessions.values():
            process.child.terminate()
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    print(f"http://127.0.0.1:{bridge.server_port}/mcp", flush=True)
    bridge.serve_forever()


main()
