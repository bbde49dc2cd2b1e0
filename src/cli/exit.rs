//! How a verb ends, as the shell sees it.

use std::process::ExitCode;

use super::output::ReaderLeft;
use crate::adapters::store::StoreError;
use crate::config::{ConfigErrors, FileError};
use crate::ports::records::QueryError;

/// The exit status; `gavel --help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// 0
    Done,
    /// 1: what is wrong was told.
    Failed,
    /// 2: what was given is wrong in itself, and each mistake was told.
    Wrong,
    /// 3: the run of an agent that was followed failed.
    RunFailed,
    /// 4: it was cancelled.
    RunCancelled,
    /// 5: it is paused, and can be resumed.
    RunPaused,
    /// 6: it waits for a person.
    RunWaits,
    /// 3: `gavel policy check` says that a person must agree.
    NeedsApproval,
    /// 3: `gavel audit verify` found something.
    NotWhole,
    /// 4: it says that the call does not run.
    Denied,
    /// 130, as shells have it for SIGINT.
    Interrupted,
}

/// What was asked for is wrong in itself, whatever the world is like.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Usage(pub(super) String);

/// Errors go to standard error, each cause on the same line.
pub(super) fn code(ended: anyhow::Result<Exit>) -> ExitCode {
    match ended {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Failed) => ExitCode::FAILURE,
        Ok(Exit::Wrong) => ExitCode::from(2),
        Ok(Exit::RunFailed | Exit::NeedsApproval | Exit::NotWhole) => ExitCode::from(3),
        Ok(Exit::RunCancelled | Exit::Denied) => ExitCode::from(4),
        Ok(Exit::RunPaused) => ExitCode::from(5),
        Ok(Exit::RunWaits) => ExitCode::from(6),
        Ok(Exit::Interrupted) => ExitCode::from(130),
        Err(error) if error.is::<ReaderLeft>() => ExitCode::SUCCESS,
        Err(error) => {
            super::output::note(&format!("error: {error:#}"));
            if is_the_askers(&error) {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Wrong usage or configuration: nothing but another command helps.
fn is_the_askers(error: &anyhow::Error) -> bool {
    error.is::<Usage>()
        || error.is::<ConfigErrors>()
        || error.is::<FileError>()
        || matches!(error.downcast_ref(), Some(StoreError::Url(_)))
        || matches!(error.downcast_ref(), Some(QueryError::Invalid { .. }))
}
