//! Parts that the tools' schemas share.

pub(super) use gavel_mcp_base::schema::{Behaviour, input, output, properties, tool};
use serde_json::{Map, Value, json};

use super::{MAX_DESCRIPTION, MAX_NOTES};

fn task_properties() -> Map<String, Value> {
    properties([
        ("id", json!({ "type": "string" })),
        ("description", json!({ "type": "string" })),
        ("status", json!({ "type": "string", "enum": ["open", "done"] })),
        (
            "priority",
            json!({ "type": "string", "enum": ["low", "normal", "high"] }),
        ),
        (
            "due",
            json!({ "type": "string", "description": "YYYY-MM-DD, or an RFC 3339 date-time." }),
        ),
        ("notes", json!({ "type": "string" })),
        ("created_at", json!({ "type": "string" })),
        ("updated_at", json!({ "type": "string" })),
        ("completed_at", json!({ "type": "string" })),
    ])
}

const TASK_REQUIRED: [&str; 6] = ["id", "description", "status", "priority", "created_at", "updated_at"];

pub(super) fn task(description: &str) -> Value {
    json!({
        "type": "object",
        "description": description,
        "properties": task_properties(),
        "required": TASK_REQUIRED,
        "additionalProperties": false
    })
}

pub(super) fn listed_task() -> Value {
    let mut properties = task_properties();
    properties.insert(
        "position".to_owned(),
        json!({ "type": "integer", "minimum": 1, "description": "The task's number in the list, from 1." }),
    );
    let mut required = TASK_REQUIRED.to_vec();
    required.push("position");
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false
    })
}

pub(super) fn description(text: &str) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": MAX_DESCRIPTION, "description": text })
}

pub(super) fn priority(text: &str) -> Value {
    json!({ "type": "string", "enum": ["low", "normal", "high"], "description": text })
}

pub(super) fn notes(text: &str) -> Value {
    json!({ "type": "string", "maxLength": MAX_NOTES, "description": text })
}

/// Allows `null` in addition to `schema`.
pub(super) fn or_null(mut schema: Value) -> Value {
    if let Some(kind) = schema.get("type").cloned() {
        schema["type"] = json!([kind, "null"]);
    }
    schema
}
