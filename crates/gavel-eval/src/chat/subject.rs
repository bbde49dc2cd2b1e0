//! The system under evaluation, as the evaluation sees it.

use async_trait::async_trait;
use chrono::NaiveDate;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::case::Turn;

/// A system that decides on messages and keeps tasks: the chat surface with a task server. An
/// error means that the set-up failed. Every decision, also a failed one, is an [`Observed`].
#[async_trait]
pub trait Subject: Send + Sync {
    /// The current day as the model sees it, for cases with relative days.
    fn today(&self) -> NaiveDate;

    /// The constitution's tool allowlist, by the tools' own names.
    fn allowlist(&self) -> Vec<String>;

    /// Creates these tasks, in this order, for a user without tasks.
    async fn seed(&self, user: &str, tasks: &[Task]) -> Result<(), String>;

    /// Decides on one message.
    async fn decide(&self, user: &str, history: &[Turn], message: &str) -> Result<Observed, String>;

    /// All tasks of a user, done ones included.
    async fn tasks(&self, user: &str) -> Result<Vec<Task>, String>;
}

/// A decision as returned. Deserialized from the body of `POST /v1/chat`; unused fields are omitted.
#[derive(Clone, Debug, Deserialize)]
pub struct Observed {
    /// The decision type.
    pub decision_type: String,
    /// The outcome.
    #[serde(rename = "outcome_category")]
    pub outcome: String,
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
    #[serde(skip)]
    pub records: Option<u64>,
}

/// A proposed call with its result.
#[derive(Clone, Debug, Deserialize)]
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
#[derive(Clone, Debug, Deserialize)]
pub struct ObservedResult {
    /// Did the tool succeed?
    pub success: bool,
    /// The error, if it failed.
    #[serde(default)]
    pub error: Option<ObservedError>,
}

/// The error of a failed call.
#[derive(Clone, Debug, Deserialize)]
pub struct ObservedError {
    /// One of gavel's error codes.
    pub code: String,
}

impl ObservedCall {
    /// Did the call reach its tool, or may it have?
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
    pub fn succeeded(&self) -> bool {
        self.result.as_ref().is_some_and(|result| result.success)
    }
}

/// A task of a user, before the message or after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Task {
    /// The text of the task.
    pub description: String,
    /// `YYYY-MM-DD`, or a date-time.
    pub due: Option<String>,
    /// `low`, `normal` or `high`.
    pub priority: Option<String>,
    /// Details.
    pub notes: Option<String>,
    /// Is it done?
    #[serde(rename = "status", deserialize_with = "is_done")]
    pub done: bool,
}

/// The task server's `done` or `open`.
fn is_done<'de, D: Deserializer<'de>>(status: D) -> Result<bool, D::Error> {
    Ok(String::deserialize(status)? == "done")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_of_a_chat_answer_is_read() {
        let body = r#"{"decision_id":"x","decision_type":"INVOKE_TOOL","outcome_category":"SUCCESS:TASK_COMPLETED","response":"ok",
            "tool_calls":[{"sequence":1,"tool":"add_task","parameters":{"description":"x"},
              "result":{"success":true,"data":{"task":{}},"error":null,"duration_ms":3}}],
            "iterations":2,"model":"demo","usage":{},"duration_ms":5}"#;
        let observed: Observed = serde_json::from_str(body).unwrap();
        assert_eq!(observed.outcome, "SUCCESS:TASK_COMPLETED");
        assert!(observed.tool_calls[0].ran() && observed.tool_calls[0].succeeded());
    }
}
