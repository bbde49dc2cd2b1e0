//! What can be wrong with a call of this server beside what can be wrong everywhere. Database faults are logged where they are
//! handled and reach the caller only as `store_unavailable`, which says that nothing was done. Where that is not known,
//! the answer is an error of the protocol.

use gavel_mcp_base::{Code as Common, ToolError};

/// The closed set of this server's own error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    UnknownTask,
    AmbiguousTitle,
    EmptyDescription,
    InvalidDue,
    NothingToChange,
    InvalidCursor,
    TooManyTasks,
}

impl From<Code> for &'static str {
    fn from(code: Code) -> Self {
        match code {
            Code::UnknownTask => "unknown_task",
            Code::AmbiguousTitle => "ambiguous_title",
            Code::EmptyDescription => "empty_description",
            Code::InvalidDue => "invalid_due",
            Code::NothingToChange => "nothing_to_change",
            Code::InvalidCursor => "invalid_cursor",
            Code::TooManyTasks => "too_many_tasks",
        }
    }
}

pub(crate) fn store_unavailable() -> ToolError {
    ToolError::new(
        Common::StoreUnavailable,
        "The task list cannot be reached just now. Try again in a moment; a call that carries \
         an idempotency key takes effect only once.",
    )
    .with("retryable", true)
}
