//! The errors of this server beyond the common ones. Database errors are logged where they are handled; callers see
//! only `store_unavailable`, which means that nothing was done. If that is uncertain, the answer is a protocol error.

use gavel_mcp_base::{Code as Common, ToolError};
use strum::IntoStaticStr;

/// The closed set of this server's own error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Code {
    UnknownTask,
    AmbiguousTitle,
    InvalidDue,
    NothingToChange,
    InvalidCursor,
    TooManyTasks,
}

pub(crate) fn store_unavailable() -> ToolError {
    ToolError::new(
        Common::StoreUnavailable,
        "The task list cannot be reached now. Try again in a moment; a call with \
         an idempotency key takes effect only once.",
    )
    .with("retryable", true)
}
