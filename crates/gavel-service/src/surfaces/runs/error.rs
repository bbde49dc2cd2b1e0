//! Errors of runs (R-16: the classes of errors; the HTTP layer assigns each a code).

use crate::api::problem::FieldError;
use crate::api::runs::InDoubtCall;
use crate::domain::agent_run::RunStatus;
use crate::domain::budget::Exceeded;
use crate::domain::ids::RunId;
use crate::domain::planning_session::SessionStatus;
use crate::ports::quota::QuotaState;
use crate::ports::records::QueryError;
use crate::surfaces::StoreFailure;

/// Why a request about a run failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// There is no such run; or the store failed.
    #[error(transparent)]
    Store(#[from] StoreFailure),
    /// The request is invalid; all errors at once.
    #[error("the request is not valid")]
    Invalid(Vec<FieldError>),
    /// The quota is exceeded.
    #[error("the quota is exceeded")]
    RateLimited(QuotaState),
    /// Too many requests in progress, or the service is stopping.
    #[error("the service is overloaded")]
    Overloaded,
    /// This run of the same thread is active.
    #[error("run {0} of the thread is active")]
    ThreadBusy(RunId),
    /// The planning session does not wait for confirmation with the given version of its plan; its status and version.
    #[error("the session is {status} with version {version} of its plan", status = .0.as_str(), version = .1)]
    SessionMoved(SessionStatus, u32),
    /// There are as many planning sessions as this limit allows.
    #[error("there are too many planning sessions")]
    TooManySessions(Exceeded),
    /// Only a run that is paused, or whose processes were lost, can be resumed; this run's status.
    #[error("the run is {}", .0.as_str())]
    NotPaused(RunStatus),
    /// The run was called by another one, and is resumed with its outermost run: this one.
    #[error("the run belongs to {0}")]
    PartOf(RunId),
    /// The step limit over all resumes is exhausted.
    #[error("no steps are left")]
    StepLimitExceeded,
    /// The deadline of the run has passed: this time, in microseconds since the epoch.
    #[error("the deadline of the run has passed")]
    DeadlinePassed(i64),
    /// These in-doubt calls are not settled.
    #[error("calls are in doubt")]
    InDoubt(Vec<InDoubtCall>),
    /// The run may have had effects, and its outcome could not be recorded.
    #[error("run {0} may have had effects, and its outcome is not recorded")]
    Unrecorded(RunId),
    /// The run exists, and its effects are recorded as far as this process knows, but its state cannot be read now.
    #[error("the state of run {0} cannot be read now")]
    Unreadable(RunId),
}

impl From<QueryError> for RunError {
    fn from(error: QueryError) -> Self {
        Self::Store(error.into())
    }
}
