//! A run of a thread as its user is told of it (REQUIREMENTS R, Routes; DESIGN.md section 9).

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::domain::action::{Action, ActionStatus, in_words};
use crate::domain::agent_run::{AgentRun, RunStatus, StopReason};
use crate::domain::error_class::ErrorClass;
use crate::domain::ids::{ActionId, ApprovalId, RunId, ThreadId};
use crate::domain::thread::{completed_effects, end_words, run_words};
use crate::domain::time::rfc3339;
use crate::domain::tool::FailureCode;
use crate::engine::calls::CallState;

/// The answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunAnswer {
    /// Was the request understood and carried out? What came of it, `status` says.
    pub ok: bool,
    /// The run.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// Its thread; null for a run of the trigger's.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub thread_id: Option<ThreadId>,
    /// `queued`, `planning`, `executing`, `awaiting_confirmation`, `completed` or `failed`.
    pub status: &'static str,
    /// The truth where `status` has no word for it: `cancelled`, `paused`, `in_doubt` (of an action it is not known whether it had
    /// its effect).
    pub state: &'static str,
    /// What the agent says; while it waits, what is asked; where it ended otherwise, what was done and why it ended.
    pub summary: String,
    /// The class of `errorCode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_class: Option<ErrorClass>,
    /// Why it failed, or that it was cancelled, from a closed list: `model_unavailable`, `policy_denied`, `in_doubt` and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// When it was accepted, RFC 3339.
    pub created_at: String,
    /// When work on it began.
    #[schema(required = true)]
    pub started_at: Option<String>,
    /// When it ended.
    #[schema(required = true)]
    pub completed_at: Option<String>,
    /// From `startedAt` to `completedAt`.
    #[schema(required = true)]
    pub duration_ms: Option<u64>,
    /// Its tool calls, in order.
    pub actions: Vec<ActionAnswer>,
}

/// One tool call of a run.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionAnswer {
    /// The tool.
    pub tool: String,
    /// `completed`, `awaiting_confirmation` or `failed`.
    pub status: &'static str,
    /// The truth: `planned`, `approved`, `executing`, `rejected`, `expired`, `in_doubt` beside the three.
    pub state: ActionStatus,
    /// Was, or is, a person asked?
    pub requires_approval: bool,
    /// The call.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
    /// What to resolve; only while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid")]
    pub approval_id: Option<ApprovalId>,
    /// Exactly what it would be called with; only while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub arguments: Option<Box<RawValue>>,
    /// Everybody it goes to, where the tool names recipients; only while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipients: Option<Vec<String>>,
    /// The account from which it would be done, where the tool's server names it; only while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Can leave for good be given for these recipients? Only while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grantable: Option<bool>,
    /// Why it needs leave; only while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is odd about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// When an answer comes too late, RFC 3339; only while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The class of `errorCode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_class: Option<ErrorClass>,
    /// Why it has no good result, from the closed list of `error.code`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// The same in words, as far as words are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// What is on record of it, also of a call that was denied or malformed.
    pub record: ActionRecord,
}

/// What is on record of an action: who proposed it, what the policy said, and when what happened.
//
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionRecord {
    /// The model that proposed it.
    pub model_name: String,
    /// The tool, or the agent that was called.
    pub tool_name: String,
    /// Hex SHA-256 of the canonical arguments; of what the model wrote where they were not accepted.
    pub input_hash: String,
    /// What the policy said: `allow`, `require_approval` or `deny`; null where the call ended before it was asked.
    #[schema(required = true)]
    pub policy_decision: Option<String>,
    /// The approval request, answered or not; null where none was needed.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub approval_id: Option<ApprovalId>,
    /// As the action's `state`.
    pub execution_status: ActionStatus,
    /// As the action's own.
    #[schema(required = true)]
    pub error_code: Option<String>,
    /// As the action's own.
    #[schema(required = true)]
    pub error_message: Option<String>,
    /// When it was proposed, RFC 3339; null for a call that had no effect and needed no approval.
    #[schema(required = true)]
    pub created_at: Option<String>,
    /// When an approver answered, RFC 3339.
    #[schema(required = true)]
    pub resolved_at: Option<String>,
    /// Who.
    #[schema(required = true)]
    pub resolved_by: Option<String>,
    /// When it was begun, RFC 3339.
    #[schema(required = true)]
    pub started_at: Option<String>,
    /// When it was over, RFC 3339.
    #[schema(required = true)]
    pub completed_at: Option<String>,
    /// Who said what became of it, where it was in doubt.
    #[schema(required = true)]
    pub settled_by: Option<String>,
}

pub(super) fn answer(run: &AgentRun, thread: Option<ThreadId>, calls: &[CallState], actions: &[Action]) -> RunAnswer {
    let own: HashSet<_> = calls.iter().map(|call| call.id).collect();
    let stored: HashMap<_, _> = actions.iter().map(|action| (action.id, action)).collect();
    let actions: Vec<_> = calls
        .iter()
        .map(|call| match stored.get(&call.id) {
            Some(action) => ActionAnswer::of(action),
            None => of_call(call, run.status),
        })
        // Those of agents that it called stand after its own.
        .chain(
            actions
                .iter()
                .filter(|action| !own.contains(&action.id))
                .map(ActionAnswer::of),
        )
        .collect();
    let acting = actions.iter().any(|action| action.state == ActionStatus::Executing);
    let doubtful = actions.iter().any(|action| action.state == ActionStatus::InDoubt);
    let (status, state) = run_words(run.status, acting, doubtful);
    let in_doubt = doubtful && run.status == RunStatus::Completed;
    RunAnswer {
        ok: true,
        run_id: run.id,
        thread_id: thread,
        status,
        state,
        error_class: match in_doubt {
            true => Some(FailureCode::InDoubt.class()),
            false => run.error_class(),
        },
        error_code: match in_doubt {
            true => Some(ActionStatus::InDoubt.as_str().to_owned()),
            false => run.error_code(),
        },
        created_at: run.created_at.clone(),
        started_at: run.started_at.clone(),
        completed_at: run.completed_at.clone(),
        duration_ms: run.duration_ms,
        summary: summary(run, doubtful, &stored),
        actions,
    }
}

/// The words of the run's end; where they are not its model's, what it has done all the same, as that stands now.
fn summary(run: &AgentRun, doubtful: bool, actions: &HashMap<ActionId, &Action>) -> String {
    if run.status == RunStatus::AwaitingConfirmation {
        let mut waiting: Vec<_> = actions
            .values()
            .filter(|action| action.status == ActionStatus::AwaitingConfirmation)
            .collect();
        waiting.sort_by_key(|action| (action.created_at, action.sequence));
        let asked: Vec<_> = waiting
            .iter()
            .filter_map(|action| action.details.request.as_deref())
            .collect();
        if !asked.is_empty() {
            return asked.join("\n");
        }
    }
    let settled = run.stop_reason == Some(StopReason::InDoubt) && !doubtful;
    let error = run
        .error_message
        .as_deref()
        .filter(|_| !settled || run.summary.is_none());
    let words = end_words(run.status, run.summary.as_deref(), error);
    if !matches!(run.status, RunStatus::Failed | RunStatus::Cancelled) || run.stop_reason == Some(StopReason::InDoubt) {
        return words;
    }
    let mut acted: Vec<_> = actions.values().filter(|action| action.side_effect).collect();
    acted.sort_by_key(|action| (action.created_at, action.sequence));
    let which = |status: ActionStatus| -> Vec<String> {
        let of = acted.iter().filter(|action| action.status == status);
        of.map(|action| action.tool.clone()).collect()
    };
    let Some(completed_effects) = completed_effects(&which(ActionStatus::Completed), &which(ActionStatus::InDoubt))
    else {
        return words;
    };
    format!("{words}\n\n{completed_effects}")
}

/// The three words of the wire.
const fn wire(state: ActionStatus) -> &'static str {
    match state {
        ActionStatus::Completed => "completed",
        ActionStatus::Planned
        | ActionStatus::AwaitingConfirmation
        | ActionStatus::Approved
        | ActionStatus::Executing => "awaiting_confirmation",
        ActionStatus::Failed | ActionStatus::InDoubt | ActionStatus::Rejected | ActionStatus::Expired => "failed",
    }
}

/// Of a call without an action: it only reads, or was refused, or nobody has been asked about it yet. One that came to no end in a run
/// that is over never will.
fn of_call(call: &CallState, run: RunStatus) -> ActionAnswer {
    let over = matches!(run, RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled);
    let cut = over && !call.status.is_over();
    let state = if cut { ActionStatus::Failed } else { call.status };
    let failure = call.error.as_ref();
    let code = failure
        .map(|failure| failure.code)
        .or(cut.then_some(FailureCode::Cancelled));
    let error_code = code.map(|code| code.as_str().to_owned());
    let error_message = failure.map(|failure| in_words(&failure.for_callers()));
    ActionAnswer {
        tool: call.tool.clone(),
        status: wire(state),
        state,
        requires_approval: false,
        action_id: call.id,
        approval_id: None,
        arguments: None,
        recipients: None,
        account: None,
        grantable: None,
        reason: None,
        warnings: Vec::new(),
        expires_at: None,
        error_class: code.map(FailureCode::class),
        record: ActionRecord {
            model_name: call.model.to_string(),
            tool_name: call.tool.clone(),
            input_hash: call.input_hash.clone(),
            policy_decision: call.policy.map(|effect| effect.as_str().to_owned()),
            approval_id: None,
            execution_status: state,
            error_code: error_code.clone(),
            error_message: error_message.clone(),
            created_at: None,
            resolved_at: None,
            resolved_by: None,
            started_at: call.started_at.map(rfc3339),
            completed_at: call.completed_at.map(rfc3339),
            settled_by: None,
        },
        error_code,
        error_message,
    }
}

impl ActionAnswer {
    /// An action as its run's answer tells it.
    #[must_use]
    pub fn of(action: &Action) -> Self {
        let waits = action.status == ActionStatus::AwaitingConfirmation;
        // Why it did not run is what became of the question; the reason is the person's, or that there was no answer.
        let unanswered =
            Some(action.status).filter(|status| matches!(status, ActionStatus::Rejected | ActionStatus::Expired));
        let error_code = action.error_code.clone();
        let error_code = error_code.or_else(|| unanswered.map(|status| status.as_str().to_owned()));
        let error_message = action.error_message.as_deref().map(in_words);
        let error_message = error_message.or_else(|| unanswered.and(action.reason.clone()));
        Self {
            tool: action.tool.clone(),
            status: wire(action.status),
            state: action.status,
            requires_approval: action.approval.is_some(),
            action_id: action.id,
            approval_id: action.approval.filter(|_| waits),
            arguments: waits.then(|| action.arguments.clone()),
            recipients: action.details.everybody().filter(|_| waits),
            account: action.details.account.clone().filter(|_| waits),
            grantable: waits.then(|| action.details.is_grantable()),
            reason: waits.then(|| action.details.reason.clone()),
            warnings: if waits {
                action.details.warnings.clone()
            } else {
                Vec::new()
            },
            expires_at: action.expires_at.filter(|_| waits).map(rfc3339),
            error_class: error_code
                .as_deref()
                .and_then(FailureCode::parse)
                .map(FailureCode::class),
            record: ActionRecord {
                model_name: action.model.clone(),
                tool_name: action.tool.clone(),
                input_hash: action.input_hash.clone(),
                policy_decision: Some(action.policy.clone()),
                approval_id: action.approval,
                execution_status: action.status,
                error_code: error_code.clone(),
                error_message: error_message.clone(),
                created_at: Some(rfc3339(action.created_at)),
                resolved_at: action.resolved_at.map(rfc3339),
                resolved_by: action.resolved_by.clone(),
                started_at: action.started_at.map(rfc3339),
                completed_at: action.completed_at.map(rfc3339),
                settled_by: action.settled_by.clone(),
            },
            error_code,
            error_message,
        }
    }
}
