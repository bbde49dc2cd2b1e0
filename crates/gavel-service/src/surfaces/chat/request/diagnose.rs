//! Every error of a body that does not parse.

use serde_json::Value;

use super::{FIELDS, check_message, external};
use crate::api::problem::FieldError;
use crate::domain::ids::UserId;
use crate::domain::malformed;

/// The slow path: checks an invalid body field by field, to report all errors at once.
pub(super) fn diagnose(body: &[u8], error: &serde_json::Error) -> Vec<FieldError> {
    let value: Value = match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(error) => {
            return vec![FieldError::new(
                "",
                format!("the body is not JSON: {}", malformed::words(&error)),
            )];
        }
    };
    let Value::Object(object) = value else {
        return vec![FieldError::new(
            "",
            format!("the body is {}; an object is allowed", kind(&value)),
        )];
    };
    let mut errors = Vec::new();
    if !object.contains_key("message") {
        errors.push(FieldError::new("/message", "is missing; a string is required"));
    }
    for (name, value) in &object {
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        match name.as_str() {
            "message" => match value.as_str() {
                Some(message) => check_message(message, &mut errors),
                None => expect_string(value, &pointer, &mut errors),
            },
            "user_id" | "conversation_id" | "time_zone" if value.is_null() => {}
            "user_id" | "conversation_id" if value.is_string() => {
                let id = value.as_str().unwrap_or_default();
                external(UserId::parse(id), &pointer, &mut errors);
            }
            "user_id" | "conversation_id" | "time_zone" => expect_string(value, &pointer, &mut errors),
            "history" => diagnose_history(value, &mut errors),
            "tools" => diagnose_tools(value, &mut errors),
            _ => errors.push(FieldError::new(
                pointer,
                format!("is not a known field; allowed are {FIELDS}"),
            )),
        }
    }
    if errors.is_empty() {
        errors.push(FieldError::new("", malformed::words(error)));
    }
    errors
}

fn diagnose_history(value: &Value, errors: &mut Vec<FieldError>) {
    let lines = match value {
        Value::Null => return,
        Value::Array(lines) => lines,
        other => {
            errors.push(FieldError::new(
                "/history",
                format!("is {}; an array is allowed", kind(other)),
            ));
            return;
        }
    };
    for (n, line) in lines.iter().enumerate() {
        let at = format!("/history/{n}");
        let Value::Object(line) = line else {
            errors.push(FieldError::new(
                at,
                format!("is {}; {{\"role\", \"content\"}} is allowed", kind(line)),
            ));
            continue;
        };
        match line.get("role") {
            Some(Value::String(role)) if role == "user" || role == "assistant" => {}
            Some(other) => errors.push(FieldError::new(
                format!("{at}/role"),
                format!("is {}; \"user\" or \"assistant\" is allowed", shown(other)),
            )),
            None => errors.push(FieldError::new(format!("{at}/role"), "is missing")),
        }
        match line.get("content") {
            Some(content) => expect_string(content, &format!("{at}/content"), errors),
            None => errors.push(FieldError::new(format!("{at}/content"), "is missing")),
        }
        for name in line.keys().filter(|name| *name != "role" && *name != "content") {
            errors.push(FieldError::new(
                format!("{at}/{name}"),
                "is not a known field; allowed are role, content",
            ));
        }
    }
}

fn diagnose_tools(value: &Value, errors: &mut Vec<FieldError>) {
    match value {
        Value::Null => {}
        Value::Array(names) => {
            for (n, name) in names.iter().enumerate() {
                expect_string(name, &format!("/tools/{n}"), errors);
            }
        }
        other => errors.push(FieldError::new(
            "/tools",
            format!("is {}; an array of tool names is allowed", kind(other)),
        )),
    }
}

fn expect_string(value: &Value, pointer: &str, errors: &mut Vec<FieldError>) {
    if !value.is_string() {
        errors.push(FieldError::new(
            pointer,
            format!("is {}; a string is allowed", kind(value)),
        ));
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.len() > 40 {
        format!("{} …", kind(value))
    } else {
        text
    }
}
