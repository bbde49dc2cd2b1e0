//! What a single session shows besides its row: what it waits for, its pull requests, and its result (P-307).

use super::Planning;
use super::log::{OPENS_PULL_REQUEST, PullRequests};
use super::session::session;
use crate::api::planning::{LoggedAction, PullRequest, Session, SessionResult, WaitingFor, WaitingKind};
use crate::domain::action::ActionStatus;
use crate::domain::ids::{PlanningSessionId, RunId, UserId};
use crate::domain::plan::Plan;
use crate::domain::planning_session::SessionStatus;
use crate::ports::planning::{SessionWait, StoredSession, WaitKind};
use crate::surfaces::StoreFailure;
use crate::surfaces::caller::Caller;

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
    ) -> Result<Session, StoreFailure> {
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
    ) -> Result<Vec<LoggedAction>, StoreFailure> {
        let stored = self.readable(caller, user, session).await?;
        Ok(self.log_of(&stored, page).await?.0)
    }

    /// The session with all its details.
    pub(super) async fn shown(&self, caller: &Caller, stored: StoredSession) -> Result<Session, StoreFailure> {
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
    async fn lookups(&self, stored: &StoredSession) -> Result<Vec<LoggedAction>, StoreFailure> {
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
    pub(super) async fn result(
        &self,
        stored: &StoredSession,
    ) -> Result<(SessionResult, Vec<PullRequest>), StoreFailure> {
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
    async fn pull_requests(&self, run: RunId) -> Result<Vec<PullRequest>, StoreFailure> {
        let actions = self.runs.actions_of(run).await?;
        let opened = |tool: &str, status| tool == OPENS_PULL_REQUEST && status == ActionStatus::Completed;
        let mut runs = Vec::new();
        for action in actions.iter().filter(|action| opened(&action.tool, action.status)) {
            if !runs.contains(&action.run) {
                runs.push(action.run);
            }
        }
        let mut found = PullRequests::default();
        for run in runs {
            self.runs.each_entry(run, |_, entry| found.take(&entry)).await?;
        }
        Ok(found.found)
    }
}

fn waiting(wait: SessionWait, plan: &Plan) -> WaitingFor {
    let (kind, approval_id) = match wait.kind {
        WaitKind::Approval(approval) => (WaitingKind::Approval, Some(approval)),
        WaitKind::InDoubt => (WaitingKind::InDoubt, None),
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
