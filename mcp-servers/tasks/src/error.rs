//! Errors a caller can read and act on. Every one is answered in band (`isError: true`), so that a
//! model sees what went wrong and how to put it right. Database faults are logged where they are
//! handled and reach the caller only as `store_unavailable`, which says that nothing was done. Where
//! that is not known, the answer is an error of the protocol ([`unsettled`]).

use rmcp::ErrorData;
use serde::Serialize;
use serde_json::{Map, Value};

/// The closed set of error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    UnknownTask,
    AmbiguousTitle,
    EmptyDescription,
    InvalidDue,
    UnknownArgument,
    MissingArgument,
    InvalidArgument,
    NulCharacter,
    TooLong,
    NothingToChange,
    InvalidCursor,
    TooManyTasks,
    InvalidIdempotencyKey,
    IdempotencyKeyReused,
    UserRequired,
    InvalidIdentity,
    StoreUnavailable,
    Internal,
}

/// A change of which nobody can say here whether it was done. In band it would be read as the tool's word that it was not.
pub(crate) fn unsettled() -> ErrorData {
    ErrorData::internal_error(
        "it is not known whether this call took effect; sent again with the same idempotency key it takes effect once",
        None,
    )
}

/// One error: a code for programs, a message for models and people, and details.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ToolError {
    pub(crate) code: Code,
    pub(crate) message: String,
    #[serde(flatten)]
    details: Map<String, Value>,
}

impl ToolError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: Map::new(),
        }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn about(self, argument: &str) -> Self {
        self.with("argument", argument)
    }

    pub(crate) fn store_unavailable() -> Self {
        Self::new(
            Code::StoreUnavailable,
            "The task list cannot be reached just now. Try again in a moment; a call that carries \
             an idempotency key takes effect only once.",
        )
        .with("retryable", true)
    }

    pub(crate) fn internal() -> Self {
        Self::new(
            Code::Internal,
            "The task server failed. Nothing more is known here; its log has the details.",
        )
    }
}
