//! Headers of a call in the 2026-07-28 era, so that a gateway can route it without reading its body: the tool, and the
//! arguments that the tool's schema marks with `x-mcp-header`.

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use memchr::memmem;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::ports::tools::CallRequest;

/// Adds the headers.
pub(super) fn add(headers: &mut HeaderMap, call: &CallRequest<'_>) {
    insert(headers, HeaderName::from_static("mcp-name"), &call.tool.name);
    let schema = call.tool.input.original().get();
    // Few tools use this, and parsing a schema costs more than the call.
    if memmem::find(schema.as_bytes(), br#""x-mcp-header""#).is_some()
        && let Ok(schema) = serde_json::from_str(schema)
        && let Ok(arguments) = serde_json::from_str(call.arguments.get())
    {
        arguments_of(headers, &schema, &arguments);
    }
}

/// The arguments of one level of `properties`. Absent, null and structured values have no header.
fn arguments_of(headers: &mut HeaderMap, schema: &Value, arguments: &Value) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let Some(argument) = arguments.get(name) else { continue };
        let header = property.get("x-mcp-header").and_then(Value::as_str);
        if let Some(header) = header.filter(|header| !header.is_empty())
            && let Some(text) = plain(argument)
            && let Ok(header) = HeaderName::try_from(format!("mcp-param-{header}"))
        {
            insert(headers, header, &text);
        }
        arguments_of(headers, property, argument);
    }
}

fn plain(argument: &Value) -> Option<Cow<'_, str>> {
    match argument {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Bool(_) | Value::Number(_) => Some(Cow::Owned(argument.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(&encoded(text)) {
        headers.insert(name, value);
    }
}

/// Encodes text for a header: as base64 if it would not arrive unchanged, or would look like base64.
fn encoded(text: &str) -> Cow<'_, str> {
    let visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let stripped = text.starts_with(' ') || text.ends_with(' ');
    let marked = text.starts_with("=?base64?") && text.ends_with("?=");
    if visible && !stripped && !marked {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("=?base64?{}?=", BASE64_STANDARD.encode(text)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn text_that_no_header_carries_as_it_is_is_encoded() {
        for (text, expected) in [
            ("", ""),
            ("us-west 1", "us-west 1"),
            (" a", "=?base64?IGE=?="),
            ("a\t", "=?base64?YQk=?="),
            ("ä", "=?base64?w6Q=?="),
            ("a\r\nb: c", "=?base64?YQ0KYjogYw==?="),
            ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ] {
            assert_eq!(encoded(text), expected, "{text:?}");
        }
    }

    #[test]
    fn arguments_are_found_at_every_level_of_properties_and_nowhere_else() {
        let asks = |kind: &str, header: &str| json!({"type": kind, "x-mcp-header": header});
        let schema = json!({"properties": {
            "a": asks("string", "A"), "b": asks("integer", "B"), "c": asks("boolean", "C"),
            "none": asks("string", "None"), "null": asks("string", "Null"), "list": asks("array", "List"),
            "bad": asks("string", "a b"), "empty": asks("string", ""),
            "in": {"properties": {"d": asks("string", "D")}},
            "items": {"type": "array", "items": {"properties": {"e": asks("string", "E")}}},
        }});
        let arguments = json!({"a": "x", "b": -7, "c": true, "null": null, "list": ["y"], "bad": "z", "empty": "z",
            "in": {"d": "ü"}, "items": [{"e": "f"}]});
        let mut headers = HeaderMap::new();
        arguments_of(&mut headers, &schema, &arguments);
        let mut found: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        found.sort_unstable();
        let expected = [
            ("mcp-param-a", "x"),
            ("mcp-param-b", "-7"),
            ("mcp-param-c", "true"),
            ("mcp-param-d", "=?base64?w7w=?="),
        ];
        assert_eq!(found, expected);
    }
}
