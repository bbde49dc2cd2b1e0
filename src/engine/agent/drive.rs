//! A run from its row to its end: load, inflate, run, finish.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::call::unread;
use super::ended::{Ended, ended, exits_loop, formatted, in_doubt, recovered_from, says_nothing, thread_words, told};
use super::history::History;
use super::inflate::{self, Parts, Unable};
use super::{Agents, Bundle};
use crate::domain::action::{Action, ActionStatus};
use crate::domain::agent_run::{DoubtfulCall, RunStatus, StopReason};
use crate::domain::definition::Definition;
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::{Entry, Judgement};
use crate::domain::thread;
use crate::engine::act::child_begun;
use crate::engine::events::tool_name;
use crate::engine::limits::Limits;
use crate::engine::live::Live;
use crate::engine::log::{self, Halt, Log, Stop};
use crate::engine::next::{Ending, iterations};
use crate::engine::{Engine, Run, derive, flow, leave, notices, record, spans};
use crate::ports::BoxFuture;
use crate::ports::runs::{FinishedRun, Held, Hold, Standing, StoredRun, Suspend, Suspended};

/// Waits until somebody else may have the run, since its lease was not prolonged in time: whatever became of the renewals.
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
    /// Drives a run to its end, under a lease that is held. Where it stands already is where it goes on.
    ///
    /// # Errors
    /// It cannot be gone on with now: the record is away, or the lease is lost. Whoever takes it up next finds it as it is.
    pub fn drive<'a>(
        self: &'a Arc<Self>,
        id: RunId,
        hold: Hold,
        live: Live,
        cancel: CancellationToken,
        halt: Halt,
    ) -> BoxFuture<'a, Result<Ended, Stop>> {
        let log = Log {
            runs: Arc::clone(&self.runs),
            hold,
            run: id,
            inherited: 0,
            written: 0,
            flows: Vec::new(),
            live,
            halt,
            intending: false,
        };
        self.drive_logged(log, cancel, None)
    }

    /// As [`Agents::drive`], with the definitions that the caller has read already.
    pub(super) fn drive_logged<'a>(
        self: &'a Arc<Self>,
        log: Log,
        cancel: CancellationToken,
        known: Option<&'a Arc<Bundle>>,
    ) -> BoxFuture<'a, Result<Ended, Stop>> {
        Box::pin(async move {
            let _unfinished = self.running.begin(log.run, log.live.clone(), cancel.clone());
            let hold = log.hold.clone();
            let driven = async {
                tokio::select! {
                    // First: what has ended by itself is not cut short.
                    biased;
                    driven = self.driven(log.clone(), cancel, known) => driven,
                    () = run_out(&hold) => Err(Stop::LeaseLost),
                }
            };
            match AssertUnwindSafe(driven).catch_unwind().await {
                Ok(driven) => driven,
                // Whoever took it up next would break down as well.
                Err(_) => self.broken_down(log, known).await,
            }
        })
    }

    async fn driven(
        self: &Arc<Self>,
        mut log: Log,
        cancel: CancellationToken,
        known: Option<&Arc<Bundle>>,
    ) -> Result<Ended, Stop> {
        let id = log.run;
        let (stored, history) = self.read(&mut log).await?;
        if stored.status.is_over() {
            return Ok(ended(&stored, history.as_ref().map_or(&[], History::own), known));
        }
        let History { journal, clock, .. } = match history {
            Ok(history) => history,
            // What it holds is not known, so nobody can go on with it.
            Err(why) => return self.unable(&stored, Vec::new(), log, Ending::Unable(why).into()).await,
        };
        let is_new = journal.len() == log.inherited;
        if stored.cancel {
            cancel.cancel();
        }
        let before = self.clock(clock).await?;
        // A run of a thread cannot be resumed, nor one that it called: without a server it goes on, its calls there fail, and what
        // people have said of others counts.
        let goes_on = !is_new && self.is_of_thread(&stored, log.hold.lease().run).await?;
        if !cancel.is_cancelled()
            && let Err(why) = self.read_anew(log.hold.lease().run, &journal).await?
            && !goes_on
        {
            return self.unable(&stored, journal, log, Ending::Waiting(why).into()).await;
        }
        let mut run = match inflate::parts(self, &stored, known, goes_on).await {
            Ok(parts) => self.prepared(parts, &stored, journal, is_new, before, log, cancel),
            // One that was cancelled need not.
            Err(_) if cancel.is_cancelled() => {
                return self.unable(&stored, journal, log, Ending::Cancelled.into()).await;
            }
            // What was done is not lost because a server is away: it can be resumed when that is back.
            Err(Unable {
                ending: Ending::Unable(why),
                detail,
            }) if !is_new || stored.resumes.is_some() => {
                let ending = Ending::Waiting(why);
                return self.unable(&stored, journal, log, Unable { ending, detail }).await;
            }
            Err(why) => return self.unable(&stored, journal, log, why).await,
        };
        let place = run.agent.as_ref().map(|place| Arc::clone(&place.definition));
        let engine = self.engine_for(place.as_deref());
        let name = Arc::clone(&stored.agent);
        let span = spans::agent(&name, id, &engine);
        if is_new {
            // Whoever watches sees the task at once, and whoever takes the run over knows that it was begun.
            log::flush(&engine, &mut run, Vec::new()).await?;
        }
        if stored.thread.is_some() {
            run.history = self.said_before(id).await?;
        }
        let ending = loop {
            self.hear(&mut run).await?;
            let child = match engine.go(&mut run).instrument(span.clone()).await {
                Ok(Ending::Suspended(calls)) => Err(calls),
                Err(Stop::Suspended(child)) => Ok(child),
                ended => break ended?,
            };
            match self.suspend(&engine, &mut run, child).await? {
                Suspended::Yes => return Err(Stop::Suspended(id)),
                // Somebody has answered just now.
                Suspended::Answered => {}
                Suspended::LeaseLost => return Err(Stop::LeaseLost),
            }
        };
        let ended = self.finish(&stored, run, &ending).await?;
        spans::agent_ended(&span, ended.status);
        Ok(ended)
    }

    /// Leave is for the tool as it was (promise 4), and what its server said of it was perhaps read long ago: of those that
    /// a person approved it is read anew, before the run is put together.
    async fn read_anew(&self, root: RunId, journal: &[Entry]) -> Result<Result<(), String>, Stop> {
        for server in leave::servers(journal, &self.actions_of(root, journal).await?) {
            if let Err(why) = self.engine.tools.read_anew(&server).await {
                tracing::warn!(%root, %server, why, "what a server offers cannot be looked at");
                return Ok(Err(format!(
                    "{server} is not there, so what it offers cannot be looked at"
                )));
            }
        }
        Ok(Ok(()))
    }

    /// Is it a run of a thread, or below one?
    async fn is_of_thread(&self, stored: &StoredRun, root: RunId) -> Result<bool, Stop> {
        if stored.id == root {
            return Ok(stored.thread.is_some());
        }
        let root = self.runs.standing(root).await.map_err(unread)?;
        Ok(root.is_some_and(|root| root.thread.is_some()))
    }

    /// The actions of an outermost run, where a person was asked in this one.
    async fn actions_of(&self, root: RunId, journal: &[Entry]) -> Result<Vec<Action>, Stop> {
        let asked = |entry: &Entry| {
            matches!(
                entry,
                Entry::Judged {
                    judgement: Judgement::RequireApproval { .. },
                    ..
                }
            )
        };
        match journal.iter().any(asked) {
            true => self.actions.of_run(root).await.map_err(unread),
            false => Ok(Vec::new()),
        }
    }

    /// Takes what people have answered into the journal.
    async fn hear(&self, run: &mut Run) -> Result<(), Stop> {
        if let Some(log) = &run.log {
            let actions = self.actions_of(log.hold.lease().run, &run.journal).await?;
            leave::hear(run, &actions);
        }
        Ok(())
    }

    /// The run waits: for a person's word on these calls, or for a run that it called.
    async fn suspend(
        &self,
        engine: &Engine,
        run: &mut Run,
        waits_for: Result<RunId, Vec<ActionId>>,
    ) -> Result<Suspended, Stop> {
        let (child, calls) = match waits_for {
            Ok(child) => (Some(child), Vec::new()),
            Err(calls) => (None, calls),
        };
        run.push(Entry::Suspended);
        let entries = run.unwritten(engine);
        let actions = leave::questions(run, &calls, self.questions_stand);
        let (outcomes, spent) = (run.outcomes(), record::spent(run));
        let Some(log) = &mut run.log else {
            return Err(Stop::LeaseLost);
        };
        let written = log.written + entries.len();
        let suspend = Suspend {
            lease: log.hold.lease(),
            run: log.run,
            entries,
            outcomes,
            actions,
            waits: calls,
            child,
            spent,
        };
        let suspended = self.runs.suspend(suspend).await?;
        if suspended != Suspended::LeaseLost {
            log.written = written;
            log.live.written();
        }
        Ok(suspended)
    }

    /// Ends a run whose driver broke down.
    async fn broken_down(self: &Arc<Self>, mut log: Log, known: Option<&Arc<Bundle>>) -> Result<Ended, Stop> {
        tracing::error!(run_id = %log.run, "the work on a run panicked");
        let (stored, history) = self.read(&mut log).await?;
        if stored.status.is_over() {
            return Ok(ended(&stored, history.as_ref().map_or(&[], History::own), known));
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

    #[allow(clippy::too_many_arguments)]
    fn prepared(
        self: &Arc<Self>,
        parts: Parts,
        stored: &StoredRun,
        mut journal: Vec<Entry>,
        is_new: bool,
        before: Duration,
        log: Log,
        cancel: CancellationToken,
    ) -> Run {
        if is_new && stored.resumes.is_none() {
            journal.extend(parts.task(self.engine.clock.now_us()));
        } else if is_new && let Some(from) = stored.resumes {
            let settled = settled(&journal, stored);
            journal.push(Entry::Resumed { from });
            journal.extend(settled);
            if parts.settings.flow(&parts.definition).is_none() {
                journal.push(Entry::Notice(notices::resumed()));
            }
        }
        let taken_up_again = stored.parent.is_none() && stored.fence > 1;
        let handed_over = matches!(journal.last(), Some(Entry::Halted | Entry::Suspended));
        if (!is_new || taken_up_again) && !handed_over {
            // Whoever began it has died, or could not go on.
            journal.push(Entry::Recovered);
        }
        parts.run(self, stored, journal, before, log, cancel)
    }

    /// A run that cannot even begin, or not go on.
    async fn unable(
        self: &Arc<Self>,
        stored: &StoredRun,
        journal: Vec<Entry>,
        log: Log,
        Unable { ending, detail }: Unable,
    ) -> Result<Ended, Stop> {
        let mut run = Run {
            record: stored.decision.clone(),
            opened: true,
            system: Arc::from(""),
            settings: Arc::default(),
            approval: crate::domain::definition::Approval::Always,
            can_wait: false,
            zone: None,
            grants: Vec::new(),
            toolset: Arc::new(crate::engine::Toolset::build(
                &crate::ports::tools::Catalog::default(),
                &[],
                &[],
            )),
            history: Vec::new(),
            journal,
            limits: Limits::AGENT,
            began: self.engine.clock.instant(),
            before: Duration::ZERO,
            traceparent: None,
            events: None,
            cancel: CancellationToken::new(),
            intended: Vec::new(),
            fault_detail: detail,
            log: Some(log),
            agent: None,
            remembered: None,
        };
        // The step of a flow stays open, so that it can be gone on with.
        let is_flow = run.journal.iter().any(|entry| matches!(entry, Entry::Step { .. }));
        if !(is_flow && matches!(ending, Ending::Waiting(_))) {
            crate::engine::close_calls(
                &mut run,
                "the run could not go on",
                crate::domain::tool::FailureCode::Unavailable,
            );
        }
        self.finish(stored, run, &ending).await
    }

    /// Its row, the rest of its journal and its decision, in one commit.
    async fn finish(&self, stored: &StoredRun, run: Run, ending: &Ending) -> Result<Ended, Stop> {
        let own = record::own(&run);
        let formatted = formatted(run.agent.as_ref(), ending);
        let too_long = formatted.as_ref().err().cloned().map(Ending::TooLong);
        let ending = too_long.as_ref().unwrap_or(ending);
        let derived = derive::derive(own, ending);
        let mut told = told(&run, ending, formatted.unwrap_or_default());
        if stored.thread.is_some() && told.status == RunStatus::Paused {
            // Nobody goes on with a run of a thread: its user says something else there, within the bounds of threads.
            told.status = RunStatus::Failed;
        }
        let now_us = self.engine.clock.now_us();
        let started = stored.started_at.unwrap_or(now_us);
        let duration = Duration::from_micros(u64::try_from(now_us - started).unwrap_or(0));
        // Where none has answered, the one that was or would have been asked.
        let definition = run.agent.as_ref().map(|place| Arc::clone(&place.definition));
        let asked = run.settings.model.clone();
        let model = derive::model(own).map(str::to_owned).or(asked);
        let model = model.unwrap_or_else(|| {
            let engine = self.engine_for(definition.as_deref());
            engine.model.default_model().to_owned()
        });
        let response = told
            .summary
            .as_deref()
            .or(told.error_message.as_deref())
            .unwrap_or_default();
        let mut decision = record::closed(&run, &derived, response, &model, duration, None);
        if decision.error_detail.is_none() {
            decision.error_detail = match ending {
                // Its words quote arguments, which the log keeps as `records.content` says.
                Ending::Rejected(..) => told
                    .error_message
                    .as_ref()
                    .map(|_| Arc::from("a person rejected a call")),
                _ => told.error_message.as_deref().map(Arc::from),
            };
        }
        let mut in_doubt = self.doubts(&run.journal).await?;
        // The decisions of a flow's steps tell their tokens, so its own tells none.
        let (mut steps, mut usage) = (iterations(own), decision.usage);
        if run.agent.as_ref().is_some_and(|place| place.flow().is_some()) {
            (steps, usage) = flow::spent(&run.journal);
            // A step that came to no good end has spent its part as well, and its doubts are those of the flow.
            if let Some(step) = self.unfinished_step(&run.journal).await? {
                steps = steps.saturating_add(step.steps);
                usage += step.usage;
                in_doubt = step.in_doubt;
            }
        }
        if told.status == RunStatus::Completed && !in_doubt.is_empty() {
            told.in_doubt(&in_doubt);
            decision.error_detail = told.error_message.as_deref().map(Arc::from);
        }
        let deeds = match stored.thread.is_some()
            && says_nothing(&told, ending)
            && told.stop_reason != Some(StopReason::InDoubt)
        {
            true => self.deeds(&run, stored.id).await?,
            false => None,
        };
        let finished = FinishedRun {
            lease: run.log.as_ref().map(|log| log.hold.lease()).ok_or(Stop::LeaseLost)?,
            run: stored.id,
            status: told.status,
            summary: told.summary.as_deref().map(Arc::from),
            output: told.output.clone(),
            error_message: told.error_message.as_deref().map(Arc::from),
            stop_reason: told.stop_reason,
            recovered_from: recovered_from(own, told.status),
            in_doubt: in_doubt.clone(),
            steps,
            usage,
            entries: run.unwritten(&self.engine),
            outcomes: run.outcomes(),
            words: thread_words(stored, &told, deeds.as_deref()),
            completed_at: now_us,
            decision,
        };
        if self.runs.finish(finished).await? != Held::Yes {
            return Err(Stop::LeaseLost);
        }
        if let Some(log) = &run.log {
            log.live.written();
        }
        tracing::info!(
            run_id = %stored.id,
            agent = %stored.agent,
            status = told.status.as_str(),
            stop_reason = told.stop_reason.map(StopReason::as_str),
            steps,
            "a run of an agent ended"
        );
        Ok(Ended {
            status: told.status,
            summary: told.summary,
            output: told.output,
            formatted: told.formatted,
            error_message: told.error_message,
            stop_reason: told.stop_reason,
            exits_loop: exits_loop(own),
            steps,
            usage,
            in_doubt,
        })
    }

    /// What a run that ends without words of its own has done all the same, and those that it called; and what they may have done.
    async fn deeds(&self, run: &Run, id: RunId) -> Result<Option<String>, Stop> {
        let known = self.actions.of_run(id).await.map_err(unread)?;
        let new = run.outcomes();
        let (mut done, mut doubtful) = (Vec::new(), Vec::new());
        for action in known.iter().filter(|action| action.side_effect) {
            let outcome = new.iter().rev().find(|outcome| outcome.id == action.id);
            let told = match leave::told(&run.journal, action.id) {
                // Of an agent that it called.
                told if told.is_empty() => action.tool.clone(),
                told => told,
            };
            match outcome.map_or(action.status, |outcome| outcome.status) {
                ActionStatus::Completed => done.push(told),
                ActionStatus::InDoubt | ActionStatus::Executing => doubtful.push(told),
                _ => {}
            }
        }
        Ok(thread::deeds(&done, &doubtful))
    }

    /// Calls of which it is not known whether they had their effect; where an agent was called, those that it made, for of them
    /// a person can say what happened.
    async fn doubts(&self, journal: &[Entry]) -> Result<Vec<DoubtfulCall>, Stop> {
        let mut doubts = Vec::new();
        for call in in_doubt(journal) {
            let called = match child_begun(journal, call.id) {
                Some(child) => self.runs.standing(child).await.map_err(unread)?,
                None => None,
            };
            match called.map(|called| called.in_doubt) {
                Some(theirs) if !theirs.is_empty() => doubts.extend(theirs),
                _ => doubts.push(DoubtfulCall {
                    action_id: call.id,
                    tool: tool_name(call).to_string(),
                    parameters: serde_json::from_str(call.call.args.get()).unwrap_or_default(),
                }),
            }
        }
        Ok(doubts)
    }

    /// The run of a flow's last step, where it came to no good end.
    async fn unfinished_step(&self, journal: &[Entry]) -> Result<Option<Standing>, Stop> {
        let begun = flow::unfinished(journal).and_then(|call| child_begun(journal, call));
        match begun {
            Some(child) => self.runs.standing(child).await.map_err(unread),
            None => Ok(None),
        }
    }
}

/// What a person said of calls in doubt, when the run was resumed.
fn settled(journal: &[Entry], stored: &StoredRun) -> Vec<Entry> {
    let settings = super::Settings::read(&stored.settings);
    in_doubt(journal).filter_map(|call| settings.settled(call.id)).collect()
}
