//! The states of a run of an agent.

use std::time::Duration;

use super::error_class::ErrorClass;
use super::names::names;

/// The longest time limit that a request may set for a run.
pub const MOST_TIME: Duration = Duration::from_secs(24 * 3600);

names! {
    /// The status of a run.
    RunStatus {
        /// Accepted; no worker has started it.
        Queued = "queued",
        /// A worker runs it. If that worker died, another one continues it.
        Running = "running",
        /// It waits for an approver.
        AwaitingConfirmation = "awaiting_confirmation",
        /// It ended successfully.
        Completed = "completed",
        /// It failed.
        Failed = "failed",
        /// It was cancelled.
        Cancelled = "cancelled",
        /// It was stopped before its end and can be resumed.
        Paused = "paused",
    }
}

names! {
    /// What stopped a run early, or what it recovered from.
    StopReason {
        /// It reached its limit of model calls.
        StepLimit = "step_limit",
        /// It reached its time limit.
        TimeLimit = "time_limit",
        /// Its deadline passed, an absolute time.
        Deadline = "deadline",
        /// It reached its token limit.
        TokenLimit = "token_limit",
        /// It repeated the same tool call.
        DoomLoop = "doom_loop",
        /// The outcome of a call is unknown; a person must settle it.
        InDoubt = "in_doubt",
        /// It ended with text where its structured output was required.
        MissingOutput = "missing_output",
        /// Its output repeatedly failed to match its schema.
        InvalidOutput = "invalid_output",
        /// A tool or model that it needs is unavailable.
        Unavailable = "unavailable",
        /// The process that ran it died.
        Crash = "crash",
        /// Several processes in a row died while they ran it, so gavel gave it up.
        ProcessLost = "process_lost",
        /// Its output or its history exceeds the size limit.
        SizeLimit = "size_limit",
        /// A step of its flow was stopped early.
        Step = "step",
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

impl RunStatus {
    /// The legal transitions. Each is one conditional UPDATE, so that only one of two concurrent writers succeeds. Its
    /// condition is built from this function, or names one status that this function allows.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        use RunStatus::{AwaitingConfirmation, Cancelled, Completed, Failed, Paused, Queued, Running};
        matches!(
            (self, next),
            (Queued, Running | Failed | Cancelled)
                | (Running, Running | AwaitingConfirmation)
                | (AwaitingConfirmation, Running)
                | (Running | AwaitingConfirmation, Completed | Failed | Cancelled | Paused)
        )
    }

    /// Whether the run has ended. A paused run has ended as well, until it is resumed.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled | Self::Paused => true,
            Self::Queued | Self::Running | Self::AwaitingConfirmation => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RunStatus::{self, *};

    /// R-states, X-4: an ended run never changes, and a queued run that ends without starting is never successful.
    #[test]
    fn only_the_legal_transitions_are_possible() {
        for from in RunStatus::ALL.iter().copied() {
            for to in RunStatus::ALL.iter().copied() {
                let legal = match from {
                    Queued => matches!(to, Running | Failed | Cancelled),
                    // Another process continues it.
                    Running => to != Queued,
                    AwaitingConfirmation => !matches!(to, Queued | AwaitingConfirmation),
                    Completed | Failed | Cancelled | Paused => false,
                };
                assert_eq!(from.may_become(to), legal, "{from:?} → {to:?}");
                assert!(!from.has_ended() || !legal, "{from:?} has ended");
            }
        }
    }
}
