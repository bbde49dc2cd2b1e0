//! The differences between a schema and its form for the model, by place.

use serde_json::Value;

/// One line for each place of `original` that `shown` lacks or changes, and for each place that it adds.
pub(super) fn differences(original: &Value, shown: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(original, shown, "", &mut found);
    found
}

fn compare(original: &Value, shown: &Value, place: &str, found: &mut Vec<String>) {
    match (original, shown) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                let inner = format!("{place}/{}", escaped(key));
                match after.get(key) {
                    Some(other) => compare(value, other, &inner, found),
                    None => found.push(format!("{inner} is left out")),
                }
            }
            let added = after.keys().filter(|key| !before.contains_key(*key));
            found.extend(added.map(|key| format!("{place}/{} is added", escaped(key))));
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (n, (value, other)) in before.iter().zip(after).enumerate() {
                compare(value, other, &format!("{place}/{n}"), found);
            }
        }
        (before, after) if before == after => {}
        (_, Value::Object(_) | Value::Array(_)) => found.push(format!("{place} is rewritten")),
        (_, after) => found.push(format!("{place} is now {after}")),
    }
}

/// Escaped as in JSON pointers.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_change_is_named_by_its_place() {
        let original = json!({
            "$schema": "x", "type": "object",
            "properties": {"a/b": {"const": "x"}, "kind": {"type": ["string", "null"]}, "same": {"type": "string"}},
            "required": ["a", "user"],
        });
        let shown = json!({
            "type": "object",
            "properties": {"a/b": {"enum": ["x"]}, "kind": {"type": "string"}, "same": {"type": "string"}},
            "required": ["a"],
        });
        assert_eq!(
            differences(&original, &shown),
            [
                "/$schema is left out",
                "/properties/a~1b/const is left out",
                "/properties/a~1b/enum is added",
                "/properties/kind/type is now \"string\"",
                "/required is rewritten",
            ]
        );
        assert!(differences(&original, &original).is_empty());
    }
}
