"""An MCP server over stdio that never answers a call of its one tool, so that the call is in doubt."""

import json
import sys

TOOL = {
    "name": "delete_task",
    "description": "Deletes a task.",
    "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
}

for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if "id" not in message or method == "tools/call":
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        answer["result"] = {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "silent", "version": "1"},
        }
    elif method == "tools/list":
        answer["result"] = {"tools": [TOOL]}
    elif method == "ping":
        answer["result"] = {}
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
