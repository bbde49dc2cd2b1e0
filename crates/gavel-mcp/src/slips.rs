//! Repairs of servers' schemas that do not change what is valid. An annotation with an invalid type is dropped. An
//! empty list in place of an object (as PHP writes an empty object) becomes an object. A keyword that is null is
//! removed.

use serde_json::{Map, Value, json};

/// Maximum repairs of one schema that are reported.
const MOST_REPORTED: usize = 8;
/// Deeper parts are left to the schema compiler.
const MAX_DEPTH: usize = 100;

/// Keywords that do not affect what is valid, and the type of their value.
const ANNOTATIONS: [(&str, Is); 9] = [
    ("title", Is::Text),
    ("description", Is::Text),
    ("$comment", Is::Text),
    ("contentEncoding", Is::Text),
    ("contentMediaType", Is::Text),
    ("deprecated", Is::Boolean),
    ("readOnly", Is::Boolean),
    ("writeOnly", Is::Boolean),
    ("examples", Is::List),
];
/// Keywords with schemas by name.
const MAPS: [&str; 5] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
];
/// Keywords with one schema.
const SINGLE: [&str; 11] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
];
/// Keywords with a list of schemas. `items` is one in its old form.
const LISTS: [&str; 5] = ["anyOf", "oneOf", "allOf", "prefixItems", "items"];

#[derive(Clone, Copy)]
enum Is {
    Text,
    Boolean,
    List,
}

/// A repair.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slip {
    /// JSON pointer into the schema.
    pub(super) pointer: String,
    /// What was found, and what was done.
    pub(super) message: String,
}

/// Repairs a schema, and returns the repairs, the first few in full.
pub(super) fn repair(schema: &mut Value) -> Vec<Slip> {
    let mut slips = Slips {
        reported: Vec::new(),
        more: 0,
    };
    slips.schema(schema, "", 0);
    if slips.more > 0 {
        slips.reported.push(Slip {
            pointer: String::new(),
            message: format!("has {} more repairs like these", slips.more),
        });
    }
    slips.reported
}

struct Slips {
    reported: Vec<Slip>,
    more: usize,
}

impl Slips {
    fn tell(&mut self, pointer: String, message: impl Into<String>) {
        if self.reported.len() < MOST_REPORTED {
            let message = message.into();
            self.reported.push(Slip { pointer, message });
        } else {
            self.more += 1;
        }
    }

    fn schema(&mut self, schema: &mut Value, at: &str, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        if is_empty_list(schema) {
            self.tell(
                at.to_owned(),
                "is an empty list where a schema belongs; it is read as `{}`",
            );
            *schema = json!({});
        }
        let Value::Object(members) = schema else {
            return;
        };
        self.annotations(members, at);
        for name in MAPS {
            let Some(map) = members.get_mut(name) else { continue };
            let at = format!("{at}/{name}");
            if is_empty_list(map) {
                self.tell(
                    at.clone(),
                    "is an empty list where an object belongs; it is read as `{}`",
                );
                *map = json!({});
            }
            for (key, schema) in map.as_object_mut().into_iter().flatten() {
                self.schema(schema, &format!("{at}/{}", escaped(key)), depth + 1);
            }
        }
        for name in LISTS {
            let list = members.get_mut(name).and_then(Value::as_array_mut);
            for (n, schema) in list.into_iter().flatten().enumerate() {
                self.schema(schema, &format!("{at}/{name}/{n}"), depth + 1);
            }
        }
        for name in SINGLE {
            // A list as `items` is the old form of a tuple, even if it is empty.
            let schema = members
                .get_mut(name)
                .filter(|schema| name != "items" || !schema.is_array());
            if let Some(schema) = schema {
                self.schema(schema, &format!("{at}/{name}"), depth + 1);
            }
        }
    }

    fn annotations(&mut self, members: &mut Map<String, Value>, at: &str) {
        members.retain(|name, value| {
            let pointer = || format!("{at}/{}", escaped(name));
            if value.is_null() && !matches!(name.as_str(), "default" | "const" | "example") {
                self.tell(pointer(), "is null; it is left out");
                return false;
            }
            let annotation = ANNOTATIONS.iter().find(|(annotation, _)| annotation == name);
            let invalid = annotation.and_then(|(_, is)| match (is, &*value) {
                (Is::Text, Value::String(_)) | (Is::Boolean, Value::Bool(_)) | (Is::List, Value::Array(_)) => None,
                (Is::Text, _) => Some("text"),
                (Is::Boolean, _) => Some("true or false"),
                (Is::List, _) => Some("a list"),
            });
            if let Some(wanted) = invalid {
                self.tell(
                    pointer(),
                    format!("is {} instead of {wanted}; it is left out", kind(value)),
                );
            }
            invalid.is_none()
        });
    }
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// One step of a JSON pointer (RFC 6901).
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_repaired_where_they_say_nothing_and_nowhere_else() {
        for (slip, repaired, pointer) in [
            (json!({"description": 12}), json!({}), "/description"),
            (
                json!({"properties": {"a/b": {"title": ["x"]}}}),
                json!({"properties": {"a/b": {}}}),
                "/properties/a~1b/title",
            ),
            (json!({"properties": []}), json!({"properties": {}}), "/properties"),
            (
                json!({"properties": {"a": []}}),
                json!({"properties": {"a": {}}}),
                "/properties/a",
            ),
            (
                json!({"anyOf": [{"readOnly": "no"}]}),
                json!({"anyOf": [{}]}),
                "/anyOf/0/readOnly",
            ),
            (
                json!({"$defs": {"n": {"examples": 7}}}),
                json!({"$defs": {"n": {}}}),
                "/$defs/n/examples",
            ),
            (
                json!({"items": {"deprecated": 1}}),
                json!({"items": {}}),
                "/items/deprecated",
            ),
            (json!({"enum": null}), json!({}), "/enum"),
            (json!([]), json!({}), ""),
        ] {
            let mut schema = slip.clone();
            let slips = repair(&mut schema);
            assert_eq!(schema, repaired, "{slip}");
            assert_eq!(slips.len(), 1, "{slip}: {slips:?}");
            assert_eq!(slips[0].pointer, pointer, "{slip}");
        }
        for right in [
            json!({"properties": {"description": {"type": "integer"}, "title": {}}}),
            json!({"default": {"description": 12}, "const": null, "enum": [[], null], "examples": [{"title": 7}]}),
            json!({"type": 12, "required": [], "items": [], "default": null}),
        ] {
            let mut schema = right.clone();
            assert_eq!(repair(&mut schema), [], "{right}");
            assert_eq!(schema, right);
        }
    }

    /// Promise: bounded faults. The number of reported repairs is limited.
    #[test]
    fn many_slips_are_counted() {
        let properties: Map<String, Value> = (0..1000).map(|n| (format!("p{n}"), json!({"title": n}))).collect();
        let slips = repair(&mut json!({"properties": properties}));
        assert_eq!(slips.len(), MOST_REPORTED + 1);
        assert_eq!(slips[MOST_REPORTED].message, "has 992 more repairs like these");
    }
}
