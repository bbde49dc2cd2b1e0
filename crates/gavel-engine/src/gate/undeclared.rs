//! Arguments that a tool's schema does not declare.
//!
//! JSON Schema accepts them unless `additionalProperties` forbids them, and a server may read more than it declares. A
//! recipient under another name would be unchecked, invisible to rules, and unapproved.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::domain::argument_path::pointer;
use crate::domain::definition::quoted;

/// Maximum number of errors reported at once.
const MOST_ERRORS: usize = 8;
/// Maximum number of schemas examined for one value; a schema may refer to itself.
const MOST_SCHEMAS: usize = 256;

/// What a call of a tool with recipients contains beyond what its schema declares.
#[derive(Default)]
pub(super) struct Undeclared {
    /// Forbidden arguments, each with its place and what is allowed.
    pub(super) errors: Vec<String>,
    /// Is there a value that the schema accepts without a description?
    pub(super) is_open: bool,
}

/// Compares arguments with their schema. An object whose schema declares no properties may contain anything. If the
/// schema is unknown (`true`), all arguments count as described.
pub(super) fn search(root: &Value, arguments: &Value) -> Undeclared {
    let mut search = Search {
        root,
        found: Undeclared::default(),
    };
    if *root != Value::Bool(true) {
        search.walk(&[root], arguments, "");
    }
    search.found
}

struct Search<'a> {
    root: &'a Value,
    found: Undeclared,
}

impl<'a> Search<'a> {
    fn walk(&mut self, schemas: &[&'a Value], value: &Value, place: &str) {
        if self.found.errors.len() == MOST_ERRORS {
            return;
        }
        let schemas = self.alternatives(schemas);
        match value {
            Value::Object(fields) => self.object(&schemas, fields, place),
            Value::Array(items) => {
                for (n, item) in items.iter().enumerate() {
                    let of: Vec<_> = schemas.iter().flat_map(|schema| of_item(schema, n)).collect();
                    self.walk(&of, item, &format!("{place}/{n}"));
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, schemas: &[&'a Value], fields: &Map<String, Value>, place: &str) {
        let mut names = BTreeSet::new();
        for schema in schemas {
            names.extend(
                schema["properties"]
                    .as_object()
                    .into_iter()
                    .flat_map(Map::keys)
                    .map(String::as_str),
            );
        }
        for (name, value) in fields {
            let own = schemas.iter().any(|schema| schema["properties"].get(name).is_some());
            let of: Vec<_> = schemas.iter().flat_map(|schema| of_field(schema, name)).collect();
            let place = pointer(place, name);
            self.found.is_open |= !own;
            if names.is_empty() || !of.is_empty() {
                self.walk(&of, value, &place);
            } else if self.found.errors.len() < MOST_ERRORS {
                let allowed: Vec<_> = names.iter().copied().collect();
                self.found.errors.push(format!(
                    "{place}: the tool's schema declares no {}; allowed: {}",
                    quoted(name),
                    allowed.join(", ")
                ));
            }
        }
    }

    /// The schemas, with all schemas that they are composed of.
    fn alternatives(&self, schemas: &[&'a Value]) -> Vec<&'a Value> {
        let mut all: Vec<&Value> = Vec::new();
        let mut open = schemas.to_vec();
        while let Some(schema) = open.pop() {
            if all.len() == MOST_SCHEMAS || all.iter().any(|known| std::ptr::eq(*known, schema)) {
                continue;
            }
            all.push(schema);
            let target = schema["$ref"].as_str().and_then(|target| target.strip_prefix('#'));
            open.extend(target.and_then(|pointer| self.root.pointer(pointer)));
            for keyword in ["allOf", "anyOf", "oneOf"] {
                open.extend(schema[keyword].as_array().into_iter().flatten());
            }
            open.extend(["if", "then", "else"].iter().filter_map(|keyword| schema.get(keyword)));
        }
        all
    }
}

/// The schemas of a field. A name that matches a pattern, or that `additionalProperties` gives a schema, counts as
/// declared.
fn of_field<'a>(schema: &'a Value, name: &str) -> Vec<&'a Value> {
    if let Some(own) = schema["properties"].get(name) {
        return vec![own];
    }
    let patterns = schema["patternProperties"]
        .as_object()
        .into_iter()
        .flat_map(Map::values);
    patterns
        .chain(schema.get("additionalProperties").filter(|more| more.is_object()))
        .collect()
}

fn of_item(schema: &Value, n: usize) -> Vec<&Value> {
    let items = &schema["items"];
    let own = schema["prefixItems"].get(n).or_else(|| items.get(n));
    own.or(Some(items).filter(|items| items.is_object()))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn places(schema: &Value, arguments: &Value) -> Vec<String> {
        let place = |error: String| error.split(": ").next().unwrap().to_owned();
        search(schema, arguments).errors.into_iter().map(place).collect()
    }

    /// a value that no schema describes may be a further recipient, wherever a schema leaves room for it.
    #[test]
    fn a_value_that_a_schema_accepts_without_a_description_is_found() {
        let closed = json!({"properties": {"to": {}, "body": {}}});
        let patterns = json!({"properties": {"to": {}}, "additionalProperties": {"type": "string"}});
        let nested = json!({"properties": {"to": {}, "headers": {"type": "object"}}});
        for (schema, arguments, is_open) in [
            (&closed, json!({"to": "a@x.org", "body": "write to b@x.org"}), false),
            (
                &json!({"type": "object"}),
                json!({"to": "a@x.org", "bcc": ["eve@x.org"]}),
                true,
            ),
            (&patterns, json!({"to": "a@x.org"}), false),
            (&patterns, json!({"to": "a@x.org", "cc": "eve@x.org"}), true),
            (&nested, json!({"to": "a@x.org", "headers": {}}), false),
            (
                &nested,
                json!({"to": "a@x.org", "headers": {"x": {"eve@x.org": true}}}),
                true,
            ),
            (&nested, json!({"to": [{"email": "a@x.org", "bcc": "eve@x.org"}]}), true),
            (
                &json!({"properties": {"message": {"type": "object"}}}),
                json!({"message": {"to": "a@x.org"}}),
                true,
            ),
        ] {
            let found = search(schema, &arguments);
            assert_eq!(found.is_open, is_open, "{arguments}");
            assert!(found.errors.is_empty(), "{arguments}: {:?}", found.errors);
        }
    }

    /// a recipient under an undeclared name was never approved.
    #[test]
    fn what_the_schema_does_not_name_is_found_at_any_depth() {
        let schema = &json!({
            "properties": {
                "to": {}, "people": {"type": "array", "items": {"$ref": "#/$defs/person"}},
                "labels": {"type": "object"}, "headers": {"additionalProperties": {"type": "string"}},
                "more": {"anyOf": [{"properties": {"a": {}}}, {"type": "null"}], "allOf": [{"properties": {"b": {}}}]},
            },
            "$defs": {"person": {"properties": {"email": {}, "name": {}, "boss": {"$ref": "#/$defs/person"}}}},
        });
        for (arguments, invalid) in [
            (json!({"to": ["a@x.org"], "To": ["eve@x.org"]}), &["/To"][..]),
            (json!({"to": [{"email": "a@x.org", "name": "A", "vip": true}]}), &[]),
            (json!({"people": [{"email": "a@x.org", "name": "A"}]}), &[]),
            (
                json!({"people": [{"email": "a@x.org", "Email": "eve@x.org"}]}),
                &["/people/0/Email"],
            ),
            (
                json!({"people": [{"email": "a@x.org", "boss": {"boss": {"bcc": 1}}}]}),
                &["/people/0/boss/boss/bcc"],
            ),
            (json!({"labels": {"any": {"thing": 1}}, "headers": {"any": "x"}}), &[]),
            (json!({"more": {"a": 1, "b": 2, "c~/d": 3}}), &["/more/c~0~1d"]),
        ] {
            assert_eq!(places(schema, &arguments), invalid, "{arguments}");
        }
        assert_eq!(places(&json!({"type": "object"}), &json!({"anything": 1})), [""; 0]);
        let itself = json!({"properties": {"to": {}}, "$ref": "#", "allOf": [{"$ref": "#"}]});
        assert_eq!(places(&itself, &json!({"to": "a@x.org"})), [""; 0]);
        let many: Map<String, Value> = (0..20).map(|n| (n.to_string(), json!(1))).collect();
        assert_eq!(places(schema, &Value::Object(many)).len(), MOST_ERRORS);
    }
}
