//! The log of a session: the calls that the planner chose, the actions of all tasks, in order, and the cleanup (P-307).
//!
//! It is read from the journals of the runs, entry by entry: memory grows with the page, not with the session.

mod page;
mod pull_requests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use self::page::Page;
pub use self::pull_requests::PullRequest;
pub(super) use self::pull_requests::{OPENS_PULL_REQUEST, PullRequests};
use super::Planning;
use crate::domain::action::ActionStatus;
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::{CallFailure, Entry, Proposed, Target};
use crate::domain::plan::TaskId;
use crate::domain::tool::FailureCode;
use crate::engine::strategy::plan::{CLEANUP_STEP, CLEANUP_TOOL};
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
    /// Its task; `null` for calls of the planner, and for the cleanup at the end.
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
    pub error: Option<ActionError>,
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

impl LoggedAction {
    /// The task, or what it is without one.
    #[must_use]
    pub fn part(&self) -> String {
        match self.task_id {
            Some(task) => task.to_string(),
            None if self.tool == CLEANUP_TOOL => "cleanup".to_owned(),
            None => "plan".to_owned(),
        }
    }
}

/// The call of a step: the first of its turn, since further ones are not made. A reflection is none.
fn acted(calls: &[Proposed]) -> Option<&Proposed> {
    calls.iter().find(|call| !matches!(call.target, Target::Verdict(_)))
}

/// Why an action failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PlanningActionError)]
pub struct ActionError {
    /// A code from a closed list; docs/reference/outcomes.md explains it.
    #[schema(value_type = FailureCode)]
    pub code: &'static str,
    /// The tool's own code, if it gave one. It is the server's word, in at most 64 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "already_exists")]
    pub tool_code: Option<String>,
    /// What the tool says besides: short words, numbers and truth values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = Object, example = json!({"number": 7}))]
    pub details: BTreeMap<String, Value>,
    /// Text for people.
    pub message: String,
}

impl ActionError {
    /// A failure in the text for callers.
    pub(super) fn of(failure: &CallFailure) -> Self {
        let own = failure.own.as_deref();
        Self {
            code: failure.code.as_str(),
            tool_code: own.map(|own| own.code.clone()),
            details: own.map(|own| own.details.clone()).unwrap_or_default(),
            message: failure.for_callers().into_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
