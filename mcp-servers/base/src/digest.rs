//! Detects whether two calls have the same arguments.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rmcp::model::JsonObject;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A digest of the arguments that does not depend on the order of their keys.
pub fn digest(arguments: Option<&JsonObject>) -> String {
    let mut text = String::new();
    match arguments {
        Some(arguments) => write_object(arguments, &mut text),
        None => text.push_str("{}"),
    }
    URL_SAFE_NO_PAD.encode(Sha256::digest(text))
}

fn write_object(object: &JsonObject, text: &mut String) {
    let mut entries: Vec<_> = object.iter().collect();
    entries.sort_by_key(|(name, _)| *name);
    text.push('{');
    for (name, value) in entries {
        text.push_str(&Value::from(name.as_str()).to_string());
        text.push(':');
        write_value(value, text);
        text.push(',');
    }
    text.push('}');
}

fn write_value(value: &Value, text: &mut String) {
    match value {
        Value::Object(object) => write_object(object, text),
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_value(item, text);
                text.push(',');
            }
            text.push(']');
        }
        plain => text.push_str(&plain.to_string()),
    }
}
