"""What schemathesis does not know by itself: a body of lines, each of them JSON."""

import json

import jsonschema_rs
import schemathesis

VALIDATORS = {}


@schemathesis.deserializer("application/x-ndjson")
def lines(ctx, response):
    """Checks every line against the schema of a line, and hands out the last one, the decision."""
    document = ctx.operation.schema.raw_schema
    if id(document) not in VALIDATORS:
        line = {"$ref": "#/components/schemas/StreamLine", "components": document["components"]}
        VALIDATORS[id(document)] = jsonschema_rs.validator_for(line)
    read = [json.loads(line) for line in response.content.splitlines()]
    for line in read:
        VALIDATORS[id(document)].validate(line)
    return read[-1]
