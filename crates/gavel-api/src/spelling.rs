//! The two spellings of names on the wire: snake_case, and camelCase below `/api/agent/` and `/v1/sessions`.

use serde::Serialize;
use serde_json::{Map, Value};

pub use crate::domain::names::camel as camel_name;

/// Whether names below a path are in camelCase.
#[must_use]
pub fn is_camel(path: &str) -> bool {
    let path = path.trim_start_matches('/');
    path.starts_with("api/agent/") || path.starts_with("v1/sessions")
}

/// Members whose values are of tools, models and definitions: their names are not ours.
const FOREIGN: [&str; 5] = ["arguments", "data", "details", "output", "parameters"];

/// An object with its names, and those of the objects in it, in camelCase.
#[must_use]
pub fn camel(object: &impl Serialize) -> Value {
    let value = serde_json::to_value(object).unwrap_or_else(|error| unreachable!("it serializes to JSON: {error}"));
    renamed(value)
}

fn renamed(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let renamed_member = |(name, value): (String, Value)| match FOREIGN.contains(&&*name) {
                true => (name, value),
                false => (camel_name(&name), renamed(value)),
            };
            Value::Object(members.into_iter().map(renamed_member).collect::<Map<_, _>>())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(renamed).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn our_names_are_camel_case_and_those_of_tools_stay() {
        let event = json!({
            "type": "tool_call", "run_id": "1", "parameters": {"due_at": "x"}, "usage": [{"input_tokens": 1}], "data": {"a_b": 1},
        });
        let renamed = json!({
            "type": "tool_call", "runId": "1", "parameters": {"due_at": "x"}, "usage": [{"inputTokens": 1}], "data": {"a_b": 1},
        });
        assert_eq!(camel(&event), renamed);
    }
}
