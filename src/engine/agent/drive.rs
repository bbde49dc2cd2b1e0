//! A run from its row to its end: load, prepare, run, finish.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::call::unread;
use super::ended::{
    Ended, ended, exits_loop, final_message, formatted, lacks_model_summary, recovered_from, summarize,
};
use super::fresh::{self, Fresh};
use super::history::History;
use super::prepare::{self, Known, Parts, Unable};
use super::{Agents, DefinitionSnapshot};
use crate::domain::action::{Action, ActionStatus};
use crate::domain::agent_run::{InDoubtCall, RunStatus, StopReason};
use crate::domain::definition::Definition;
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::Entry;
use crate::domain::thread;
use crate::domain::tool::FailureCode;
use crate::engine::ledger::{Call, Ledger};
use crate::engine::limits::Limits;
use crate::engine::live::Live;
use crate::engine::log::{self, Halt, Log, Stop};
use crate::engine::next::{Ending, iterations};
use crate::engine::{
    Context, Durability, Engine, Record, Run, Strategy, approvals, derive, flow, notices, record, spans,
};
use crate::ports::BoxFuture;
use crate::ports::commit::{Committed, Fact, RunEnd, Wait};
use crate::ports::runs::{Hold, RunState, StoredRun};

/// Waits until another process may hold the run because its lease was not renewed in time, for whatever reason.
async fn run_out(hold: &Hold) {
    loop {
        let left = hold.left();
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

impl Agents {
    /// Drives a run to its end under a held lease, starting from its current state.
    ///
    /// # Errors
    /// The run cannot continue now: the store is unavailable, or the lease is lost. The next worker finds the run
    /// unchanged.
    pub fn drive<'a>(
        self: &'a Arc<Self>,
        id: RunId,
        hold: Hold,
        live: Live,
        cancel: CancellationToken,
        halt: Halt,
    ) -> BoxFuture<'a, Result<Ended, Stop>> {
        let log = self.log(id, hold, live, halt);
        self.drive_logged(log, cancel, None)
    }

    /// Like [`Agents::drive`], for a run that this process has just created.
    ///
    /// # Errors
    /// As [`Agents::drive`].
    pub fn drive_fresh(self: &Arc<Self>, fresh: Fresh, hold: Hold, halt: Halt) -> BoxFuture<'_, Result<Ended, Stop>> {
        Box::pin(async move {
            let Fresh {
                stored,
                journal,
                given,
                live,
                cancel,
                registered: _registered,
            } = fresh;
            let log = Log {
                written: journal.len(),
                is_fresh: true,
                ..self.log(stored.id, hold, live, halt)
            };
            let history = History {
                journal,
                ..History::default()
            };
            let bundle = Arc::clone(&given.bundle);
            let driven = self.driven(log.clone(), cancel, stored, history, Known::All(given));
            self.guarded(log, driven, Some(&bundle)).await
        })
    }

    fn log(&self, run: RunId, hold: Hold, live: Live, halt: Halt) -> Log {
        Log {
            runs: Arc::clone(&self.runs),
            hold,
            run,
            written: 0,
            flows: Vec::new(),
            live,
            halt,
            is_fresh: false,
            intending: false,
        }
    }

    /// Like [`Agents::drive`], with the definitions that the caller has already read.
    pub(super) fn drive_logged<'a>(
        self: &'a Arc<Self>,
        log: Log,
        cancel: CancellationToken,
        known: Option<&'a Arc<DefinitionSnapshot>>,
    ) -> BoxFuture<'a, Result<Ended, Stop>> {
        Box::pin(async move {
            let _unfinished = self.running.begin(log.run, log.live.clone(), cancel.clone());
            let driven = self.read_and_driven(log.clone(), cancel, known);
            self.guarded(log, driven, known).await
        })
    }

    /// Stops a run when its lease may be lost, and ends one whose driver panics.
    async fn guarded(
        self: &Arc<Self>,
        log: Log,
        driven: impl Future<Output = Result<Ended, Stop>>,
        known: Option<&Arc<DefinitionSnapshot>>,
    ) -> Result<Ended, Stop> {
        let hold = log.hold.clone();
        let driven = async {
            tokio::select! {
                // First: a run that has ended by itself is not interrupted.
                biased;
                driven = driven => driven,
                () = run_out(&hold) => Err(Stop::LeaseLost),
            }
        };
        match AssertUnwindSafe(driven).catch_unwind().await {
            Ok(driven) => driven,
            // The next worker would panic as well.
            Err(_) => self.broken_down(log, known).await,
        }
    }

    async fn read_and_driven(
        self: &Arc<Self>,
        mut log: Log,
        cancel: CancellationToken,
        known: Option<&Arc<DefinitionSnapshot>>,
    ) -> Result<Ended, Stop> {
        let (stored, history) = self.read(&mut log).await?;
        if stored.status.has_ended() {
            return Ok(ended(
                &stored,
                history.as_ref().map_or(&[], |history| &history.journal),
                known,
            ));
        }
        match history {
            Ok(history) => {
                let known = known.map_or(Known::Nothing, Known::Bundle);
                self.driven(log, cancel, stored, history, known).await
            }
            // The journal cannot be read, so no process can continue the run.
            Err(why) => self.unable(&stored, Vec::new(), log, Ending::Unable(why).into()).await,
        }
    }

    async fn driven(
        self: &Arc<Self>,
        log: Log,
        cancel: CancellationToken,
        stored: StoredRun,
        history: History,
        known: Known<'_>,
    ) -> Result<Ended, Stop> {
        let (id, History { journal, clock }) = (stored.id, history);
        let is_new = log.is_fresh || journal.is_empty();
        let begins = is_new || is_resumed(&journal);
        if stored.cancel {
            cancel.cancel();
        }
        let before = self.clock(clock).await?;
        // A run of a thread cannot be resumed, nor can its child runs. So it continues without a server: its calls
        // there fail, and other approvals remain valid.
        let tolerate_missing_tools = !is_new && self.is_of_thread(&stored, log.hold.lease().run).await?;
        if !cancel.is_cancelled()
            && let Err(why) = self.refresh_servers(log.hold.lease().run, &journal).await?
            && !tolerate_missing_tools
        {
            return self.unable(&stored, journal, log, Ending::Waiting(why).into()).await;
        }
        let mut run = match prepare::parts(self, &stored, known, tolerate_missing_tools).await {
            Ok(parts) => match self.continued(&parts, &stored, journal, begins) {
                Ok(journal) => parts.run(self, &stored, journal, before, log, cancel),
                Err((journal, ending)) => return self.unable(&stored, journal, log, ending.into()).await,
            },
            // A cancelled run does not need its tools.
            Err(_) if cancel.is_cancelled() => {
                return self.unable(&stored, journal, log, Ending::Cancelled.into()).await;
            }
            // Completed work is not lost because a server is unavailable: the run can be resumed later.
            Err(Unable {
                ending: Ending::Unable(why),
                detail,
            }) if !is_new => {
                let ending = Ending::Waiting(why);
                return self.unable(&stored, journal, log, Unable { ending, detail }).await;
            }
            Err(why) => return self.unable(&stored, journal, log, why).await,
        };
        let place = run.context.agent.as_ref().map(|place| Arc::clone(&place.definition));
        let engine = self.engine_for(place.as_deref());
        let name = Arc::clone(&stored.agent);
        let span = spans::agent(&name, id, &engine);
        if begins {
            // Watchers see at once how the run begins, and a process that takes over knows that it was started.
            log::flush(&engine, &mut run, Vec::new()).await?;
        }
        if stored.origin.thread().is_some() {
            run.context.history = self.said_before(id).await?;
        }
        let ending = loop {
            self.apply_resolutions(&mut run).await?;
            let child = match engine.go(&mut run).instrument(span.clone()).await {
                Ok(Ending::Suspended(calls)) => Err(calls),
                Err(Stop::Suspended(child)) => Ok(child),
                ended => break ended?,
            };
            match self.suspend(&engine, &mut run, child).await? {
                Committed::Written => return Err(Stop::Suspended(id)),
                // An approval was resolved just now.
                Committed::Answered => {}
                Committed::LeaseLost | Committed::ApprovalGone => return Err(Stop::LeaseLost),
            }
        };
        let Run { record, context } = run;
        let ended = self.finish(&stored, record, Some(&context), &ending).await?;
        spans::agent_ended(&span, ended.status);
        Ok(ended)
    }

    /// An approval is for the tool as it was (promise 4), and the tool list may be old. So the servers of approved
    /// calls are asked again before the run is prepared.
    async fn refresh_servers(&self, root: RunId, journal: &[Entry]) -> Result<Result<(), String>, Stop> {
        for server in approvals::servers(journal, &self.actions_of(root, journal).await?) {
            if let Err(why) = self.engine.tools.refresh_server(&server).await {
                tracing::warn!(%root, %server, why, "the tools of a server cannot be read");
                return Ok(Err(format!("{server} is unavailable, so its tools cannot be checked")));
            }
        }
        Ok(Ok(()))
    }

    /// Does the run, or its outermost run, belong to a thread?
    async fn is_of_thread(&self, stored: &StoredRun, root: RunId) -> Result<bool, Stop> {
        if stored.id == root {
            return Ok(stored.origin.thread().is_some());
        }
        let root = self.runs.run_state(root).await.map_err(unread)?;
        Ok(root.is_some_and(|root| root.origin.thread().is_some()))
    }

    /// The actions of an outermost run, if an approval was requested in this run.
    async fn actions_of(&self, root: RunId, journal: &[Entry]) -> Result<Vec<Action>, Stop> {
        let requested = Ledger::of(journal).calls().any(|call| call.requested().is_some());
        match requested {
            true => self.actions.of_run(root).await.map_err(unread),
            false => Ok(Vec::new()),
        }
    }

    /// Adds resolved approvals to the journal.
    async fn apply_resolutions(&self, run: &mut Run) -> Result<(), Stop> {
        if let Some(log) = run.record.log() {
            let actions = self.actions_of(log.hold.lease().run, &run.record.journal).await?;
            approvals::apply_resolutions(run, &actions);
        }
        Ok(())
    }

    /// Suspends the run, until these calls are approved or its child run has ended.
    async fn suspend(
        &self,
        engine: &Engine,
        run: &mut Run,
        waits_for: Result<RunId, Vec<ActionId>>,
    ) -> Result<Committed, Stop> {
        run.push(Entry::Suspended);
        let (wait, requests) = match waits_for {
            Ok(child) => (Wait::Child(child), Vec::new()),
            Err(calls) => {
                let requests = approvals::questions(run, &calls, self.approvals_expire);
                (Wait::Calls(calls), requests)
            }
        };
        let spent = run.record.spent(&run.context.strategy).into_iter().map(Fact::Spent);
        let facts = spent.chain(run.record.outcomes().into_iter().map(Fact::Outcome));
        let facts = facts
            .chain(requests.into_iter().map(Fact::Action))
            .chain([Fact::Waits(wait)]);
        log::commit(engine, &mut run.record, facts.collect()).await
    }

    /// Ends a run whose driver panicked.
    async fn broken_down(
        self: &Arc<Self>,
        mut log: Log,
        known: Option<&Arc<DefinitionSnapshot>>,
    ) -> Result<Ended, Stop> {
        tracing::error!(run_id = %log.run, "the execution of a run panicked");
        log.is_fresh = false;
        // The driver may have waited for a commit that is being written. The store writes in order, so that commit is in
        // what is read after this one.
        self.runs.renew(vec![log.hold.lease()]).await?;
        let (stored, history) = self.read(&mut log).await?;
        if stored.status.has_ended() {
            return Ok(ended(
                &stored,
                history.as_ref().map_or(&[], |history| &history.journal),
                known,
            ));
        }
        let journal = history.map(|history| history.journal).unwrap_or_default();
        self.unable(&stored, journal, log, Ending::Broken.into()).await
    }

    /// The engine, with the model that the definition asks for.
    fn engine_for(&self, definition: Option<&Definition>) -> Engine {
        let model = definition.and_then(|definition| self.models.of(definition).ok().flatten());
        Engine {
            model: model.map_or_else(|| Arc::clone(&self.engine.model), Arc::clone),
            ..self.engine.clone()
        }
    }

    /// The journal, with what this process adds to it before the first step. Returns it unchanged with an ending if
    /// the run cannot begin.
    fn continued(
        &self,
        parts: &Parts,
        stored: &StoredRun,
        mut journal: Vec<Entry>,
        begins: bool,
    ) -> Result<Vec<Entry>, (Vec<Entry>, Ending)> {
        let taken_up_again = stored.origin.parent().is_none() && stored.takes > 1;
        let handed_over = matches!(journal.last(), Some(Entry::Halted | Entry::Suspended));
        if journal.is_empty() {
            match parts.first_entry(self.engine.clock.now_us()) {
                Ok(entry) => journal.extend(entry),
                Err(ending) => return Err((journal, ending)),
            }
        } else if is_resumed(&journal) {
            journal.extend(settled(&journal, stored));
            if parts.strategy.flow().is_none() {
                journal.push(notices::resumed());
            }
        }
        if (!begins || taken_up_again) && !handed_over {
            // The previous process died, or could not continue.
            journal.push(Entry::Recovered);
        }
        Ok(journal)
    }

    /// Ends a run that cannot start or continue.
    async fn unable(
        self: &Arc<Self>,
        stored: &StoredRun,
        journal: Vec<Entry>,
        log: Log,
        Unable { ending, detail }: Unable,
    ) -> Result<Ended, Stop> {
        let began = self.engine.clock.instant();
        let mut record = Record {
            journal,
            fault_detail: detail,
            ..Record::new(stored.decision.clone(), Durability::Log(log), began)
        };
        // The step of a flow stays open, so that it can be resumed.
        let is_flow = record.journal.iter().any(|entry| matches!(entry, Entry::Step { .. }));
        if !(is_flow && matches!(ending, Ending::Waiting(_))) {
            let why = "the run could not continue";
            let results = record::unfinished_calls(&record, why, FailureCode::Unavailable);
            record.journal.extend(results);
        }
        self.finish(stored, record, None, &ending).await
    }

    /// Writes the run's row, the rest of its journal and its decision, in one commit.
    ///
    /// `context` is absent if the run could not be prepared.
    // Longer than a screen: every fact of the one commit that ends a run, each derived once.
    async fn finish(
        &self,
        stored: &StoredRun,
        mut record: Record,
        context: Option<&Context>,
        ending: &Ending,
    ) -> Result<Ended, Stop> {
        let own = record.own();
        let is_fresh = record.log().is_some_and(|log| log.is_fresh);
        let place = context.and_then(|context| context.agent.as_ref());
        let (strategy, limits) = context.map_or((&Strategy::Turns, &Limits::AGENT), |context| {
            (&context.strategy, &context.limits)
        });
        let formatted = formatted(place, ending);
        let too_long = formatted.as_ref().err().cloned().map(Ending::TooLong);
        let ending = too_long.as_ref().unwrap_or(ending);
        let derived = derive::derive(own, ending);
        let mut summary = summarize(&record, strategy, limits, ending, formatted.unwrap_or_default());
        if stored.origin.thread().is_some() && summary.status == RunStatus::Paused {
            // A run of a thread cannot be resumed: its user sends another message, within the limits of threads.
            summary.status = RunStatus::Failed;
        }
        let now_us = self.engine.clock.now_us();
        let started = stored.started_at.unwrap_or(now_us);
        let duration = Duration::from_micros(u64::try_from(now_us - started).unwrap_or(0));
        // The model that answered, or else the one that was or would have been asked.
        let asked = context.and_then(|context| context.settings.model.clone());
        let model = derive::model(own).map(str::to_owned).or(asked);
        let model = model.unwrap_or_else(|| {
            let engine = self.engine_for(place.map(|place| &*place.definition));
            engine.model.default_model().to_owned()
        });
        let response = summary
            .summary
            .as_deref()
            .or(summary.error_message.as_deref())
            .unwrap_or_default();
        let mut decision = record.closed(&derived, response, &model, duration, None);
        if decision.error_detail.is_none() {
            decision.error_detail = match ending {
                // The error quotes arguments, which the decision log stores only as `records.content` allows.
                Ending::Rejected(..) => summary
                    .error_message
                    .as_ref()
                    .map(|_| Arc::from("the user rejected a call")),
                _ => summary.error_message.as_deref().map(Arc::from),
            };
        }
        let mut in_doubt = self.doubts(&record.journal).await?;
        // The decisions of a flow's steps count their tokens, so the flow's own decision counts none.
        let (mut steps, mut usage) = (iterations(own), decision.usage);
        if strategy.flow().is_some() {
            (steps, usage) = strategy.total(&record.journal);
            // A step that did not complete counts as well, and its in-doubt calls are those of the flow.
            if let Some(step) = self.unfinished_step(&record.journal).await? {
                steps = steps.saturating_add(step.steps);
                usage += step.usage;
                in_doubt = step.in_doubt;
            }
        }
        if summary.status == RunStatus::Completed && !in_doubt.is_empty() {
            summary.in_doubt(&in_doubt);
            decision.error_detail = summary.error_message.as_deref().map(Arc::from);
        }
        let completed_effects = match stored.origin.thread().is_some()
            && lacks_model_summary(&summary, ending)
            && summary.stop_reason != Some(StopReason::InDoubt)
        {
            true => self.completed_effects(&record, stored.id).await?,
            false => None,
        };
        let said = final_message(stored, &summary, completed_effects.as_deref()).map(Fact::Said);
        let end = RunEnd {
            status: summary.status,
            summary: summary.summary.as_deref().map(Arc::from),
            output: summary.output.clone(),
            error_message: summary.error_message.as_deref().map(Arc::from),
            stop_reason: summary.stop_reason,
            recovered_from: recovered_from(own, summary.status),
            in_doubt: in_doubt.clone(),
            acted: !is_fresh || acted(&record.journal),
            steps,
            usage,
            completed_at: now_us,
        };
        let exits_loop = exits_loop(own);
        let shown = is_fresh.then(|| fresh::shown(stored, &end, decision.outcome)).flatten();
        let facts = record.outcomes().into_iter().map(Fact::Outcome);
        let facts = facts.chain([Fact::Closed(decision), Fact::Ended(end)]).chain(said);
        if log::commit(&self.engine, &mut record, facts.collect()).await? != Committed::Written {
            return Err(Stop::LeaseLost);
        }
        tracing::info!(
            run_id = %stored.id,
            agent = %stored.agent,
            status = summary.status.as_str(),
            stop_reason = summary.stop_reason.map(StopReason::as_str),
            steps,
            "an agent run ended"
        );
        Ok(Ended {
            in_thread: stored.origin.thread().is_some(),
            shown: shown.map(Box::new),
            status: summary.status,
            summary: summary.summary,
            output: summary.output,
            formatted: summary.formatted,
            error_message: summary.error_message,
            stop_reason: summary.stop_reason,
            exits_loop,
            steps,
            usage,
            in_doubt,
        })
    }

    /// The effects, completed or in doubt, of a run that ends without a message of its own, including its child runs.
    async fn completed_effects(&self, record: &Record, id: RunId) -> Result<Option<String>, Stop> {
        let known = self.actions.of_run(id).await.map_err(unread)?;
        let new = record.outcomes();
        let ledger = Ledger::of(&record.journal);
        let (mut done, mut in_doubt) = (Vec::new(), Vec::new());
        for action in known.iter().filter(|action| action.side_effect) {
            let outcome = new.iter().rev().find(|outcome| outcome.id == action.id);
            let summary = match ledger.call(action.id) {
                Some(call) => approvals::render_call(call),
                // Made by a child run.
                None => action.tool.clone(),
            };
            match outcome.map_or(action.status, |outcome| outcome.status) {
                ActionStatus::Completed => done.push(summary),
                ActionStatus::InDoubt | ActionStatus::Executing => in_doubt.push(summary),
                _ => {}
            }
        }
        Ok(thread::completed_effects(&done, &in_doubt))
    }

    /// In-doubt calls. For an agent that was called, its own in-doubt calls, since those are what a user can settle.
    async fn doubts(&self, journal: &[Entry]) -> Result<Vec<InDoubtCall>, Stop> {
        let mut doubts = Vec::new();
        let ledger = Ledger::of(journal);
        for call in ledger.calls().filter(|call| call.is_in_doubt()) {
            let called = match call.child() {
                Some(child) => self.runs.run_state(child).await.map_err(unread)?,
                None => None,
            };
            match called.map(|called| called.in_doubt) {
                Some(theirs) if !theirs.is_empty() => doubts.extend(theirs),
                _ => doubts.push(InDoubtCall {
                    action_id: call.id(),
                    tool: call.name().to_string(),
                    parameters: serde_json::from_str(call.proposed.call.args.get()).unwrap_or_default(),
                }),
            }
        }
        Ok(doubts)
    }

    /// The run of a flow's last step, if it did not complete.
    async fn unfinished_step(&self, journal: &[Entry]) -> Result<Option<RunState>, Stop> {
        let begun = flow::unfinished(journal).and_then(|call| Ledger::of(journal).call(call).and_then(Call::child));
        match begun {
            Some(child) => self.runs.run_state(child).await.map_err(unread),
            None => Ok(None),
        }
    }
}

/// Has a call of the journal an action, or a child run? Most reads have neither.
fn acted(journal: &[Entry]) -> bool {
    let ledger = Ledger::of(journal);
    ledger.calls().any(|call| call.is_action() || call.child().is_some())
}

/// Is a run about to make its first step since it was resumed?
fn is_resumed(journal: &[Entry]) -> bool {
    matches!(journal.last(), Some(Entry::Resumed { .. }))
}

/// The user's answers about in-doubt calls, given when the run was resumed.
fn settled(journal: &[Entry], stored: &StoredRun) -> Vec<Entry> {
    let settings = super::Settings::read(&stored.settings);
    let ledger = Ledger::of(journal);
    let in_doubt = ledger.calls().filter(|call| call.is_in_doubt());
    in_doubt.filter_map(|call| settings.settled(call.id())).collect()
}
