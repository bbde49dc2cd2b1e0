//! A planning session as callers see it: its row, what it waits for, its pull requests and its result (P-307), and what
//! the confirmation of its plan allows: where the work may act, with which tools, and which of them ask a person anyway.

use std::collections::BTreeSet;

use super::Planning;
use super::execute::Confirmable;
use super::log::OPENS_PULL_REQUEST;
use crate::api::planning::{
    DryRunAnswer, LoggedAction, PullRequest, Reason, Refinement, Session, SessionResult, SessionScope, WaitingFor,
    WaitingKind,
};
use crate::domain::action::ActionStatus;
use crate::domain::ids::{PlanningSessionId, ProjectId, RunId, UserId};
use crate::domain::plan::{Plan, Task, TaskId, TaskStatus};
use crate::domain::planning_session::SessionStatus;
use crate::domain::time::Timestamp;
use crate::engine::strategy::plan::Scope;
use crate::ports::planning::{SessionWait, StoredSession};
use crate::surfaces::caller::Caller;
use crate::surfaces::problem::Problem;

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
        status_reason: stored.reason,
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
        refinement: stored.refinement_failed.map(|Reason { code, detail }| Refinement {
            outcome: "failed".to_owned(),
            code,
            detail,
        }),
        run_id: stored.run,
        usage: stored.usage,
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

/// The most actions of a result.
const MOST_LOGGED: usize = 1000;

impl Planning {
    /// A session of the user.
    ///
    /// # Errors
    /// There is no such session; the store is unavailable.
    pub async fn session(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        session: PlanningSessionId,
    ) -> Result<Session, Problem> {
        let stored = self.readable(caller, user, session).await?;
        self.shown(caller, stored).await
    }

    /// At most `most` actions of a session after number `after`, in order.
    ///
    /// # Errors
    /// As [`Planning::session`].
    pub async fn log(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        session: PlanningSessionId,
        page: (u32, usize),
    ) -> Result<Vec<LoggedAction>, Problem> {
        let stored = self.readable(caller, user, session).await?;
        Ok(self.log_of(&stored, page).await?.0)
    }

    /// The session with all its details.
    pub(super) async fn shown(&self, caller: &Caller, stored: StoredSession) -> Result<Session, Problem> {
        let (waiting_for, pull_requests, result);
        if stored.status.has_ended() {
            let (ended, opened) = self.result(&stored).await?;
            // While its run cleans up, no result is final.
            (waiting_for, pull_requests, result) = (Vec::new(), opened, Some(ended).filter(|_| !stored.is_at_work));
        } else {
            let waits = self.sessions.waiting(stored.id).await?;
            waiting_for = waits.into_iter().map(|wait| waiting(wait, &stored.plan)).collect();
            pull_requests = match stored.started_us {
                Some(_) => self.pull_requests(stored.run).await?,
                None => Vec::new(),
            };
            result = None;
        }
        let scope = self.scope(caller, &stored).await?;
        let lookups = match stored.status {
            SessionStatus::AwaitingConfirmation => Some(self.lookups(&stored).await?),
            _ => None,
        };
        Ok(Session {
            scope,
            lookups,
            waiting_for: Some(waiting_for),
            pull_requests: Some(pull_requests),
            result,
            ..session(stored, self.runs.now_us(), self.confirm_us())
        })
    }

    /// The calls of the planner that reached the open world, as far as that is known of their tools now.
    async fn lookups(&self, stored: &StoredSession) -> Result<Vec<LoggedAction>, Problem> {
        let catalog = self.directory.catalog();
        let reaches_out = |action: &LoggedAction| {
            let mut tools = catalog
                .tools
                .iter()
                .filter(|tool| *tool.name == *action.tool)
                .peekable();
            action.duration_ms.is_some() && (tools.peek().is_none() || tools.any(|tool| tool.asks_the_world()))
        };
        let (mut calls, _) = self.log_of(stored, (0, MOST_LOGGED)).await?;
        calls.retain(reaches_out);
        Ok(calls)
    }

    /// The result of a session, and its pull requests. Before it has ended, the result so far.
    pub(super) async fn result(&self, stored: &StoredSession) -> Result<(SessionResult, Vec<PullRequest>), Problem> {
        // One more shows whether others follow.
        let (mut log, mut pull_requests) = self.log_of(stored, (0, MOST_LOGGED + 1)).await?;
        let log_truncated = log.len() > MOST_LOGGED;
        if log_truncated {
            log.truncate(MOST_LOGGED);
            pull_requests = self.pull_requests(stored.run).await?;
        }
        let result = SessionResult {
            status: stored.status,
            log,
            log_truncated,
            cleanup: stored.cleanup.clone().unwrap_or_default(),
        };
        Ok((result, pull_requests))
    }

    /// The pull requests of a session. Only the journals of the tasks that opened some are read.
    async fn pull_requests(&self, run: RunId) -> Result<Vec<PullRequest>, Problem> {
        let actions = self.runs.actions_of(run).await?;
        let opened = |tool: &str, status| tool == OPENS_PULL_REQUEST && status == ActionStatus::Completed;
        let mut runs = Vec::new();
        for action in actions.iter().filter(|action| opened(&action.tool, action.status)) {
            if !runs.contains(&action.run) {
                runs.push(action.run);
            }
        }
        let mut found = Vec::new();
        for run in runs {
            found.extend(self.opened_by(run).await?);
        }
        Ok(found)
    }
}

fn waiting(wait: SessionWait, plan: &Plan) -> WaitingFor {
    let (kind, approval_id) = match wait.status {
        ActionStatus::InDoubt => (WaitingKind::InDoubt, None),
        _ => (WaitingKind::Approval, wait.approval_id),
    };
    let task = plan.tasks.iter().find(|task| task.run_id == Some(wait.run));
    WaitingFor {
        kind,
        task_id: task.map(|task| task.id),
        tool: wait.tool.to_string(),
        approval_id,
        action_id: wait.action,
    }
}

impl Planning {
    /// What the confirmation of a session's plan allows, or would allow now. `None` if there is no plan to confirm or to
    /// work on, or if none could be worked on now.
    pub(super) async fn scope(&self, caller: &Caller, stored: &StoredSession) -> Result<Option<SessionScope>, Problem> {
        let scope = match stored.status {
            SessionStatus::AwaitingConfirmation => self.scope_of(stored, &[]),
            SessionStatus::Executing => match self.runs.settings_of(stored.run).await?.scope {
                Some(confirmed) => confirmed.as_ref().clone(),
                None => return Ok(None),
            },
            SessionStatus::Planning
            | SessionStatus::Completed
            | SessionStatus::Failed
            | SessionStatus::DeadlineExceeded
            | SessionStatus::Cancelled => return Ok(None),
        };
        // `github.url` may name another host since.
        let Ok(repository) = self.repository(stored) else {
            return Ok(None);
        };
        let agents = self.directory.project(&caller.tenant, &ProjectId::default()).await?;
        let catalog = self.directory.catalog();
        let confirmable = Confirmable {
            repository: repository.clone(),
            scope: scope.clone(),
        };
        let Some(check) = self.check(caller, stored, confirmable, (&agents, &catalog)) else {
            return Ok(None);
        };
        let check = &check;
        let tools = |answer| scope.tools.iter().filter(move |tool| check.tool(tool).answer == answer);
        let ask_first: BTreeSet<_> = tools(DryRunAnswer::RequireApproval).chain(&scope.ask_for).collect();
        let may_ask = tools(DryRunAnswer::DependsOnArguments).filter(|tool| !scope.ask_for.contains(*tool));
        Ok(Some(SessionScope {
            repository: repository.to_string(),
            branches: format!("{}*", scope.branch_prefix),
            not_bound: scope
                .tools
                .iter()
                .filter(|tool| check.is_unbound(tool))
                .cloned()
                .collect(),
            may_ask: may_ask.cloned().collect(),
            ask_first: ask_first.into_iter().cloned().collect(),
            tools: scope.tools.into_iter().collect(),
            confirmed: scope.confirmed,
        }))
    }

    /// What a confirmation of the current plan allows.
    pub(super) fn scope_of(&self, stored: &StoredSession, ask_for: &[String]) -> Scope {
        Scope {
            tools: stored.plan.tasks.iter().flat_map(|task| task.tools.clone()).collect(),
            branch_prefix: self.settings.sessions.branch_prefix.clone(),
            base: stored.notes.read.as_ref().and_then(|read| read.default_branch.clone()),
            ask_for: ask_for.iter().cloned().collect(),
            ..Scope::default()
        }
    }
}
