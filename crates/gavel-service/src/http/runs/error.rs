//! The problems of runs.

use actix_web::http::header;

use crate::api::problem::FieldError;
use crate::api::runs::InDoubtCall;
use crate::domain::budget::{Exceeded, Scope};
use crate::domain::planning_session::SessionStatus;
use crate::domain::time::rfc3339;
use crate::http::error::{Code, Error, ProblemParts};
use crate::http::headers;
use crate::surfaces::runs::RunError;

/// Seconds after which another planning session may have ended.
const NEXT_SESSION: u32 = 60;

impl From<RunError> for Error {
    fn from(error: RunError) -> Self {
        let parts = match error {
            RunError::Store(failure) => return failure.into(),
            RunError::Invalid(errors) => return Self::Invalid(errors),
            RunError::Unrecorded(run) => ProblemParts::unrecorded(run.decision()).about(run),
            RunError::Unreadable(run) => ProblemParts::new(
                Code::RunUnreadable,
                format!(
                    "Run {run} exists, but its state cannot be read now. Check it in a moment; do not send the request \
                     again without its Idempotency-Key."
                ),
            )
            .about(run),
            RunError::RateLimited(quota) => {
                let detail = "The quota is exceeded; Retry-After says how long to wait.";
                let retry = (header::RETRY_AFTER, headers::seconds(quota.reset_s.max(1)));
                let lines = headers::rate_limit(&quota).into_iter().chain([retry]);
                ProblemParts::new(Code::RateLimited, detail).headers(lines)
            }
            RunError::Overloaded => ProblemParts::overloaded(),
            RunError::ThreadBusy(run) => ProblemParts::new(
                Code::ThreadBusy,
                format!(
                    "Run {run} of this thread is in progress or waits for approval; resolve its approvals, send the message after the run has ended, or cancel that run."
                ),
            )
            .about(run),
            RunError::SessionMoved(status, version) => session_moved(status, version),
            RunError::TooManySessions(exceeded) => too_many_sessions(exceeded),
            RunError::NotPaused(status) => ProblemParts::new(
                Code::NotPaused,
                format!("Only a run that is paused, or whose processes were lost, can be resumed; this one is {}.", status.as_str()),
            ),
            RunError::PartOf(run) => {
                let detail = format!("The run was called by another run; resume run {run} instead.");
                ProblemParts::new(Code::PartOfRun, detail).about(run)
            }
            RunError::StepLimitExceeded => ProblemParts::new(
                Code::StepLimitExceeded,
                "The steps of this run are exhausted over all its resumes; trigger the agent again.",
            ),
            RunError::DeadlinePassed(at_us) => ProblemParts::new(
                Code::DeadlinePassed,
                format!("The deadline of this run, {}, has passed, so it cannot be resumed.", rfc3339(at_us)),
            ),
            RunError::InDoubt(calls) => ProblemParts::new(
                Code::CallsInDoubt,
                "The outcome of these tool calls is unknown. Find out, and report each one in settled: true if it \
                 happened, false if it did not.",
            )
            .places(calls.iter().map(in_doubt).collect()),
        };
        parts.into()
    }
}

/// There are as many planning sessions as this limit allows.
fn too_many_sessions(exceeded: Exceeded) -> ProblemParts {
    let whose = if exceeded.scope == Scope::User { "_per_user" } else { "" };
    let detail =
        format!("{exceeded} (planning.sessions{whose}). Cancel one, or send the request again after one has ended.");
    let retry = (header::RETRY_AFTER, headers::seconds(NEXT_SESSION));
    ProblemParts::new(Code::TooManySessions, detail).headers([retry])
}

/// A planning session does not accept a request in this status, with this current version of its plan.
pub(crate) fn session_moved(status: SessionStatus, version: u32) -> ProblemParts {
    match status {
        SessionStatus::Planning => ProblemParts::new(
            Code::PlanInProgress,
            "A version of this plan is being made. Send the request again when the session is AWAITING_CONFIRMATION, \
             or cancel the session.",
        ),
        SessionStatus::AwaitingConfirmation => ProblemParts::new(
            Code::PlanChanged,
            format!(
                "Version {version} of the plan is the current one. Read it, and send the request again for that \
                 version."
            ),
        )
        .plan_version(version),
        SessionStatus::Executing => ProblemParts::new(
            Code::PlanLocked,
            "The plan was confirmed and is being executed, so it can no longer be changed by hand. Start a new \
             session, or cancel this one.",
        ),
        SessionStatus::DeadlineExceeded => ProblemParts::new(
            Code::DeadlinePassed,
            "The deadline of this session has passed. Start a new session.",
        ),
        SessionStatus::Completed | SessionStatus::Failed | SessionStatus::Cancelled => ProblemParts::new(
            Code::SessionOver,
            format!(
                "The session has ended with status {}. Start a new session; plan and history of this one remain \
                 readable.",
                status.as_str()
            ),
        ),
    }
}

fn in_doubt(call: &InDoubtCall) -> FieldError {
    FieldError {
        pointer: format!("/settled/{}", call.action_id),
        detail: format!(
            "is missing; set it to true if the call of {} happened, else to false",
            call.tool
        ),
    }
}
