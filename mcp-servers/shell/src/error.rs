//! The errors of this server beyond the common ones.

use std::io;

use gavel_mcp_base::ToolError;
use gavel_mcp_base::shares::Full;
use serde_json::json;
use strum::IntoStaticStr;

use crate::job::{Ended, is_full};

/// The closed set of this server's own error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Code {
    /// The session's working directory is at its limit, or the server's disk is full.
    DiskFull,
    /// Another command runs in the session, or too many run for its user, its tenant or on this server.
    Busy,
    /// Too many sessions have files.
    TooManySessions,
}

/// The command was ended by the limit of its working directory, in MiB, which has `used` bytes in it.
pub(crate) fn limit_reached(ended: &Ended, used: u64, limit: u64) -> ToolError {
    let words = format!(
        "The command was ended: the working directory of this session may have {limit} MiB in it. What was over that \
         was cut off the largest files that the command wrote; the rest remains. Delete files that are not needed, \
         then run it again."
    );
    ToolError::new(Code::DiskFull, words)
        .with("limitBytes", limit << 20)
        .with("usedBytes", used)
        .with("result", json!(ended.result))
}

/// The disk of the server has no space for a call's own files.
pub(crate) fn no_space(has_run: bool) -> ToolError {
    let words = match has_run {
        true => "The command has run, but the disk of the shell server is full, so its result is lost.",
        false => "The disk of the shell server is full, so the command was not run.",
    };
    ToolError::new(Code::DiskFull, words).and("The operator has to make space below SHELL_ROOT.")
}

pub(crate) fn session_busy() -> ToolError {
    let words = "Another command runs in this session, so this one was not run. Try again when it has ended.";
    ToolError::new(Code::Busy, words)
}

pub(crate) fn server_busy(full: Full) -> ToolError {
    full.error(Code::Busy, "commands at once")
        .and("Try again when one of them has ended.")
}

pub(crate) fn too_many_sessions(full: Full) -> ToolError {
    let words = "Nothing was run. The files of a session make room once its deadline has passed.";
    full.error(Code::TooManySessions, "sessions with files").and(words)
}

/// The first attempt of this call still runs, in another process.
pub(crate) fn attempt_runs() -> ToolError {
    let words = "An earlier attempt of this call still runs. Send the call again later to get its result.";
    ToolError::new(Code::Busy, words)
}

/// Why a command has no result.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The caller can do something about it.
    Refused(ToolError),
    /// The server failed, and the command did not run.
    Failed(anyhow::Error),
}

impl From<ToolError> for Fault {
    fn from(error: ToolError) -> Self {
        Self::Refused(error)
    }
}

impl From<anyhow::Error> for Fault {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast_ref::<io::Error>().is_some_and(is_full) {
            true => Self::Refused(no_space(false)),
            false => Self::Failed(error),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        anyhow::Error::from(error).into()
    }
}
