//! Threads, and the answers about their runs.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::filter::{Filter, Kind, Listed};
use super::{names, page};
use crate::domain::action::ActionStatus;
use crate::domain::agent_run::RunStatus;
use crate::domain::error_class::ErrorClass;
use crate::domain::ids::{ActionId, ApprovalId, RunId, ThreadId};
use crate::domain::thread::{MessageKind, MessageRole, run_words, title};
use crate::domain::time::Timestamp;

page! {
    /// A page of threads.
    #[serde(rename_all = "camelCase")]
    ThreadPage { threads: ThreadSummary }
}

impl Listed for ThreadPage {
    const FILTERS: &'static [Filter] = &[
        Filter("agent_id", Kind::Text),
        Filter("user_id", Kind::Text),
        Filter("created_at", Kind::Time),
        Filter("updated_at", Kind::Time),
    ];
    const EXAMPLE: &'static str = "updated_at >= \"2026-11-01T00:00:00Z\"";
    const ORDER: &'static str = "`updated_at desc` (the default) or `updated_at`.";
}

/// One line of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThreadMessage {
    /// 1, 2, 3 …
    pub number: u64,
    /// The speaker.
    #[serde(deserialize_with = "role")]
    #[schema(value_type = names::MessageRole)]
    pub role: MessageRole,
    /// The kind of line.
    #[serde(deserialize_with = "kind")]
    #[schema(value_type = names::MessageKind)]
    pub kind: MessageKind,
    /// The text; untrusted.
    pub text: String,
    /// The run it belongs to.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// The action that it refers to.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub action_id: Option<ActionId>,
    /// When it was written, RFC 3339.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
}

/// A thread of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Thread {
    /// The id of the thread.
    #[schema(value_type = String, format = "uuid")]
    pub thread_id: ThreadId,
    /// The user who owns the thread.
    pub user_id: String,
    /// The agent that answers in it.
    pub agent_id: String,
    /// When it was created, RFC 3339.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// When its latest message was written, RFC 3339.
    #[schema(value_type = String)]
    pub updated_at: Timestamp,
    /// A page of its messages, the latest last.
    #[serde(default)]
    #[schema(required = true)]
    pub messages: Vec<ThreadMessage>,
    /// How many messages were written in it, including those that are no longer stored.
    pub message_count: u64,
}

/// A thread in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThreadSummary {
    /// The id of the thread.
    #[schema(value_type = String, format = "uuid")]
    pub thread_id: ThreadId,
    /// The beginning of its first line; untrusted. Null if its messages are not stored.
    #[schema(required = true)]
    #[serde(deserialize_with = "title_of")]
    pub title: Option<String>,
    /// The user who owns the thread.
    pub user_id: String,
    /// The agent that answers in it.
    pub agent_id: String,
    /// When it was created, RFC 3339.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// When its latest message was written, RFC 3339.
    #[schema(value_type = String)]
    pub updated_at: Timestamp,
    /// How many messages it has.
    pub message_count: u64,
    /// Its latest run; null if its runs are not stored.
    #[schema(required = true)]
    pub latest_run: Option<LatestRun>,
}

/// The latest run of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LatestRun {
    /// The run.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// The status of the run; `executing` while a call with consequences is in progress.
    #[schema(value_type = String)]
    pub status: Cow<'static, str>,
    /// The detailed state of the run: `status`, or `cancelled`, `paused` or `in_doubt`.
    #[schema(value_type = String)]
    pub state: Cow<'static, str>,
}

/// From what is sent, or from its status and what its actions do, as they are stored.
impl<'de> Deserialize<'de> for LatestRun {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Stored {
            run_id: RunId,
            status: String,
            state: Option<String>,
            /// `executing` if an action of it is, else `in_doubt` if one is.
            acted: Option<ActionStatus>,
        }
        let Stored {
            run_id,
            status,
            state,
            acted,
        } = Stored::deserialize(deserializer)?;
        if let Some(state) = state {
            let (status, state) = (status.into(), state.into());
            return Ok(Self { run_id, status, state });
        }
        let stored = RunStatus::parse(&status).ok_or_else(|| D::Error::custom(format!("a run is never {status:?}")))?;
        let acting = acted == Some(ActionStatus::Executing);
        let (status, state) = run_words(stored, acting, acted == Some(ActionStatus::InDoubt));
        let (status, state) = (status.into(), state.into());
        Ok(Self { run_id, status, state })
    }
}

/// The role of a line, from its role or its kind.
fn role<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MessageRole, D::Error> {
    let name = String::deserialize(deserializer)?;
    let role = MessageRole::parse(&name).or_else(|| MessageKind::parse(&name)?.role());
    role.ok_or_else(|| D::Error::custom(format!("a line of a thread is no {name:?}")))
}

/// The kind of a line, from its kind or the role of a message.
fn kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MessageKind, D::Error> {
    let name = String::deserialize(deserializer)?;
    let message = MessageRole::parse(&name).map(|_| MessageKind::Message);
    let kind = message.or_else(|| MessageKind::parse(&name));
    kind.ok_or_else(|| D::Error::custom(format!("a line of a thread is no {name:?}")))
}

/// From the first message.
fn title_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let first: Option<String> = Option::deserialize(deserializer)?;
    Ok(first.as_deref().and_then(title))
}

/// The answer about a run.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunAnswer {
    /// Was the request understood and carried out? `status` has its outcome.
    pub ok: bool,
    /// The run.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// The thread of the run; null for a run that was triggered outside of threads.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub thread_id: Option<ThreadId>,
    /// `queued`, `planning`, `executing`, `awaiting_confirmation`, `completed` or `failed`.
    #[schema(value_type = String)]
    pub status: Cow<'static, str>,
    /// The exact state where `status` has no value for it: `cancelled`, `paused`, `in_doubt` (the outcome of an action
    /// is unknown).
    #[schema(value_type = String)]
    pub state: Cow<'static, str>,
    /// The agent's answer; while the run waits, the approval requests; if it ended otherwise, what was done and why it
    /// ended.
    pub summary: String,
    /// The class of `errorCode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::ErrorClass>)]
    pub error_class: Option<ErrorClass>,
    /// Why the run failed, or that it was cancelled, from a closed list: `model_unavailable`, `policy_denied`,
    /// `in_doubt` and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// When the run was accepted, RFC 3339.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// When its execution started.
    #[schema(value_type = Option<String>, required = true)]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[schema(value_type = Option<String>, required = true)]
    pub completed_at: Option<Timestamp>,
    /// From `startedAt` to `completedAt`.
    #[schema(required = true)]
    pub duration_ms: Option<u64>,
    /// Its tool calls, in order.
    pub actions: Vec<ActionAnswer>,
}

/// One tool call of a run.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionAnswer {
    /// The tool.
    pub tool: String,
    /// `completed`, `awaiting_confirmation` or `failed`.
    #[schema(value_type = String)]
    pub status: Cow<'static, str>,
    /// The exact state: `planned`, `approved`, `executing`, `rejected`, `expired` or `in_doubt`, besides the values of
    /// `status`.
    #[schema(value_type = names::ActionStatus)]
    pub state: ActionStatus,
    /// Did or does the call require approval?
    pub requires_approval: bool,
    /// The call.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
    /// The id of the approval; only while it is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub approval_id: Option<ApprovalId>,
    /// Exactly the arguments of the call; only while the approval is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub arguments: Option<Box<RawValue>>,
    /// All recipients, if the tool declares recipients; only while the approval is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipients: Option<Vec<String>>,
    /// The account that the call would use, if the tool's server named it; only while the approval is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Can a grant be given for these recipients? Only while the approval is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grantable: Option<bool>,
    /// Why the call requires approval; only while the approval is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Warnings about the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// When the approval expires, RFC 3339; only while it is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub expires_at: Option<Timestamp>,
    /// The class of `errorCode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<names::ErrorClass>)]
    pub error_class: Option<ErrorClass>,
    /// Why the call failed, from the closed list of `error.code`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// The same in words, if texts are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// The recorded facts about the call, even for one that was denied or malformed.
    pub record: ActionRecord,
}

/// The recorded facts about an action: the model that proposed it, the policy's decision, and all times.
//
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionRecord {
    /// The model that proposed it.
    pub model_name: String,
    /// The tool, or the agent that was called.
    pub tool_name: String,
    /// Hex SHA-256 of the canonical arguments, or of the model's own text if they were not accepted.
    pub input_hash: String,
    /// The policy's decision: `allow`, `require_approval` or `deny`; null if the call ended before the policy was
    /// asked.
    #[schema(required = true)]
    pub policy_decision: Option<String>,
    /// The approval request, resolved or not; null if none was needed.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub approval_id: Option<ApprovalId>,
    /// The same as `state` of the action.
    #[schema(value_type = names::ActionStatus)]
    pub execution_status: ActionStatus,
    /// The same as `errorCode` of the action.
    #[schema(required = true)]
    pub error_code: Option<String>,
    /// The same as `errorMessage` of the action.
    #[schema(required = true)]
    pub error_message: Option<String>,
    /// When it was proposed, RFC 3339; null for a call that had no effect and needed no approval.
    #[schema(value_type = Option<String>, required = true)]
    pub created_at: Option<Timestamp>,
    /// When the approval was resolved, RFC 3339.
    #[schema(value_type = Option<String>, required = true)]
    pub resolved_at: Option<Timestamp>,
    /// The approver.
    #[schema(required = true)]
    pub resolved_by: Option<String>,
    /// When the call was started, RFC 3339.
    #[schema(value_type = Option<String>, required = true)]
    pub started_at: Option<Timestamp>,
    /// When the call ended, RFC 3339.
    #[schema(value_type = Option<String>, required = true)]
    pub completed_at: Option<Timestamp>,
    /// Who settled the action, if it was in doubt.
    #[schema(required = true)]
    pub settled_by: Option<String>,
}

/// `POST /api/agent/run`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SayBody {
    /// The user's message; at most 32 KiB.
    pub prompt: String,
    /// The thread of the message; absent: a new one.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub thread_id: Option<ThreadId>,
    /// The IANA name of the user's time zone, such as `Europe/Berlin`, which gives "tomorrow at ten" its meaning.
    /// Absent: the agent learns that it is unknown.
    #[schema(example = "Europe/Berlin")]
    pub time_zone: Option<String>,
}
