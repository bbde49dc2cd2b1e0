//! Why a request about a planning session failed.

use crate::api::problem::FieldError;
use crate::domain::planning_session::SessionStatus;
use crate::ports::records::QueryError;
use crate::surfaces::StoreFailure;
use crate::surfaces::runs::RunError;

/// Why a request about a planning session failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanningError {
    /// The request is invalid, or its run was not begun.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Planning is not possible now: an agent or a tool that it needs is missing; the reason.
    #[error("planning is unavailable: {0}")]
    Unavailable(String),
    /// `planning.repositories` does not have this repository.
    #[error("the repository {0} is not among those that planning may use (planning.repositories)")]
    RepositoryNotAllowed(String),
    /// The session is not in a state for this request: its status, and the current version of its plan.
    #[error("the session is {}, with version {} of its plan", .0.as_str(), .1)]
    Moved(SessionStatus, u32),
    /// The deadline of the session has passed: this time, in microseconds since the epoch.
    #[error("the deadline of the session has passed")]
    DeadlinePassed(i64),
}

impl PlanningError {
    pub(super) fn invalid(errors: Vec<FieldError>) -> Self {
        Self::Run(RunError::Invalid(errors))
    }
}

impl From<QueryError> for PlanningError {
    fn from(error: QueryError) -> Self {
        Self::Run(error.into())
    }
}

impl From<StoreFailure> for PlanningError {
    fn from(failure: StoreFailure) -> Self {
        Self::Run(failure.into())
    }
}
