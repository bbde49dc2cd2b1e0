"""Calls every tool of a stdio MCP server with two published clients: the Python SDK and the CLI of the MCP Inspector,
each in both eras of the protocol. Fails if a tool is not called, if a call ends in an error, or if an answer does not match
the tool's output schema.

Standard input: {"command": "...", "environment": {...}, "calls": [{"tool", "arguments", "keep"}, ...]}. `keep` gives
parts of an answer a name: {"id": "pullRequest.number"}. Arguments that are "$id" then have this value; "$run" in an
argument is another word for each run of the calls. scripts/mcp-conformance installs the clients.
"""

import asyncio
import json
import os
import subprocess
import sys

import jsonschema
from mcp import Client, StdioServerParameters

PATIENCE = 120  # seconds for one call
ERAS = {"legacy": "2025-11-25", "modern": "2026-07-28"}


def fill(value, kept):
    """The arguments with the kept values in place of their names."""
    if isinstance(value, dict):
        return {name: fill(part, kept) for name, part in value.items()}
    if isinstance(value, str) and value.startswith("$") and value[1:] in kept:
        return kept[value[1:]]
    return value.replace("$run", kept["run"]) if isinstance(value, str) else value


def check(who, tool, schema, is_error, structure, text):
    if is_error:
        sys.exit(f"{who}: {tool} ended in an error: {text}")
    jsonschema.validate(structure, schema)
    print(f"{who:<30} {tool}", flush=True)


async def run_calls(who, run, tools, calls, call):
    """All calls in order, each checked."""
    schemas = {tool["name"]: tool["outputSchema"] for tool in tools}
    missing = set(schemas) ^ {entry["tool"] for entry in calls}
    if missing:
        sys.exit(f"{who}: listed and not called, or called and not listed: {sorted(missing)}")
    kept = {"run": run}
    for entry in calls:
        tool = entry["tool"]
        is_error, structure, text = await call(tool, fill(entry["arguments"], kept))
        check(who, tool, schemas[tool], is_error, structure, text)
        for name, path in entry.get("keep", {}).items():
            value = structure
            for part in path.split("."):
                value = value[part]
            kept[name] = value


async def with_sdk(command, environment, calls, era):
    server = StdioServerParameters(command=command, args=[], env=environment)
    mode = "legacy" if era == "legacy" else ERAS[era]
    async with Client(server, mode=mode, read_timeout_seconds=PATIENCE) as client:
        who = f"Python SDK, {client.protocol_version}"
        if client.protocol_version != ERAS[era]:
            sys.exit(f"{who}: not the version that was asked for")
        tools = [tool.model_dump(by_alias=True) for tool in (await client.list_tools()).tools]

        async def call(tool, arguments):
            result = await client.call_tool(tool, arguments)
            return result.is_error, result.structured_content, result.content

        await run_calls(who, f"sdk-{era}", tools, calls, call)


async def with_inspector(command, environment, calls, era):
    variables = [part for name, value in environment.items() for part in ("-e", f"{name}={value}")]
    start = ["mcp-inspector", "--cli", command, *variables, "--protocol-era", era, "--quiet"]

    def inspect(*options):
        ended = subprocess.run([*start, *options], capture_output=True, timeout=PATIENCE)
        # A tool's own error has an exit code, and an answer too.
        if ended.returncode != 0 and not ended.stdout.strip():
            sys.exit(f"Inspector, {era}: {options}: {ended.stderr.decode()}")
        return ended.returncode, json.loads(ended.stdout)

    # It also reports what other clients and models do not accept in a schema.
    code, listed = inspect("--method", "tools/list", "--strict")
    if code != 0:
        sys.exit(f"Inspector, {era}: the schemas of the tools are not portable: exit code {code}")

    async def call(tool, arguments):
        options = ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments)]
        code, result = inspect(*options)
        return code != 0 or result.get("isError", False), result.get("structuredContent"), result

    await run_calls(f"Inspector, {ERAS[era]}", f"inspector-{era}", listed["tools"], calls, call)


async def main():
    given = json.load(sys.stdin)
    environment = {"PATH": os.environ["PATH"], **given["environment"]}
    for client in (with_sdk, with_inspector):
        for era in ERAS:
            await client(given["command"], environment, given["calls"], era)


asyncio.run(main())
