//! A run from its row to its end: load, prepare, run, finish.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::finish::{Ended, ended};
use super::history::{History, is_resumed};
use super::prepare::{self, Given, Known, Unable, task, to_message};
use super::{Agents, Settings, Unfinished};
use crate::api::runs::AgentRun;
use crate::domain::action::{Action, ActionStatus};
use crate::domain::decision::Outcome;
use crate::domain::definition::Definition;
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::Entry;
use crate::domain::time::Timestamp;
use crate::journal::Journal;
use crate::limits::Stop;
use crate::live::Live;
use crate::log::{Halt, Log};
use crate::next::Ending;
use crate::ports::BoxFuture;
use crate::ports::commit::{Committed, Fact, RunEnd, Wait};
use crate::ports::runs::{Hold, NewRun, StoredEntry, StoredRun};
use crate::run::{Engine, Run};
use crate::snapshot::DefinitionSnapshot;
use crate::strategy::plan::Progress;
use crate::strategy::{Strategy, plan};
use crate::{approvals, log, spans, write};

/// How often, and after which pause, the journal of a run whose driver panicked is read again for the entries that were
/// being written.
const MOST_LOOKS: u32 = 20;
const LOOK: Duration = Duration::from_millis(50);

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

/// Did the run of this journal neither wait nor begin, but work?
fn was_at_work(journal: &Journal) -> bool {
    use Entry::{Halted, Resumed, Suspended};
    !matches!(journal.last(), None | Some(Halted | Suspended | Resumed { .. }))
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
            let bundle = Arc::clone(&given.bundle);
            let driven = self.driven(log.clone(), cancel, stored, journal.into(), Known::All(Box::new(given)));
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
            cleans_up: false,
            is_lost: false,
            unseen: Duration::ZERO,
            intending: false,
            writing: Arc::default(),
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
        if stored.end.status.has_ended() {
            return Ok(ended(stored, history, known));
        }
        let (journal, why) = match (history, Settings::read(&stored.settings)) {
            (Ok(history), Ok(_)) => return self.driven(log, cancel, stored, history, Known::Bundle(known)).await,
            (Ok(history), Err(why)) => (history.journal, why),
            (Err(why), _) => (Journal::default(), why),
        };
        // No process can continue the run.
        self.unable(&stored, journal, log, Ending::Unable(why).into()).await
    }

    // Longer than a screen: what a run goes through, in this order, and each way in which it ends before it begins.
    async fn driven(
        self: &Arc<Self>,
        mut log: Log,
        cancel: CancellationToken,
        stored: StoredRun,
        history: History,
        known: Known<'_>,
    ) -> Result<Ended, Stop> {
        let mut before = self.clock(&history).await?;
        let (id, journal) = (stored.id, history.journal);
        let is_new = log.is_fresh || journal.is_empty();
        let begins = is_new || is_resumed(&journal);
        log.is_lost |= stored.is_lost && !stored.cancel;
        if stored.cancel || log.is_lost {
            cancel.cancel();
        }
        if stored.origin.parent().is_none() {
            log.unseen = stored.worked.saturating_sub(before);
        }
        // A run that waited, or has not begun, was not worked on when the process died.
        if stored.origin.parent().is_none() || was_at_work(&journal) {
            before += log.unseen;
        }
        let is_past_deadline = || {
            let settings = Settings::read(&stored.settings);
            settings.is_ok_and(|settings| settings.is_past(self.engine.clock.now_us()))
        };
        // A run of a thread cannot be resumed, nor can its child runs. So it continues without a server: its calls
        // there fail, and other approvals remain valid.
        let tolerate_missing_tools = !is_new && self.is_of_thread(&stored, log.hold.lease().run).await?;
        let (_, cut) = log.cut_short();
        if !cancel.is_cancelled()
            && let Err(why) = self.refresh_servers(log.hold.lease().run, &journal).await?
            && !tolerate_missing_tools
        {
            let ending = match is_past_deadline() {
                true => Ending::PAST_DEADLINE,
                false => Ending::Waiting(why),
            };
            return self.unable(&stored, journal, log, ending.into()).await;
        }
        let mut run = match prepare::parts(self, &stored, known, tolerate_missing_tools).await {
            Ok(parts) => match self.continued(&parts, &stored, journal, begins) {
                Ok(journal) => parts.run(self, &stored, journal, before, log, cancel),
                Err((journal, ending)) => return self.unable(&stored, journal, log, ending.into()).await,
            },
            // A cancelled run does not need its tools.
            Err(_) if cancel.is_cancelled() => {
                return self.unable(&stored, journal, log, cut.into()).await;
            }
            // Nothing begins after the deadline, so the run needs no tools either.
            Err(_) if is_past_deadline() => {
                return self.unable(&stored, journal, log, Ending::PAST_DEADLINE.into()).await;
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
        let engine = self.engine_for(Some(&run.context.definition));
        let name = Arc::clone(&stored.agent);
        let span = spans::agent(&name, id, &engine);
        if begins {
            // Watchers see at once how the run begins, and a process that takes over knows that it was started.
            write::flush(&engine, &mut run, Vec::new()).await?;
        }
        if stored.origin.thread().is_some() {
            run.context.history = self.said_before(id).await?.into();
        }
        // Its end may need no further turn.
        if run.record.journal.iter().any(|entry| entry.turn().is_some()) {
            run.record.asked = Some(run.context.asked());
        }
        let ending = loop {
            self.apply_resolutions(&mut run).await?;
            let waits_for = match engine.go(&mut run).instrument(span.clone()).await {
                Ok(Ending::Suspended(calls)) => WaitsFor::Approvals(calls),
                Ok(Ending::Unsettled(calls)) => WaitsFor::Settlement(calls),
                Err(Stop::Suspended(child)) => WaitsFor::Child(child),
                ended => break ended?,
            };
            match self.suspend(&engine, &mut run, waits_for).await? {
                Committed::Written => return Err(Stop::Suspended(id)),
                // An approval was resolved just now.
                Committed::Answered => {}
                Committed::LeaseLost | Committed::ApprovalGone => return Err(Stop::LeaseLost),
            }
        };
        if let Strategy::Plan(execution) = run.context.strategy.clone() {
            plan::clean_up(&engine, &mut run, &execution).await?;
        }
        let Run { record, context } = run;
        let ended = self.finish(&stored, record, Some(&context), &ending).await?;
        spans::agent_ended(&span, ended.end.status);
        Ok(ended)
    }

    /// Does the run, or its outermost run, belong to a thread?
    async fn is_of_thread(&self, stored: &StoredRun, root: RunId) -> Result<bool, Stop> {
        if stored.id == root {
            return Ok(stored.origin.thread().is_some());
        }
        let root = self.runs.run_state(root).await?;
        Ok(root.is_some_and(|root| root.origin.thread().is_some()))
    }

    /// Ends a run whose driver panicked.
    async fn broken_down(
        self: &Arc<Self>,
        mut log: Log,
        known: Option<&Arc<DefinitionSnapshot>>,
    ) -> Result<Ended, Stop> {
        tracing::error!(run_id = %log.run, "the execution of a run panicked");
        log.is_fresh = false;
        // The driver may have waited for a commit, which the store still writes, or refuses. Its entries belong to what is
        // ended. Behind a later write of one queue they are there; with several writers it may take a moment.
        let due = log.writing.load(Ordering::Relaxed);
        self.runs.renew(vec![log.hold.lease()]).await?;
        let (mut stored, mut history) = self.read(&mut log).await?;
        for _ in 0..MOST_LOOKS {
            let read = history.as_ref().map_or(0, |history| history.journal.len());
            if read >= due || stored.end.status.has_ended() {
                break;
            }
            tokio::time::sleep(LOOK).await;
            (stored, history) = self.read(&mut log).await?;
        }
        if stored.end.status.has_ended() {
            return Ok(ended(stored, history, known));
        }
        let journal = history.map(|history| history.journal).unwrap_or_default();
        self.unable(&stored, journal, log, Ending::Broken.into()).await
    }

    /// The model that a run of the definition asks.
    pub fn requested_model(&self, definition: &Definition) -> Arc<str> {
        let engine = self.engine_for(Some(definition));
        engine.model.requested(&definition.model).into()
    }

    /// The engine, with the model that the definition asks for.
    pub(super) fn engine_for(&self, definition: Option<&Definition>) -> Engine {
        let model = definition.and_then(|definition| self.models.of(definition).ok().flatten());
        Engine {
            model: model.map_or_else(|| Arc::clone(&self.engine.model), Arc::clone),
            ..self.engine.clone()
        }
    }
}

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

/// A run that this process creates and executes at once.
///
/// It is registered as running before its row exists, so that a cancellation finds it from its first moment.
pub struct Fresh {
    pub(super) stored: StoredRun,
    /// The entries that are written with the row.
    pub(super) journal: Journal,
    pub(super) given: Given,
    pub(super) live: Live,
    pub(super) cancel: CancellationToken,
    pub(super) registered: Unfinished,
}

impl Fresh {
    /// For a run to be created. Adds the task to the entries that are written with its row.
    pub fn of(agents: &Agents, new: &mut NewRun, given: Given) -> Self {
        let at_us = new.decision.created_at;
        // A task that cannot be rendered ends the run, once it exists.
        let words = given.bundle.get(&new.agent).and_then(|member| {
            let strategy = given.settings.strategy(&member.definition);
            task(&member.definition, &strategy, &given.settings, &given.input).ok()?
        });
        let journal: Journal = words
            .map(|words| to_message(&words, at_us, given.settings.zone))
            .into_iter()
            .collect();
        new.entries = journal.iter().map(|entry| first(entry, at_us)).collect();
        let (live, cancel) = (Live::new(new.id), CancellationToken::new());
        Self {
            stored: StoredRun::of(new),
            journal,
            given,
            registered: agents.running.begin(new.id, live.clone(), cancel.clone()),
            live,
            cancel,
        }
    }
}

/// The stored form of the first entry.
fn first(entry: &Entry, at_us: i64) -> StoredEntry {
    StoredEntry {
        number: 1,
        at_us,
        elapsed_us: 0,
        body: log::text(entry).into(),
    }
}

/// The public view of a run that has ended in the process that created it, as the store returns it. `None` if the store
/// may return other text than it was given.
pub(super) fn shown(stored: &StoredRun, end: &RunEnd, outcome: Outcome) -> Option<AgentRun> {
    if [&end.summary, &end.error_message]
        .into_iter()
        .flatten()
        .any(|text| text.contains('\0'))
    {
        return None;
    }
    let (started_at, completed_at) = (stored.started_at?, end.completed_at?);
    Some(AgentRun {
        id: stored.id,
        project_id: stored.project.to_string(),
        agent_id: stored.agent.to_string(),
        parent_run_id: stored.origin.parent().map(|(run, _)| *run),
        status: end.status,
        summary: end.summary.clone(),
        output: end.output.as_deref().map(ToOwned::to_owned),
        error_message: end.error_message.clone(),
        steps: end.steps,
        created_at: Timestamp(stored.decision.created_at),
        started_at: Some(Timestamp(started_at)),
        completed_at: Some(Timestamp(completed_at)),
        duration_ms: Some(completed_at.saturating_sub(started_at).max(0).unsigned_abs() / 1000),
        definition_hash: stored.decision.definition_hash.to_string(),
        definition_version: stored.version,
        attempts: Vec::new(),
        recovered_from: end.recovered_from,
        stop_reason: end.stop_reason,
        in_doubt: end.in_doubt.clone(),
        usage: end.usage,
        outcome_category: Some(outcome),
    })
}
