//! A run that waits for approvals, and what it finds when it continues.

use super::Agents;
use crate::domain::action::{Action, ActionStatus};
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::Entry;
use crate::journal::Journal;
use crate::limits::Stop;
use crate::ports::commit::{Committed, Fact, Wait};
use crate::run::{Engine, Run};
use crate::strategy::Strategy;
use crate::strategy::plan::Progress;
use crate::{approvals, write};

/// What a run waits for.
pub(super) enum WaitsFor {
    /// The approval of these calls.
    Approvals(Vec<ActionId>),
    /// The settlement of these calls in doubt of its steps.
    Settlement(Vec<ActionId>),
    /// The end of this child run.
    Child(RunId),
}

impl Agents {
    /// An approval is for the tool as it was (promise: exact approvals), and the tool list may be old. So the servers
    /// of approved calls are asked again before the run is prepared.
    pub(super) async fn refresh_servers(&self, root: RunId, journal: &Journal) -> Result<Result<(), String>, Stop> {
        for server in approvals::servers(journal, &self.actions_of(root, journal).await?) {
            if let Err(why) = self.engine.tools.refresh_server(&server).await {
                tracing::warn!(%root, %server, why, "the tools of a server cannot be read");
                return Ok(Err(format!("{server} is unavailable, so its tools cannot be checked")));
            }
        }
        Ok(Ok(()))
    }

    /// The actions of an outermost run, if an approval was requested in this run.
    async fn actions_of(&self, root: RunId, journal: &Journal) -> Result<Vec<Action>, Stop> {
        let requested = journal.ledger().calls().any(|call| call.requested().is_some());
        match requested {
            true => Ok(self.actions.of_run(root).await?),
            false => Ok(Vec::new()),
        }
    }

    /// Adds resolved approvals to the journal.
    pub(super) async fn apply_resolutions(&self, run: &mut Run) -> Result<(), Stop> {
        if let Some(log) = run.record.log() {
            let actions = self.actions_of(log.hold.lease().run, &run.record.journal).await?;
            let expired = approvals::expired_with_deadline(&actions, self.approvals_expire);
            if let Some(until) = run.context.limits.until.as_mut().filter(|_| expired) {
                until.clock = until.clock.min(run.record.elapsed(self.engine.clock.instant()));
            }
            approvals::apply_resolutions(run, &actions);
        }
        self.apply_settlements(run).await
    }

    /// Adds how persons settled the calls in doubt of the tasks of a plan.
    async fn apply_settlements(&self, run: &mut Run) -> Result<(), Stop> {
        let (Strategy::Plan(execution), Some(log)) = (&run.context.strategy, run.record.log()) else {
            return Ok(());
        };
        let in_doubt = Progress::of(&run.record.journal, execution).in_doubt;
        if in_doubt.is_empty() {
            return Ok(());
        }
        for action in self.actions.of_run(log.hold.lease().run).await? {
            if let Some(by) = action.settled_by.filter(|_| in_doubt.contains(&action.id)) {
                run.push(Entry::OutcomeSettled {
                    call: action.id,
                    happened: action.status == ActionStatus::Completed,
                    by,
                });
            }
        }
        Ok(())
    }

    /// Suspends the run, until what it waits for is there.
    pub(super) async fn suspend(&self, engine: &Engine, run: &mut Run, waits_for: WaitsFor) -> Result<Committed, Stop> {
        run.push(Entry::Suspended);
        let (wait, requests) = match waits_for {
            WaitsFor::Child(child) => (Wait::Child(child), Vec::new()),
            WaitsFor::Settlement(calls) => (Wait::Settlement(calls), Vec::new()),
            WaitsFor::Approvals(calls) => {
                let elapsed = run.record.elapsed(engine.clock.instant());
                let left = run.context.limits.until_deadline(elapsed);
                let requests = approvals::questions(run, &calls, self.approvals_expire, left);
                (Wait::Calls(calls), requests)
            }
        };
        let spent = run.record.spent(&run.context.strategy).into_iter().map(Fact::Spent);
        let facts = spent.chain(approvals::outcomes(&run.record).into_iter().map(Fact::Outcome));
        let facts = facts
            .chain(requests.into_iter().map(Fact::Action))
            .chain([Fact::Waits(wait)]);
        write::commit(engine, &mut run.record, facts.collect()).await
    }
}
