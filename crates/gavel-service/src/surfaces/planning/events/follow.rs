//! The way of a reader through a session: into the log of a run, through it, and to what follows it.

use super::projection::{Projected, Projection};
use super::runs::{SessionRun, edits, made, version_before};
use super::{After, Ready, SessionWatch, Stage, Within, at_run};
use crate::api::planning::SessionEvent;
use crate::api::planning::Version;
use crate::api::runs::AgentRun;
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::planning_session::SessionStatus;
use crate::domain::time::rfc3339;
use crate::ports::planning::StoredSession;
use crate::surfaces::StoreFailure;
use crate::surfaces::planning::PlanningError;
use crate::surfaces::runs::{LogItem, Logged};

/// The part of the first edit after a run; the parts before it are the plan that the run made, and the status.
const EDITS: u32 = 2;

impl SessionWatch {
    /// Enters the log of a run.
    pub(super) async fn begin(&mut self, index: usize) -> Result<(), PlanningError> {
        let Some(run) = self.runs.get(index).copied() else {
            self.stage = Stage::Ended;
            return Ok(());
        };
        let runs = &self.planning.runs;
        let settings = runs.settings_of(run.id).await?;
        let versions = self.planning.all_versions(self.session).await?;
        let watch = runs.watch(&self.owner, None, run.id, 0).await?;
        let version = version_before(&self.runs, &versions, index);
        let execution = settings.execution;
        let is_execution = execution.is_some();
        let status = SessionEvent::Status {
            status: match is_execution {
                true => SessionStatus::Executing,
                false => SessionStatus::Planning,
            },
            run_id: run.id,
            plan_version: version,
            detail: None,
        };
        self.stage = Stage::Within(Box::new(Within {
            index,
            watch,
            projection: Projection::new(run.id, execution.as_deref()),
            next_version: version + 1,
            is_execution,
        }));
        self.push(at_run(index, 0, 0), None, status);
        Ok(())
    }

    /// Takes what the log of the run has next.
    pub(super) fn take(&mut self, item: Option<LogItem>) {
        let Stage::Within(within) = &mut self.stage else { return };
        let index = within.index;
        let Some(LogItem { position, run, what }) = item else {
            // The service stops, or the run is no longer kept.
            self.stage = match within.watch.is_at_end() {
                true => Stage::After(After::new(within, self.last.position + 1, None)),
                false => Stage::Ended,
            };
            return;
        };
        match what {
            Logged::Entry(entry, at_us) => {
                let at = rfc3339(at_us);
                for (part, what) in (0..).zip(within.projection.events(run, &entry)) {
                    let id = at_run(index, position, part);
                    self.last = id;
                    self.ready.push_back(Ready {
                        id,
                        at: Some(at.clone()),
                        what,
                    });
                }
            }
            Logged::Live(event) => {
                let event = within.projection.live(run, event);
                // It is shown although its id is that of an event which the reader has received.
                if let Some(event) = event {
                    let id = self.last.max(self.after);
                    self.ready.push_back(Ready {
                        id,
                        at: None,
                        what: Projected::Live(event),
                    });
                }
            }
            Logged::End(run) => self.stage = Stage::After(After::new(within, position, Some(run))),
        }
    }

    /// Looks what follows a run that has ended: its plan, edits, the next run, or the end of the session.
    pub(super) async fn look_after(&mut self) -> Result<(), PlanningError> {
        let stored = {
            let _look = self.planning.runs.look().await;
            let sessions = &self.planning.sessions;
            sessions.session(&self.owner.tenant, None, self.session).await
        };
        let Some(stored) = stored.map_err(StoreFailure::from)? else {
            self.stage = Stage::Ended;
            return Ok(());
        };
        let Stage::After(after) = &self.stage else {
            return Ok(());
        };
        let index = after.index;
        if index + 1 == self.runs.len() && self.runs[index].id != stored.run {
            let runs = self.planning.runs_of(stored.id).await?;
            // Those that are known keep their numbers.
            let known = self.runs.clone();
            let is_new = |run: &SessionRun| known.iter().all(|known| known.id != run.id);
            self.runs.extend(runs.into_iter().filter(is_new));
            return Ok(());
        }
        let has_next = index + 1 < self.runs.len();
        let is_at_work = matches!(stored.status, SessionStatus::Planning | SessionStatus::Executing);
        if !has_next && is_at_work {
            // Its run has ended without moving it on; the sweep does that.
            self.pause().await;
            return Ok(());
        }
        if !after.is_shown || has_next || after.version != stored.version {
            let versions = self.planning.all_versions(self.session).await?;
            self.show(&stored, &versions, has_next);
        }
        if has_next {
            self.stage = Stage::Before(index + 1);
        } else if stored.status.has_ended() {
            self.end(&stored).await?;
        } else {
            self.pause().await;
        }
        Ok(())
    }

    /// Shows the plan that the run made, the status after it, and the edits since.
    fn show(&mut self, stored: &StoredSession, versions: &[Version], has_next: bool) {
        let Stage::After(after) = &mut self.stage else { return };
        let (index, end) = (after.index, after.end);
        let run = self.runs[index].id;
        let mut events = Vec::new();
        if !after.is_shown && !after.is_execution {
            let made = made(versions, run);
            events.extend(made.map(|made| (0, Some(made.at), SessionEvent::of_version(made.clone(), false))));
            let before = version_before(&self.runs, versions, index);
            let is_left = has_next || !stored.status.has_ended();
            if made.is_some() || after.leaves_plan(before, is_left) {
                let status = SessionEvent::Status {
                    status: SessionStatus::AwaitingConfirmation,
                    run_id: run,
                    plan_version: made.map_or(before, |made| made.version),
                    detail: after.failure().filter(|_| made.is_none()),
                };
                events.push((1, made.map(|made| made.at), status));
            }
        }
        after.is_shown = true;
        after.version = stored.version;
        // A later version may be one after another run, which is not known yet.
        let known = |edit: &&Version| has_next || edit.version <= stored.version;
        let edits = edits(&self.runs, versions, index).filter(known);
        for (number, edit) in (0..).zip(edits).skip(after.edits as usize) {
            after.edits = number + 1;
            events.push((
                EDITS + number,
                Some(edit.at),
                SessionEvent::of_version(edit.clone(), false),
            ));
        }
        for (part, at, event) in events {
            self.push(at_run(index, end, part), at.map(|at| at.to_string()), event);
        }
    }

    /// The end of the session.
    async fn end(&mut self, stored: &StoredSession) -> Result<(), PlanningError> {
        let session = self.planning.session(&self.owner, None, self.session).await?;
        let Stage::After(After { index, end, .. }) = self.stage else {
            return Ok(());
        };
        self.stage = Stage::Ended;
        if let Some(cleanup) = &stored.cleanup {
            self.push(
                at_run(index, end, 0),
                None,
                SessionEvent::Cleanup {
                    removed: cleanup.removed.clone(),
                    left: cleanup.left.clone(),
                },
            );
        }
        let result = SessionEvent::Result {
            session: Box::new(session),
        };
        self.push(at_run(index, end + 1, 0), None, result);
        Ok(())
    }
}

impl After {
    fn new(within: &Within, end: u64, run: Option<Box<AgentRun>>) -> Self {
        Self {
            index: within.index,
            end,
            run,
            is_execution: within.is_execution,
            is_shown: false,
            edits: 0,
            version: 0,
        }
    }

    /// Does the session wait for the confirmation of the earlier version `before` after this run, which made none? Only
    /// the run and what follows it say so, since the session may have ended long ago.
    fn leaves_plan(&self, before: u32, is_left: bool) -> bool {
        let Some(run) = &self.run else { return false };
        let past_deadline = run.stop_reason == Some(StopReason::Deadline);
        before > 0 && !past_deadline && (is_left || run.status != RunStatus::Cancelled)
    }

    /// Why the run made no version.
    fn failure(&self) -> Option<String> {
        self.run.as_ref()?.error_message.clone()
    }
}
