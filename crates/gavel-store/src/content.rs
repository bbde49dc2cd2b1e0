//! Applies the content mode: how much of the users' text a row keeps.

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::config::ContentMode;
use super::db::Value;
use crate::domain::tool::FailureCode;

impl ContentMode {
    /// Plain text: the text, its keyed hash, or NULL.
    pub(super) fn text(&self, text: &str) -> Value {
        match self {
            Self::Full => Value::text(text),
            Self::Hash(key) => Value::text(&key.digest(text.as_bytes())),
            Self::None => Value::Text(None),
        }
    }

    /// As [`ContentMode::text`] for text that is already shared.
    pub(super) fn shared(&self, text: &std::sync::Arc<str>) -> Value {
        match self {
            Self::Full => Value::shared(text),
            _ => self.text(text),
        }
    }

    /// JSON: the JSON, its hash as a JSON string (the column holds JSON in every mode), or NULL.
    pub(super) fn json(&self, json: &RawValue) -> Value {
        match self {
            Self::Full => Value::text(json.get()),
            Self::Hash(key) => Value::text(&format!("\"{}\"", key.digest(json.get().as_bytes()))),
            Self::None => Value::Text(None),
        }
    }

    /// A fingerprint that distinguishes JSON values: a hash, a keyed hash where content is hashed, or NULL.
    pub(super) fn fingerprint(&self, json: &RawValue) -> Value {
        match self {
            Self::Full => Value::text(&hex::encode(Sha256::digest(json.get()))),
            Self::Hash(key) => Value::text(&key.digest(json.get().as_bytes())),
            Self::None => Value::Text(None),
        }
    }

    /// The message of a failure. Fixed messages of gavel are kept in every mode. A server's messages, and messages that
    /// quote arguments, are content.
    pub(super) fn failure(&self, code: FailureCode, message: &str) -> Value {
        if fixed_words(code) {
            Value::text(message)
        } else {
            self.text(message)
        }
    }

    /// The name of an unknown tool that the model called. The column does not allow NULL.
    pub(super) fn unknown_tool(&self, name: &str) -> Value {
        match self {
            Self::Full => Value::text(capped(name)),
            Self::Hash(key) => Value::text(&key.digest(name.as_bytes())),
            Self::None => Value::text("unknown"),
        }
    }
}

fn fixed_words(code: FailureCode) -> bool {
    match code {
        FailureCode::Expired
        | FailureCode::TooManyCalls
        | FailureCode::MixedWithVerdict
        | FailureCode::LimitReached
        | FailureCode::DoomLoop
        | FailureCode::Overloaded
        | FailureCode::NotRecorded => true,
        FailureCode::UnknownTool
        | FailureCode::InvalidArguments
        | FailureCode::Denied
        | FailureCode::Unavailable
        | FailureCode::ToolError
        | FailureCode::AuthRequired
        | FailureCode::ProtocolError
        | FailureCode::Timeout
        | FailureCode::InDoubt
        | FailureCode::Cancelled
        | FailureCode::Rejected
        | FailureCode::Unsupported => false,
    }
}

/// Names are indexed, and PostgreSQL limits the size of index entries, so at most 256 bytes are kept.
pub(super) fn capped(name: &str) -> &str {
    &name[..name.floor_char_boundary(256)]
}
