//! Makes the journal of an agent's run durable while it runs: before each effect, after it, and after each read.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::approvals;
use super::limits::Stop;
use super::log::{Log, text};
use super::record::Record;
use super::run::{Engine, Run};
use crate::domain::journal::Entry;
use crate::ports::commit::{Commit, Committed, Fact, Writer};
use crate::ports::records::OpenCall;
use crate::ports::runs::StoredEntry;

impl Record {
    /// A commit of the entries that are not written yet, and of these facts. `None` without a log.
    fn commit(&self, engine: &Engine, facts: Vec<Fact>) -> Option<Commit> {
        let log = self.log()?;
        let at_us = engine.clock.now_us();
        let elapsed_us = i64::try_from(self.elapsed(engine.clock.instant()).as_micros()).unwrap_or(i64::MAX);
        let numbered = self.journal.iter().enumerate().skip(log.written);
        let entries = numbered.map(|(at, entry)| StoredEntry {
            number: (at + 1) as u64,
            at_us,
            elapsed_us,
            body: text(entry).into(),
        });
        Some(Commit {
            writer: Writer::Holder {
                lease: log.hold.lease(),
                run: log.run,
            },
            entries: entries.collect(),
            facts,
            cleans_up: log.cleans_up,
            // What only ends the run does not bring it further.
            progresses: !log.is_lost && self.journal.iter().skip(log.written).any(Entry::is_progress),
        })
    }
}

/// Makes new journal entries durable, together with these intents.
pub(super) async fn flush(engine: &Engine, run: &mut Run, intents: Vec<OpenCall>) -> Result<(), Stop> {
    let record = &run.record;
    let unwritten = |log: &Log| log.written < record.journal.len();
    if !record.log().is_some_and(|log| unwritten(log) || !intents.is_empty()) {
        return Ok(());
    }
    let facts = facts(run, intents);
    stopped(commit(engine, &mut run.record, facts).await?)
}

/// What the entries that are not written yet, and these intents, change.
fn facts(run: &Run, intents: Vec<OpenCall>) -> Vec<Fact> {
    let record = &run.record;
    let begun = approvals::asked(run).into_iter().map(Fact::Begun);
    let actions = approvals::unasked(run, &intents).into_iter().map(Fact::Action);
    let spent = record.spent(&run.context.strategy).into_iter().map(Fact::Spent);
    let called = record.ended().map(Fact::Called);
    let outcomes = approvals::outcomes(record).into_iter().map(Fact::Outcome);
    let facts = spent.chain(intents.into_iter().map(Fact::Intended)).chain(called);
    let worked = run.context.strategy.worked(&record.journal, record.written());
    let worked = worked.map(|(session, worked)| Fact::Worked(session, Box::new(worked)));
    facts
        .chain(outcomes)
        .chain(actions)
        .chain(begun)
        .chain(worked)
        .collect()
}

fn stopped(committed: Committed) -> Result<(), Stop> {
    match committed {
        Committed::Written | Committed::Answered => Ok(()),
        // The next worker reads first what has changed.
        Committed::LeaseLost => Err(Stop::LeaseLost),
        Committed::ApprovalGone => Err(Stop::ApprovalGone),
    }
}

/// Commits new journal entries together with these facts, and records in the log that they are written.
pub(super) async fn commit(engine: &Engine, record: &mut Record, facts: Vec<Fact>) -> Result<Committed, Stop> {
    let commit = record.commit(engine, facts).ok_or(Stop::LeaseLost)?;
    let written = record.written() + commit.entries.len();
    if let Some(log) = record.log_mut() {
        log.intending = commit.announces();
    }
    let committed = append(engine, record, commit).await;
    if let Some(log) = record.log_mut() {
        log.intending = false;
        if matches!(committed, Ok(Committed::Written | Committed::Answered)) {
            log.written = written;
        }
    }
    committed
}

/// Commits, so that what ends the run meanwhile knows how many entries are being written, and watchers see them.
async fn append(engine: &Engine, record: &Record, commit: Commit) -> Result<Committed, Stop> {
    let log = record.log().ok_or(Stop::LeaseLost)?;
    log.writing.store(log.written + commit.entries.len(), Ordering::Relaxed);
    let committed = engine.recorder.commit(commit).await;
    log.writing.store(0, Ordering::Relaxed);
    let committed = committed?;
    if matches!(committed, Committed::Written | Committed::Answered) {
        log.live.written();
    }
    Ok(committed)
}

/// How long a read may take before its start is written without its result.
const UNSEEN: Duration = Duration::from_millis(50);

/// Awaits reads, whose start is written with their results: a read that was lost with its process is made again. If
/// they take long, their start is written meanwhile, so that watchers see it. Returns how many entries are written
/// then.
pub(super) async fn meanwhile<T>(
    engine: &Engine,
    run: &Run,
    reads: impl Future<Output = T>,
) -> Result<(T, usize), Stop> {
    let written = run.record.written();
    if run.record.log().is_none() || written == run.record.journal.len() {
        return Ok((reads.await, written));
    }
    let mut reads = pin!(reads);
    tokio::select! {
        biased;
        done = &mut reads => return Ok((done, written)),
        () = tokio::time::sleep(UNSEEN) => {}
    }
    let commit = run
        .record
        .commit(engine, facts(run, Vec::new()))
        .ok_or(Stop::LeaseLost)?;
    let starts = async {
        stopped(append(engine, &run.record, commit).await?)?;
        Ok::<_, Stop>(run.record.journal.len())
    };
    let (done, written) = tokio::join!(reads, starts);
    Ok((done, written?))
}

/// Must the starts that are not written yet be written before their calls, as those of effects and of approved calls?
pub(super) fn announces(run: &Run, intents: &[OpenCall]) -> bool {
    !intents.is_empty() || !approvals::asked(run).is_empty() || !approvals::unasked(run, intents).is_empty()
}
