//! Whole answers from the few members that a test is about.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Description, Operation};

/// A schema that refers to itself is not filled deeper than this.
const DEPTH: usize = 12;

impl Description {
    /// An answer with the given members, and with whatever else GitHub's description requires.
    pub(crate) fn filled(&self, operation: Operation<'_>, status: u16, given: Value) -> Value {
        match self.answer_schema(operation, status) {
            Some(schema) => self.fill(schema, Some(given), DEPTH),
            None => given,
        }
    }

    fn fill(&self, schema: &Value, given: Option<Value>, depth: usize) -> Value {
        let schema = self.resolve(schema);
        if given.is_none() && (schema["nullable"] == true || depth == 0) {
            return Value::Null;
        }
        for several in ["oneOf", "anyOf"] {
            if let Some(choices) = schema[several].as_array() {
                let is_list = given.as_ref().is_some_and(Value::is_array);
                // A given object is filled by the choice of its own type; the test data say which ("type").
                let fits = |choice: &&Value| {
                    let choice = self.resolve(choice);
                    let kind = &choice["properties"]["type"]["enum"][0];
                    let named = given
                        .as_ref()
                        .map(|given| &given["type"])
                        .filter(|named| named.is_string());
                    (choice["type"] == "array") == is_list
                        && (kind.is_null() || named.is_none_or(|named| named == kind))
                };
                let choice = choices.iter().find(fits).unwrap_or(&choices[0]);
                return self.fill(choice, given, depth);
            }
        }
        if let Some(parts) = schema["allOf"].as_array() {
            return parts.iter().fold(given.unwrap_or(json!({})), |all, part| {
                self.fill(part, Some(all), depth)
            });
        }
        match (schema["type"].as_str(), given) {
            (Some("object"), None | Some(Value::Object(_))) if schema["properties"].is_null() => json!({}),
            (Some("array"), Some(Value::Array(items))) => items
                .into_iter()
                .map(|item| self.fill(&schema["items"], Some(item), depth))
                .collect(),
            (Some("object"), Some(Value::Object(members))) => self.object(schema, members, depth),
            (_, Some(given)) => given,
            (Some("object"), None) => self.object(schema, Map::new(), depth),
            (Some("array"), None) => json!([]),
            (_, None) if schema["enum"].is_array() => schema["enum"][0].clone(),
            (Some("boolean"), None) => json!(false),
            (Some("integer" | "number"), None) => json!(1),
            (Some("string"), None) => match schema["format"].as_str() {
                Some("date-time") => json!("2026-01-01T00:00:00Z"),
                Some("uri") => json!("https://example.com/x"),
                _ => json!("x"),
            },
            (_, None) => Value::Null,
        }
    }

    fn object(&self, schema: &Value, mut members: Map<String, Value>, depth: usize) -> Value {
        let required = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        let properties = schema["properties"].as_object().expect("properties");
        let names: BTreeSet<_> = required
            .chain(members.keys().map(String::as_str))
            .map(str::to_owned)
            .collect();
        for name in names {
            if let Some(property) = properties.get(&name) {
                let given = members.remove(&name);
                members.insert(name, self.fill(property, given, depth - 1));
            }
        }
        members.into()
    }
}
