//! A run from its row to its end: load, inflate, run, finish.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::call::unread;
use super::inflate::{self, Parts};
use super::{Agents, Bundle, Place};
use crate::domain::agent_run::{DoubtfulCall, RunStatus, StopReason};
use crate::domain::decision::Usage;
use crate::domain::definition::Definition;
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::{Completion, Entry, FaultKind, Judgement, Proposed, Speaker, Target, Verdict};
use crate::domain::templates::Template;
use crate::domain::thread::MessageRole;
use crate::engine::act::child_begun;
use crate::engine::events::tool_name;
use crate::engine::limits::Limits;
use crate::engine::live::Live;
use crate::engine::log::{self, Halt, Log, Stop};
use crate::engine::next::{self, Ending, iterations};
use crate::engine::{Engine, Run, derive, flow, leave, notices, record, spans};
use crate::ports::BoxFuture;
use crate::ports::runs::{FinishedRun, Held, Hold, Standing, StoredEntry, StoredRun, Suspend, Suspended};

/// A run that is taken up more often, not counting those times when it was handed over in order, fells whoever works on it.
const MOST_TAKES: i64 = 200;

/// Lines of a thread that a model is told at most (DESIGN.md section 12).
const MOST_HISTORY: u32 = 200;
/// And their bytes.
const HISTORY_BYTES: usize = 256 * 1024;

/// Entries read at once.
const PAGE: u32 = 500;

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

/// How a run came out, for whoever called it.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Completed, failed, cancelled or paused.
    pub status: RunStatus,
    /// The final text.
    pub summary: Option<String>,
    /// The structured output, JSON.
    pub output: Option<Arc<RawValue>>,
    /// Is the final text made from the output by the definition's own template?
    pub formatted: bool,
    /// Why it failed or was cut short.
    pub error_message: Option<String>,
    /// What cut it short.
    pub stop_reason: Option<StopReason>,
    /// Did the agent end the loop it goes round in?
    pub exits_loop: bool,
    /// Model calls; of a flow those of its steps.
    pub steps: u32,
    /// Tokens; of a flow those of its steps.
    pub usage: Usage,
    /// Calls of which it is not known whether they had their effect.
    pub in_doubt: Vec<DoubtfulCall>,
}

impl Ended {
    /// What its caller works with: the final text where there is no structure or the definition formats it, else the output.
    #[must_use]
    pub fn value(&self) -> Value {
        if self.formatted {
            Value::from(self.summary.clone().unwrap_or_default())
        } else {
            self.structured()
        }
    }

    /// The output, where there is one, else the final text.
    #[must_use]
    pub fn structured(&self) -> Value {
        let output = self.output.as_deref();
        match output.map(|output| serde_json::from_str(output.get())) {
            Some(Ok(value)) => value,
            _ => Value::from(self.summary.clone().unwrap_or_default()),
        }
    }
}

/// What has happened in a run, and in those that it goes on with.
#[derive(Default)]
struct History {
    journal: Vec<Entry>,
    /// Entries of the runs before.
    inherited: usize,
    /// The run's clock at its end.
    clock: Clock,
}

/// A run's clock as its journal tells it.
#[derive(Clone, Copy, Default)]
struct Clock {
    /// At the last entry.
    last: Duration,
    /// The call of an agent that has no result yet: which, its run, and when it began.
    calling: Option<(ActionId, RunId, Duration)>,
}

impl Clock {
    fn read(&mut self, stored: &StoredEntry, entry: &Entry) {
        self.last = Duration::from_micros(u64::try_from(stored.elapsed_us).unwrap_or(0));
        match entry {
            Entry::Started {
                call,
                child: Some(child),
                ..
            } => self.calling = Some((*call, *child, self.last)),
            Entry::Result { call, .. } if self.calling.is_some_and(|(id, ..)| id == *call) => self.calling = None,
            _ => {}
        }
    }
}

impl History {
    fn own(&self) -> &[Entry] {
        &self.journal[self.inherited..]
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
        self.drive_within(id, hold, live, cancel, halt, None)
    }

    /// As [`Agents::drive`], with the definitions that the caller has read already.
    pub(super) fn drive_within<'a>(
        self: &'a Arc<Self>,
        id: RunId,
        hold: Hold,
        live: Live,
        cancel: CancellationToken,
        halt: Halt,
        known: Option<&'a Arc<Bundle>>,
    ) -> BoxFuture<'a, Result<Ended, Stop>> {
        Box::pin(async move {
            let _unfinished = self.running.begin(id, live.clone(), cancel.clone());
            let log = Log {
                runs: Arc::clone(&self.runs),
                hold,
                run: id,
                inherited: 0,
                written: 0,
                live,
                halt,
                intending: false,
            };
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
            Err(why) => return self.unable(&stored, Vec::new(), log, Ending::Unable(why)).await,
        };
        if takes_after_deaths(&stored, &journal[log.inherited..]) > MOST_TAKES {
            let why = format!("it was taken up {MOST_TAKES} times after a crash and did not come to its end");
            return self.unable(&stored, journal, log, Ending::Unable(why)).await;
        }
        let is_new = journal.len() == log.inherited;
        if stored.cancel {
            cancel.cancel();
        }
        let before = self.clock(clock).await?;
        if !cancel.is_cancelled()
            && let Err(why) = self.read_anew(&journal).await
        {
            return self.unable(&stored, journal, log, Ending::Waiting(why)).await;
        }
        let mut run = match inflate::parts(self, &stored, known).await {
            Ok(parts) => self.prepared(parts, &stored, journal, is_new, before, log, cancel),
            // One that was cancelled need not.
            Err(_) if cancel.is_cancelled() => {
                return self.unable(&stored, journal, log, Ending::Cancelled).await;
            }
            // What was done is not lost because a server is away: it can be resumed when that is back.
            Err(why) if !is_new || stored.resumes.is_some() => {
                return self.unable(&stored, journal, log, Ending::Waiting(why)).await;
            }
            Err(why) => {
                return self.unable(&stored, journal, log, Ending::Unable(why)).await;
            }
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

    /// What was said in the thread of a run before it: the latest lines, as far as a prompt has room for them.
    async fn said_before(&self, run: RunId) -> Result<Vec<(Speaker, String)>, Stop> {
        let said = self.actions.history(run, MOST_HISTORY).await.map_err(unread)?;
        let mut room = HISTORY_BYTES;
        let lines = said.into_iter().rev().filter_map(|message| match message.role {
            MessageRole::User => Some((Speaker::User, message.text)),
            MessageRole::Assistant => Some((Speaker::Assistant, message.text)),
            MessageRole::ApprovalRequest | MessageRole::Approval => None,
        });
        let mut lines: Vec<_> = lines
            .take_while(|(_, text)| {
                let fits = text.len() <= room;
                room = room.saturating_sub(text.len());
                fits
            })
            .collect();
        lines.reverse();
        Ok(lines)
    }

    /// Leave is for the tool as it was (promise 4), and what its server said of it was perhaps read long ago: of those that
    /// a person was asked about it is read anew.
    async fn read_anew(&self, journal: &[Entry]) -> Result<(), String> {
        for server in leave::servers(journal) {
            let read = self.engine.tools.read_anew(&server).await;
            read.map_err(|why| format!("what {server} offers cannot be looked at: {why}"))?;
        }
        Ok(())
    }

    /// Takes what people have answered into the journal.
    async fn hear(&self, run: &mut Run) -> Result<(), Stop> {
        let asked = |entry: &Entry| {
            matches!(
                entry,
                Entry::Judged {
                    judgement: Judgement::RequireApproval { .. },
                    ..
                }
            )
        };
        if let Some(log) = &run.log
            && run.journal.iter().any(asked)
        {
            let root = log.hold.lease().run;
            let actions = self.actions.of_run(root).await.map_err(unread)?;
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
        let outcomes = run.outcomes();
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
        tracing::error!(run_id = %log.run, "the work on a run broke down");
        let (stored, history) = self.read(&mut log).await?;
        if stored.status.is_over() {
            return Ok(ended(&stored, history.as_ref().map_or(&[], History::own), known));
        }
        let journal = history.map(|history| history.journal).unwrap_or_default();
        self.unable(&stored, journal, log, Ending::Broken).await
    }

    /// The run and what has happened in it, or why that cannot be read. The log learns how much of it is written.
    async fn read(&self, log: &mut Log) -> Result<(StoredRun, Result<History, String>), Stop> {
        let stored = self.runs.load(log.run).await.map_err(unread)?.ok_or(Stop::LeaseLost)?;
        let history = self.history(&stored).await?;
        if let Ok(history) = &history {
            (log.inherited, log.written) = (history.inherited, history.journal.len());
        }
        Ok((stored, history))
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

    /// The runs that it goes on with, the first one first.
    async fn earlier(&self, stored: &StoredRun) -> Result<Vec<RunId>, Stop> {
        let mut chain = Vec::new();
        let mut at = stored.resumes;
        while let Some(id) = at {
            chain.push(id);
            at = self
                .runs
                .standing(id)
                .await
                .map_err(unread)?
                .and_then(|run| run.resumes);
        }
        chain.reverse();
        Ok(chain)
    }

    /// All that has happened, in the runs before too; or why it cannot be read.
    async fn history(&self, stored: &StoredRun) -> Result<Result<History, String>, Stop> {
        let mut runs = self.earlier(stored).await?;
        runs.push(stored.id);
        let mut history = History::default();
        for run in runs {
            history.inherited = history.journal.len();
            history.clock = Clock::default();
            let read = self.entries(run, |stored, entry| {
                history.clock.read(stored, &entry);
                history.journal.push(entry);
            });
            if let Err(why) = read.await? {
                return Ok(Err(why));
            }
        }
        Ok(Ok(history))
    }

    /// Gives every entry of a journal to `take`; or says why it cannot be read.
    async fn entries(
        &self,
        run: RunId,
        mut take: impl FnMut(&StoredEntry, Entry) + Send,
    ) -> Result<Result<(), String>, Stop> {
        let mut after = 0;
        loop {
            let page = self.runs.journal(run, after, PAGE).await.map_err(unread)?;
            for stored in &page {
                match log::read(stored) {
                    Ok(entry) => take(stored, entry),
                    Err(error) => {
                        tracing::error!(run_id = %run, %error, "the journal of a run cannot be read");
                        return Ok(Err("its journal cannot be read".to_owned()));
                    }
                }
                after = stored.number;
            }
            if page.len() < PAGE as usize {
                return Ok(Ok(()));
            }
        }
    }

    /// A run's clock, with the time that the run it was calling has spent since.
    fn clock(&self, clock: Clock) -> BoxFuture<'_, Result<Duration, Stop>> {
        Box::pin(async move {
            let Some((_, child, began)) = clock.calling else {
                return Ok(clock.last);
            };
            let mut called = Clock::default();
            // Where that cannot be read, the called run says so itself.
            let _ = self.entries(child, |stored, entry| called.read(stored, &entry)).await?;
            // The caller may have been taken up before, and have counted a part of it.
            Ok(clock.last.max(began + self.clock(called).await?))
        })
    }

    /// A run that cannot even begin, or not go on.
    async fn unable(
        self: &Arc<Self>,
        stored: &StoredRun,
        journal: Vec<Entry>,
        log: Log,
        ending: Ending,
    ) -> Result<Ended, Stop> {
        let mut run = Run {
            record: stored.decision.clone(),
            opened: true,
            system: Arc::from(""),
            settings: Arc::default(),
            approval: crate::domain::definition::Approval::Always,
            can_wait: false,
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
            fault_detail: None,
            log: Some(log),
            agent: None,
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
        let derived = derive::derive(own, ending);
        let mut told = told(&run, ending);
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
            decision.error_detail = told.error_message.as_deref().map(Arc::from);
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
            words: thread_words(stored, &told),
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
            "a run of an agent is over"
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

/// How often a run was taken up, but for the times when it had waited for a person or its process was stopped in order.
fn takes_after_deaths(stored: &StoredRun, own: &[Entry]) -> i64 {
    let handed_over = own
        .iter()
        .filter(|entry| matches!(entry, Entry::Halted | Entry::Suspended));
    stored.fence - i64::try_from(handed_over.count()).unwrap_or(i64::MAX)
}

/// What is told of a run that is over.
struct Told {
    status: RunStatus,
    summary: Option<String>,
    output: Option<Arc<RawValue>>,
    formatted: bool,
    error_message: Option<String>,
    stop_reason: Option<StopReason>,
}

impl Told {
    /// Its model has come to an end, and of these calls nobody knows what they did: that is not completed (promise 7).
    fn in_doubt(&mut self, calls: &[DoubtfulCall]) {
        let tools: BTreeSet<_> = calls.iter().map(|call| call.tool.as_str()).collect();
        let tools: Vec<_> = tools.into_iter().collect();
        self.status = RunStatus::Failed;
        self.stop_reason = Some(StopReason::InDoubt);
        self.error_message = Some(format!(
            "it is not known whether {} had its effect; find out, and settle it",
            tools.join(", ")
        ));
    }
}

fn told(run: &Run, ending: &Ending) -> Told {
    let mut told = Told {
        status: RunStatus::Failed,
        summary: None,
        output: None,
        formatted: false,
        error_message: None,
        stop_reason: None,
    };
    match ending {
        Ending::Responded(text) => {
            told.status = RunStatus::Completed;
            told.summary = Some(text.clone());
        }
        Ending::Verdict(Verdict::Complete { output, .. }) | Ending::Flow(output) => {
            told.status = RunStatus::Completed;
            let formatted = formatted(run.agent.as_ref(), output);
            told.formatted = formatted.is_some();
            told.summary = Some(formatted.unwrap_or_else(|| derive::words(output)));
            if let Completion::Output(json) = output {
                told.output = RawValue::from_string(json.to_string()).ok().map(Arc::from);
            }
        }
        Ending::Verdict(Verdict::Clarify { question: words, .. } | Verdict::Refuse { message: words, .. }) => {
            told.status = RunStatus::Completed;
            told.summary = Some(words.clone());
        }
        Ending::Stopped(reason, words) => {
            told.status = RunStatus::Paused;
            told.summary = words.clone().or_else(|| so_far(run));
            told.stop_reason = Some(*reason);
            told.error_message = Some(stopped(*reason, &run.limits));
        }
        Ending::Waiting(why) => {
            told.status = RunStatus::Paused;
            told.summary = so_far(run);
            let doubtful = in_doubt(&run.journal).next().is_some();
            told.stop_reason = Some(if doubtful {
                StopReason::InDoubt
            } else {
                StopReason::Unavailable
            });
            told.error_message = Some(why.clone());
        }
        Ending::DoomLoop(name) => {
            told.stop_reason = Some(StopReason::DoomLoop);
            told.summary = so_far(run);
            told.error_message = Some(format!(
                "doom loop: {name} was called {} times in a row with the same arguments",
                crate::engine::doom_loop::ENDS_AT
            ));
        }
        Ending::MissingOutput(words) => {
            told.stop_reason = Some(StopReason::MissingOutput);
            told.summary = Some(words.clone()).filter(|words| !words.trim().is_empty());
            told.error_message = Some("it ended twice without the output that its definition asks for".to_owned());
        }
        Ending::StepFailed(why) | Ending::Unable(why) => {
            told.summary = so_far(run);
            told.error_message = Some(why.clone());
        }
        Ending::Fault(kind) => {
            told.summary = so_far(run);
            told.error_message = Some(fault(*kind).to_owned());
        }
        Ending::Rejected(fails, tool) => {
            let words = format!("A person rejected {tool}; it was not run.");
            if *fails {
                told.summary = so_far(run);
                told.error_message = Some(words);
            } else {
                told.status = RunStatus::Completed;
                told.summary = Some(words);
            }
        }
        Ending::LoopLimit => {
            told.summary = so_far(run);
            told.error_message = Some(stopped(StopReason::StepLimit, &run.limits));
            told.stop_reason = Some(StopReason::StepLimit);
        }
        Ending::Deadline => {
            told.summary = so_far(run);
            told.error_message = Some(stopped(StopReason::TimeLimit, &run.limits));
            told.stop_reason = Some(StopReason::TimeLimit);
        }
        Ending::Cancelled => {
            told.status = RunStatus::Cancelled;
            told.summary = with_words_under_way(run, so_far(run));
        }
        // One that waits is not over.
        Ending::Suspended(_) | Ending::Broken => {
            told.summary = so_far(run);
            told.error_message = Some("the service broke down while it ran".to_owned());
        }
    }
    told
}

/// What a run's thread is told at its end.
fn thread_words(stored: &StoredRun, told: &Told) -> Option<Arc<str>> {
    stored.thread?;
    let words = told.summary.as_deref().or(told.error_message.as_deref());
    Some(words.unwrap_or(told.status.as_str()).into())
}

/// Why the model gave nothing, for whoever the run acts for. What the provider said of it stands in the decision's
/// `error_detail`, for operators.
fn fault(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Unavailable => "the model could not be reached, or answered with an error",
        FaultKind::Credentials => "the model's provider does not accept the key or token of this service",
        FaultKind::Permission => "the model's provider does not permit this service to use the model",
        FaultKind::NoSuchModel => "the model's provider has no model of this name",
        FaultKind::Quota => "the quota of this service at the model's provider is spent",
        FaultKind::Rejected => "the model's provider refused the request as invalid",
        FaultKind::Timeout => "the model took too long to answer",
        FaultKind::Malformed => "the model gave no usable answer",
        FaultKind::Blocked => "the model's provider blocked the prompt or the answer",
    }
}

/// Why a run was cut short, for a person.
fn stopped(reason: StopReason, limits: &Limits) -> String {
    match reason {
        StopReason::StepLimit => format!(
            "its limit of {} steps is reached; summing up takes one more",
            limits.iterations.unwrap_or_default()
        ),
        StopReason::TimeLimit => format!("its time of {} s is over", limits.time.unwrap_or_default().as_secs()),
        StopReason::TokenLimit => format!("its {} tokens are spent", limits.tokens.unwrap_or_default()),
        StopReason::InDoubt => "it is not known whether a call had its effect; resume it with what happened".to_owned(),
        StopReason::Step => "a step of its flow was cut short".to_owned(),
        StopReason::DoomLoop | StopReason::MissingOutput | StopReason::Crash | StopReason::Unavailable => {
            reason.as_str().to_owned()
        }
    }
}

/// The final text, where the definition formats the output (D-6).
fn formatted(place: Option<&Place>, output: &Completion) -> Option<String> {
    let definition = &place?.definition;
    let template = Template::parse(definition.process_output.as_deref()?).ok()?;
    let Completion::Output(json) = output else { return None };
    let value: Value = serde_json::from_str(json).ok()?;
    let whole = definition.output.as_ref().map(|output| output.name.as_str());
    let find = |name: &str| match value.get(name) {
        Some(property) => Some(flow::text(property)),
        None if Some(name) == whole => Some(flow::text(&value)),
        // A property that may be absent.
        None => Some(String::new()),
    };
    template.render(find).ok()
}

/// How far a run came: the last words of its model, or the last output of its steps.
fn so_far(run: &Run) -> Option<String> {
    match run.agent.as_ref().and_then(Place::flow) {
        Some(_) => flow::last_output(&run.journal),
        None => last_words(&run.journal),
    }
}

/// What it had said, with the words of the turn that it was cut off in.
fn with_words_under_way(run: &Run, before: Option<String>) -> Option<String> {
    let under_way = run.log.as_ref().map(|log| log.live.said()).unwrap_or_default();
    if under_way.trim().is_empty() {
        return before;
    }
    Some(match before {
        Some(before) => format!("{before}\n\n{under_way}"),
        None => under_way,
    })
}

/// The model's last words of its own.
fn last_words(journal: &[Entry]) -> Option<String> {
    journal.iter().rev().find_map(|entry| match entry {
        Entry::ModelTurn { turn, .. } => Some(turn.text()).filter(|text| !text.trim().is_empty()),
        _ => None,
    })
}

/// What a run came back from on its way.
fn recovered_from(own: &[Entry], status: RunStatus) -> Option<StopReason> {
    let current = next::current(own);
    let has = |which: fn(&Entry) -> bool| current.iter().any(which);
    let soft_stop = next::soft_stop(current).map(|(reason, _)| reason);
    if status == RunStatus::Completed && soft_stop.is_some() {
        return soft_stop;
    }
    if status == RunStatus::Completed && has(|entry| matches!(entry, Entry::OutputDue(_))) {
        return Some(StopReason::MissingOutput);
    }
    has(|entry| matches!(entry, Entry::Recovered)).then_some(StopReason::Crash)
}

/// Calls of which it is not known whether they had their effect.
fn in_doubt(journal: &[Entry]) -> impl Iterator<Item = &Proposed> {
    let calls = journal.iter().flat_map(Entry::calls);
    calls.filter(|call| next::in_doubt(call.id, journal))
}

fn exits_loop(journal: &[Entry]) -> bool {
    let last = journal
        .iter()
        .rev()
        .find(|entry| matches!(entry, Entry::ModelTurn { .. }));
    matches!(
        last.map(Entry::calls),
        Some([only]) if matches!(only.target, Target::Verdict(Ok(Verdict::Complete { exits_loop: true, .. })))
    )
}

/// A run that is over already, as its row and its own journal tell it.
fn ended(stored: &StoredRun, own: &[Entry], known: Option<&Arc<Bundle>>) -> Ended {
    let bundle = Bundle::read_once(&stored.snapshot, known).ok();
    let member = bundle.as_ref().and_then(|bundle| bundle.get(&stored.agent));
    Ended {
        status: stored.status,
        summary: stored.summary.as_deref().map(str::to_owned),
        output: stored.output.clone(),
        formatted: member.is_some_and(|member| member.definition.process_output.is_some()),
        error_message: stored.error_message.as_deref().map(str::to_owned),
        stop_reason: stored.stop_reason,
        exits_loop: exits_loop(own),
        steps: stored.steps,
        usage: stored.usage,
        in_doubt: stored.in_doubt.clone(),
    }
}

/// What a person said of calls in doubt, when the run was resumed.
fn settled(journal: &[Entry], stored: &StoredRun) -> Vec<Entry> {
    let settings: super::Settings = serde_json::from_str(stored.settings.get()).unwrap_or_default();
    in_doubt(journal).filter_map(|call| settings.settled(call.id)).collect()
}
