//! The log of a session: the actions of all tasks, in order, and the cleanup (REQUIREMENTS P-307).
//!
//! It is read from the journals of the tasks' runs, entry by entry: memory grows with the page, not with the session.

mod page;
mod pull_requests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use self::page::Page;
pub use self::pull_requests::PullRequest;
pub(super) use self::pull_requests::{OPENS_PULL_REQUEST, PullRequests};
use super::Planning;
use crate::domain::action::ActionStatus;
use crate::domain::decision::ToolFailure;
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::{CallFailure, Entry, Proposed, Target};
use crate::domain::plan::TaskId;
use crate::engine::strategy::plan::CLEANUP_STEP;
use crate::ports::planning::StoredSession;
use crate::surfaces::StoreFailure;

/// One action of a session.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningAction)]
pub struct LoggedAction {
    /// 1, 2, 3 … in the session.
    pub n: u32,
    /// When it started, or was proposed if it never started; RFC 3339.
    #[schema(format = "date-time")]
    pub at: String,
    /// Its task; `null` for the cleanup at the end, which is of none.
    #[schema(value_type = Option<String>, required = true, example = "t1")]
    pub task_id: Option<TaskId>,
    /// The action.
    #[schema(value_type = String, format = "uuid")]
    pub action_id: ActionId,
    /// The tool.
    pub tool: String,
    /// Its arguments: as sent, or as the model wrote them if it was not sent.
    #[schema(value_type = Object)]
    pub arguments: Arc<RawValue>,
    /// Its status.
    pub status: ActionStatus,
    /// Why it failed.
    #[schema(required = true)]
    pub error: Option<ToolFailure>,
    /// From its start to its result, in milliseconds.
    #[schema(required = true)]
    pub duration_ms: Option<u64>,
    /// What allowed or denied it, or required an approval; `null` if nothing was required.
    #[schema(required = true)]
    pub decided_by: Option<String>,
}

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
        let work = self.work_of(stored.run).await?;
        let mut page = Page::new(after, most);
        let mut pull_requests = PullRequests::default();
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

/// A failure in the text for callers.
pub(super) fn shown(failure: &CallFailure) -> ToolFailure {
    ToolFailure {
        code: failure.code.as_str(),
        message: failure.for_callers().into_owned(),
    }
}

#[cfg(test)]
mod tests;
