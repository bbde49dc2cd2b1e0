//! The problems of approvals, in-doubt actions and grants.

use crate::domain::action::{ActionStatus, Resolution};
use crate::http::error::{Code, Error, Late, ProblemParts};
use crate::surfaces::approvals::ApprovalError;

impl From<ApprovalError> for Error {
    fn from(error: ApprovalError) -> Self {
        let parts = match error {
            ApprovalError::Store(failure) => return failure.into(),
            ApprovalError::MissingRole(role) => ProblemParts::new(
                Code::Forbidden,
                format!("This requires the role {role}, or X-Gavel-User with the user it concerns."),
            ),
            ApprovalError::Resolved(state, decision, by) => resolved(state, decision, by),
            ApprovalError::NotGrantable(why) => ProblemParts::new(Code::NotGrantable, format!("{why}.")),
            ApprovalError::NotInDoubt(state) => ProblemParts::new(
                Code::NotInDoubt,
                format!(
                    "Only an in-doubt action can be settled; this one is {}.",
                    state.as_str()
                ),
            )
            .outcome(Late {
                state,
                decision: None,
                resolved_by: None,
            }),
            ApprovalError::SettledWith(run) => ProblemParts::new(
                Code::PartOfRun,
                format!(
                    "The action is settled by resuming its run: resume run {run} and report what happened in settled."
                ),
            )
            .about(run),
            ApprovalError::RunInProgress(run) => ProblemParts::new(
                Code::RunInProgress,
                format!(
                    "Run {run} of this action is still in progress; resolve its approvals or cancel it, and then settle the action."
                ),
            )
            .about(run),
        };
        parts.into()
    }
}

fn resolved(state: ActionStatus, decision: Option<Resolution>, resolved_by: Option<String>) -> ProblemParts {
    let detail = match (decision, &resolved_by) {
        (Some(resolution), Some(by)) => format!(
            "The approval was resolved already: {} by {by}; the action is {}.",
            resolution.as_str(),
            state.as_str()
        ),
        _ => "The approval expired, or the run ended first. The action was not executed.".to_owned(),
    };
    ProblemParts::new(Code::AlreadyResolved, detail).outcome(Late {
        state,
        decision,
        resolved_by,
    })
}
