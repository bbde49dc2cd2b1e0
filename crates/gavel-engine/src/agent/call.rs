//! Calls from one agent to another: as a tool of its model, or as a step of its flow.

use crate::journal::Journal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Mutex;

use super::finish::outcome;
use super::{Agents, Ended, Left, Round, Settings};
use crate::domain::agent_run::RunStatus;
use crate::domain::canonical;
use crate::domain::definition::{Definition, Flow};
use crate::domain::ids::{ProjectId, RunId};
use crate::domain::journal::{CallFailure, CallResult, Entry, Proposed, Target};
use crate::domain::plan::TaskId;
use crate::domain::tool::FailureCode;
use crate::flow;
use crate::ledger::Call;
use crate::limits::{AtLimit, CutStep, Stop};
use crate::log::{self, Log};
use crate::ports::commit::Spent;
use crate::ports::records::OpenDecision;
use crate::ports::runs::{NewRun, Origin, Parent, Reopen, ReopenedFor, Started};
use crate::record;
use crate::record::current;
use crate::run::{ChildRuns, Run};
use crate::snapshot::DefinitionSnapshot;
use crate::strategy::Strategy;
use crate::strategy::plan::Progress;

/// The child runs of one run of an agent.
pub(super) struct Children {
    pub(super) agents: Arc<Agents>,
    pub(super) project: ProjectId,
    /// The agent's definition.
    pub(super) definition: Arc<Definition>,
    /// The definitions that the run needs.
    pub(super) snapshot: Arc<DefinitionSnapshot>,
    pub(super) settings: Settings,
    /// Held while a child run is driven.
    pub(super) driving: Mutex<()>,
}

#[async_trait]
impl ChildRuns for Children {
    async fn call(&self, run: &Run, call: &Proposed, arguments: &Arc<RawValue>) -> Result<CallResult, Stop> {
        let began = self.now();
        let (record, strategy) = (&run.record, &run.context.strategy);
        let ledger = record.journal.ledger();
        let state = ledger.call(call.id);
        let child = state.and_then(Call::child);
        let starts = state.and_then(Call::last_start).map_or(0, |(_, starts)| starts);
        let (Some(log), Some(child), Target::Agent(name)) = (record.log(), child, &call.target) else {
            return Err(Stop::LeaseLost);
        };
        let Some(member) = self.snapshot.get(name) else {
            let message = format!("{name:?} was not among the agents when this run began");
            return Ok(CallResult::not_sent(FailureCode::UnknownTool, message));
        };
        let (input, settings) = self.given(run, call, &member.definition, arguments);
        if starts > 1 {
            self.reopen(log, child, starts, &settings).await?;
        }
        let new = NewRun {
            id: child,
            project: self.project.clone(),
            agent: Arc::clone(name),
            version: None,
            decision: OpenDecision {
                id: child.decision(),
                message: Arc::from(input.get()),
                definition_hash: Arc::clone(&member.definition.hash),
                requested_model: self.agents.requested_model(&member.definition),
                agent_id: Some(Arc::clone(name)),
                created_at: self.agents.engine.clock.now_us(),
                ..record.decision.clone()
            },
            origin: Origin::Called(Parent {
                run: log.run,
                action: call.id,
                lease: log.hold.lease(),
            }),
            snapshot: self.snapshot.snapshot(),
            input,
            settings: settings.to_raw(),
            entries: Vec::new(),
            queued: false,
            claim: None,
        };
        match self.agents.runs.create(new).await? {
            Started::Now(_) | Started::Before(_) => {}
            Started::LeaseLost => return Err(Stop::LeaseLost),
            _ => {
                let message = "the run of the agent could not be created";
                return Ok(CallResult::not_sent(FailureCode::Unavailable, message));
            }
        }
        let ended = self.drive(run, log, child).await?;
        let outcome = outcome(strategy, &self.settings, name, ended)?;
        Ok(self.ended_after(began, outcome))
    }

    async fn continuing(&self, run: &Run, call: &Proposed) -> Result<(RunId, bool), Stop> {
        let journal = &run.record.journal;
        let ledger = journal.ledger();
        let state = ledger.call(call.id);
        let Some(child) = state.and_then(Call::child) else {
            return Ok((RunId::new(), true));
        };
        let started = state.and_then(Call::last_start).map(|(at, _)| at);
        let resumed = journal.len() - current(journal).len();
        let run_state = self.agents.runs.run_state(child).await?;
        let is_paused = run_state.is_some_and(|child| child.end.status == RunStatus::Paused);
        Ok((child, is_paused && started.is_some_and(|started| started < resumed)))
    }

    async fn cancel(&self, run: &Run) -> Result<Vec<Entry>, Stop> {
        let mut results = Vec::new();
        let Some(log) = run.record.log() else {
            return Ok(results);
        };
        let ledger = run.record.journal.ledger();
        // A call that was resumed to settle its outcome counts as in progress until it has ended again.
        for call in ledger.calls().filter(|call| call.is_in_progress()) {
            let (Target::Agent(name), Some(child)) = (&call.proposed.target, call.child()) else {
                continue;
            };
            if self.agents.runs.run_state(child).await?.is_none() {
                continue;
            }
            let began = self.now();
            let ended = self.drive(run, log, child).await?;
            // A step that was cut short has no result.
            if let Ok(outcome) = outcome(&run.context.strategy, &self.settings, name, ended) {
                let result = self.ended_after(began, outcome);
                results.push(Entry::Result {
                    call: call.id(),
                    result,
                });
            }
        }
        Ok(results)
    }

    async fn idle(&self) {
        drop(self.driving.lock().await);
    }
}

impl Children {
    fn now(&self) -> Instant {
        self.agents.engine.clock.instant()
    }

    /// Drives a child run. If this run is cancelled, the child run is cancelled too, and awaited.
    async fn drive(&self, run: &Run, log: &Log, child: RunId) -> Result<Ended, Stop> {
        let _driving = self.driving.lock().await;
        let log = log.of(child, flows(run, log));
        let cancel = run.context.cancel.child_token();
        self.agents.drive_logged(log, cancel, Some(&self.snapshot)).await
    }

    fn ended_after(&self, began: Instant, outcome: Result<Arc<RawValue>, CallFailure>) -> CallResult {
        CallResult::sent(outcome, self.now().saturating_duration_since(began))
    }

    /// Reopens a child run that was cut short, and whose call was started this often, if that was not done yet.
    async fn reopen(&self, log: &Log, child: RunId, starts: usize, settings: &Settings) -> Result<(), Stop> {
        let Some(state) = self.agents.runs.run_state(child).await? else {
            return Ok(());
        };
        if state.end.status != RunStatus::Paused || (state.attempt as usize) + 1 >= starts {
            return Ok(());
        }
        // The step that made an in-doubt call receives the user's answer about it.
        let settings = Settings {
            settled: self.settings.settled.clone(),
            ..settings.clone()
        };
        let reopen = Reopen {
            run: child,
            attempt: state.attempt,
            place: ReopenedFor::Parent(log.hold.lease()),
            session: None,
            settings: settings.to_raw(),
            entry: log::resumed(state.end.steps, state.end.usage),
            at_us: self.agents.engine.clock.now_us(),
        };
        match self.agents.runs.reopen(reopen).await? {
            // One that is not paused was reopened in a commit that was not acknowledged.
            Started::Now(_) | Started::NotPaused(_) => Ok(()),
            _ => Err(Stop::LeaseLost),
        }
    }

    /// The input and the settings of a child run. A model sets its time limit by an argument of the call; else the
    /// definition sets it, for a sub-agent or for a step.
    fn given(
        &self,
        run: &Run,
        call: &Proposed,
        called: &Definition,
        arguments: &Arc<RawValue>,
    ) -> (Arc<RawValue>, Settings) {
        let (left, record, strategy) = (self.left(run), &run.record, &run.context.strategy);
        if let Strategy::Plan(execution) = strategy {
            let progress = Progress::of(&record.journal, execution);
            let step = record.journal.ledger().call(call.id).and_then(|call| call.step);
            let task = TaskId::of(step.map_or(0, |(number, _)| number));
            let (_, spent) = flow::spent(&record.journal, &CutStep::default());
            let work = progress.work(task, execution, spent);
            return (
                Arc::clone(arguments),
                self.settings.called(called, None, left).on_task(work, progress.created),
            );
        }
        if let Strategy::Steps(flow) = strategy {
            let ledger = record.journal.ledger();
            let place = ledger.call(call.id).and_then(|call| call.step);
            let step = place.and_then(|(step, _)| flow.steps().get(step as usize));
            let settings = Settings {
                in_loop: matches!(flow, Flow::Loop { .. }),
                round: round(flow, &record.journal, place),
                ..self.settings.called(called, step.and_then(|step| step.timeout), left)
            };
            return (Arc::clone(arguments), settings);
        }
        let by_definition = self.definition.timeout_of(&called.name);
        let (input, timeout) = match serde_json::from_str(arguments.get()) {
            Ok(read) => {
                let (input, by_model) = called.split_call(read);
                let input = Arc::from(canonical::to_raw(&Value::Object(input)));
                (input, by_model.or(by_definition))
            }
            // The gate has read them as an object.
            Err(_) => (Arc::clone(arguments), by_definition),
        };
        (input, self.settings.called(called, timeout, left))
    }

    /// The limits that this run has left.
    fn left(&self, run: &Run) -> Left {
        let (record, limits) = (&run.record, &run.context.limits);
        let time = limits.time.map(|time| time.saturating_sub(record.elapsed(self.now())));
        if !run.context.strategy.has_steps() {
            return Left {
                time,
                steps: None,
                tokens: None,
                grace: Duration::ZERO,
            };
        }
        // A flow counts its steps' usage as its own, and only its steps can write a summary.
        let (steps, tokens) = flow::spent(&record.journal, &CutStep::default());
        let grace = match limits.at_limit {
            AtLimit::SumUp { grace } => grace,
            AtLimit::End => Duration::ZERO,
        };
        Left {
            time,
            steps: limits.iterations.map(|most| most.saturating_sub(steps)),
            tokens: limits.tokens.map(|most| most.saturating_sub(tokens)),
            grace,
        }
    }
}

/// The flows to which a child run of this run belongs as a step. A run that a model calls is no step: the parent counts
/// its own model calls.
fn flows(run: &Run, log: &Log) -> Vec<Spent> {
    if !run.context.strategy.has_steps() {
        return Vec::new();
    }
    let (steps, usage) = run.context.strategy.total(&run.record.journal);
    record::with_flows(log, steps, usage)
}

/// The current round, if the agent itself is the loop. `place`: the step and the round of the call.
fn round(flow: &Flow, journal: &Journal, place: Option<(u32, u32)>) -> Option<Round> {
    let Flow::Loop { steps, max_iterations } = flow else {
        return None;
    };
    steps.is_empty().then(|| Round {
        number: place.map_or(1, |(_, round)| round),
        of: *max_iterations,
        before: flow::last_output(journal),
    })
}
