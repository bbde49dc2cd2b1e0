//! The five tools: what they tell a model, and how their arguments become a request.

mod add;
mod complete;
mod delete;
pub(crate) mod list;
mod schema;
mod target;
mod update;

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rmcp::model::{JsonObject, Tool};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::{Code, ToolError};
use crate::task::Change;

pub(crate) const MAX_DESCRIPTION: usize = 500;
pub(crate) const MAX_NOTES: usize = 4000;

/// A call whose arguments have been understood.
#[derive(Debug)]
pub(crate) enum Request {
    List(list::ListRequest),
    Change(Change),
}

/// Every tool, always in the same order.
pub(crate) fn all() -> &'static [Tool] {
    static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
        vec![
            add::tool(),
            list::tool(),
            update::tool(),
            complete::tool(),
            delete::tool(),
        ]
    });
    &TOOLS
}

pub(crate) fn parse(name: &str, arguments: Option<JsonObject>) -> Result<Request, ToolError> {
    match name {
        add::NAME => add::parse(arguments).map(Request::Change),
        list::NAME => list::parse(arguments).map(Request::List),
        update::NAME => update::parse(arguments).map(Request::Change),
        complete::NAME => complete::parse(arguments).map(Request::Change),
        delete::NAME => delete::parse(arguments).map(Request::Change),
        _ => Err(ToolError::new(Code::Internal, "There is no such tool.")),
    }
}

/// A digest of the arguments that does not depend on the order of their keys.
pub(crate) fn digest(arguments: Option<&JsonObject>) -> String {
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
