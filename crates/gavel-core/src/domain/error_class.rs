//! The five classes of errors. Each code of a call, a run and a problem belongs to one.

use super::agent_run::StopReason;
use super::decision::Outcome;
use super::names::names;
use super::tool::FailureCode;

names! {
    /// The class of an error.
    ErrorClass {
        /// The request, or what the model requested, is invalid.
        ValidationError = "ValidationError",
        /// A credential, a consent or a permission is missing.
        AuthError = "AuthError",
        /// A rule, an approver or a limit prevented it.
        PolicyError = "PolicyError",
        /// A tool, its server or the service itself failed.
        ToolExecutionError = "ToolExecutionError",
        /// The model could not be reached, or its answer could not be used.
        ModelError = "ModelError",
    }
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
