//! How a command ends: its exit status.

use std::process::ExitCode;

use crate::adapters::store::StoreError;
use crate::cli::client::Refused;
use crate::cli::interrupt::Stopped;
use crate::cli::output::ReaderLeft;
use crate::config::{ConfigErrors, FileError};
use crate::ports::records::QueryError;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Done,
    /// The error was reported.
    Failed,
    /// Each error of the given input was reported.
    Invalid,
    RunFailed,
    RunCancelled,
    /// It can be resumed.
    RunPaused,
    /// A run or a session waits for a person; `gavel policy check`: a call would.
    NeedsApproval,
    DeadlineExceeded,
    /// `gavel policy check`: a call would be denied.
    Denied,
    /// `gavel audit verify` has findings.
    NotIntact,
    Interrupted,
}

/// Every way to end, with its exit status and what that means: the same for each command.
pub(super) const STATUSES: [(Exit, u8, &str); 11] = [
    (Exit::Done, 0, "done"),
    (
        Exit::Failed,
        1,
        "the command failed, or a check found something; the error says what to do",
    ),
    (
        Exit::Invalid,
        2,
        "the command line, the configuration or a file that you gave is invalid",
    ),
    (
        Exit::RunFailed,
        3,
        "the run or session that the command followed failed",
    ),
    (Exit::RunCancelled, 4, "the run or session was cancelled"),
    (Exit::RunPaused, 5, "the run is paused; a note shows how to resume it"),
    (
        Exit::NeedsApproval,
        6,
        "the run or session waits for a person, or the checked call requires approval",
    ),
    (Exit::DeadlineExceeded, 7, "the deadline of the session passed"),
    (Exit::Denied, 8, "the policy denies the checked call"),
    (
        Exit::NotIntact,
        9,
        "the audit log is not intact; each finding is reported",
    ),
    (
        Exit::Interrupted,
        130,
        "interrupted by Ctrl-C; what the command followed continues, unless a note says otherwise",
    ),
];

impl Exit {
    fn status(self) -> u8 {
        let status = STATUSES.iter().find(|(exit, ..)| *exit == self);
        status.map_or(1, |(_, status, _)| *status)
    }
}

/// What `gavel help exit-codes` prints.
pub(super) fn table() -> String {
    let rows = STATUSES
        .iter()
        .map(|(_, status, meaning)| format!("{status:>5}  {meaning}\n"));
    format!(
        "Exit statuses; each has one meaning, whatever the command:\n\n{}",
        rows.collect::<String>()
    )
}

/// The request itself is invalid, whatever the state of the system.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Usage(pub(super) String);

/// Prints an error on standard error, with its causes on the same line.
pub(super) fn code(ended: anyhow::Result<Exit>) -> ExitCode {
    match ended {
        Ok(exit) => ExitCode::from(exit.status()),
        Err(error) if error.is::<ReaderLeft>() => ExitCode::SUCCESS,
        Err(error) if error.is::<Stopped>() => ExitCode::from(Exit::Interrupted.status()),
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
        || Refused::is_invalid_request(error)
        || matches!(error.downcast_ref(), Some(QueryError::Invalid { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_means_one_thing() {
        let mut statuses: Vec<_> = STATUSES.iter().map(|(_, status, _)| *status).collect();
        statuses.dedup();
        assert_eq!(statuses.len(), STATUSES.len());
        assert!(statuses.is_sorted());
        // Those that scripts rely on, from the specifications.
        for (exit, status) in [
            (Exit::Done, 0),
            (Exit::Invalid, 2),
            (Exit::RunFailed, 3),
            (Exit::RunCancelled, 4),
            (Exit::RunPaused, 5),
            (Exit::NeedsApproval, 6),
            (Exit::DeadlineExceeded, 7),
            (Exit::Denied, 8),
            (Exit::NotIntact, 9),
            (Exit::Interrupted, 130),
        ] {
            assert_eq!(exit.status(), status, "{exit:?}");
        }
    }
}
