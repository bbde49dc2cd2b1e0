//! What is evaluated, as far as the evaluation sees it.

use async_trait::async_trait;
use chrono::NaiveDate;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::case::Turn;
use crate::domain::decision::{DecisionType, Outcome};

/// Something that decides on messages and keeps tasks: the chat surface with a task server, in process
/// or over HTTP. An error is trouble of the set-up, not a decision: every decision, failed ones
/// included, is an [`Observed`].
#[async_trait]
pub trait Subject: Send + Sync {
    /// The day that the model is told, for cases that count from today.
    fn today(&self) -> NaiveDate;

    /// The tools of the constitution's whitelist, by their own names.
    fn whitelist(&self) -> Vec<String>;

    /// Gives a user who has none these tasks, in this order.
    async fn seed(&self, user: &str, tasks: &[Seed]) -> Result<(), String>;

    /// Decides on one message.
    async fn decide(&self, user: &str, history: &[Turn], message: &str) -> Result<Observed, String>;

    /// All tasks of a user, done ones included.
    async fn tasks(&self, user: &str) -> Result<Vec<ObservedTask>, String>;
}

/// A task to be there before the message; a [`super::SeedTask`] on the day of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seed {
    /// What is to be done.
    pub description: String,
    /// `YYYY-MM-DD`
    pub due: Option<String>,
    /// `low`, `normal` or `high`.
    pub priority: Option<String>,
    /// Details.
    pub notes: Option<String>,
    /// Is it done already?
    pub done: bool,
}

/// A decision as it was answered. Reads the body of `POST /v1/chat`; fields it does not need are left out.
#[derive(Clone, Debug, Deserialize)]
pub struct Observed {
    /// What was decided.
    pub decision_type: DecisionType,
    /// How it came out.
    #[serde(rename = "outcome_category", deserialize_with = "outcome")]
    pub outcome: Outcome,
    /// The words for the person.
    pub response: String,
    /// Every call the model proposed, in order.
    pub tool_calls: Vec<ObservedCall>,
    /// Model calls made.
    pub iterations: u32,
    /// The model that answered.
    pub model: String,
    /// Wall clock.
    pub duration_ms: u64,
    /// Decision rows that exist for it; absent when the subject cannot look. One is right.
    #[serde(skip)]
    pub records: Option<u64>,
}

/// A proposed call with its result.
#[derive(Clone, Debug, Deserialize)]
pub struct ObservedCall {
    /// Its place.
    pub sequence: u32,
    /// The tool's own name, or the model's word.
    pub tool: String,
    /// The arguments.
    pub parameters: Value,
    /// What came of it; every call has one.
    pub result: Option<ObservedResult>,
}

/// What came of a call.
#[derive(Clone, Debug, Deserialize)]
pub struct ObservedResult {
    /// Did the tool do its work?
    pub success: bool,
    /// What it returned.
    #[serde(default)]
    pub data: Option<Value>,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<ObservedError>,
}

/// Why a call failed.
#[derive(Clone, Debug, Deserialize)]
pub struct ObservedError {
    /// One of the closed list.
    pub code: String,
    /// In words.
    #[serde(default)]
    pub message: String,
}

impl ObservedCall {
    /// Did it reach its tool, or may it have?
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

/// A task as it is after the message.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedTask {
    /// What is to be done.
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

fn outcome<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Outcome, D::Error> {
    let text = String::deserialize(deserializer)?;
    Outcome::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no outcome category")))
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
        assert_eq!(observed.outcome, Outcome::TaskCompleted);
        assert!(observed.tool_calls[0].ran() && observed.tool_calls[0].succeeded());
        let unknown = body.replace("TASK_COMPLETED", "TASK_DONE");
        assert!(serde_json::from_str::<Observed>(&unknown).is_err());
    }
}
