//! The errors of this server beyond the common ones. Database errors are logged where they are handled; callers see
//! only `store_unavailable`, which means that nothing was done. If that is uncertain, the answer is a protocol error.

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
        "The task list cannot be reached now. Try again in a moment; a call with \
         an idempotency key takes effect only once.",
    )
    .with("retryable", true)
}
