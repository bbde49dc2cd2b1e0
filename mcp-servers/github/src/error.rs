//! The errors of this server beyond the common ones. An in-band error means that nothing was done. If that is
//! uncertain, the answer is a protocol error (`Fault::Unsettled`).

use std::time::Duration;

use gavel_mcp_base::ToolError;
use strum::IntoStaticStr;

/// The closed set of this server's own error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Code {
    /// GitHub does not accept the credentials.
    Unauthorized,
    /// The credentials do not allow this.
    Forbidden,
    /// Something that the call names does not exist, or the credentials cannot see it.
    NotFound,
    /// What the call creates exists, and this call did not create it.
    AlreadyExists,
    /// GitHub rejected the values.
    ValidationFailed,
    /// The state at GitHub does not permit it.
    Conflict,
    /// GitHub accepts fewer calls; the call's time was too short to wait.
    RateLimited,
    /// GitHub does not answer, or reports its own failure.
    Unavailable,
    /// More than this tool returns.
    TooLarge,
    /// A file that is not text.
    NotText,
    /// A directory where a file was expected.
    IsDirectory,
    /// The container engine does not answer, or reports its own failure.
    EngineUnavailable,
    /// The container has stopped.
    NotRunning,
    /// The container has no git, or its user has no home directory.
    GitUnusable,
}

pub(crate) fn unavailable() -> ToolError {
    ToolError::new(
        Code::Unavailable,
        "GitHub does not answer, or reports a failure of its own. Nothing was done. Try again later.",
    )
}

pub(crate) fn rate_limited(wait: Duration) -> ToolError {
    let seconds = wait.as_secs().max(1);
    ToolError::new(
        Code::RateLimited,
        format!("GitHub accepts no more requests for now. Nothing was done. Try again in {seconds} s."),
    )
    .with("retryAfterSeconds", seconds)
}

pub(crate) fn not_found(what: &str) -> ToolError {
    ToolError::new(
        Code::NotFound,
        format!("{what} does not exist, or the server's credentials cannot see it."),
    )
}
