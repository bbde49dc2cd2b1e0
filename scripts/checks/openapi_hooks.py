"""What schemathesis does not know by itself: a body of lines, each of them JSON."""

import json

import jsonschema_rs
import schemathesis

# By the kind of line.
VALIDATORS = {}


@schemathesis.deserializer("application/x-ndjson")
def lines(ctx, response):
    """Checks every line against the schema of a line, and hands out the last one, the decision or the end of the run."""
    document = ctx.operation.schema.raw_schema
    kind = "RunLine" if ctx.operation.path.startswith("/api/runs/") else "StreamLine"
    if kind not in VALIDATORS:
        line = {"$ref": f"#/components/schemas/{kind}", "components": document["components"]}
        VALIDATORS[kind] = jsonschema_rs.validator_for(line)
    read = [json.loads(line) for line in response.content.splitlines()]
    for line in read:
        VALIDATORS[kind].validate(line)
    return read[-1] if read else {"type": "heartbeat"}
