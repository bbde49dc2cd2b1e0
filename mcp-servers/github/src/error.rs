//! The errors of this server beyond the common ones. An in-band error means that nothing was done. If that is
//! uncertain, the answer is a protocol error ([`Fault::Unsettled`]).

use std::time::Duration;

use gavel_mcp_base::{Code as Common, ToolError};

/// The closed set of this server's own error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl From<Code> for &'static str {
    fn from(code: Code) -> Self {
        match code {
            Code::Unauthorized => "unauthorized",
            Code::Forbidden => "forbidden",
            Code::NotFound => "not_found",
            Code::AlreadyExists => "already_exists",
            Code::ValidationFailed => "validation_failed",
            Code::Conflict => "conflict",
            Code::RateLimited => "rate_limited",
            Code::Unavailable => "unavailable",
            Code::TooLarge => "too_large",
            Code::NotText => "not_text",
            Code::IsDirectory => "is_directory",
            Code::EngineUnavailable => "engine_unavailable",
            Code::NotRunning => "not_running",
            Code::GitUnusable => "git_unusable",
        }
    }
}

/// Why a call has no successful answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Nothing was done.
    Refused(ToolError),
    /// Unknown whether it was done; the text gives the reason.
    Unsettled(String),
}

impl From<ToolError> for Fault {
    fn from(error: ToolError) -> Self {
        Self::Refused(error)
    }
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

pub(crate) fn internal() -> ToolError {
    ToolError::new(Common::Internal, "The GitHub server failed. Its log has the details.")
}
