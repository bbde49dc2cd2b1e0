//! A tool's input schema as Gemini may be shown it (`parametersJsonSchema`, WIRE.md section 2).
//!
//! The original stays what arguments are checked against; the translation only has to tell the
//! model what to write, within what the API accepts:
//!
//! - local `$ref`s are put in place, with their siblings merged in (a sibling's word wins); `$defs`
//!   and `definitions` go away, used or not; a cycle or a reference elsewhere is impossible;
//! - `const` becomes an `enum` of one value where it is text or a number, else the value's `type`;
//! - `oneOf` becomes `anyOf`, `allOf` is merged into its schema;
//! - `$schema`, `$id`, `$anchor`, `$comment`, other `$` keywords and extensions (`x-…`) are dropped;
//! - the root is an object; an array without `items` gets `{}`; a `true` schema is `{}`, a property
//!   that is `false` is left out;
//! - characters nobody can see are taken out of titles and descriptions.
//!
//! Everything else is left as it is.

use serde_json::{Map, Value, json};

use super::text::visible;

/// Nesting beyond this is refused rather than sent.
const MAX_DEPTH: usize = 48;
/// Largest schema shown to the model, in bytes of JSON.
pub(super) const MAX_BYTES: usize = 64 * 1024;
/// Work bound while references are put in place, in schema nodes.
const MAX_NODES: usize = 20_000;

/// Translates `schema`. With `hidden`, that property is not shown.
///
/// # Errors
/// Why there is no translation, in words for an operator.
pub(super) fn translate(schema: &Value, hidden: Option<&str>) -> Result<Value, String> {
    let Value::Object(root) = schema else {
        return Err("its input schema is not an object".to_owned());
    };
    let mut work = Translation {
        root: schema,
        open: Vec::new(),
        nodes: 0,
    };
    let mut out = work.object(root, 0)?;
    match out.get("type") {
        None => {
            out.insert("type".to_owned(), json!("object"));
        }
        Some(Value::String(kind)) if kind == "object" => {}
        Some(Value::Array(kinds)) if kinds.contains(&json!("object")) => {
            out.insert("type".to_owned(), json!("object"));
        }
        Some(other) => return Err(format!("its input schema is of type {other}, not an object")),
    }
    if let Some(name) = hidden {
        hide(&mut out, name)?;
    }
    let out = Value::Object(out);
    let bytes = out.to_string().len();
    if bytes > MAX_BYTES {
        return Err(format!(
            "its translated input schema has {bytes} bytes; at most {MAX_BYTES} are sent"
        ));
    }
    Ok(out)
}

/// Takes a top-level property out.
fn hide(schema: &mut Map<String, Value>, name: &str) -> Result<(), String> {
    let known = schema
        .get_mut("properties")
        .and_then(Value::as_object_mut)
        .is_some_and(|properties| properties.remove(name).is_some());
    if !known {
        return Err(format!(
            "the identity argument `{name}` is not among the properties of its input schema"
        ));
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|entry| entry != name);
        if required.is_empty() {
            schema.remove("required");
        }
    }
    Ok(())
}

struct Translation<'a> {
    root: &'a Value,
    /// The references being followed, outermost first.
    open: Vec<String>,
    nodes: usize,
}

impl Translation<'_> {
    fn schema(&mut self, schema: &Value, depth: usize) -> Result<Value, String> {
        match schema {
            Value::Object(object) => self.object(object, depth).map(Value::Object),
            Value::Bool(true) => Ok(json!({})),
            Value::Bool(false) => Err("a schema that allows nothing (`false`)".to_owned()),
            other => Err(format!("{other} where a schema should be")),
        }
    }

    fn object(&mut self, schema: &Map<String, Value>, depth: usize) -> Result<Map<String, Value>, String> {
        self.nodes += 1;
        if depth > MAX_DEPTH {
            return Err(format!("its input schema is nested deeper than {MAX_DEPTH} levels"));
        }
        if self.nodes > MAX_NODES {
            return Err(format!(
                "its input schema has more than {MAX_NODES} parts with its references in place"
            ));
        }
        let mut out = Map::new();
        for (key, value) in schema {
            match key.as_str() {
                "$ref" | "allOf" | "oneOf" | "const" => {}
                "definitions" => {}
                odd if odd.starts_with('$') || odd.starts_with("x-") => {}
                "properties" => {
                    out.insert(key.clone(), self.properties(value, depth)?);
                }
                "items" | "additionalProperties" | "not" | "contains" | "propertyNames" | "if" | "then" | "else"
                    if value.is_object() =>
                {
                    out.insert(key.clone(), self.schema(value, depth + 1)?);
                }
                // The form of a tuple before draft 2020-12.
                "items" if value.is_array() => {
                    out.insert("prefixItems".to_owned(), self.list(value, depth)?);
                }
                "items" => {
                    out.insert(key.clone(), json!({}));
                }
                "anyOf" | "prefixItems" => {
                    out.insert(key.clone(), self.list(value, depth)?);
                }
                "patternProperties" | "dependentSchemas" => {
                    out.insert(key.clone(), self.properties(value, depth)?);
                }
                "description" | "title" => {
                    if let Value::String(text) = value {
                        out.insert(key.clone(), Value::String(visible(text)));
                    }
                }
                _ => {
                    out.insert(key.clone(), value.clone());
                }
            }
        }
        if let Some(value) = schema.get("const") {
            constant(&mut out, value);
        }
        if let Some(choices) = schema.get("oneOf") {
            let choices = self.list(choices, depth)?;
            // Both at once are rare; the model is then shown the first of them.
            out.entry("anyOf").or_insert(choices);
        }
        if let Some(Value::Array(parts)) = schema.get("allOf") {
            for part in parts {
                if let Value::Object(part) = part {
                    let part = self.object(part, depth + 1)?;
                    merge(&mut out, part);
                }
            }
        }
        if let Some(reference) = schema.get("$ref") {
            let target = self.reference(reference, depth)?;
            merge(&mut out, target);
        }
        if is_array(&out) && !out.contains_key("items") && !out.contains_key("prefixItems") {
            out.insert("items".to_owned(), json!({}));
        }
        Ok(out)
    }

    fn properties(&mut self, value: &Value, depth: usize) -> Result<Value, String> {
        let Value::Object(properties) = value else {
            return Err("`properties` that is not an object".to_owned());
        };
        let mut out = Map::new();
        for (name, schema) in properties {
            if *schema != Value::Bool(false) {
                out.insert(name.clone(), self.schema(schema, depth + 1)?);
            }
        }
        Ok(Value::Object(out))
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<Value, String> {
        let Value::Array(items) = value else {
            return Err(format!("{value} where a list of schemas should be"));
        };
        let items: Result<Vec<Value>, String> = items
            .iter()
            .filter(|schema| **schema != Value::Bool(false))
            .map(|schema| self.schema(schema, depth + 1))
            .collect();
        items.map(Value::Array)
    }

    fn reference(&mut self, reference: &Value, depth: usize) -> Result<Map<String, Value>, String> {
        let Value::String(reference) = reference else {
            return Err("a `$ref` that is not text".to_owned());
        };
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(format!("`$ref` {reference} leads out of the schema"));
        };
        if self.open.iter().any(|open| open == reference) || pointer.is_empty() {
            return Err(format!("`$ref` {reference} leads back to itself"));
        }
        let target = match self.root.pointer(&percent_decoded(pointer)) {
            Some(Value::Object(target)) => target,
            Some(Value::Bool(true)) => return Ok(Map::new()),
            _ => return Err(format!("`$ref` {reference} leads to nothing")),
        };
        self.open.push(reference.clone());
        let out = self.object(target, depth + 1);
        self.open.pop();
        out
    }
}

/// The pointer of a URI fragment may be percent-encoded (RFC 6901 section 6).
fn percent_decoded(pointer: &str) -> String {
    let bytes = pointer.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| pointer.to_owned())
}

fn is_array(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == "array",
        Some(Value::Array(kinds)) => kinds.contains(&json!("array")),
        _ => false,
    }
}

/// `enum` may hold text and numbers only; of other constants the type is all that can be said.
fn constant(out: &mut Map<String, Value>, value: &Value) {
    let kind = match value {
        Value::String(_) | Value::Number(_) => {
            out.insert("enum".to_owned(), json!([value]));
            return;
        }
        Value::Bool(_) => "boolean",
        Value::Null => "null",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    out.entry("type").or_insert_with(|| json!(kind));
}

/// Merges `other` in. Where both speak, properties and required names are united and for all else
/// the word already there stands.
fn merge(out: &mut Map<String, Value>, other: Map<String, Value>) {
    for (key, value) in other {
        match (key.as_str(), out.get_mut(&key), value) {
            ("properties", Some(Value::Object(mine)), Value::Object(theirs)) => {
                for (name, schema) in theirs {
                    mine.entry(name).or_insert(schema);
                }
            }
            ("required", Some(Value::Array(mine)), Value::Array(theirs)) => {
                for name in theirs {
                    if !mine.contains(&name) {
                        mine.push(name);
                    }
                }
            }
            (_, Some(_), _) => {}
            (_, None, value) => {
                out.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn ok(schema: Value) -> Value {
        translate(&schema, None).unwrap()
    }

    #[test]
    fn references_are_put_in_place_and_a_siblings_word_wins() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"to": {"$ref": "#/$defs/Address", "description": "whom"}, "cc": {"$ref": "#/$defs/a~1b"}},
            "$defs": {
                "Address": {"type": "string", "description": "an address", "maxLength": 9},
                "a/b": {"type": "array"},
                "Unused": {"$ref": "#/$defs/Unused"}
            }
        });
        assert_eq!(
            ok(schema),
            json!({"type": "object", "properties": {
                "to": {"type": "string", "description": "whom", "maxLength": 9},
                "cc": {"type": "array", "items": {}}
            }})
        );
    }

    #[test]
    fn what_gemini_does_not_know_is_rewritten() {
        let schema = json!({"properties": {
            "kind": {"oneOf": [{"const": "a"}, {"const": 2}, {"const": true}, {"const": null}]},
            "all": {"allOf": [{"type": "object", "properties": {"x": {}}, "required": ["x"]},
                              {"properties": {"y": true, "z": false}, "required": ["x", "y"]}]},
            "pair": {"type": "array", "items": [{"type": "string"}, {"type": "number"}]}
        }});
        assert_eq!(
            ok(schema),
            json!({"type": "object", "properties": {
                "kind": {"anyOf": [{"enum": ["a"]}, {"enum": [2]}, {"type": "boolean"}, {"type": "null"}]},
                "all": {"type": "object", "properties": {"x": {}, "y": {}}, "required": ["x", "y"]},
                "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]}
            }})
        );
    }

    #[test]
    fn a_property_may_be_called_like_a_keyword() {
        let schema = json!({"type": "object", "properties": {"$ref": {"type": "string"}, "const": {"type": "string"}}});
        assert_eq!(ok(schema.clone()), schema);
    }

    #[test]
    fn the_identity_argument_is_not_shown() {
        let schema = json!({"type": "object", "properties": {"user_id": {"type": "string"}, "a": {"type": "string"}},
                            "required": ["user_id"]});
        let shown = translate(&schema, Some("user_id")).unwrap();
        assert_eq!(
            shown,
            json!({"type": "object", "properties": {"a": {"type": "string"}}})
        );
        assert!(translate(&schema, Some("actor")).unwrap_err().contains("`actor`"));
    }

    #[test]
    fn the_impossible_is_refused_with_the_reason() {
        let cycle = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/N"}},
                           "$defs": {"N": {"properties": {"next": {"$ref": "#/$defs/N"}}}}});
        assert_eq!(
            translate(&cycle, None).unwrap_err(),
            "`$ref` #/$defs/N leads back to itself"
        );
        let root = json!({"type": "object", "properties": {"a": {"$ref": "#"}}});
        assert_eq!(translate(&root, None).unwrap_err(), "`$ref` # leads back to itself");
        let remote = json!({"type": "object", "properties": {"a": {"$ref": "https://example.org/x"}}});
        assert!(translate(&remote, None).unwrap_err().contains("leads out"));
        let nowhere = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/X"}}});
        assert!(translate(&nowhere, None).unwrap_err().contains("leads to nothing"));
        assert!(
            translate(&json!({"type": "string"}), None)
                .unwrap_err()
                .contains("not an object")
        );
        assert!(translate(&json!([]), None).is_err());
    }

    #[test]
    fn references_that_multiply_are_cut_short() {
        let mut defs = Map::new();
        for n in 0..20 {
            let next = format!("#/$defs/d{}", n + 1);
            defs.insert(
                format!("d{n}"),
                json!({"properties": {"a": {"$ref": next}, "b": {"$ref": next}}}),
            );
        }
        defs.insert("d20".to_owned(), json!({"type": "string"}));
        let bomb = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs});
        assert!(translate(&bomb, None).unwrap_err().contains("more than"));
    }

    #[test]
    fn unseen_characters_leave_descriptions() {
        let schema = json!({"type": "object", "properties": {"a": {"description": "x\u{0}\u{202e}\u{e0041}y\nz"}}});
        assert_eq!(ok(schema)["properties"]["a"]["description"], "xy\nz");
    }
}
