//! Why there is no answer (R-16: the classes of errors; the edge gives each a code).

use super::QuotaState;
use crate::domain::action::{ActionStatus, Resolution};
use crate::domain::agent_run::{DoubtfulCall, RunStatus};
use crate::domain::definition::DefinitionError;
use crate::domain::ids::RunId;
use crate::ports::records::QueryError;
use crate::surfaces::chat::request::FieldError;

/// Why a request about agents or their runs has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// No such project, agent, version or run, or it is somebody else's.
    #[error("not found")]
    NotFound,
    /// What was given does not fit; every place at once.
    #[error("the request is not valid")]
    Invalid(Vec<FieldError>),
    /// A definition that is wrong; every mistake at once.
    #[error("the definition is wrong")]
    InvalidDefinition(Vec<DefinitionError>),
    /// The caller lacks this role.
    #[error("the role {0} is needed")]
    MissingRole(&'static str),
    /// The agent is from a file, which is read only.
    #[error("the agent is from a file")]
    FromFile,
    /// Another version is current: this one, 0 for none.
    #[error("version {0} is current")]
    VersionConflict(i64),
    /// The project has as many agents by the API as it may have: so many.
    #[error("the project has {0} agents, the most it may have")]
    TooManyAgents(usize),
    /// Over the quota.
    #[error("over the quota")]
    RateLimited(QuotaState),
    /// Too much in flight, or the service is stopping.
    #[error("shed")]
    Overloaded,
    /// Only a paused run can be resumed; so is this one.
    #[error("the run is {}", .0.as_str())]
    NotPaused(RunStatus),
    /// It was resumed already, by this run.
    #[error("the run was resumed by {0}")]
    ResumedBy(RunId),
    /// It was called by another run, and is resumed with the outermost one: this.
    #[error("the run belongs to {0}")]
    PartOf(RunId),
    /// The action is settled when its run, which is paused, is resumed: this.
    #[error("the action is settled with run {0}")]
    SettledWith(RunId),
    /// The action is settled when its outermost run is over: this.
    #[error("run {0} is not over")]
    NotOver(RunId),
    /// No steps are left over all resumes.
    #[error("no steps are left")]
    StepLimitExceeded,
    /// Of these calls nobody has said what happened.
    #[error("calls are in doubt")]
    InDoubt(Vec<DoubtfulCall>),
    /// Nobody can answer in threads: the agent that `runs.agent` names is not there, or takes other inputs than a message. Why.
    #[error("nobody can answer: {0}")]
    NoAnswerer(String),
    /// This run of the thread is going.
    #[error("run {0} of the thread is going")]
    ThreadBusy(RunId),
    /// Somebody has answered before, or the time was over: where the action is, what was said, by whom.
    #[error("the action is {}", .0.as_str())]
    Resolved(ActionStatus, Option<Resolution>, Option<String>),
    /// Leave for good cannot be given for this call. Why.
    #[error("{0}")]
    NotGrantable(String),
    /// Nobody doubts what came of the action; so it is.
    #[error("the action is {}", .0.as_str())]
    NotInDoubt(ActionStatus),
    /// The idempotency key was used with another request.
    #[error("this idempotency key was used with another request")]
    KeyReused,
    /// The run may have had effects, and what it did could not be recorded.
    #[error("run {0} may have had effects, and its outcome is not recorded")]
    Begun(RunId),
    /// The run is there, and what it did is recorded as far as this process knows. How it stands cannot be read now.
    #[error("how run {0} stands cannot be read now")]
    Unreadable(RunId),
    /// A commit was begun and nobody heard how it ended: it may have been done.
    #[error("{0}")]
    OutcomeUnknown(OutcomeUnknown),
    /// Nothing can be recorded or read now; nothing was done.
    #[error("the record store is unavailable")]
    RecordUnavailable,
    /// A question to the store has no answer.
    #[error(transparent)]
    Query(QueryError),
}

/// A store that is away is that, whoever asked it: those who may ask again do.
impl From<QueryError> for AgentError {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Unavailable(reason) => {
                tracing::error!(%reason, "a query found the record store away");
                Self::RecordUnavailable
            }
            QueryError::Invalid { .. } | QueryError::TooSlow { .. } => Self::Query(error),
        }
    }
}

/// What may have been done, in words that say how the caller finds out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutcomeUnknown {
    /// A run may have been made, and then it is worked on.
    #[error(
        "It is not known whether run {0} was made. Look for it before sending the request again, or send it again with the \
         same Idempotency-Key."
    )]
    Run(RunId),
    /// A run may be cancelled.
    #[error("It is not known whether run {0} is to be cancelled. Look at it; to cancel it again does no harm.")]
    Cancel(RunId),
    /// A question of this run may be answered.
    #[error(
        "It is not known whether the answer counts. Send the same one again: where it counted, you get what it led to, and \
         nothing is done twice."
    )]
    Answer(RunId),
    /// An action of this run may be settled.
    #[error("It is not known whether the action is settled. Say the same again; nothing is done twice.")]
    Settle(RunId),
    /// Standing leave may be taken back.
    #[error("It is not known whether the grant is revoked. Revoke it again, or look at the list.")]
    Revoke,
    /// A definition may have been put.
    #[error(
        "It is not known whether the version was made. Look at the agent's versions; to put the same definition again makes \
         no other one."
    )]
    Put,
}
