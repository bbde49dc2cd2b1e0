//! The journal of an agent's run, made durable as it grows: before each effect, and after it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::live::Live;
use super::{Engine, Run, approvals, record};
use crate::domain::ids::RunId;
use crate::domain::journal::Entry;
use crate::ports::records::{Intent, RecordError};
use crate::ports::runs::{ActionOutcome, Append, Held, Hold, Runs, Spent, StoredEntry};

/// Where a run's journal is kept.
#[derive(Clone)]
pub struct Log {
    /// The store.
    pub runs: Arc<dyn Runs>,
    /// The right to write there, and to begin what has an effect.
    pub hold: Hold,
    /// Whose journal.
    pub run: RunId,
    /// Entries at its beginning that belong to the runs it goes on with; the mark of the resume is its own first.
    pub inherited: usize,
    /// Entries that are written, inherited ones among them.
    pub written: usize,
    /// The flows that it is a step of, outermost first, with what their ended steps have used.
    pub flows: Vec<Spent>,
    /// Who watches.
    pub live: Live,
    /// How it is stopped here.
    pub halt: Halt,
    /// Is an append on its way that announces calls? Until it is heard of it is not known whether these calls may be sent.
    pub(super) intending: bool,
}

impl Log {
    /// The journal of a run that this one calls, under the same lease.
    pub(super) fn of(&self, child: RunId, flows: Vec<Spent>) -> Self {
        Self {
            runs: Arc::clone(&self.runs),
            hold: self.hold.clone(),
            run: child,
            inherited: 0,
            written: 0,
            flows,
            live: self.live.of(child),
            halt: self.halt.clone(),
            intending: false,
        }
    }
}

/// Tells a run to stop here; whoever takes it up next goes on.
#[derive(Clone, Debug, Default)]
pub struct Halt {
    /// Between two steps.
    pub between_steps: CancellationToken,
    /// Where it stands, calls under way among them.
    pub at_once: CancellationToken,
}

/// Why a run goes no further. Nothing was sent that is not on the record.
#[derive(Debug)]
pub enum Stop {
    /// The record could not be made durable.
    Record(RecordError),
    /// Somebody else has the run now, or may have it; or what it was about to begin may not begin any more.
    LeaseLost,
    /// It was told to stop here.
    Halted,
    /// It waits for a person, or a run that it called does; its row says so.
    Suspended(RunId),
    /// A run that it called, as a step of its flow, was cut short: the flow goes on with it when it is resumed.
    StepStopped(CutStep),
}

/// A step of a flow that was cut short.
#[derive(Clone, Debug, Default)]
pub struct CutStep {
    /// What it said last.
    pub summary: Option<String>,
    /// Its model calls, and those of its own steps.
    pub steps: u32,
    /// Their tokens.
    pub tokens: u64,
}

impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Self {
        Self::Record(error)
    }
}

impl Run {
    /// The entries that are not written yet, as they are to be.
    pub(super) fn unwritten(&self, engine: &Engine) -> Vec<StoredEntry> {
        let Some(log) = &self.log else { return Vec::new() };
        let at_us = engine.clock.now_us();
        let elapsed_us = i64::try_from(self.elapsed(engine.clock.instant()).as_micros()).unwrap_or(i64::MAX);
        let numbered = self.journal.iter().enumerate().skip(log.written);
        numbered
            .map(|(at, entry)| StoredEntry {
                number: (at + 1 - log.inherited) as u64,
                at_us,
                elapsed_us,
                body: text(entry).into(),
            })
            .collect()
    }
}

impl Run {
    /// What came of actions, in the entries that are not written yet.
    pub(super) fn outcomes(&self) -> Vec<ActionOutcome> {
        let written = self.log.as_ref().map_or(0, |log| log.written);
        approvals::outcomes(&self.journal, written)
    }
}

/// Makes what is new in the journal durable, together with these intents.
pub(super) async fn flush(engine: &Engine, run: &mut Run, intents: Vec<Intent>) -> Result<(), Stop> {
    let entries = run.unwritten(engine);
    if run.log.is_none() || (entries.is_empty() && intents.is_empty()) {
        return Ok(());
    }
    let (asked, actions, outcomes) = (approvals::asked(run), approvals::unasked(run, &intents), run.outcomes());
    let (ended, spent) = (record::ended(run), record::spent(run));
    let Some(log) = &mut run.log else { return Ok(()) };
    let written = log.written + entries.len();
    let append = Append {
        lease: log.hold.lease(),
        run: log.run,
        entries,
        intents,
        asked,
        actions,
        outcomes,
        ended,
        spent,
    };
    log.intending = append.announces();
    let held = log.runs.append(append).await;
    log.intending = false;
    match held? {
        Held::Yes => {
            log.written = written;
            log.live.written();
            Ok(())
        }
        // Whoever takes it up next hears first of what has changed.
        Held::No | Held::ApprovalGone => Err(Stop::LeaseLost),
    }
}

/// An entry as it is kept.
fn text(entry: &Entry) -> String {
    serde_json::to_string(entry).unwrap_or_else(|error| unreachable!("an entry prints as JSON: {error}"))
}

/// An entry that was kept.
///
/// # Errors
/// It is of a later version, or broken; in words for an operator.
pub fn read(stored: &StoredEntry) -> Result<Entry, String> {
    serde_json::from_str(&stored.body).map_err(|error| format!("entry {}: {error}", stored.number))
}
