//! Arguments that the model does not see: the identity argument, which gavel sets, and those hidden in `mcp.json`.

use serde_json::{Map, Value};

/// Removes a top-level property from a translated schema.
///
/// # Errors
/// The property does not exist, or the rest of the schema still refers to it.
pub(super) fn hide(schema: &mut Map<String, Value>, name: &str) -> Result<(), String> {
    let known = schema
        .get_mut("properties")
        .and_then(Value::as_object_mut)
        .is_some_and(|properties| properties.remove(name).is_some());
    if !known {
        return Err(format!(
            "the hidden argument `{name}` is not among the properties of its input schema"
        ));
    }
    for key in ["required", "propertyOrdering"] {
        if let Some(Value::Array(names)) = schema.get_mut(key) {
            names.retain(|entry| entry != name);
            if names.is_empty() {
                schema.remove(key);
            }
        }
    }
    if speaks_of(schema, name) {
        return Err(format!(
            "the hidden argument `{name}` is also named in a condition of its input schema, so it cannot be hidden"
        ));
    }
    Ok(())
}

/// Whether the schema, or one that applies to the same object, names this property. A property of that name inside
/// another property is unrelated.
fn speaks_of(schema: &Map<String, Value>, name: &str) -> bool {
    let has = |key: &str| {
        schema
            .get(key)
            .and_then(Value::as_object)
            .is_some_and(|of| of.contains_key(name))
    };
    let lists = |names: &Value| {
        names
            .as_array()
            .is_some_and(|names| names.iter().any(|entry| entry == name))
    };
    let inner = |schema: &Value| schema.as_object().is_some_and(|schema| speaks_of(schema, name));
    has("properties")
        || has("dependentRequired")
        || has("dependentSchemas")
        || ["required", "propertyOrdering"]
            .iter()
            .any(|key| schema.get(*key).is_some_and(lists))
        || values(schema, "dependentRequired").any(lists)
        || values(schema, "dependentSchemas").any(inner)
        || ["if", "then", "else", "not"]
            .iter()
            .any(|key| schema.get(*key).is_some_and(inner))
        || schema
            .get("anyOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .any(inner)
}

fn values<'a>(schema: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = &'a Value> {
    schema
        .get(key)
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::values)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::super::translate;
    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "properties": {"user_id": {"type": "string"}, "a": {"type": "string"}},
               "required": ["user_id"], "propertyOrdering": ["user_id", "a"]})
    }

    #[test]
    fn the_identity_argument_is_not_shown() {
        let shown = translate(&schema(), &["user_id"]).unwrap();
        assert_eq!(
            shown,
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "propertyOrdering": ["a"]})
        );
        assert!(translate(&schema(), &["actor"]).unwrap_err().contains("`actor`"));
    }

    /// Promise: decided by code.
    #[test]
    fn a_tool_that_asks_for_it_elsewhere_too_is_left_out() {
        let asks = json!({"required": ["user_id"]});
        for (key, value) in [
            ("anyOf", json!([asks, {"required": ["a"]}])),
            ("oneOf", json!([{"properties": {"user_id": {"const": "x"}}}])),
            ("allOf", json!([{"anyOf": [asks]}])),
            ("if", asks.clone()),
            ("then", json!({"not": asks})),
            ("dependentRequired", json!({"user_id": ["a"]})),
            ("dependentRequired", json!({"a": ["user_id"]})),
            ("dependentSchemas", json!({"user_id": {}})),
            ("dependentSchemas", json!({"a": asks})),
        ] {
            let mut schema = schema();
            schema[key] = value;
            let reason = translate(&schema, &["user_id"]).unwrap_err();
            assert!(reason.contains("`user_id` is also named"), "{key}: {reason}");
        }
        // Another object's property of that name is not the identity.
        let mut schema = schema();
        schema["properties"]["a"] = json!({"properties": {"user_id": {}}, "required": ["user_id"]});
        assert!(translate(&schema, &["user_id"]).is_ok());
    }
}
