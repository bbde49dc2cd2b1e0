//! The problems of planning sessions.

use crate::domain::ids::{PlanningSessionId, RunId};
use crate::domain::time::rfc3339;
use crate::http::State;
use crate::http::error::{Code, Error, ProblemParts};
use crate::http::runs::session_moved;
use crate::surfaces::planning::PlanningError;
use crate::surfaces::runs::RunError;

impl From<PlanningError> for Error {
    fn from(error: PlanningError) -> Self {
        let parts = match error {
            PlanningError::Run(error) => return error.into(),
            PlanningError::Unavailable(why) => ProblemParts::new(
                Code::AgentUnavailable,
                format!("Planning is unavailable: {why}. Nothing was done; tell the operator."),
            ),
            PlanningError::RepositoryNotAllowed(repository) => ProblemParts::new(
                Code::RepositoryNotAllowed,
                format!(
                    "Planning sessions may not use the repository {repository}. Name another one, or ask the operator \
                     to add it to planning.repositories."
                ),
            ),
            PlanningError::Moved(status, version) => session_moved(status, version),
            PlanningError::DeadlinePassed(at_us) => ProblemParts::new(
                Code::DeadlinePassed,
                format!(
                    "The deadline of this session, {}, has passed. Start a new session.",
                    rfc3339(at_us)
                ),
            ),
        };
        parts.into()
    }
}

/// The error for a session that exists and cannot be read now.
pub(super) fn unreadable(state: &State, id: PlanningSessionId, run: RunId, error: PlanningError) -> Error {
    let PlanningError::Run(error) = error else {
        return error.into();
    };
    match state.edge.runs.unreadable(run, error) {
        RunError::Unreadable(run) => {
            let detail = format!(
                "Planning session {id} exists, but its state cannot be read now. Check it in a moment \
                 (GET /v1/sessions/{id}); do not send the request again without its Idempotency-Key."
            );
            ProblemParts::new(Code::RunUnreadable, detail).about(run).into()
        }
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header;

    use super::*;
    use crate::domain::budget::{Exceeded, Scope};
    use crate::domain::planning_session::SessionStatus;
    use crate::http::headers;

    fn problem(error: PlanningError) -> (u16, &'static str, String, Option<u32>) {
        let Error::Problem(parts) = Error::from(error) else {
            panic!("it is a problem of its own");
        };
        let code = parts.code;
        (
            code.status(),
            code.as_str(),
            parts.detail.into_owned(),
            parts.plan_version,
        )
    }

    /// Clients branch on the code, so each status of a session has its own; only another version names the current one.
    #[test]
    fn a_session_that_has_moved_on_says_how() {
        for status in SessionStatus::ALL {
            let (http, code, detail, version) = problem(PlanningError::Moved(*status, 4));
            let expected = match status {
                SessionStatus::Planning => "plan_in_progress",
                SessionStatus::Executing => "plan_locked",
                SessionStatus::AwaitingConfirmation => "plan_changed",
                SessionStatus::DeadlineExceeded => "deadline_passed",
                SessionStatus::Completed | SessionStatus::Failed | SessionStatus::Cancelled => "session_over",
            };
            assert_eq!((http, code), (409, expected), "{status:?}");
            assert_eq!(version, (expected == "plan_changed").then_some(4), "{status:?}");
            let says_what_to_do = ["Send the request again", "send the request again", "Start a new"]
                .iter()
                .any(|words| detail.contains(words));
            assert!(says_what_to_do, "{detail}");
            assert!(
                expected != "session_over" || detail.contains(status.as_str()),
                "{detail}"
            );
        }
    }

    #[test]
    fn a_refused_session_has_its_code_and_says_what_to_do() {
        let refused = problem(PlanningError::RepositoryNotAllowed("acme/dates".to_owned()));
        assert_eq!((refused.0, refused.1), (403, "repository_not_allowed"));
        assert!(refused.2.contains("acme/dates") && refused.2.contains("planning.repositories"));
        let passed = problem(PlanningError::DeadlinePassed(0));
        assert_eq!((passed.0, passed.1), (409, "deadline_passed"));
        assert!(passed.2.contains("1970-01-01T00:00:00"), "{}", passed.2);
        let away = problem(PlanningError::Unavailable("the agent planner is missing".to_owned()));
        assert_eq!((away.0, away.1), (503, "agent_unavailable"));
        assert!(
            away.2.contains("the agent planner is missing. Nothing was done"),
            "{}",
            away.2
        );
    }

    /// A session lasts minutes or days, so a client must not try again at once.
    #[test]
    fn too_many_sessions_can_be_tried_again_later() {
        let unit = "planning sessions at work";
        for (scope, limit, named) in [
            (
                Scope::User,
                3,
                "3 planning sessions at work at once are allowed for a user (planning.sessions_per_user). Cancel one",
            ),
            (
                Scope::Tenant,
                18,
                "18 planning sessions at work at once are allowed for a tenant (planning.sessions). Cancel one",
            ),
        ] {
            let exceeded = RunError::TooManySessions(Exceeded { scope, limit, unit });
            let Error::Problem(parts) = Error::from(PlanningError::Run(exceeded)) else {
                panic!("it is a problem of its own");
            };
            assert_eq!((parts.code.status(), parts.code.as_str()), (429, "too_many_sessions"));
            assert_eq!(parts.headers, [(header::RETRY_AFTER, headers::seconds(60))]);
            assert!(parts.detail.contains(named), "{}", parts.detail);
        }
    }
}
