//! `enum`, and `const` as an `enum` of one value.
//!
//! An `enum` may contain only non-empty text and numbers. For any other value its type is given: alone if there is no
//! other choice, else as another branch of `anyOf`. Empty text is not declared beside other values: a model may omit
//! the argument, and arguments with empty text are valid all the same.

use serde_json::{Map, Value, json};

/// Restricts `out` to `values`, without those that its `type` does not allow.
pub(super) fn put(out: &mut Map<String, Value>, values: &[Value]) {
    let declared = types(out);
    let mut kinds: Vec<&'static str> = Vec::new();
    for kind in values.iter().filter_map(kind) {
        let allowed = declared.is_empty() || declared.contains(&kind);
        if allowed && !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let mut said: Vec<&Value> = values.iter().filter(|value| kind(value).is_none()).collect();
    let is_empty = |value: &&Value| value.as_str() == Some("");
    let has_empty = said.iter().any(is_empty);
    said.retain(|value| !is_empty(value));
    if said.is_empty() {
        if has_empty && (declared.is_empty() || declared.contains(&"string")) {
            kinds.push("string");
        }
        match kinds[..] {
            [] => {}
            [one] => drop(out.insert("type".to_owned(), json!(one))),
            _ => drop(out.insert("type".to_owned(), json!(kinds))),
        }
        return;
    }
    // If `anyOf` exists already, the narrower restriction is kept.
    if kinds.is_empty() || out.contains_key("anyOf") {
        out.insert("enum".to_owned(), json!(said));
        return;
    }
    let rest: Vec<_> = declared.into_iter().filter(|kind| !kinds.contains(kind)).collect();
    let mut first = json!({"enum": said});
    match rest[..] {
        [] => {}
        [one] => first["type"] = json!(one),
        _ => first["type"] = json!(rest),
    }
    let others = kinds.into_iter().map(|kind| match kind {
        "array" => json!({"type": kind, "items": {}}),
        kind => json!({"type": kind}),
    });
    let choices: Vec<_> = std::iter::once(first).chain(others).collect();
    out.remove("type");
    out.insert("anyOf".to_owned(), json!(choices));
}

/// The types that a schema declares; none means any.
pub(super) fn types(schema: &Map<String, Value>) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The type of a value that an `enum` must not contain.
fn kind(value: &Value) -> Option<&'static str> {
    match value {
        Value::String(_) | Value::Number(_) => None,
        Value::Bool(_) => Some("boolean"),
        Value::Null => Some("null"),
        Value::Array(_) => Some("array"),
        Value::Object(_) => Some("object"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::translate;
    use super::*;

    fn shown(property: &Value) -> Value {
        let schema = json!({"type": "object", "properties": {"a": property}});
        translate(&schema, &[]).unwrap()["properties"]["a"].take()
    }

    /// C-FR-012
    #[test]
    fn an_enum_holds_text_and_numbers_and_tells_the_type_of_all_else() {
        for (property, expected) in [
            (json!({"enum": ["low", 2]}), json!({"enum": ["low", 2]})),
            (
                json!({"enum": ["low", null]}),
                json!({"anyOf": [{"enum": ["low"]}, {"type": "null"}]}),
            ),
            (
                json!({"type": ["string", "null"], "enum": ["low", null], "description": "d"}),
                json!({"anyOf": [{"type": "string", "enum": ["low"]}, {"type": "null"}], "description": "d"}),
            ),
            // A value that the type forbids is removed.
            (
                json!({"type": "string", "enum": ["low", null]}),
                json!({"type": "string", "enum": ["low"]}),
            ),
            (json!({"enum": [true, false]}), json!({"type": "boolean"})),
            (
                json!({"type": ["string", "boolean", "null"], "enum": [true, null]}),
                json!({"type": ["boolean", "null"]}),
            ),
            (
                json!({"enum": ["x", {"a": 1}, [1]]}),
                json!({"anyOf": [{"enum": ["x"]}, {"type": "object"}, {"type": "array", "items": {}}]}),
            ),
            (
                json!({"enum": ["x", null], "anyOf": [{"type": "string"}, {"type": "null"}]}),
                json!({"enum": ["x"], "anyOf": [{"type": "string"}, {"type": "null"}]}),
            ),
            (json!({"enum": ["", "low"]}), json!({"enum": ["low"]})),
            (json!({"type": "string", "enum": [""]}), json!({"type": "string"})),
            (json!({"enum": ["", null]}), json!({"type": ["null", "string"]})),
            (json!({"const": ""}), json!({"type": "string"})),
            (json!({"const": null}), json!({"type": "null"})),
            (json!({"type": "boolean", "const": true}), json!({"type": "boolean"})),
        ] {
            assert_eq!(shown(&property), expected, "{property}");
        }
    }
}
