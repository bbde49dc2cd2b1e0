//! Why a surface does not do what it is asked for. Its words stand where it arises; HTTP makes a problem document of it.

use std::borrow::Cow;
use std::fmt;

use crate::api::problem::{Code, FieldError, Late};
use crate::domain::budget::Exceeded;
use crate::domain::ids::{DecisionId, RunId};
use crate::domain::planning_session::SessionStatus;
use crate::domain::time::rfc3339;
use crate::ports::quota::QuotaState;
use crate::ports::records::{QueryError, RecordError};

/// Why a request failed: a code on which callers branch, and what there is to say beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The code.
    pub code: Code,
    more: Option<Box<More>>,
}

/// What a problem says beside its code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct More {
    /// What happened, for people; absent: the meaning of the code says it.
    pub detail: Option<Cow<'static, str>>,
    /// Each invalid place.
    pub errors: Vec<FieldError>,
    /// Whether these are parameters of a list, which each route spells in its own way.
    pub of_list: bool,
    /// The decision concerned.
    pub decision: Option<DecisionId>,
    /// The run concerned.
    pub run: Option<RunId>,
    /// The outcome of the action concerned.
    pub outcome: Option<Late>,
    /// The current version of the plan.
    pub plan_version: Option<u32>,
    /// The quota that is exceeded.
    pub quota: Option<QuotaState>,
}

impl Problem {
    /// A problem of which its code says everything.
    #[must_use]
    pub const fn from_code(code: Code) -> Self {
        Self { code, more: None }
    }

    /// A problem with words of its own.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::from_code(code).with(|more| more.detail = Some(detail.into()))
    }

    /// Adds to what it says.
    #[must_use]
    pub fn with(mut self, add: impl FnOnce(&mut More)) -> Self {
        add(self.more.get_or_insert_default());
        self
    }

    /// Names the run concerned.
    #[must_use]
    pub fn about(self, run: RunId) -> Self {
        self.with(|more| more.run = Some(run))
    }

    /// One invalid place: a JSON pointer into the body, or the name of a parameter.
    pub fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        vec![FieldError::new(pointer, detail)].into()
    }

    /// Puts errors at another place: where what failed was asked for.
    #[must_use]
    pub(crate) fn at(self, pointer: &str, place: &str) -> Self {
        self.with(|more| {
            for error in more.errors.iter_mut().filter(|error| error.pointer == pointer) {
                place.clone_into(&mut error.pointer);
            }
        })
    }

    /// What was asked for stands in the query, not in a body.
    #[must_use]
    pub(crate) fn of_parameters(self) -> Self {
        self.with(|more| {
            for error in &mut more.errors {
                error.pointer = error.pointer.trim_start_matches('/').to_owned();
            }
        })
    }

    /// The outcome of this decision is not recorded yet.
    pub fn unrecorded(id: DecisionId) -> Self {
        let detail = format!(
            "Decision {id} may have had effects, and its outcome is not recorded yet. Do not send the request again; check \
             the decision for its outcome."
        );
        Self::new(Code::OutcomeUnrecorded, detail).with(|more| more.decision = Some(id))
    }

    /// A change that may have been made: which one, and how the caller finds out, in sentences.
    pub(crate) fn outcome_unknown(run: Option<RunId>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::OutcomeUnrecorded, detail).with(|more| more.run = run)
    }

    /// The problem after a write failed whose outcome would be unknown. Only a commit that was started leaves it unknown.
    pub(crate) fn after(self, error: &RecordError) -> Self {
        match error {
            RecordError::Unavailable(_) => {
                tracing::error!(%error, "a request was rejected, since nothing can be recorded");
                Code::RecordUnavailable.into()
            }
            RecordError::Uncertain(_) => {
                tracing::error!(%error, "a request ended, and its outcome is unknown: {self}");
                self
            }
        }
    }

    /// A planning session does not accept a request in this status, with this current version of its plan.
    pub(crate) fn session_moved(status: SessionStatus, version: u32) -> Self {
        match status {
            SessionStatus::Planning => Self::new(
                Code::PlanInProgress,
                "A version of this plan is being made. Send the request again when the session is AWAITING_CONFIRMATION, \
                 or cancel the session.",
            ),
            SessionStatus::AwaitingConfirmation => Self::new(
                Code::PlanChanged,
                format!("Version {version} of the plan is the current one. Read it, and send the request again for that version."),
            )
            .with(|more| more.plan_version = Some(version)),
            SessionStatus::Executing => Self::new(
                Code::PlanLocked,
                "The plan was confirmed and is being executed, so it can no longer be changed by hand. Start a new session, \
                 or cancel this one.",
            ),
            SessionStatus::DeadlineExceeded => Self::new(
                Code::DeadlinePassed,
                "The deadline of this session has passed. Start a new session.",
            ),
            SessionStatus::Completed | SessionStatus::Failed | SessionStatus::Cancelled => Self::new(
                Code::SessionOver,
                format!("The session has ended with status {status}. Start a new session; plan and history of this one remain readable."),
            ),
        }
    }

    /// The deadline of a run, or of its planning session, has passed: this time, in microseconds since the epoch.
    pub(crate) fn deadline_passed(at_us: i64) -> Self {
        let at = rfc3339(at_us);
        let detail = format!("The deadline, {at}, has passed. Start a new session, or run the agent again.");
        Self::new(Code::DeadlinePassed, detail)
    }

    /// Whether a planning session does not accept the request any more, or not yet.
    pub fn is_of_moved_session(&self) -> bool {
        use Code::{DeadlinePassed, PlanChanged, PlanInProgress, PlanLocked, SessionOver};
        [DeadlinePassed, PlanChanged, PlanInProgress, PlanLocked, SessionOver].contains(&self.code)
    }

    /// The decision concerned.
    pub fn decision(&self) -> Option<DecisionId> {
        self.more.as_ref()?.decision
    }

    /// What was found, if anything.
    ///
    /// # Errors
    /// Any other problem.
    pub fn or_none<T>(found: Result<T, Self>) -> Result<Option<T>, Self> {
        match found {
            Err(problem) if problem.code == Code::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// All that it says beside its code.
    #[must_use]
    pub fn into_more(self) -> More {
        self.more.map(|more| *more).unwrap_or_default()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.more.as_ref().and_then(|more| more.detail.as_ref()) {
            Some(detail) => f.write_str(detail),
            None => f.write_str(&self.code.meaning().trim().replace('`', "")),
        }
    }
}

impl std::error::Error for Problem {}

impl From<Code> for Problem {
    fn from(code: Code) -> Self {
        Self::from_code(code)
    }
}

impl From<Vec<FieldError>> for Problem {
    fn from(errors: Vec<FieldError>) -> Self {
        Self::from_code(Code::InvalidRequest).with(|more| more.errors = errors)
    }
}

impl From<Exceeded> for Problem {
    fn from(exceeded: Exceeded) -> Self {
        let detail =
            format!("Too much work is in progress: {exceeded}. Nothing was done; send the request again later.");
        Self::new(Code::Overloaded, detail)
    }
}

impl From<QuotaState> for Problem {
    fn from(quota: QuotaState) -> Self {
        Self::from_code(Code::RateLimited).with(|more| more.quota = Some(quota))
    }
}

impl From<QueryError> for Problem {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Invalid { field, detail } => Self::invalid(field, detail).with(|more| more.of_list = true),
            QueryError::TooSlow { limit } => Self::new(
                Code::QueryTooSlow,
                format!(
                    "The query took longer than {} s. Narrow the filter, for example by created_at.",
                    limit.as_secs()
                ),
            ),
            QueryError::Unavailable(reason) => {
                tracing::error!(%reason, "the record store is unavailable for a query");
                Code::RecordUnavailable.into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients branch on the code, so each status of a session has its own; only another version names the current one.
    #[test]
    fn a_session_that_has_moved_on_says_how() {
        for status in SessionStatus::ALL {
            let problem = Problem::session_moved(*status, 4);
            let expected = match status {
                SessionStatus::Planning => Code::PlanInProgress,
                SessionStatus::Executing => Code::PlanLocked,
                SessionStatus::AwaitingConfirmation => Code::PlanChanged,
                SessionStatus::DeadlineExceeded => Code::DeadlinePassed,
                SessionStatus::Completed | SessionStatus::Failed | SessionStatus::Cancelled => Code::SessionOver,
            };
            assert_eq!((problem.code, expected.status()), (expected, 409), "{status:?}");
            assert!(problem.is_of_moved_session());
            let detail = problem.to_string();
            let says_what_to_do = ["Send the request again", "send the request again", "Start a new"]
                .iter()
                .any(|words| detail.contains(words));
            assert!(says_what_to_do, "{detail}");
            assert!(
                expected != Code::SessionOver || detail.contains(status.as_str()),
                "{detail}"
            );
            let version = problem.into_more().plan_version;
            assert_eq!(version, (expected == Code::PlanChanged).then_some(4), "{status:?}");
        }
    }

    #[test]
    fn a_problem_without_words_of_its_own_says_what_its_code_means() {
        let problem = Problem::from(vec![FieldError::new("/prompt", "must not be empty")]);
        let text = "The body, a query parameter or a header is not valid; errors names each place.";
        assert_eq!(problem.to_string(), text);
    }
}
