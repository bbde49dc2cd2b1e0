//! Translates a tool's input schema into the form that Gemini accepts (`parametersJsonSchema`).
//!
//! Arguments are checked against the original. The translation only tells the model what to write, within the limits of
//! the API (`docs/explanation/gemini.md`):
//!
//! - local `$ref`s are expanded, with their siblings merged in (a sibling takes precedence); `$defs` and `definitions`
//!   are removed, used or not; a reference to elsewhere is an error;
//! - a reference to a schema that is already being expanded becomes a stub: its type and a note about its form. If
//!   references would exceed the limits, those of the third level, then of the second, become stubs too;
//! - `enum` contains only non-empty text and numbers, and `const` is an `enum` of one value; for other values the type
//!   is given (`choices`);
//! - `oneOf` becomes `anyOf`, `allOf` is merged into its schema;
//! - the root is an object; an array without `items` gets `{}`; a `true` schema is `{}`, and a property that is `false`
//!   is removed;
//! - invisible characters are removed from all text; names and `enum` values, which the model has to repeat exactly,
//!   must not contain any;
//! - every other keyword of JSON Schema is kept if it contains no schema; unknown keywords are dropped: one might
//!   contain a `$ref`, and a `$ref` without a target fails the entire request.
//!
//! A server may send half a megabyte of schema, and references multiply. So each byte that is read or copied counts,
//! and a tool that needs too many is left out.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::text::{is_visible, visible};

/// A schema that nests deeper is rejected, not sent.
const MAX_DEPTH: usize = 48;
/// The largest schema for the model, in bytes of JSON.
pub(crate) const MAX_BYTES: usize = 64 * 1024;
/// Work limit of one translation, in bytes read or copied. Much of it may be removed again (merged or hidden parts), so
/// it is a multiple of the final limit.
const MAX_WORK: usize = 16 * MAX_BYTES;
/// Levels of references to expand if expanding all of them is too much.
const LEVELS: [usize; 3] = [2, 1, 0];
/// The cost of each value, in addition to its text.
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

/// Translates `schema`. The properties in `hidden` are removed.
///
/// # Errors
/// Why there is no translation, for an operator. The text may quote the schema at length.
pub fn translate(schema: &Value, hidden: &[&str]) -> Result<Value, String> {
    let Value::Object(root) = schema else {
        return Err("its schema is not an object".to_owned());
    };
    match expanded(schema, root, hidden, usize::MAX) {
        Err(Untranslatable { why, is_too_much: true }) => {
            let mut fewer = LEVELS.iter().map(|levels| expanded(schema, root, hidden, *levels));
            fewer.find_map(Result::ok).ok_or(why)
        }
        Err(Untranslatable { why, .. }) => Err(why),
        Ok(shown) => Ok(shown),
    }
}

/// Why there is no translation.
struct Untranslatable {
    why: String,
    /// It would be too large; fewer levels of references may fit.
    is_too_much: bool,
}

impl From<String> for Untranslatable {
    fn from(why: String) -> Self {
        Self {
            why,
            is_too_much: false,
        }
    }
}

/// The translation with at most this many nested references expanded.
fn expanded(
    schema: &Value,
    root: &Map<String, Value>,
    hidden: &[&str],
    levels: usize,
) -> Result<Value, Untranslatable> {
    let mut work = Translation {
        root: schema,
        open: Vec::new(),
        levels,
        left: MAX_WORK,
        is_too_much: false,
    };
    let translated = work.object(root, 0);
    let is_too_much = work.is_too_much;
    let mut out = translated.map_err(|why| Untranslatable { why, is_too_much })?;
    match out.get("type") {
        None => {
            out.insert("type".to_owned(), json!("object"));
        }
        Some(Value::String(kind)) if kind == "object" => {}
        Some(Value::Array(kinds)) if kinds.contains(&json!("object")) => {
            out.insert("type".to_owned(), json!("object"));
        }
        Some(other) => return Err(format!("its schema is of type {other}, not an object").into()),
    }
    for name in hidden {
        hide(&mut out, name)?;
    }
    let out = Value::Object(out);
    let bytes = out.to_string().len();
    if bytes > MAX_BYTES {
        return Err(Untranslatable {
            why: format!("its translated schema has {bytes} bytes; at most {MAX_BYTES} are sent"),
            is_too_much: true,
        });
    }
    Ok(out)
}

struct Translation<'a> {
    root: &'a Value,
    /// The references being expanded, outermost first.
    open: Vec<String>,
    /// How many of them may be expanded at once.
    levels: usize,
    /// The remainder of [`MAX_WORK`].
    left: usize,
    /// Whether it was exhausted, or the schema nests too deeply.
    is_too_much: bool,
}

impl Translation<'_> {
    fn spend(&mut self, bytes: usize) -> Result<(), String> {
        let Some(left) = self.left.checked_sub(bytes) else {
            self.is_too_much = true;
            return Err(format!(
                "its schema has more than {MAX_WORK} bytes to read with its references in place"
            ));
        };
        self.left = left;
        Ok(())
    }

    fn within(&mut self, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            self.is_too_much = true;
            return Err(format!("its schema is nested deeper than {MAX_DEPTH} levels"));
        }
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
        self.within(depth)?;
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
            // A schema rarely has both; the model then sees `anyOf`.
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
        if declared_types(&out).contains(&"array") && !out.contains_key("items") && !out.contains_key("prefixItems") {
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

    fn choices(&mut self, out: &mut Map<String, Value>, values: &[Value]) -> Result<(), String> {
        for value in values {
            match value {
                Value::String(text) => self.exact(text)?,
                _ => self.spend(PART)?,
            }
        }
        put_choices(out, values);
        Ok(())
    }

    /// A list of property names.
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

    /// A value that is not a schema, with only visible characters in its texts.
    fn copy(&mut self, value: &Value, depth: usize) -> Result<Value, String> {
        self.within(depth)?;
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

    /// Text that the model has to repeat exactly, so nothing can be removed from it.
    fn exact(&mut self, text: &str) -> Result<(), String> {
        self.spend(text.len() + PART)?;
        if is_visible(text) {
            return Ok(());
        }
        Err(format!(
            "a name or a value of its schema, `{}`, contains invisible characters",
            visible(text)
        ))
    }
}

/// Whether it contains no object, which might be a schema.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Object(_) => false,
        Value::Array(items) => !items.iter().any(|item| item.is_object() || item.is_array()),
        _ => true,
    }
}

// Merges the parts of `allOf` and of a reference into one schema.

/// Required names, each once, in their original order.
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

/// Merges `other` into `out`. Properties and required names are united; for all other keywords, the existing value
/// takes precedence.
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

// Expands the references of a schema, and replaces the recursive ones by stubs.

impl Translation<'_> {
    fn reference(&mut self, reference: &Value, depth: usize) -> Result<Map<String, Value>, String> {
        let Value::String(reference) = reference else {
            return Err("a `$ref` that is not text".to_owned());
        };
        self.spend(reference.len())?;
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(format!("`$ref` {reference} points outside the schema"));
        };
        let target = match self.root.pointer(&percent_decoded(pointer)) {
            Some(Value::Object(target)) => target,
            Some(Value::Bool(true)) => return Ok(Map::new()),
            _ => return Err(format!("`$ref` {reference} has no target")),
        };
        let is_open = self.open.iter().any(|open| open == reference) || pointer.is_empty();
        if is_open || self.open.len() >= self.levels {
            return self.stub(reference, target, is_open);
        }
        self.open.push(reference.clone());
        let out = self.object(target, depth + 1);
        self.open.pop();
        out
    }

    /// Replaces a schema that has no end, or would be too large: the type, and a note about the form. Arguments are
    /// still checked against the original schema.
    fn stub(
        &mut self,
        reference: &str,
        target: &Map<String, Value>,
        is_open: bool,
    ) -> Result<Map<String, Value>, String> {
        let mut out = Map::new();
        if let Some(kind) = target.get("type").filter(|kind| is_plain(kind)) {
            out.insert("type".to_owned(), self.copy(kind, 0)?);
        } else if target.contains_key("properties") {
            out.insert("type".to_owned(), json!("object"));
        }
        let name = reference.rsplit('/').next().unwrap_or_default().trim_start_matches('#');
        let name = visible(&percent_decoded(name));
        self.spend(name.len())?;
        let words = match (is_open, name.is_empty()) {
            (true, true) => "Same structure as the whole.".to_owned(),
            (true, false) => format!("Same structure as the enclosing `{name}`."),
            (false, _) => format!("A `{name}`; its structure is validated."),
        };
        out.insert("description".to_owned(), json!(words));
        Ok(out)
    }
}

/// The pointer of a URI fragment may be percent-encoded (RFC 6901 section 6).
fn percent_decoded(pointer: &str) -> Cow<'_, str> {
    let decoded = percent_encoding::percent_decode_str(pointer).decode_utf8();
    decoded.unwrap_or(Cow::Borrowed(pointer))
}

#[cfg(test)]
mod tests;

/// Restricts `out` to `values`, without those that its `type` does not allow.
fn put_choices(out: &mut Map<String, Value>, values: &[Value]) {
    let declared = declared_types(out);
    let mut kinds: Vec<&'static str> = Vec::new();
    for kind in values.iter().filter_map(kind_outside_enum) {
        let allowed = declared.is_empty() || declared.contains(&kind);
        if allowed && !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let mut said: Vec<&Value> = values
        .iter()
        .filter(|value| kind_outside_enum(value).is_none())
        .collect();
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
fn declared_types(schema: &Map<String, Value>) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The type of a value that an `enum` must not contain.
fn kind_outside_enum(value: &Value) -> Option<&'static str> {
    match value {
        Value::String(_) | Value::Number(_) => None,
        Value::Bool(_) => Some("boolean"),
        Value::Null => Some("null"),
        Value::Array(_) => Some("array"),
        Value::Object(_) => Some("object"),
    }
}

/// Removes a top-level property from a translated schema.
///
/// # Errors
/// The property does not exist, or the rest of the schema still refers to it.
fn hide(schema: &mut Map<String, Value>, name: &str) -> Result<(), String> {
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
        || members_of(schema, "dependentRequired").any(lists)
        || members_of(schema, "dependentSchemas").any(inner)
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

fn members_of<'a>(schema: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = &'a Value> {
    schema
        .get(key)
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::values)
}

#[cfg(test)]
mod choices_tests {
    #![allow(clippy::unwrap_used)]

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

#[cfg(test)]
mod hidden_tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

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
