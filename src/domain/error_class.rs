//! The five classes of errors. Each code of a call, a run and a problem belongs to one.

use serde::Serialize;
use utoipa::ToSchema;

use super::agent_run::{AgentRun, RunStatus, StopReason};
use super::decision::Outcome;
use super::tool::FailureCode;

/// The class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub enum ErrorClass {
    /// The request, or what the model requested, is invalid.
    ValidationError,
    /// A credential, a consent or a permission is missing.
    AuthError,
    /// A rule, an approver or a limit prevented it.
    PolicyError,
    /// A tool, its server or the service itself failed.
    ToolExecutionError,
    /// The model could not be reached, or its answer could not be used.
    ModelError,
}

impl FailureCode {
    /// Its class.
    #[must_use]
    pub const fn class(self) -> ErrorClass {
        match self {
            Self::UnknownTool
            | Self::InvalidArguments
            | Self::TooManyCalls
            | Self::MixedWithVerdict
            | Self::DoomLoop => ErrorClass::ValidationError,
            Self::AuthRequired => ErrorClass::AuthError,
            Self::Denied | Self::Rejected | Self::Expired | Self::LimitReached | Self::Cancelled => {
                ErrorClass::PolicyError
            }
            Self::ToolError
            | Self::ProtocolError
            | Self::Timeout
            | Self::Overloaded
            | Self::Unavailable
            | Self::Unsupported
            | Self::InDoubt
            | Self::NotRecorded => ErrorClass::ToolExecutionError,
        }
    }
}

impl Outcome {
    /// The class of a decision or run with this outcome; `None` if nothing failed.
    #[must_use]
    pub const fn class(self) -> Option<ErrorClass> {
        Some(match self {
            Self::TaskCompleted
            | Self::ResponseGiven
            | Self::UnclearIntent
            | Self::MultipleMatches
            | Self::OutOfScope => return None,
            Self::UserInput => ErrorClass::ValidationError,
            Self::MissingPermission => ErrorClass::AuthError,
            Self::PolicyDenied
            | Self::RateLimited
            | Self::Overloaded
            | Self::Cancelled
            | Self::LoopLimit
            | Self::Deadline => ErrorClass::PolicyError,
            Self::ToolInvocation | Self::Internal => ErrorClass::ToolExecutionError,
            Self::ModelUnavailable | Self::ModelTimeout | Self::MalformedOutput | Self::SafetyBlocked => {
                ErrorClass::ModelError
            }
        })
    }
}

impl StopReason {
    /// The class of a run that failed for this reason.
    #[must_use]
    pub const fn class(self) -> ErrorClass {
        match self {
            Self::StepLimit | Self::TimeLimit | Self::Deadline | Self::TokenLimit | Self::SizeLimit => {
                ErrorClass::PolicyError
            }
            Self::DoomLoop | Self::MissingOutput | Self::InvalidOutput => ErrorClass::ModelError,
            Self::InDoubt | Self::Unavailable | Self::Crash | Self::ProcessLost | Self::Step => {
                ErrorClass::ToolExecutionError
            }
        }
    }
}

impl AgentRun {
    /// The class of [`AgentRun::error_code`].
    #[must_use]
    pub fn error_class(&self) -> Option<ErrorClass> {
        match (self.status, self.stop_reason) {
            (RunStatus::Cancelled, _) => Outcome::Cancelled.class(),
            (
                RunStatus::Failed,
                Some(reason @ (StopReason::InDoubt | StopReason::ProcessLost | StopReason::SizeLimit)),
            ) => Some(reason.class()),
            (RunStatus::Failed, _) => self.outcome_category.and_then(Outcome::class),
            (RunStatus::Queued | RunStatus::Running | RunStatus::AwaitingConfirmation, _) => None,
            (RunStatus::Completed | RunStatus::Paused, _) => None,
        }
    }
}
