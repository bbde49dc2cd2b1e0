//! The log of a session: the calls that the planner chose, the actions of all tasks, in order, and the cleanup (P-307).
//! It is read from the journals of the runs, one after the other.

use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::Planning;
use crate::api::events::CallError;
use crate::api::planning::{ActionError, LoggedAction, PullRequest};
use crate::domain::action::{ActionStatus, DID_NOT_HAPPEN};
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::{CallFailure, Entry};
use crate::domain::plan::TaskId;
use crate::domain::time::Timestamp;
use crate::domain::tool::FailureCode;
use crate::engine::journal::Journal;
use crate::engine::ledger::Call;
use crate::engine::strategy::plan::CLEANUP_STEP;
use crate::ports::planning::StoredSession;
use crate::surfaces::problem::Problem;

/// A journal that is read for the log.
struct Read {
    journal: Journal,
    /// When each entry was written, in microseconds since the epoch.
    times: Vec<i64>,
}

impl Read {
    /// The calls of a task's journal. Of a turn, the first: further ones are not made.
    fn of_task(&self) -> impl Iterator<Item = Call<'_>> {
        let mut turn = 0;
        let is_first = move |call: &Call<'_>| std::mem::replace(&mut turn, call.turn) != call.turn;
        self.journal.ledger().of_tools().filter(is_first)
    }
}

/// Which in-doubt actions a person settled: did they happen?
pub(super) type Settled = HashMap<ActionId, bool>;

/// By the journal of the run that works through a plan.
fn settled_in(journal: &Journal) -> Settled {
    journal.iter().filter_map(Entry::settled).collect()
}

/// The status of a call and why it failed, with what a person found out about a call in doubt.
pub(super) fn ended(call: Call<'_>, settled: &Settled) -> (ActionStatus, Option<ActionError>) {
    match (call.status(), settled.get(&call.id())) {
        (ActionStatus::InDoubt, Some(true)) => (ActionStatus::Completed, None),
        (ActionStatus::InDoubt, Some(false)) => {
            let failure = CallFailure::new(FailureCode::ToolError, DID_NOT_HAPPEN);
            (ActionStatus::Failed, Some(error(&failure)))
        }
        (status, _) => (status, call.failure().map(error)),
    }
}

impl Planning {
    async fn read(&self, run: RunId) -> Result<Read, Problem> {
        let (journal, times) = self.runs.journal(run).await?;
        Ok(Read { journal, times })
    }

    /// The in-doubt actions of the run that works through a plan that a person settled: did they happen?
    pub(super) async fn settled(&self, run: RunId) -> Result<Settled, Problem> {
        Ok(settled_in(&self.read(run).await?.journal))
    }

    /// At most `most` actions of the log after number `after`, and all pull requests of the journals that were read for
    /// them: those of the whole session, if the page holds all actions.
    pub(super) async fn log_of(
        &self,
        stored: &StoredSession,
        (after, most): (u32, usize),
    ) -> Result<(Vec<LoggedAction>, Vec<PullRequest>), Problem> {
        let mut opened = Vec::new();
        let works = stored.started_us.map(|_| stored.run);
        let work = match works {
            Some(run) => Some(self.read(run).await?),
            None => None,
        };
        let mut page = Page {
            after,
            most,
            count: 0,
            settled: work.as_ref().map(|work| settled_in(&work.journal)).unwrap_or_default(),
            is_at_work: stored.is_at_work,
            actions: Vec::new(),
        };
        for run in self.sessions.runs(stored.id).await? {
            if Some(run) != works && !page.is_full() {
                let read = self.read(run).await?;
                // Those that its model chose. Code made the others.
                let chosen = read.journal.ledger().of_tools().filter(|call| call.step.is_none());
                page.add(None, &read, chosen);
            }
        }
        if let Some(work) = work {
            let (steps, cleanup): (Vec<_>, Vec<_>) = {
                let calls = work.journal.ledger().calls();
                calls.partition(|call| call.step.is_some_and(|(step, _)| step != CLEANUP_STEP))
            };
            for call in steps {
                if let (Some((step, _)), Some(run), false) = (call.step, call.child(), page.is_full()) {
                    let read = self.read(run).await?;
                    page.add(Some(TaskId::of(step)), &read, read.of_task());
                    opened.extend(pull_requests(&read.journal));
                }
            }
            page.add(None, &work, cleanup.into_iter());
        }
        Ok((page.actions, opened))
    }

    /// The pull requests that this run of a task opened.
    pub(super) async fn opened_by(&self, run: RunId) -> Result<Vec<PullRequest>, Problem> {
        Ok(pull_requests(&self.read(run).await?.journal))
    }
}

/// Why an action failed, in the text for callers.
pub(super) fn error(failure: &CallFailure) -> ActionError {
    CallError::from(failure).into()
}

// One page of the log, collected from journals.

/// Collects a page of the log from journals.
struct Page {
    after: u32,
    most: usize,
    count: u32,
    settled: Settled,
    /// Has the run of the session not ended?
    is_at_work: bool,
    actions: Vec<LoggedAction>,
}

impl Page {
    /// Are there all actions that the page may hold?
    fn is_full(&self) -> bool {
        self.actions.len() >= self.most
    }

    /// Adds these calls of a journal.
    fn add<'a>(&mut self, task: Option<TaskId>, of: &Read, calls: impl Iterator<Item = Call<'a>>) {
        for call in calls {
            self.count += 1;
            if self.count > self.after && !self.is_full() {
                let proposed_us = of.times.get(call.proposed_at()).copied();
                let action = self.logged(task, call, proposed_us.unwrap_or_default());
                self.actions.push(action);
            }
        }
    }

    fn logged(&self, task_id: Option<TaskId>, call: Call<'_>, proposed_us: i64) -> LoggedAction {
        let decided_by = call.policy().and_then(|policy| policy.by);
        let (status, error) = ended(call, &self.settled);
        LoggedAction {
            n: self.count,
            // A call that is repeated after a crash started when it was sent first.
            at: Timestamp(call.first_started_us().unwrap_or(proposed_us)),
            task_id,
            action_id: call.id(),
            tool: call.name().to_string(),
            arguments: call.accepted().cloned().unwrap_or_else(|| call.arguments()),
            status: match status {
                // Once the run of the session has ended, no action is executing any more.
                ActionStatus::Executing if !self.is_at_work => ActionStatus::InDoubt,
                status => status,
            },
            error,
            duration_ms: call.duration_us().map(|us| us.max(0).unsigned_abs() / 1000),
            decided_by: decided_by.map(|by| by.to_string()),
        }
    }
}

// The pull requests that a session opened, from the results of its calls.

/// The tool that opens one.
pub(super) const OPENS_PULL_REQUEST: &str = "createPullRequest";

/// The pull requests of a task's journal.
fn pull_requests(journal: &Journal) -> Vec<PullRequest> {
    let calls = journal.ledger().of_tools();
    let opening = calls.filter(|call| *call.name() == *OPENS_PULL_REQUEST);
    opening.filter_map(|call| pull_request(call.data()?)).collect()
}

/// The pull request in a result; `None` if it has another form.
fn pull_request(data: &RawValue) -> Option<PullRequest> {
    let data: Value = serde_json::from_str(data.get()).ok()?;
    let made = data.get("pullRequest")?;
    Some(PullRequest {
        number: made.get("number")?.as_u64()?,
        url: made.get("htmlUrl")?.as_str()?.to_owned(),
    })
}

#[cfg(test)]
mod tests;
