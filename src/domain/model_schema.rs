//! A tool's input schema as Gemini may be shown it (`parametersJsonSchema`, WIRE.md section 2).
//!
//! The original stays what arguments are checked against; the translation only has to tell the
//! model what to write, within what the API accepts:
//!
//! - local `$ref`s are put in place, with their siblings merged in (a sibling's word wins); `$defs`
//!   and `definitions` go away, used or not; a reference elsewhere is impossible;
//! - a reference to what is being put in place already is a stub: its type and a word about its form. Where references would
//!   multiply beyond the bounds, those of the third level, then of the second, are stubs too;
//! - `enum` holds text that is not empty and numbers only, and `const` is an `enum` of one value; of other values the type
//!   is told (`choices`);
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
/// Levels of references that are put in place where all of them are too much.
const LEVELS: [usize; 3] = [2, 1, 0];
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
    /// It would be too large; fewer levels of references may do.
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

/// The translation with at most so many references in place within each other.
fn expanded(
    schema: &Value,
    root: &Map<String, Value>,
    hidden: Option<&str>,
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
    if let Some(name) = hidden {
        identity::hide(&mut out, name)?;
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
    /// The references being followed, outermost first.
    open: Vec<String>,
    /// How many of them may be followed at once.
    levels: usize,
    /// What is left of [`MAX_WORK`].
    left: usize,
    /// Was it used up, or the schema nested too deeply?
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
        let target = match self.root.pointer(&percent_decoded(pointer)) {
            Some(Value::Object(target)) => target,
            Some(Value::Bool(true)) => return Ok(Map::new()),
            _ => return Err(format!("`$ref` {reference} leads to nothing")),
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

    /// In the place of what has no end, or would be too much: the type, and a word about the form. Arguments are checked
    /// against the real schema all the same.
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
            (true, true) => "Of the same form as the whole.".to_owned(),
            (true, false) => format!("Of the same form as the `{name}` around it."),
            (false, _) => format!("A `{name}`; its form is checked."),
        };
        out.insert("description".to_owned(), json!(words));
        Ok(out)
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
mod tests;
