//! The system under evaluation, as the evaluation sees it.

use async_trait::async_trait;
use chrono::NaiveDate;
use serde_json::Value;

use super::case::Turn;
use crate::domain::decision::{DecisionType, Outcome};

/// A system that decides on messages and keeps tasks: the chat surface with a task server, in process. An error
/// means that the set-up failed. Every decision, also a failed one, is an [`Observed`].
#[async_trait]
pub trait Subject: Send + Sync {
    /// The current day as the model sees it, for cases with relative days.
    fn today(&self) -> NaiveDate;

    /// The constitution's tool allowlist, by the tools' own names.
    fn allowlist(&self) -> Vec<String>;

    /// Creates these tasks, in this order, for a user without tasks.
    async fn seed(&self, user: &str, tasks: &[Seed]) -> Result<(), String>;

    /// Decides on one message.
    async fn decide(&self, user: &str, history: &[Turn], message: &str) -> Result<Observed, String>;

    /// All tasks of a user, done ones included.
    async fn tasks(&self, user: &str) -> Result<Vec<ObservedTask>, String>;
}

/// A task that must exist before the message; a [`super::SeedTask`] on the day of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seed {
    /// The text of the task.
    pub description: String,
    /// `YYYY-MM-DD`
    pub due: Option<String>,
    /// `low`, `normal` or `high`.
    pub priority: Option<String>,
    /// Details.
    pub notes: Option<String>,
    /// Is it already done?
    pub done: bool,
}

/// A decision as returned, as far as an evaluation looks at it.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The decision type.
    pub decision_type: DecisionType,
    /// The outcome.
    pub outcome: Outcome,
    /// The text for the user.
    pub response: String,
    /// Every call the model proposed, in order.
    pub tool_calls: Vec<ObservedCall>,
    /// Model calls made.
    pub iterations: u32,
    /// The model that answered.
    pub model: Option<String>,
    /// Elapsed time in milliseconds.
    pub duration_ms: u64,
    /// Decision rows that exist for it; absent if the subject cannot count them. One is correct.
    pub records: Option<u64>,
}

/// A proposed call with its result.
#[derive(Clone, Debug)]
pub struct ObservedCall {
    /// Its sequence number.
    pub sequence: u32,
    /// The tool's own name, or the name that the model used.
    pub tool: String,
    /// The arguments.
    pub parameters: Value,
    /// The result; every call must have one.
    pub result: Option<ObservedResult>,
}

/// The result of a call.
#[derive(Clone, Debug)]
pub struct ObservedResult {
    /// Did the tool succeed?
    pub success: bool,
    /// The error, if it failed.
    pub error: Option<ObservedError>,
}

/// The error of a failed call.
#[derive(Clone, Debug)]
pub struct ObservedError {
    /// One of gavel's error codes.
    pub code: String,
}

impl ObservedCall {
    /// Did the call reach its tool, or may it have?
    #[must_use]
    pub fn ran(&self) -> bool {
        let reached = |error: &ObservedError| {
            matches!(
                error.code.as_str(),
                "tool_error"
                    | "auth_required"
                    | "protocol_error"
                    | "timeout"
                    | "in_doubt"
                    | "unsupported"
                    | "overloaded"
            )
        };
        self.result
            .as_ref()
            .is_some_and(|result| result.success || result.error.as_ref().is_some_and(reached))
    }

    /// Did it succeed?
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.result.as_ref().is_some_and(|result| result.success)
    }
}

/// A task after the message.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedTask {
    /// The text of the task.
    pub description: String,
    /// `YYYY-MM-DD`, or a date-time.
    pub due: Option<String>,
    /// `low`, `normal` or `high`.
    pub priority: Option<String>,
    /// Details.
    pub notes: Option<String>,
    /// Is it done?
    pub done: bool,
}
