"""Hooks for schemathesis: bodies of JSON lines, the ids of the waiting approval requests, and whose texts are erased."""

import itertools
import json
import os

import jsonschema_rs
import schemathesis

# Validators by the kind of line.
VALIDATORS = {}


@schemathesis.deserializer("application/x-ndjson")
def lines(ctx, response):
    """Checks every line against its schema, and returns the last one, the decision or the end of the run."""
    document = ctx.operation.schema.raw_schema
    responses = document["paths"][ctx.operation.path][ctx.operation.method]["responses"]
    kind = responses["200"]["content"]["application/x-ndjson"]["schema"]["$ref"]
    if kind not in VALIDATORS:
        VALIDATORS[kind] = jsonschema_rs.validator_for({"$ref": kind, "components": document["components"]})
    read = [json.loads(line) for line in response.content.splitlines()]
    for line in read:
        VALIDATORS[kind].validate(line)
    return read[-1] if read else {"type": "heartbeat"}


# Each of them in turn: the first answer counts, and a later one is the same or too late.
APPROVALS = itertools.cycle(os.environ["APPROVAL_IDS"].split())


@schemathesis.hook
def before_call(ctx, case, kwargs):
    """Sets fields of valid bodies, because the configuration cannot: the waiting approval request, and the erased user."""
    if case.operation.path == "/api/agent/approvals/resolve" and case.meta.generation.mode.is_positive:
        case.body = {**case.body, "approvalId": next(APPROVALS)}
    # The texts of the check's own users are needed by what follows.
    if case.operation.path == "/v1/erasures" and case.meta.generation.mode.is_positive:
        case.body = {**case.body, "user_id": "stranger"}
