#!/usr/bin/env python3
"""Writes the seeds of fuzz/ from the inputs of the tests, one file each.

  scripts/seeds.py DIRECTORY SHARED

The files are DIRECTORY/TARGET/N. SHARED is the directory of recorded third-party data; missing data is skipped.
"""
import json
import pathlib
import re
import sys

folder, shared = map(pathlib.Path, sys.argv[1:3])
root = pathlib.Path(__file__).resolve().parent.parent


def write(target, seeds):
    place = folder / target
    place.mkdir(parents=True, exist_ok=True)
    for old in place.iterdir():
        old.unlink()
    for n, seed in enumerate(sorted({bytes(seed) for seed in seeds})):
        if len(seed) <= 65536:
            (place / str(n)).write_bytes(seed)


def files(pattern):
    return [path.read_bytes() for path in root.glob(pattern) if path.is_file()]


def literals(pattern):
    """The string literals of Rust files."""
    found = []
    for path in root.glob(pattern):
        text = path.read_text()
        found += re.findall(r'r##?"(.*?)"##?', text, re.S)
        found += [s.replace("\\n", "\n").replace('\\"', '"') for s in re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)]
    return [text.encode(errors="replace") for text in found if text]


def shared_json(pattern):
    for path in sorted(shared.glob(pattern)):
        try:
            yield json.loads(path.read_text())
        except (ValueError, UnicodeDecodeError):
            pass


def tools(value):
    """Every tool definition below a JSON value."""
    if isinstance(value, dict):
        if "inputSchema" in value:
            yield value
        for child in value.values():
            yield from tools(child)
    elif isinstance(value, list):
        for child in value:
            yield from tools(child)


listed = [tool for value in shared_json("mcp-tools/*.json") for tool in tools(value)]
schemas = [tool["inputSchema"] for tool in listed] + [json.loads(text) for text in files("agents/schemas/*.json")]
write("schema", [json.dumps([schema, {}]).encode() for schema in schemas])
write("definition", files("agents/*.md") + files("agents/*.yaml") + files("examples/**/*.md") + files("examples/**/*.yaml")
      + files("evaluation/**/*.yaml") + files("constitution.md") + literals("tests/definition/*.rs") + literals("crates/gavel-core/src/domain/policy/**/*.rs"))
write("filter", literals("crates/gavel-store/src/read/filter/*.rs") + literals("tests/store/reading.rs"))
write("template", literals("crates/gavel-core/src/domain/templates/**/*.rs") + literals("crates/gavel-core/src/domain/definition/inputs.rs") + files("templates/*"))
recorded = [path.read_bytes() for path in sorted(shared.glob("gemini/recorded/**/*")) if path.is_file()]
write("gemini", recorded + literals("crates/gavel-gemini/src/**/*.rs"))
write("mcp", [json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": [tool]}}).encode() + b"\n" for tool in listed]
      + literals("tests/mcp/*.rs") + literals("crates/gavel-mcp/src/**/*.rs"))
