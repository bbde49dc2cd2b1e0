//! The log of a session: the calls that the planner chose, the actions of all tasks, in order, and the cleanup (P-307).
//!
//! It is read from the journals of the runs, entry by entry: memory grows with the page, not with the session.

mod page;
mod pull_requests;

use std::collections::{HashMap, HashSet};

use self::page::Page;
pub(super) use self::pull_requests::{OPENS_PULL_REQUEST, PullRequests};
use super::Planning;
use crate::api::planning::{ActionError, LoggedAction, PullRequest};
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::{CallFailure, Entry, Proposed, Target};
use crate::domain::plan::TaskId;
use crate::engine::strategy::plan::CLEANUP_STEP;
use crate::ports::planning::StoredSession;
use crate::surfaces::StoreFailure;

/// The runs of the tasks in the order in which they began, and which in-doubt actions a person settled.
struct Work {
    tasks: Vec<(TaskId, RunId)>,
    settled: HashMap<ActionId, bool>,
    /// The entries about the calls that clean up, with their times.
    cleanup: Vec<(i64, Entry)>,
}

impl Planning {
    /// The tasks of the run that works through a plan.
    async fn work_of(&self, run: RunId) -> Result<Work, StoreFailure> {
        let mut steps: HashMap<ActionId, TaskId> = HashMap::new();
        let mut work = Work {
            tasks: Vec::new(),
            settled: HashMap::new(),
            cleanup: Vec::new(),
        };
        let mut cleanups = HashSet::new();
        let take = |at_us: i64, entry: Entry| match entry {
            Entry::Step {
                step: CLEANUP_STEP,
                ref call,
                ..
            } => {
                cleanups.insert(call.id);
                work.cleanup.push((at_us, entry));
            }
            Entry::Decided { call, .. } | Entry::Started { call, .. } | Entry::Result { call, .. }
                if cleanups.contains(&call) =>
            {
                work.cleanup.push((at_us, entry));
            }
            Entry::Step { step, call, .. } => {
                steps.insert(call.id, TaskId::of(step));
            }
            Entry::Started {
                call, child: Some(run), ..
            } => {
                let task = steps.get(&call).map(|task| (*task, run));
                // A step that is begun again has the same run.
                if let Some(task) = task.filter(|task| !work.tasks.contains(task)) {
                    work.tasks.push(task);
                }
            }
            Entry::OutcomeSettled { call, happened, .. } => {
                work.settled.insert(call, happened);
            }
            _ => {}
        };
        self.runs.each_entry(run, take).await?;
        Ok(work)
    }

    /// The in-doubt actions of the run that works through a plan that a person settled: did they happen?
    pub(super) async fn settled(&self, run: RunId) -> Result<HashMap<ActionId, bool>, StoreFailure> {
        Ok(self.work_of(run).await?.settled)
    }

    /// At most `most` actions of the log after number `after`, and all pull requests of the journals that were read for
    /// them: those of the whole session, if the page holds all actions.
    pub(super) async fn log_of(
        &self,
        stored: &StoredSession,
        (after, most): (u32, usize),
    ) -> Result<(Vec<LoggedAction>, Vec<PullRequest>), StoreFailure> {
        let mut page = Page::new(after, most);
        let mut pull_requests = PullRequests::default();
        let works = stored.started_us.map(|_| stored.run);
        for (run, _) in self.sessions.runs(stored.id).await? {
            if Some(run) != works && !page.is_full() {
                self.runs
                    .each_entry(run, |at_us, entry| page.take_of_planner(at_us, &entry))
                    .await?;
            }
        }
        let Some(run) = works else {
            return Ok((page.into_actions(&HashMap::new(), !stored.is_at_work), Vec::new()));
        };
        let work = self.work_of(run).await?;
        for (task, run) in &work.tasks {
            if page.is_full() {
                break;
            }
            let take = |at_us: i64, entry: Entry| {
                page.take(Some(*task), at_us, &entry);
                pull_requests.take(&entry);
            };
            self.runs.each_entry(*run, take).await?;
        }
        for (at_us, entry) in &work.cleanup {
            page.take(None, *at_us, entry);
        }
        Ok((
            page.into_actions(&work.settled, !stored.is_at_work),
            pull_requests.found,
        ))
    }
}

/// The call of a step: the first of its turn, since further ones are not made. A reflection is none.
fn acted(calls: &[Proposed]) -> Option<&Proposed> {
    calls.iter().find(|call| !matches!(call.target, Target::Verdict(_)))
}

/// Why an action failed, in the text for callers.
pub(super) fn error(failure: &CallFailure) -> ActionError {
    let own = failure.own.as_deref();
    ActionError {
        code: failure.code,
        tool_code: own.map(|own| own.code.clone()),
        details: own.map(|own| own.details.clone()).unwrap_or_default(),
        message: failure.for_callers().into_owned(),
    }
}

#[cfg(test)]
mod tests;
