//! Repairs of servers' schemas that do not change what is valid. What the meta-schema rejects is dropped, if it is an
//! annotation or null. An empty list in place of an object (as PHP writes an empty object) becomes an object.

use std::collections::BTreeMap;

use jsonschema::JsonType;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::{Value, json};

use super::cost::BY_NAME;

/// Maximum repairs of one schema that are reported.
const MOST_REPORTED: usize = 8;
/// Maximum errors of one schema that are read.
const MOST_READ: usize = 10_000;

/// Keywords that do not affect what is valid.
const ANNOTATIONS: [&str; 9] = [
    "$comment",
    "contentEncoding",
    "contentMediaType",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
];

/// A repair.
#[derive(Debug, PartialEq, Eq)]
pub struct Repair {
    /// JSON pointer into the schema.
    pub pointer: String,
    /// What was found, and what was done.
    pub message: String,
}

/// Repairs a schema, and returns the repairs, the first few in full.
pub fn repair(schema: &mut Value) -> Vec<Repair> {
    let Ok(meta_schema) = jsonschema::meta::validator_for(schema) else {
        return Vec::new();
    };
    // Several parts of a meta-schema may reject the same value.
    let found: BTreeMap<String, &'static str> = meta_schema
        .iter_errors(schema)
        .take(MOST_READ)
        .filter_map(|error| {
            let pointer = error.instance_path().as_str();
            Some((pointer.to_owned(), message(pointer, error.instance(), error.kind())?))
        })
        .collect();
    for (pointer, message) in &found {
        let (above, name) = pointer.rsplit_once('/').unwrap_or_default();
        if *message == EMPTY_LIST {
            if let Some(list) = schema.pointer_mut(pointer) {
                *list = json!({});
            }
        } else if let Some(Value::Object(members)) = schema.pointer_mut(above) {
            members.remove(name);
        }
    }
    let more = found.len().saturating_sub(MOST_REPORTED);
    let repairs = found.into_iter().map(|(pointer, message)| Repair {
        pointer,
        message: message.to_owned(),
    });
    let rest = Repair {
        pointer: String::new(),
        message: format!("has {more} more repairs like these"),
    };
    repairs.take(MOST_REPORTED).chain((more > 0).then_some(rest)).collect()
}

const EMPTY_LIST: &str = "is an empty list where an object belongs; it is read as `{}`";

/// What is done about an error at this place; `None`: nothing.
fn message(pointer: &str, value: &Value, error: &ValidationErrorKind) -> Option<&'static str> {
    let name = pointer.rsplit('/').next().unwrap_or_default();
    let takes_object = match error {
        ValidationErrorKind::Type {
            kind: TypeKind::Single(kind),
        } => *kind == JsonType::Object,
        ValidationErrorKind::Type {
            kind: TypeKind::Multiple(kinds),
        } => kinds.contains(JsonType::Object),
        _ => false,
    };
    match value {
        // A list as `items` is the old form of a tuple, even if it is empty.
        Value::Array(items) if items.is_empty() && takes_object && name != "items" => Some(EMPTY_LIST),
        Value::Null if is_keyword(pointer) => Some("is null; it is left out"),
        _ if !takes_object && ANNOTATIONS.contains(&name) && is_keyword(pointer) => {
            Some("is not what JSON Schema allows there; it is left out")
        }
        _ => None,
    }
}

/// Whether the last step of a pointer is a keyword, not a name below one such as `properties`.
fn is_keyword(pointer: &str) -> bool {
    let mut is_keyword = true;
    let mut names_follow = false;
    for step in pointer.split('/').skip(1) {
        is_keyword = !names_follow;
        names_follow = is_keyword && BY_NAME.contains(&step);
    }
    is_keyword
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

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
