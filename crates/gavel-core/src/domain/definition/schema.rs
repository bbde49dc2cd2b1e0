//! Validates the JSON Schemas of outputs.

use serde_json::Value;

use crate::domain::canonical;
use crate::domain::nesting;
use crate::domain::schema::{JsonSchema, SchemaError};
use gavel_reading::Node;
use gavel_reading::ReadError;

/// The most levels of a schema, with room for the levels of a definition around it in every form.
const MAX_LEVELS: usize = nesting::MAX_LEVELS - 6;

/// The largest schema, in bytes of JSON. No larger one is sent to a model.
const LARGEST: usize = 128 * 1024;

/// The most errors that are listed for one schema.
const MOST_ERRORS: usize = 8;

/// The longest message of the validator, in characters: it quotes what it found.
const LONGEST: usize = 300;

/// The allowed values of `type`.
const TYPES: &str = "array, boolean, integer, null, number, object, string, or a list of these";

/// The errors in a schema; `path` is the field that contains it. A remote `$ref` is not fetched.
pub(super) fn errors(node: &Node, file: &str, path: &str) -> Vec<ReadError> {
    let schema = node.to_json();
    let error = |pointer: &str, found: String, allowed: &str| ReadError {
        file: file.to_owned(),
        line: Some(node.at(pointer).line).filter(|line| *line > 0),
        field: format!("{path}{}", pointer.replace('/', ".")),
        found,
        allowed: allowed.to_owned(),
    };
    let text = canonical::to_raw(&schema);
    if !nesting::within(text.get().as_bytes(), MAX_LEVELS) {
        let allowed = format!("at most {MAX_LEVELS} levels");
        return vec![error("", "more levels".to_owned(), &allowed)];
    }
    if text.get().len() > LARGEST {
        let found = format!("{} bytes", text.get().len());
        return vec![error("", found, &format!("at most {LARGEST} bytes"))];
    }
    let meta = match jsonschema::meta::validator_for(&schema) {
        Ok(meta) => meta,
        Err(_) => {
            let found = "a $schema that gavel does not know".to_owned();
            let allowed = "https://json-schema.org/draft/2020-12/schema, an earlier draft, or no $schema";
            return vec![error("/$schema", found, allowed)];
        }
    };
    let invalid: Vec<_> = meta
        .iter_errors(&schema)
        .take(MOST_ERRORS)
        .map(|invalid| {
            let pointer = invalid.instance_path().to_string();
            let allowed = if pointer.ends_with("/type") {
                TYPES.to_owned()
            } else {
                format!("what JSON Schema allows there: {}", clipped(&invalid.to_string()))
            };
            error(&pointer, node.at(&pointer).found(), &allowed)
        })
        .collect();
    if !invalid.is_empty() {
        return invalid;
    }
    match JsonSchema::compile(text) {
        Ok(_) => Vec::new(),
        Err(SchemaError::Invalid(message)) => vec![error(
            "",
            clipped(&message),
            "a self-contained schema in which each $ref points to a part of it",
        )],
        Err(SchemaError::TooCostly { place, what, limit }) => {
            vec![error(&place, what, &format!("at most {limit}"))]
        }
    }
}

/// The names of a schema's properties.
pub(super) fn properties(schema: &Value) -> impl Iterator<Item = &str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(|map| map.keys().map(String::as_str))
}

fn clipped(text: &str) -> String {
    let mut shown: String = text.chars().take(LONGEST).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
