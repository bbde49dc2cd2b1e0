//! Errors of the agents surface (R-16: the classes of errors; the HTTP layer assigns each a code).

use super::QuotaState;
use crate::domain::action::{ActionStatus, Resolution};
use crate::domain::agent_run::{InDoubtCall, RunStatus};
use crate::domain::definition::DefinitionError;
use crate::domain::ids::RunId;
use crate::ports::records::QueryError;
use crate::surfaces::chat::request::FieldError;

/// Why a request about agents or their runs failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// No such project, agent, version or run, or it belongs to another user.
    #[error("not found")]
    NotFound,
    /// The request is invalid; all errors at once.
    #[error("the request is not valid")]
    Invalid(Vec<FieldError>),
    /// The definition is invalid; all errors at once.
    #[error("the definition is invalid")]
    InvalidDefinition(Vec<DefinitionError>),
    /// The caller lacks this role.
    #[error("the role {0} is required")]
    MissingRole(&'static str),
    /// The agent is from a file, which cannot be changed through the API.
    #[error("the agent is from a file")]
    FromFile,
    /// Another version is current: this one; 0 for none.
    #[error("version {0} is current")]
    VersionConflict(i64),
    /// The project has the maximum number of API agents: this many.
    #[error("the project has {0} agents, which is the maximum")]
    TooManyAgents(usize),
    /// The quota is exceeded.
    #[error("the quota is exceeded")]
    RateLimited(QuotaState),
    /// Too many requests in progress, or the service is stopping.
    #[error("the service is overloaded")]
    Overloaded,
    /// Only a paused run can be resumed; this run's status.
    #[error("the run is {}", .0.as_str())]
    NotPaused(RunStatus),
    /// The run was already resumed, by this run.
    #[error("the run was resumed by {0}")]
    ResumedBy(RunId),
    /// The run was called by another one, and is resumed with its outermost run: this one.
    #[error("the run belongs to {0}")]
    PartOf(RunId),
    /// The action must be settled in the request that resumes this paused run.
    #[error("the action is settled with run {0}")]
    SettledWith(RunId),
    /// The action can be settled only after its outermost run, this one, has ended.
    #[error("run {0} has not ended")]
    NotOver(RunId),
    /// The step limit over all resumes is exhausted.
    #[error("no steps are left")]
    StepLimitExceeded,
    /// These in-doubt calls are not settled.
    #[error("calls are in doubt")]
    InDoubt(Vec<InDoubtCall>),
    /// No agent can answer in threads, with the reason: the agent named in `runs.agent` does not exist, or takes other
    /// inputs than a message.
    #[error("no agent can answer: {0}")]
    NoAnswerer(String),
    /// This run of the thread is active.
    #[error("run {0} of the thread is active")]
    ThreadBusy(RunId),
    /// The approval was resolved before, or has expired: the action's status, the resolution, and the approver.
    #[error("the action is {}", .0.as_str())]
    Resolved(ActionStatus, Option<Resolution>, Option<String>),
    /// A grant cannot be given for this call, with the reason.
    #[error("{0}")]
    NotGrantable(String),
    /// The action is not in doubt; its status.
    #[error("the action is {}", .0.as_str())]
    NotInDoubt(ActionStatus),
    /// The idempotency key was used with another request.
    #[error("this idempotency key was used with another request")]
    KeyReused,
    /// The run may have had effects, and its outcome could not be recorded.
    #[error("run {0} may have had effects, and its outcome is not recorded")]
    Begun(RunId),
    /// The run exists, and its effects are recorded as far as this process knows, but its state cannot be read now.
    #[error("the state of run {0} cannot be read now")]
    Unreadable(RunId),
    /// A commit was started and its outcome is unknown: it may have succeeded.
    #[error("{0}")]
    OutcomeUnknown(OutcomeUnknown),
    /// The store is unavailable; nothing was done.
    #[error("the record store is unavailable")]
    RecordUnavailable,
    /// A query of the store failed.
    #[error(transparent)]
    Query(QueryError),
}

/// An unavailable store maps to one error for all queries, so that callers can retry.
impl From<QueryError> for AgentError {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Unavailable(reason) => {
                tracing::error!(%reason, "the record store is unavailable for a query");
                Self::RecordUnavailable
            }
            QueryError::Invalid { .. } | QueryError::TooSlow { .. } => Self::Query(error),
        }
    }
}

/// What may have been done, with instructions for the caller to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutcomeUnknown {
    /// A run may have been created; if so, it is executed.
    #[error(
        "It is unknown whether run {0} was created. Look for it before you send the request again, or send it again with \
         the same Idempotency-Key."
    )]
    Run(RunId),
    /// A run may have been cancelled.
    #[error("It is unknown whether run {0} will be cancelled. Check its status; cancelling it again does no harm.")]
    Cancel(RunId),
    /// An approval of this run may have been resolved.
    #[error(
        "It is unknown whether the approval was resolved. Send the same resolution again: if it was recorded, you get its \
         result, and nothing is done twice."
    )]
    Answer(RunId),
    /// An action of this run may have been settled.
    #[error("It is unknown whether the action was settled. Send the same answer again; nothing is done twice.")]
    Settle(RunId),
    /// A grant may have been revoked.
    #[error("It is unknown whether the grant was revoked. Revoke it again, or check the list of grants.")]
    Revoke,
    /// A definition may have been put.
    #[error(
        "It is unknown whether the version was created. Check the agent's versions; putting the same definition again \
         creates no other version."
    )]
    Put,
}
