//! Errors a caller can read and act on. Every one is answered in band (`isError: true`), so that a
//! model sees what went wrong and how to put it right.

use serde::Serialize;
use serde_json::{Map, Value};

/// Codes that every server uses. A server adds a closed set of its own, which turns into words as this one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// An argument that the tool does not have.
    UnknownArgument,
    /// An argument that the tool needs.
    MissingArgument,
    /// An argument of the wrong type or outside what is allowed.
    InvalidArgument,
    /// A text with U+0000 in it.
    NulCharacter,
    /// A text or a list that is too long.
    TooLong,
    /// A key that is none.
    InvalidIdempotencyKey,
    /// A key that was used for a call with other arguments.
    IdempotencyKeyReused,
    /// Something else that a host says of a call, and that cannot be read.
    InvalidMeta,
    /// Nobody said whose call it is.
    UserRequired,
    /// The caller's word about whose call it is does not count.
    InvalidIdentity,
    /// The database does not answer; nothing was done.
    StoreUnavailable,
    /// The server's own fault.
    Internal,
}

impl From<Code> for &'static str {
    fn from(code: Code) -> Self {
        match code {
            Code::UnknownArgument => "unknown_argument",
            Code::MissingArgument => "missing_argument",
            Code::InvalidArgument => "invalid_argument",
            Code::NulCharacter => "nul_character",
            Code::TooLong => "too_long",
            Code::InvalidIdempotencyKey => "invalid_idempotency_key",
            Code::IdempotencyKeyReused => "idempotency_key_reused",
            Code::InvalidMeta => "invalid_meta",
            Code::UserRequired => "user_required",
            Code::InvalidIdentity => "invalid_identity",
            Code::StoreUnavailable => "store_unavailable",
            Code::Internal => "internal",
        }
    }
}

/// What kind of thing is wrong, for a host that treats kinds differently: it is told in the result's `_meta`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The user's credentials or consent are missing; nothing but those helps.
    Auth,
    /// The call is not one that could ever be made: its arguments are at fault. Nothing was done.
    Arguments,
}

impl From<Class> for &'static str {
    fn from(class: Class) -> Self {
        match class {
            Class::Auth => "auth",
            Class::Arguments => "arguments",
        }
    }
}

/// The detail that names an error's class.
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
    /// An error with a code of the caller's own closed set.
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

    /// Says of which kind it is.
    #[must_use]
    pub fn class(self, class: Class) -> Self {
        self.with(CLASS, <&str>::from(class))
    }

    /// Names the argument that is at fault.
    #[must_use]
    pub fn about(self, argument: &str) -> Self {
        self.with("argument", argument)
    }

    /// The code, as callers see it.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The words.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// A key that stands for another call.
pub fn key_reused() -> ToolError {
    ToolError::new(
        Code::IdempotencyKeyReused,
        "This idempotency key was used for a call with other arguments. A new call needs a new key.",
    )
}
