//! Errors that a caller can read and act on. All are returned in band (`isError: true`), so that a model sees what
//! failed and how to correct it.

use serde::Serialize;
use serde_json::{Map, Value};
use strum::IntoStaticStr;

/// Codes that every server uses. A server adds its own closed set, which converts to text like this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Code {
    /// An argument that the tool does not have.
    UnknownArgument,
    /// A required argument is missing.
    MissingArgument,
    /// An argument of another type, or outside the allowed values.
    InvalidArgument,
    /// A text that contains U+0000.
    NulCharacter,
    /// A text or a list that is too long.
    TooLong,
    /// An invalid idempotency key.
    InvalidIdempotencyKey,
    /// An idempotency key that was used for a call with other arguments.
    IdempotencyKeyReused,
    /// Other call data from the host that cannot be parsed.
    InvalidMeta,
    /// The call names no user.
    UserRequired,
    /// The caller's statement of the user is not accepted.
    InvalidIdentity,
    /// The database does not answer; nothing was done.
    StoreUnavailable,
    /// A failure of the server itself.
    Internal,
}

/// The class of an error, for hosts that treat classes differently. It is sent in the result's `_meta`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Class {
    /// The user's credentials or consent are missing; the call fails until the user provides them.
    Auth,
    /// The call's arguments are invalid, so the call can never succeed. Nothing was done.
    Arguments,
}

/// The detail that holds an error's class.
pub(crate) const CLASS: &str = "class";

/// One error: a code for programs, a message for models and people, and details.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolError {
    code: &'static str,
    message: String,
    #[serde(flatten)]
    details: Map<String, Value>,
}

impl ToolError {
    /// An error with a code of the server's own closed set.
    pub fn new(code: impl Into<&'static str>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            details: Map::new(),
        }
    }

    /// Adds a detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a sentence.
    #[must_use]
    pub fn and(mut self, sentence: &str) -> Self {
        self.message.push(' ');
        self.message.push_str(sentence);
        self
    }

    /// Sets the class.
    #[must_use]
    pub fn class(self, class: Class) -> Self {
        self.with(CLASS, <&str>::from(class))
    }

    /// Names the invalid argument.
    #[must_use]
    pub fn about(self, argument: &str) -> Self {
        self.with("argument", argument)
    }

    /// The code, as sent to callers.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// The error for a key that belongs to another call.
pub fn key_reused() -> ToolError {
    ToolError::new(
        Code::IdempotencyKeyReused,
        "This idempotency key was used for a call with other arguments. A new call needs a new key.",
    )
}
