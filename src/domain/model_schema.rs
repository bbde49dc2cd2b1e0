//! A tool's input schema as Gemini may be shown it (`parametersJsonSchema`, WIRE.md section 2).
//!
//! The original stays what arguments are checked against; the translation only has to tell the
//! model what to write, within what the API accepts:
//!
//! - local `$ref`s are put in place, with their siblings merged in (a sibling's word wins); `$defs`
//!   and `definitions` go away, used or not; a cycle or a reference elsewhere is impossible;
//! - `enum` holds text and numbers only, and `const` is an `enum` of one value; of other values the
//!   type is told (`choices`);
//! - `oneOf` becomes `anyOf`, `allOf` is merged into its schema;
//! - the root is an object; an array without `items` gets `{}`; a `true` schema is `{}`, a property
//!   that is `false` is left out;
//! - characters nobody can see are taken out of all text, and what the model has to repeat exactly
//!   (names, the values of an `enum`) may not hold any;
//! - every other keyword of JSON Schema is left as it is if it holds no schema, and what is not known
//!   here is dropped: it might hold a `$ref`, and one that leads nowhere costs the entire request.
//!
//! A server may send half a megabyte of schema, and references multiply. So each byte that is read or
//! copied counts, and a tool that needs too many is left out.

mod choices;
mod identity;

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::text::{is_visible, visible};

/// Nesting beyond this is refused rather than sent.
const MAX_DEPTH: usize = 48;
/// Largest schema shown to the model, in bytes of JSON.
pub(crate) const MAX_BYTES: usize = 64 * 1024;
/// Work bound of one translation, in bytes read or copied. Much of it may go away again (what is merged, what is hidden),
/// so it is a multiple of what may be left in the end.
const MAX_WORK: usize = 16 * MAX_BYTES;
/// What each value counts beside its text.
const PART: usize = 8;

/// Keywords whose value is text, a number, a boolean, or a list of these.
const PLAIN: [&str; 25] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minContains",
    "maxContains",
    "minProperties",
    "maxProperties",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentEncoding",
    "contentMediaType",
];

/// Translates `schema`. With `hidden`, that property is not shown.
///
/// # Errors
/// Why there is no translation, in words for an operator. They may quote the schema at length.
pub(crate) fn translate(schema: &Value, hidden: Option<&str>) -> Result<Value, String> {
    let Value::Object(root) = schema else {
        return Err("its schema is not an object".to_owned());
    };
    let mut work = Translation {
        root: schema,
        open: Vec::new(),
        left: MAX_WORK,
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
        Some(other) => return Err(format!("its schema is of type {other}, not an object")),
    }
    if let Some(name) = hidden {
        identity::hide(&mut out, name)?;
    }
    let out = Value::Object(out);
    let bytes = out.to_string().len();
    if bytes > MAX_BYTES {
        return Err(format!(
            "its translated schema has {bytes} bytes; at most {MAX_BYTES} are sent"
        ));
    }
    Ok(out)
}

struct Translation<'a> {
    root: &'a Value,
    /// The references being followed, outermost first.
    open: Vec<String>,
    /// What is left of [`MAX_WORK`].
    left: usize,
}

impl Translation<'_> {
    fn spend(&mut self, bytes: usize) -> Result<(), String> {
        self.left = self
            .left
            .checked_sub(bytes)
            .ok_or_else(|| format!("its schema has more than {MAX_WORK} bytes to read with its references in place"))?;
        Ok(())
    }

    fn schema(&mut self, schema: &Value, depth: usize) -> Result<Value, String> {
        match schema {
            Value::Object(object) => self.object(object, depth).map(Value::Object),
            Value::Bool(true) => Ok(json!({})),
            Value::Bool(false) => Err("a schema that allows nothing (`false`)".to_owned()),
            other => Err(format!("{other} where a schema should be")),
        }
    }

    fn object(&mut self, schema: &Map<String, Value>, depth: usize) -> Result<Map<String, Value>, String> {
        within(depth)?;
        self.spend(PART)?;
        let mut out = Map::new();
        let mut required = Required::default();
        for (key, value) in schema {
            self.spend(key.len() + PART)?;
            match key.as_str() {
                "properties" | "patternProperties" | "dependentSchemas" => {
                    out.insert(key.clone(), self.properties(value, depth)?);
                }
                "items" | "additionalProperties" | "not" | "contains" | "propertyNames" | "if" | "then" | "else"
                    if value.is_object() =>
                {
                    out.insert(key.clone(), self.schema(value, depth + 1)?);
                }
                "additionalProperties" | "not" | "contains" | "propertyNames" | "if" | "then" | "else"
                    if value.is_boolean() =>
                {
                    out.insert(key.clone(), value.clone());
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
                "required" => required.add(self.names(value)?),
                "propertyOrdering" => {
                    out.insert(key.clone(), self.names(value)?.into());
                }
                "dependentRequired" => {
                    out.insert(key.clone(), self.dependent(value)?);
                }
                "default" | "example" | "examples" => {
                    out.insert(key.clone(), self.copy(value, depth)?);
                }
                plain if PLAIN.contains(&plain) && is_plain(value) => {
                    out.insert(key.clone(), self.copy(value, depth)?);
                }
                // Read below, or dropped.
                _ => {}
            }
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            self.choices(&mut out, values)?;
        }
        if let Some(value) = schema.get("const") {
            self.choices(&mut out, std::slice::from_ref(value))?;
        }
        if let Some(choices) = schema.get("oneOf") {
            let choices = self.list(choices, depth)?;
            // Both at once are rare; the model is then shown the first of them.
            out.entry("anyOf").or_insert(choices);
        }
        if let Some(Value::Array(parts)) = schema.get("allOf") {
            for part in parts {
                self.spend(PART)?;
                if let Value::Object(part) = part {
                    let part = self.object(part, depth + 1)?;
                    merge(&mut out, &mut required, part);
                }
            }
        }
        if let Some(reference) = schema.get("$ref") {
            let target = self.reference(reference, depth)?;
            merge(&mut out, &mut required, target);
        }
        if !required.names.is_empty() {
            out.insert("required".to_owned(), required.names.into());
        }
        if choices::types(&out).contains(&"array") && !out.contains_key("items") && !out.contains_key("prefixItems") {
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
            self.exact(name)?;
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
        let mut out = Vec::new();
        for schema in items {
            self.spend(PART)?;
            if *schema != Value::Bool(false) {
                out.push(self.schema(schema, depth + 1)?);
            }
        }
        Ok(Value::Array(out))
    }

    fn reference(&mut self, reference: &Value, depth: usize) -> Result<Map<String, Value>, String> {
        let Value::String(reference) = reference else {
            return Err("a `$ref` that is not text".to_owned());
        };
        self.spend(reference.len())?;
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

    fn choices(&mut self, out: &mut Map<String, Value>, values: &[Value]) -> Result<(), String> {
        for value in values {
            match value {
                Value::String(text) => self.exact(text)?,
                _ => self.spend(PART)?,
            }
        }
        choices::put(out, values);
        Ok(())
    }

    /// A list of properties' names.
    fn names(&mut self, value: &Value) -> Result<Vec<Value>, String> {
        let Value::Array(names) = value else {
            return Err(format!("{value} where a list of names should be"));
        };
        for name in names {
            match name {
                Value::String(name) => self.exact(name)?,
                other => return Err(format!("{other} where a name should be")),
            }
        }
        Ok(names.clone())
    }

    fn dependent(&mut self, value: &Value) -> Result<Value, String> {
        let Value::Object(lists) = value else {
            return Err("`dependentRequired` that is not an object".to_owned());
        };
        let mut out = Map::new();
        for (name, names) in lists {
            self.exact(name)?;
            out.insert(name.clone(), self.names(names)?.into());
        }
        Ok(Value::Object(out))
    }

    /// A value that is no schema, with all text in it made visible.
    fn copy(&mut self, value: &Value, depth: usize) -> Result<Value, String> {
        within(depth)?;
        self.spend(PART)?;
        Ok(match value {
            Value::String(text) => {
                self.spend(text.len())?;
                Value::String(visible(text))
            }
            Value::Array(items) => {
                let items: Result<_, String> = items.iter().map(|item| self.copy(item, depth + 1)).collect();
                Value::Array(items?)
            }
            Value::Object(members) => {
                let mut out = Map::new();
                for (key, value) in members {
                    self.spend(key.len())?;
                    out.insert(visible(key), self.copy(value, depth + 1)?);
                }
                Value::Object(out)
            }
            scalar => scalar.clone(),
        })
    }

    /// Text that the model has to repeat as it is, so nothing can be taken out of it.
    fn exact(&mut self, text: &str) -> Result<(), String> {
        self.spend(text.len() + PART)?;
        if is_visible(text) {
            return Ok(());
        }
        Err(format!(
            "a name or a value of its schema, `{}`, holds characters nobody can see",
            visible(text)
        ))
    }
}

fn within(depth: usize) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("its schema is nested deeper than {MAX_DEPTH} levels"));
    }
    Ok(())
}

/// Holds it no object, which might be a schema?
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Object(_) => false,
        Value::Array(items) => !items.iter().any(|item| item.is_object() || item.is_array()),
        _ => true,
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

/// Names that must be given, each once, in the order they came.
#[derive(Default)]
struct Required {
    names: Vec<Value>,
    known: HashSet<Value>,
}

impl Required {
    fn add(&mut self, names: Vec<Value>) {
        for name in names {
            if self.known.insert(name.clone()) {
                self.names.push(name);
            }
        }
    }
}

/// Merges `other` in. Where both speak, properties and required names are united and for all else
/// the word already there stands.
fn merge(out: &mut Map<String, Value>, required: &mut Required, other: Map<String, Value>) {
    for (key, value) in other {
        match (key.as_str(), out.get_mut(&key), value) {
            ("properties", Some(Value::Object(mine)), Value::Object(theirs)) => {
                for (name, schema) in theirs {
                    mine.entry(name).or_insert(schema);
                }
            }
            ("required", _, Value::Array(names)) => required.add(names),
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

    /// Promise 5: what references copy counts, whatever it is. Each of these would be gigabytes, or minutes of comparing.
    #[test]
    fn large_values_that_references_multiply_are_cut_short() {
        let values: Vec<String> = (0..50_000).map(|n| n.to_string()).collect();
        let properties = |one: &Value| -> Value { (0..4_000).map(|n| (n.to_string(), one.clone())).collect() };
        for definition in [
            json!({"enum": values}),
            json!({"const": values.concat()}),
            json!({"default": values}),
            json!({"examples": [{"deep": values}]}),
            json!({"description": values.concat()}),
            json!({"required": values}),
            json!({"dependentRequired": {"a": values}}),
            json!({"properties": values.iter().map(|name| (name.clone(), json!(false))).collect::<Value>()}),
            json!({"anyOf": vec![json!(false); 50_000]}),
            values
                .iter()
                .map(|name| (format!("x-{name}"), json!(0)))
                .collect::<Value>(),
        ] {
            let bomb = json!({"type": "object", "properties": properties(&json!({"$ref": "#/$defs/E"})),
                              "$defs": {"E": definition}});
            let began = std::time::Instant::now();
            let reason = translate(&bomb, None).unwrap_err();
            assert!(reason.contains("bytes to read"), "{reason}");
            // A bound that a loaded machine keeps too; without the budget it is minutes.
            assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
        }
    }

    #[test]
    fn required_names_are_united_each_once() {
        let part = |names: &[&str]| json!({"required": names});
        let schema = json!({"type": "object", "required": ["a"], "allOf": [part(&["b", "a"]), part(&["c", "b"])]});
        assert_eq!(ok(schema), json!({"type": "object", "required": ["a", "b", "c"]}));
    }

    /// WIRE.md section 2: one reference that leads nowhere is a 400 for the entire request, so none may be left.
    #[test]
    fn a_keyword_that_may_hold_an_unseen_reference_is_dropped() {
        let reference = json!({"$ref": "#/$defs/A"});
        for keyword in [
            "dependencies",
            "unevaluatedProperties",
            "unevaluatedItems",
            "additionalItems",
            "contentSchema",
            "extends",
            "somebodys-own",
        ] {
            for value in [reference.clone(), json!({"a": reference}), json!([reference])] {
                let mut schema = json!({"type": "object", "properties": {"a": {"type": "array"}}, "$defs": {"A": {}}});
                schema[keyword] = value.clone();
                schema["properties"]["a"][keyword] = value;
                let shown = ok(schema);
                assert_eq!(
                    shown,
                    json!({"type": "object", "properties": {"a": {"type": "array", "items": {}}}}),
                    "{keyword}"
                );
            }
        }
        // And where a plain value is expected.
        let shown = ok(json!({"type": "object", "properties": {"a": {"format": reference, "title": [reference]}}}));
        assert_eq!(shown, json!({"type": "object", "properties": {"a": {}}}));
    }

    #[test]
    fn unseen_characters_leave_all_text_and_may_not_stand_in_names() {
        let tagged = "x\u{202e}\u{e0041}y";
        let schema = json!({"type": "object", "properties": {"a": {
            "title": tagged, "description": "x\u{0}\u{e0041}y\nz", "pattern": tagged,
            "default": {tagged: [tagged]}, "examples": [tagged]}}});
        assert_eq!(
            ok(schema)["properties"]["a"],
            json!({"title": "xy", "description": "xy\nz", "pattern": "xy", "default": {"xy": ["xy"]}, "examples": ["xy"]})
        );
        for hiding in [
            json!({"properties": {tagged: {}}}),
            json!({"patternProperties": {tagged: {}}}),
            json!({"required": [tagged]}),
            json!({"dependentRequired": {tagged: []}}),
            json!({"dependentRequired": {"a": [tagged]}}),
            json!({"propertyOrdering": [tagged]}),
            json!({"properties": {"a": {"enum": ["a", tagged]}}}),
            json!({"properties": {"a": {"anyOf": [{"const": tagged}]}}}),
        ] {
            let reason = translate(&hiding, None).unwrap_err();
            assert!(reason.contains("`xy`, holds characters nobody can see"), "{reason}");
        }
    }
}
