//! Arguments that a tool's schema does not declare.
//!
//! JSON Schema accepts them unless `additionalProperties` forbids them, and a server may read more than it declares. A
//! recipient under another name would be unchecked, invisible to rules, and unapproved.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value};

use crate::domain::argument_path::ArgumentPath;
use crate::domain::definition::quoted;
use crate::domain::tool::Tool;

/// Maximum number of errors reported at once.
const MOST_ERRORS: usize = 8;
/// Maximum number of schemas examined for one value; a schema may refer to itself.
const MOST_SCHEMAS: usize = 256;

/// What a call of a tool with recipients contains beyond what its schema declares.
#[derive(Default)]
pub(super) struct UndeclaredArguments {
    /// Forbidden arguments, each with its place and what is allowed.
    pub(super) errors: Vec<String>,
    /// Places of accepted but undeclared values that may be further addresses: a grant does not cover them.
    pub(super) uncovered: Vec<String>,
}

pub(super) fn undeclared_arguments(tool: &Tool, arguments: &Value) -> UndeclaredArguments {
    search(&tool.input.value(), &tool.recipients, arguments)
}

fn search(root: &Value, recipients: &[ArgumentPath], arguments: &Value) -> UndeclaredArguments {
    // If a path meets a value that it cannot read, the call is refused for that.
    let texts = recipients
        .iter()
        .filter_map(|path| path.texts(arguments).ok())
        .flatten();
    let mut search = Search {
        root,
        read: texts.map(|(place, _)| place).collect(),
        found: UndeclaredArguments::default(),
    };
    search.walk(&[root], arguments, "");
    search.found
}

struct Search<'a> {
    root: &'a Value,
    /// The places of the tool's recipient addresses.
    read: HashSet<String>,
    found: UndeclaredArguments,
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
        // An object whose schema declares no properties may contain anything. But a recipient object must not contain a
        // second address.
        let free = names.is_empty();
        let is_recipient = self.read.contains(&format!("{place}/email"));
        if free && is_recipient {
            names.insert("email");
        }
        for (name, value) in fields {
            let own = schemas.iter().any(|schema| schema["properties"].get(name).is_some());
            let of: Vec<_> = schemas.iter().flat_map(|schema| of_field(schema, name)).collect();
            let is_named = match free {
                false => !of.is_empty(),
                true => !is_recipient || names.contains(name.as_str()) || is_no_address(value),
            };
            let place = format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"));
            let may_be_address = || names_address(name) || self.may_be_address(value, &place);
            if !own && self.found.uncovered.len() < MOST_ERRORS && may_be_address() {
                self.found.uncovered.push(place.clone());
            }
            if is_named {
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

    /// Does it contain a possible address besides the recipients, as a value or as a name, at any depth?
    fn may_be_address(&self, value: &Value, place: &str) -> bool {
        match value {
            Value::Object(fields) => fields.iter().any(|(name, value)| {
                let place = || format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"));
                names_address(name) || self.may_be_address(value, &place())
            }),
            Value::Array(items) => {
                let mut items = items.iter().enumerate();
                items.any(|(n, item)| self.may_be_address(item, &format!("{place}/{n}")))
            }
            value => !is_no_address(value) && !self.read.contains(place),
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

/// Encodings of `@` in URLs, HTML, JSON and mail.
const ENCODED: [&str; 7] = ["%40", "&#64", "&#x40", "&commat", "\\u0040", "\\x40", "=40"];

/// An object may list people by its property names.
fn names_address(text: &str) -> bool {
    text.contains(['@', '＠', '﹫']) || ENCODED.iter().any(|at| contains_in_any_case(text, at))
}

fn contains_in_any_case(text: &str, part: &str) -> bool {
    let mut windows = text.as_bytes().windows(part.len());
    windows.any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}

/// For example a person's name.
fn is_no_address(value: &Value) -> bool {
    match value {
        Value::String(text) => !names_address(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::Array(_) | Value::Object(_) => false,
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

    fn found(schema: Value, arguments: &Value) -> UndeclaredArguments {
        let recipients = ["to", "people[].email", "message.to"].map(|path| ArgumentPath::parse(path).unwrap());
        search(&schema, &recipients, arguments)
    }

    fn places(schema: Value, arguments: &Value) -> Vec<String> {
        let place = |error: String| error.split(": ").next().unwrap().to_owned();
        found(schema, arguments).errors.into_iter().map(place).collect()
    }

    /// a grant covers no further recipients, wherever a schema leaves room for them.
    #[test]
    fn an_address_that_a_schema_lets_pass_without_a_name_is_found() {
        for (schema, arguments, uncovered) in [
            (
                json!({"type": "object"}),
                json!({"to": "a@x.org", "bcc": ["eve@x.org"], "body": "Hi"}),
                &["/bcc"][..],
            ),
            (
                json!({"properties": {"to": {}}, "additionalProperties": {"type": "string"}}),
                json!({"to": "a@x.org", "cc": "eve@x.org", "subject": "Hi"}),
                &["/cc"],
            ),
            (
                json!({"properties": {"to": {}, "more": {"type": "object"}, "body": {}}}),
                json!({"to": "a@x.org", "more": {"x": {"y": ["eve@x.org"]}, "z": 1}, "body": "write to b@x.org"}),
                &["/more/x", "/more/x/y"],
            ),
            (
                json!({"properties": {"to": {}, "headers": {"type": "object"}}}),
                json!({"to": ["a@x.org", {"email": "b@x.org"}], "headers": {"bcc": "eve@x.org", "email": "eve@x.org", "to": "eve@x.org"}}),
                &["/headers/bcc", "/headers/email", "/headers/to"],
            ),
            (
                json!({"properties": {"message": {"type": "object"}}}),
                json!({"message": {"to": ["a@x.org"], "email": "eve@x.org", "message": "eve@x.org", "subject": "Hi"}}),
                &["/message/email", "/message/message"],
            ),
            (
                json!({"properties": {"message": {"type": "object"}}}),
                json!({"message": {"to": ["a@x.org"], "body": "ask help@x.org", "attachments": [], "to/": "eve@x.org"}}),
                &["/message/body", "/message/to~1"],
            ),
            (
                json!({"properties": {"message": {"type": "object"}}}),
                json!({"message": {"to": [{"email": "a@x.org", "name": "A"}], "subject": "Hi"}}),
                &[],
            ),
            (
                json!({"properties": {"to": {}, "more": {"type": "object"}}}),
                json!({"to": "a@x.org", "more": {"eve@x.org": true, "also": {"mallory@x.org": {"as": "bcc"}}}}),
                &["/more/also", "/more/also/mallory@x.org", "/more/eve@x.org"],
            ),
            (
                json!({"properties": {"to": {}, "more": {"type": "object"}}}),
                json!({"to": "a@x.org", "more": {"a": "mailto:?bcc=eve%40x.org", "b": "eve&#X40;x.org", "c": "eve\\u0040x.org",
                    "d": "100 % of 64 = 40"}}),
                &["/more/a", "/more/b", "/more/c"],
            ),
        ] {
            let found = found(schema, &arguments);
            assert_eq!(found.uncovered, uncovered, "{arguments}");
            assert!(found.errors.is_empty(), "{arguments}: {:?}", found.errors);
        }
    }

    /// a recipient under an undeclared name was never approved.
    #[test]
    fn what_the_schema_does_not_name_is_found_at_any_depth() {
        let schema = || {
            json!({
                "properties": {
                    "to": {}, "people": {"type": "array", "items": {"$ref": "#/$defs/person"}},
                    "labels": {"type": "object"}, "headers": {"additionalProperties": {"type": "string"}},
                    "more": {"anyOf": [{"properties": {"a": {}}}, {"type": "null"}], "allOf": [{"properties": {"b": {}}}]},
                },
                "$defs": {"person": {"properties": {"email": {}, "name": {}, "boss": {"$ref": "#/$defs/person"}}}},
            })
        };
        for (arguments, wrong) in [
            (json!({"to": ["a@x.org"], "To": ["eve@x.org"]}), &["/To"][..]),
            (json!({"to": [{"email": "a@x.org", "cc": "eve@x.org"}]}), &["/to/0/cc"]),
            (json!({"to": [{"email": "a@x.org", "name": "A", "vip": true}]}), &[]),
            (
                json!({"to": [{"email": "a@x.org", "bcc": ["eve@x.org"]}]}),
                &["/to/0/bcc"],
            ),
            (json!({"to": [{"email": "a@x.org", "to": "eve@x.org"}]}), &["/to/0/to"]),
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
            assert_eq!(places(schema(), &arguments), wrong, "{arguments}");
        }
        assert_eq!(places(json!({"type": "object"}), &json!({"anything": 1})), [""; 0]);
        let itself = json!({"properties": {"to": {}}, "$ref": "#", "allOf": [{"$ref": "#"}]});
        assert_eq!(places(itself, &json!({"to": "a@x.org"})), [""; 0]);
        let many: Map<String, Value> = (0..20).map(|n| (n.to_string(), json!(1))).collect();
        assert_eq!(places(schema(), &Value::Object(many)).len(), MOST_ERRORS);
    }
}
