//! What commands read of the answers. A field that a server leaves out is empty here, so that a command also reads the
//! answers of another version. Statuses are text for the same reason.

use std::ops::Deref;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// A JSON object as it came, which `--json` prints, with the fields that a command reads.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Answer<T> {
    pub(in crate::cli) json: Value,
    read: T,
}

impl<T> Deref for Answer<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.read
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Answer<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Value::deserialize(deserializer)?;
        let read = T::deserialize(&json).map_err(D::Error::custom)?;
        Ok(Self { json, read })
    }
}

impl<T> Serialize for Answer<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

impl Answer<Action> {
    /// The user on whose behalf the action is, which the routes of runs do not repeat for each action.
    pub(in crate::cli) fn set_user(&mut self, user: &str) {
        self.json["userId"] = user.into();
        self.read.user_id = Some(user.to_owned());
    }

    /// The run whose actions were read.
    pub(in crate::cli) fn set_run(&mut self, run: &str) {
        self.json["runId"] = run.into();
        self.read.run_id = run.to_owned();
    }
}

/// A page of a list.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Page<T> {
    pub(in crate::cli) items: Vec<Answer<T>>,
    pub(in crate::cli) next_page_token: Option<String>,
}

/// A run of an agent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Run {
    pub(in crate::cli) id: String,
    pub(in crate::cli) agent_id: String,
    pub(in crate::cli) parent_run_id: Option<String>,
    pub(in crate::cli) status: String,
    pub(in crate::cli) summary: Option<String>,
    pub(in crate::cli) error_message: Option<String>,
    pub(in crate::cli) recovered_from: Option<String>,
    pub(in crate::cli) steps: u64,
    /// RFC 3339.
    pub(in crate::cli) created_at: String,
    pub(in crate::cli) completed_at: Option<String>,
    pub(in crate::cli) duration_ms: Option<u64>,
    pub(in crate::cli) attempts: Vec<Value>,
    pub(in crate::cli) in_doubt: Vec<CallInDoubt>,
    pub(in crate::cli) usage: Usage,
}

/// Tokens of a run.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Usage {
    pub(in crate::cli) input_tokens: u64,
    pub(in crate::cli) output_tokens: u64,
    pub(in crate::cli) thought_tokens: u64,
}

/// A call of a paused run whose outcome is unknown.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct CallInDoubt {
    pub(in crate::cli) action_id: String,
    pub(in crate::cli) tool: String,
    pub(in crate::cli) parameters: Value,
}

/// A run as the routes of threads and approvals answer it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct ThreadRun {
    pub(in crate::cli) run_id: String,
    pub(in crate::cli) state: String,
    pub(in crate::cli) summary: String,
    pub(in crate::cli) actions: Vec<Answer<Action>>,
}

/// An action: in its run, as an approval request, or in doubt.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct Action {
    pub(in crate::cli) action_id: String,
    /// Only while an approver must answer.
    pub(in crate::cli) approval_id: Option<String>,
    pub(in crate::cli) run_id: String,
    pub(in crate::cli) thread_id: Option<String>,
    pub(in crate::cli) user_id: Option<String>,
    pub(in crate::cli) agent_id: Option<String>,
    pub(in crate::cli) tool: String,
    pub(in crate::cli) state: String,
    pub(in crate::cli) requires_approval: bool,
    pub(in crate::cli) arguments: Map<String, Value>,
    pub(in crate::cli) recipients: Option<Vec<String>>,
    pub(in crate::cli) account: Option<String>,
    pub(in crate::cli) grantable: bool,
    pub(in crate::cli) reason: String,
    pub(in crate::cli) warnings: Vec<String>,
    pub(in crate::cli) expires_at: Option<String>,
    pub(in crate::cli) started_at: Option<String>,
    pub(in crate::cli) error_code: Option<String>,
    pub(in crate::cli) error_message: Option<String>,
    pub(in crate::cli) record: ActionRecord,
}

/// The record of a call.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct ActionRecord {
    /// Absent for a call that had no effect and needed no approval.
    pub(in crate::cli) created_at: Option<String>,
}

/// A thread in a list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct ThreadSummary {
    pub(in crate::cli) thread_id: String,
    pub(in crate::cli) user_id: String,
    pub(in crate::cli) agent_id: String,
    pub(in crate::cli) title: String,
    pub(in crate::cli) updated_at: String,
    pub(in crate::cli) latest_run: Option<LatestRun>,
}

/// The latest run of a thread.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct LatestRun {
    pub(in crate::cli) state: String,
}

/// A thread with its messages.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct Thread {
    pub(in crate::cli) user_id: String,
    pub(in crate::cli) agent_id: String,
    pub(in crate::cli) created_at: String,
    pub(in crate::cli) messages: Vec<Message>,
}

/// A message of a thread.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct Message {
    pub(in crate::cli) number: u64,
    pub(in crate::cli) role: String,
    pub(in crate::cli) kind: String,
    pub(in crate::cli) text: String,
    pub(in crate::cli) run_id: String,
    pub(in crate::cli) action_id: Option<String>,
    pub(in crate::cli) created_at: String,
}

/// A grant.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in crate::cli) struct Grant {
    pub(in crate::cli) grant_id: String,
    pub(in crate::cli) user_id: String,
    pub(in crate::cli) tool: String,
    pub(in crate::cli) uses: u64,
    pub(in crate::cli) created_by: String,
    pub(in crate::cli) created_at: String,
    pub(in crate::cli) revoked_at: Option<String>,
    pub(in crate::cli) recipients_by_argument: Map<String, Value>,
}

/// A decision.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Decision {
    pub(in crate::cli) decision_id: String,
    pub(in crate::cli) decision_type: Option<String>,
    pub(in crate::cli) outcome_category: Option<String>,
    pub(in crate::cli) intent: Option<String>,
    pub(in crate::cli) user_id: Option<String>,
    pub(in crate::cli) message: Option<String>,
    pub(in crate::cli) duration_ms: Option<u64>,
    pub(in crate::cli) created_at: String,
}

/// An agent of a project.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::cli) struct Agent {
    pub(in crate::cli) id: String,
    pub(in crate::cli) definition: Value,
    pub(in crate::cli) available: Option<bool>,
    pub(in crate::cli) unavailable_reason: Option<String>,
}
