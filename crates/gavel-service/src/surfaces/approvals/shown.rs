//! Pending approvals and in-doubt actions, as callers get them.

use std::collections::HashMap;

use crate::api::approvals::{ActionInDoubt, PendingApproval};
use crate::domain::action::Action;
use crate::domain::ids::RunId;
use crate::domain::plan::TaskId;
use crate::domain::time::Timestamp;

/// The tasks of planning sessions, by the runs that work on them.
#[derive(Clone, Debug, Default)]
pub struct Tasks(pub(super) HashMap<RunId, TaskId>);

impl Tasks {
    fn of(&self, action: &Action) -> Option<TaskId> {
        self.0.get(&action.run).copied()
    }
}

/// An action that waits for an approval; `None` for one that is not waiting: it expires on time, even if that is recorded later. `now_us` is in
/// microseconds since the epoch.
#[must_use]
pub fn pending(action: Action, tasks: &Tasks, now_us: i64) -> Option<PendingApproval> {
    Some(PendingApproval {
        approval_id: action.approval.filter(|_| action.waits(now_us))?,
        run_id: action.root,
        thread_id: action.thread,
        session_id: action.session,
        task_id: tasks.of(&action),
        action_id: action.id,
        user_id: action.user,
        agent_id: action.agent,
        tool: action.tool,
        arguments: action.arguments,
        grantable: action.details.is_grantable(),
        recipients: action.details.all_recipients(),
        reason: action.details.reason,
        account: action.details.account,
        warnings: action.details.warnings,
        created_at: Timestamp(action.created_at),
        expires_at: Timestamp(action.expires_at?),
    })
}

/// A call whose outcome is unknown, for callers.
#[must_use]
pub fn in_doubt(action: Action, tasks: &Tasks) -> ActionInDoubt {
    ActionInDoubt {
        action_id: action.id,
        run_id: action.root,
        thread_id: action.thread,
        session_id: action.session,
        task_id: tasks.of(&action),
        user_id: action.user,
        agent_id: action.agent,
        tool: action.tool,
        arguments: action.arguments,
        recipients: action.details.all_recipients(),
        started_at: action.started_at.map(Timestamp),
    }
}
