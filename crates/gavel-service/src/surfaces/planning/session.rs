//! A planning session as callers see it, from its row.

use crate::api::planning::{Reason, Refinement, Session, SessionUsage};
use crate::domain::plan::{Task, TaskId, TaskStatus};
use crate::domain::planning_session::SessionStatus;
use crate::domain::time::Timestamp;
use crate::ports::planning::StoredSession;

/// The session at this time, in microseconds since the epoch, with what its row holds. `confirm_us`: how long its plan
/// waits for a confirmation.
pub(super) fn session(stored: StoredSession, now_us: i64, confirm_us: i64) -> Session {
    let waits = stored.status == SessionStatus::AwaitingConfirmation;
    let confirm_by_us = stored.updated_us.saturating_add(confirm_us).min(stored.deadline_us);
    let left_us = match stored.status.has_ended() {
        true => 0,
        false => stored.deadline_us.saturating_sub(now_us).max(0).unsigned_abs(),
    };
    Session {
        session_id: stored.id,
        user: stored.user.to_string(),
        status: stored.status,
        status_reason: stored.reason.map(|(code, detail)| Reason {
            code,
            detail: detail.to_string(),
        }),
        prompt: stored.prompt.to_string(),
        repo_url: stored.repo_url.to_string(),
        deadline: Timestamp(stored.deadline_us),
        confirm_by: waits.then_some(Timestamp(confirm_by_us)),
        time_left_ms: left_us / 1000,
        plan_version: stored.version,
        raw_plan: None,
        current_task_id: at_work(&stored.plan.tasks),
        read: stored.notes.read,
        lookups: None,
        scope: None,
        waiting_for: None,
        pull_requests: None,
        result: None,
        plan: stored.plan.tasks,
        summary: stored.notes.summary,
        assumptions: stored.notes.assumptions,
        risks: stored.notes.risks,
        refinement: stored.refinement_failed.map(|(code, detail)| Refinement {
            outcome: "failed".to_owned(),
            code,
            detail: detail.to_string(),
        }),
        run_id: stored.run,
        usage: SessionUsage {
            model_calls: stored.model_calls,
            input_tokens: stored.usage.input_tokens,
            output_tokens: stored.usage.output_tokens,
            thought_tokens: stored.usage.thought_tokens,
            cached_tokens: stored.usage.cached_tokens,
        },
        created_at: Timestamp(stored.created_us),
        updated_at: Timestamp(stored.updated_us),
        started_at: stored.started_us.map(Timestamp),
        completed_at: stored.completed_us.map(Timestamp),
    }
}

fn at_work(tasks: &[Task]) -> Option<TaskId> {
    let at_work = tasks.iter().find(|task| task.status == TaskStatus::InProgress);
    at_work.map(|task| task.id)
}
