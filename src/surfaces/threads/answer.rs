//! The answer about a run of a thread.

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

/// The answer about a run.
#[derive(Clone, Debug, Serialize, ToSchema)]
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
    pub status: &'static str,
    /// The exact state where `status` has no value for it: `cancelled`, `paused`, `in_doubt` (the outcome of an action
    /// is unknown).
    pub state: &'static str,
    /// The agent's answer; while the run waits, the approval requests; if it ended otherwise, what was done and why it
    /// ended.
    pub summary: String,
    /// The class of `errorCode`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_class: Option<ErrorClass>,
    /// Why the run failed, or that it was cancelled, from a closed list: `model_unavailable`, `policy_denied`,
    /// `in_doubt` and so on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// When the run was accepted, RFC 3339.
    pub created_at: String,
    /// When its execution started.
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
    /// The exact state: `planned`, `approved`, `executing`, `rejected`, `expired` or `in_doubt`, besides the values of
    /// `status`.
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// When the approval expires, RFC 3339; only while it is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The class of `errorCode`.
    #[serde(skip_serializing_if = "Option::is_none")]
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
#[derive(Clone, Debug, Serialize, ToSchema)]
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
    pub execution_status: ActionStatus,
    /// The same as `errorCode` of the action.
    #[schema(required = true)]
    pub error_code: Option<String>,
    /// The same as `errorMessage` of the action.
    #[schema(required = true)]
    pub error_message: Option<String>,
    /// When it was proposed, RFC 3339; null for a call that had no effect and needed no approval.
    #[schema(required = true)]
    pub created_at: Option<String>,
    /// When the approval was resolved, RFC 3339.
    #[schema(required = true)]
    pub resolved_at: Option<String>,
    /// The approver.
    #[schema(required = true)]
    pub resolved_by: Option<String>,
    /// When the call was started, RFC 3339.
    #[schema(required = true)]
    pub started_at: Option<String>,
    /// When the call ended, RFC 3339.
    #[schema(required = true)]
    pub completed_at: Option<String>,
    /// Who settled the action, if it was in doubt.
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
        // The actions of child runs come after the run's own.
        .chain(
            actions
                .iter()
                .filter(|action| !own.contains(&action.id))
                .map(ActionAnswer::of),
        )
        .collect();
    let acting = actions.iter().any(|action| action.state == ActionStatus::Executing);
    let has_in_doubt = actions.iter().any(|action| action.state == ActionStatus::InDoubt);
    let (status, state) = run_words(run.status, acting, has_in_doubt);
    let in_doubt = has_in_doubt && run.status == RunStatus::Completed;
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
        created_at: run.created_at.to_string(),
        started_at: run.started_at.map(|at| at.to_string()),
        completed_at: run.completed_at.map(|at| at.to_string()),
        duration_ms: run.duration_ms,
        summary: summary(run, has_in_doubt, &stored),
        actions,
    }
}

/// The final text of the run. If it is not from its model, followed by the run's effects so far.
fn summary(run: &AgentRun, has_in_doubt: bool, actions: &HashMap<ActionId, &Action>) -> String {
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
    let settled = run.stop_reason == Some(StopReason::InDoubt) && !has_in_doubt;
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

/// The three wire values of an action's status.
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

/// For a call without an action: it is read-only, was refused, or its approval is not requested yet. If the run has
/// ended, an unfinished call never finishes.
fn of_call(call: &CallState, run: RunStatus) -> ActionAnswer {
    let over = matches!(run, RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled);
    let cut = over && !call.status.has_ended();
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
    /// An action in the answer about its run.
    #[must_use]
    pub fn of(action: &Action) -> Self {
        let waits = action.status == ActionStatus::AwaitingConfirmation;
        // The error code distinguishes rejected from expired actions; the reason is the approver's, or that the
        // approval expired.
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
            recipients: action.details.all_recipients().filter(|_| waits),
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
