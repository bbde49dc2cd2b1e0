//! Threads, and the answers about their runs.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::approvals::Asked;
use super::filter::{Filter, Kind, Listed};
use super::names::sent;
use super::page;
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
    const ORDER: &'static str = "`updated_at desc` (the default) or `updated_at`";
}

sent! {
    /// One line of a thread.
    #[serde(rename_all = "camelCase")]
    #[derive(PartialEq, Eq)]
    ThreadMessage as "ThreadMessage" {
        /// 1, 2, 3 …
        number: u64,
        /// The speaker.
        #[serde(deserialize_with = "role")]
        role: MessageRole,
        /// The kind of line.
        #[serde(deserialize_with = "kind")]
        kind: MessageKind,
        /// The text; untrusted.
        text: String,
        /// The run it belongs to.
        run_id: RunId,
        /// The action that it refers to.
        action_id: Option<ActionId>,
        /// When it was written, RFC 3339.
        created_at: Timestamp,
    }
}

sent! {
    /// A thread of a user.
    #[serde(rename_all = "camelCase")]
    #[derive(PartialEq, Eq)]
    Thread as "Thread" {
        /// The id of the thread.
        thread_id: ThreadId,
        /// The user who owns the thread.
        user_id: String,
        /// The agent that answers in it.
        agent_id: String,
        /// When it was created, RFC 3339.
        created_at: Timestamp,
        /// When its latest message was written, RFC 3339.
        updated_at: Timestamp,
        /// A page of its messages, the latest last.
        #[serde(default)]
        messages: Vec<ThreadMessage>,
        /// How many messages were written in it, including those that are no longer stored.
        message_count: u64,
    }
}

sent! {
    /// A thread in a list.
    #[serde(rename_all = "camelCase")]
    #[derive(PartialEq, Eq)]
    ThreadSummary as "ThreadSummary" {
        /// The id of the thread.
        thread_id: ThreadId,
        /// The beginning of its first line; untrusted. Null if its messages are not stored.
        #[serde(deserialize_with = "title_of")]
        title: Option<String>,
        /// The user who owns the thread.
        user_id: String,
        /// The agent that answers in it.
        agent_id: String,
        /// When it was created, RFC 3339.
        created_at: Timestamp,
        /// When its latest message was written, RFC 3339.
        updated_at: Timestamp,
        /// How many messages it has.
        message_count: u64,
        /// Its latest run; null if its runs are not stored.
        latest_run: Option<LatestRun>,
    }
}

sent! {
    /// The latest run of a thread.
    #[serde(rename_all = "camelCase", try_from = "StoredLatestRun")]
    #[derive(PartialEq, Eq)]
    LatestRun as "LatestRun" {
        /// The run.
        run_id: RunId,
        /// The status of the run; `executing` while a call with consequences is in progress.
        status: Cow<'static, str>,
        /// The detailed state of the run: `status`, or `cancelled`, `paused` or `in_doubt`.
        state: Cow<'static, str>,
    }
}

/// What is sent, or the status of the run and what its actions do, as they are stored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredLatestRun {
    run_id: RunId,
    status: String,
    state: Option<String>,
    /// `executing` if an action of it is, else `in_doubt` if one is.
    acted: Option<ActionStatus>,
}

impl TryFrom<StoredLatestRun> for LatestRun {
    type Error = String;

    fn try_from(stored: StoredLatestRun) -> Result<Self, String> {
        let StoredLatestRun {
            run_id,
            status,
            state,
            acted,
        } = stored;
        let (status, state) = match (state, RunStatus::parse(&status)) {
            (Some(state), _) => (status.into(), state.into()),
            (None, Some(status)) => {
                let acting = acted == Some(ActionStatus::Executing);
                let (status, state) = run_words(status, acting, acted == Some(ActionStatus::InDoubt));
                (status.into(), state.into())
            }
            (None, None) => return Err(format!("a run is never {status:?}")),
        };
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

sent! {
    /// The answer about a run.
    #[serde(rename_all = "camelCase")]
    RunAnswer as "RunAnswer" {
        /// Was the request understood and carried out? `status` has its outcome.
        ok: bool,
        /// The run.
        run_id: RunId,
        /// The thread of the run; null for a run that was triggered outside of threads.
        thread_id: Option<ThreadId>,
        /// `queued`, `planning`, `executing`, `awaiting_confirmation`, `completed` or `failed`.
        status: Cow<'static, str>,
        /// The exact state where `status` has no value for it: `cancelled`, `paused`, `in_doubt` (the outcome of an action
        /// is unknown).
        state: Cow<'static, str>,
        /// The agent's answer; while the run waits, the approval requests; if it ended otherwise, what was done and why it
        /// ended.
        summary: String,
        /// The class of `errorCode`.
        #[serde(skip_serializing_if = "Option::is_none")]
        error_class: Option<ErrorClass>,
        /// Why the run failed, or that it was cancelled, from a closed list: `model_unavailable`, `policy_denied`,
        /// `in_doubt` and so on.
        #[serde(skip_serializing_if = "Option::is_none")]
        error_code: Option<String>,
        /// When the run was accepted, RFC 3339.
        created_at: Timestamp,
        /// When its execution started.
        started_at: Option<Timestamp>,
        /// When it ended.
        completed_at: Option<Timestamp>,
        /// From `startedAt` to `completedAt`.
        duration_ms: Option<u64>,
        /// Its tool calls, in order.
        actions: Vec<ActionAnswer>,
    }
}

sent! {
    /// One tool call of a run.
    #[serde(rename_all = "camelCase")]
    ActionAnswer as "ActionAnswer" {
        /// The tool.
        tool: String,
        /// `completed`, `awaiting_confirmation` or `failed`.
        status: Cow<'static, str>,
        /// The exact state: `planned`, `approved`, `executing`, `rejected`, `expired` or `in_doubt`, besides the values of
        /// `status`.
        state: ActionStatus,
        /// Did or does the call require approval?
        requires_approval: bool,
        /// The call.
        action_id: ActionId,
        /// The id of the approval; only while it is pending.
        #[serde(skip_serializing_if = "Option::is_none")]
        approval_id: Option<ApprovalId>,
        /// Exactly the arguments of the call; only while the approval is pending.
        #[shape(Shape::Optional(Box::new(Shape::Object)))]
        #[serde(skip_serializing_if = "Option::is_none")]
        arguments: Option<Box<RawValue>>,
        /// What the approver should know; only while the approval is pending.
        #[serde(flatten)]
        asked: Option<Asked>,
        /// When the approval expires, RFC 3339; only while it is pending.
        #[serde(skip_serializing_if = "Option::is_none")]
        expires_at: Option<Timestamp>,
        /// The class of `errorCode`.
        #[serde(skip_serializing_if = "Option::is_none")]
        error_class: Option<ErrorClass>,
        /// Why the call failed, from the closed list of `error.code`.
        #[serde(skip_serializing_if = "Option::is_none")]
        error_code: Option<String>,
        /// The same in words, if texts are stored.
        #[serde(skip_serializing_if = "Option::is_none")]
        error_message: Option<String>,
        /// The recorded facts about the call, even for one that was denied or malformed.
        record: ActionRecord,
    }
}

sent! {
    /// The recorded facts about an action: the model that proposed it, the policy's decision, and all times.
    //
    #[serde(rename_all = "camelCase")]
    ActionRecord as "ActionRecord" {
        /// The model that proposed it.
        model_name: String,
        /// The tool, or the agent that was called.
        tool_name: String,
        /// Hex SHA-256 of the canonical arguments, or of the model's own text if they were not accepted.
        input_hash: String,
        /// The policy's decision: `allow`, `require_approval` or `deny`; null if the call ended before the policy was
        /// asked.
        policy_decision: Option<String>,
        /// The approval request, resolved or not; null if none was needed.
        approval_id: Option<ApprovalId>,
        /// The same as `state` of the action.
        execution_status: ActionStatus,
        /// The same as `errorCode` of the action.
        error_code: Option<String>,
        /// The same as `errorMessage` of the action.
        error_message: Option<String>,
        /// When it was proposed, RFC 3339; null for a call that had no effect and needed no approval.
        created_at: Option<Timestamp>,
        /// When the approval was resolved, RFC 3339.
        resolved_at: Option<Timestamp>,
        /// The approver.
        resolved_by: Option<String>,
        /// When the call was started, RFC 3339.
        started_at: Option<Timestamp>,
        /// When the call ended, RFC 3339.
        completed_at: Option<Timestamp>,
        /// Who settled the action, if it was in doubt.
        settled_by: Option<String>,
    }
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
