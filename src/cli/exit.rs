//! How a verb ends, as the shell sees it.

use std::process::ExitCode;

use super::output::ReaderLeft;
use crate::config::ConfigErrors;

/// The exit status; `gavel --help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// 0
    Done,
    /// 1: what is wrong was told.
    Failed,
    /// 2: what was given is wrong in itself, and each mistake was told.
    Wrong,
    /// 130, as shells have it for SIGINT.
    Interrupted,
}

/// Errors go to standard error, each cause on the same line.
pub(super) fn code(ended: anyhow::Result<Exit>) -> ExitCode {
    match ended {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Failed) => ExitCode::FAILURE,
        Ok(Exit::Wrong) => ExitCode::from(2),
        Ok(Exit::Interrupted) => ExitCode::from(130),
        Err(error) if error.is::<ReaderLeft>() => ExitCode::SUCCESS,
        Err(error) => {
            super::output::note(&format!("error: {error:#}"));
            if error.is::<ConfigErrors>() {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}
