//! The answer about a run of a thread.

use std::collections::{HashMap, HashSet};

use crate::api::runs::AgentRun;
use crate::api::threads::{ActionAnswer, ActionRecord, RunAnswer};
use crate::domain::action::{Action, ActionStatus, in_words};
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::ids::{ActionId, ThreadId};
use crate::domain::thread::{completed_effects, end_words, run_words};
use crate::domain::time::Timestamp;
use crate::domain::tool::FailureCode;
use crate::engine::calls::CallState;

pub(super) fn answer(run: &AgentRun, thread: Option<ThreadId>, calls: &[CallState], actions: &[Action]) -> RunAnswer {
    let own: HashSet<_> = calls.iter().map(|call| call.id).collect();
    let stored: HashMap<_, _> = actions.iter().map(|action| (action.id, action)).collect();
    let actions: Vec<_> = calls
        .iter()
        .map(|call| match stored.get(&call.id) {
            Some(action) => action_answer(action),
            None => of_call(call, run.status),
        })
        // The actions of child runs come after the run's own.
        .chain(
            actions
                .iter()
                .filter(|action| !own.contains(&action.id))
                .map(action_answer),
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
        status: status.into(),
        state: state.into(),
        error_class: match in_doubt {
            true => Some(FailureCode::InDoubt.class()),
            false => run.error_class(),
        },
        error_code: match in_doubt {
            true => Some(ActionStatus::InDoubt.as_str().to_owned()),
            false => run.error_code(),
        },
        created_at: run.created_at,
        started_at: run.started_at,
        completed_at: run.completed_at,
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
        status: wire(state).into(),
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
            started_at: call.started_at.map(Timestamp),
            completed_at: call.completed_at.map(Timestamp),
            settled_by: None,
        },
        error_code,
        error_message,
    }
}

/// An action in the answer about its run.
#[must_use]
pub fn action_answer(action: &Action) -> ActionAnswer {
    let waits = action.status == ActionStatus::AwaitingConfirmation;
    // The error code distinguishes rejected from expired actions; the reason is the approver's, or that the
    // approval expired.
    let unanswered =
        Some(action.status).filter(|status| matches!(status, ActionStatus::Rejected | ActionStatus::Expired));
    let error_code = action.error_code.clone();
    let error_code = error_code.or_else(|| unanswered.map(|status| status.as_str().to_owned()));
    let error_message = action.error_message.as_deref().map(in_words);
    let error_message = error_message.or_else(|| unanswered.and(action.reason.clone()));
    ActionAnswer {
        tool: action.tool.clone(),
        status: wire(action.status).into(),
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
        expires_at: action.expires_at.filter(|_| waits).map(Timestamp),
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
            created_at: Some(Timestamp(action.created_at)),
            resolved_at: action.resolved_at.map(Timestamp),
            resolved_by: action.resolved_by.clone(),
            started_at: action.started_at.map(Timestamp),
            completed_at: action.completed_at.map(Timestamp),
            settled_by: action.settled_by.clone(),
        },
        error_code,
        error_message,
    }
}
