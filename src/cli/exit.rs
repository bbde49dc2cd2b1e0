//! How a command ends: its exit status.

use std::process::ExitCode;

use super::client::refused::Refused;
use super::output::ReaderLeft;
use crate::adapters::store::StoreError;
use crate::config::{ConfigErrors, FileError};
use crate::ports::records::QueryError;

/// The exit status; `gavel --help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// 0
    Done,
    /// 1: the error was reported.
    Failed,
    /// 2: the given input is invalid, and each error was reported.
    Invalid,
    /// 3: the followed run of an agent, or planning session, failed.
    RunFailed,
    /// 4: the run or session was cancelled.
    RunCancelled,
    /// 5: the run is paused, and can be resumed.
    RunPaused,
    /// 6: the run waits for an approval.
    RunWaits,
    /// 7: the deadline of the planning session passed.
    DeadlineExceeded,
    /// 3: `gavel policy check` reports that approval is required.
    NeedsApproval,
    /// 3: `gavel audit verify` has findings.
    NotWhole,
    /// 4: `gavel policy check` reports that the call is denied.
    Denied,
    /// 130, the shells' status for SIGINT.
    Interrupted,
}

/// The request itself is invalid, whatever the state of the system.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Usage(pub(super) String);

/// Prints an error on standard error, with its causes on the same line.
pub(super) fn code(ended: anyhow::Result<Exit>) -> ExitCode {
    match ended {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Failed) => ExitCode::FAILURE,
        Ok(Exit::Invalid) => ExitCode::from(2),
        Ok(Exit::RunFailed | Exit::NeedsApproval | Exit::NotWhole) => ExitCode::from(3),
        Ok(Exit::RunCancelled | Exit::Denied) => ExitCode::from(4),
        Ok(Exit::RunPaused) => ExitCode::from(5),
        Ok(Exit::RunWaits) => ExitCode::from(6),
        Ok(Exit::DeadlineExceeded) => ExitCode::from(7),
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

/// Invalid usage or configuration: the same command fails again.
fn is_the_askers(error: &anyhow::Error) -> bool {
    error.is::<Usage>()
        || error.is::<ConfigErrors>()
        || error.is::<FileError>()
        || matches!(error.downcast_ref(), Some(StoreError::Url(_)))
        || Refused::in_error(error).is_some_and(Refused::is_invalid_request)
        || matches!(error.downcast_ref(), Some(QueryError::Invalid { .. }))
}
