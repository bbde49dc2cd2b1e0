//! Watches a run: its events, read from its journal, from the beginning or from a reader's position, on any process. The
//! text of a turn as it arrives is available only on the process that executes the run.

mod event;
mod level;
mod live;
mod sent_turn;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::broadcast::Receiver;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub use event::{Cursor, PlacedEvent, RunEvent, RunEventKind};
use level::Level;
use live::reset;
pub(super) use live::{LOOK, pause};
use sent_turn::SentTurn;

use super::RunError;
use super::work::Unrecorded;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{RunId, TenantId};
use crate::domain::journal::Entry;
use crate::engine::agent::Agents;
use crate::engine::live::{LiveEvent, Said};
use crate::engine::log;
use crate::surfaces::StoreFailure;

/// Entries per read, and their bytes without the last one. A reader that does not read holds no more of a journal than
/// this.
const PAGE: u32 = 32;
const PAGE_BYTES: usize = 64 << 10;
/// How often in a row a failed read is repeated, after a pause that grows by `BREATH` each time. The pauses add up to
/// some seconds, enough for a busy database to recover or a restarted one to be available again.
const ASKED_AGAIN: u32 = 6;
const BREATH: Duration = Duration::from_millis(250);

/// A reader of one run.
pub struct Watch {
    agents: Arc<Agents>,
    /// The runs that cannot be recorded, so that waiting for them is pointless.
    unrecorded: Arc<Unrecorded>,
    tenant: TenantId,
    root: RunId,
    /// The run, its child run, and so on.
    levels: Vec<Level>,
    /// The reader's position below the current level.
    ahead: VecDeque<u64>,
    live: Option<Receiver<LiveEvent>>,
    /// The text already sent of turns that are not in the journal yet, by run.
    under_way: HashMap<RunId, SentTurn>,
    /// True if the execution stopped before these turns were recorded. The text already sent is then void.
    void: bool,
    /// The text of the current turn from before `live` was subscribed, until it is sent.
    said: Said,
    /// Has everything been read that was written, as far as `live` reports?
    caught_up: bool,
    /// The next wait for more, if there are no announcements.
    patience: Duration,
    /// How often in a row the store could not be read.
    faults: u32,
    /// Fires when the service stops: the reader continues at another process.
    stop: CancellationToken,
    ended: bool,
    /// Limits the concurrent store reads of all that wait for runs in this process.
    looks: Arc<Semaphore>,
}

impl Watch {
    pub(super) fn new(
        agents: Arc<Agents>,
        unrecorded: Arc<Unrecorded>,
        tenant: TenantId,
        run: RunId,
        cursor: Cursor,
        stop: CancellationToken,
        looks: Arc<Semaphore>,
    ) -> Self {
        Self {
            agents,
            unrecorded,
            tenant,
            root: run,
            levels: vec![Level::new(run, None)],
            ahead: cursor.0.into(),
            live: None,
            under_way: HashMap::new(),
            void: false,
            said: Said::default(),
            caught_up: false,
            patience: LOOK,
            faults: 0,
            stop,
            ended: false,
            looks,
        }
    }

    /// Has the reader already received the end? Then there is nothing more to read.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn is_reported(&self) -> Result<bool, StoreFailure> {
        // The end comes after the last entry.
        let Some(last) = self.ahead.front().and_then(|had| had.checked_sub(1)) else {
            return Ok(false);
        };
        let _look = self.looks.acquire().await;
        let run = self.agents.runs.get(&self.tenant, None, self.root).await?;
        if !run.is_some_and(|run| run.status.has_ended()) {
            return Ok(false);
        }
        Ok(self.agents.runs.journal(self.root, last, 1).await?.is_empty())
    }

    /// The next event; `None` after the last one, and when the service stops.
    ///
    /// # Errors
    /// The store remains unavailable, or contains unreadable data; [`RunError::Unrecorded`] for a run that repeatedly
    /// cannot be recorded.
    pub async fn next(&mut self) -> Result<Option<PlacedEvent>, RunError> {
        while !self.ended && !self.stop.is_cancelled() {
            if self.live.is_none() {
                self.join();
                self.caught_up = false;
            }
            match self.step().await {
                Ok(Some(reported)) => {
                    self.faults = 0;
                    return Ok(Some(reported));
                }
                Ok(None) => self.faults = 0,
                Err(RunError::Store(StoreFailure::Unavailable)) if self.faults < ASKED_AGAIN => {
                    self.faults += 1;
                    let _ = timeout(BREATH * self.faults, self.stop.cancelled()).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Handles one entry, or waits once for more.
    async fn step(&mut self) -> Result<Option<PlacedEvent>, RunError> {
        if !self.caught_up && self.levels.last().is_some_and(|level| level.read.is_empty()) {
            let looks = Arc::clone(&self.looks);
            let _look = looks.acquire().await;
            self.read().await?;
        }
        let skip = self.ahead.front().copied();
        let cursor = self.levels.iter().map(|level| level.after);
        let mut cursor: Vec<u64> = cursor.collect();
        let Some(level) = self.levels.last_mut() else {
            self.ended = true;
            return Ok(None);
        };
        let run = level.run;
        // The next turn may differ from the one whose text was sent: the process was stopped, or this reader missed
        // events.
        if let Some((_, Entry::ModelTurn { turn, .. })) = level.read.front()
            && let Some(words) = self.under_way.remove(&run)
            && !words.begin(turn)
        {
            return Ok(Some(reset(cursor, run)));
        }
        let begins_part = matches!(level.read.front(), Some((_, Entry::Resumed { .. })));
        if begins_part && !level.enters_part() {
            self.levels.pop();
            self.ahead.clear();
            return Ok(None);
        }
        if let Some((number, entry)) = level.read.pop_front() {
            self.patience = LOOK;
            level.after = number;
            level.learn(&entry);
            if level.is_before_its_part() {
                return Ok(None);
            }
            if matches!(entry, Entry::ModelFault { .. }) {
                self.under_way.remove(&run);
            }
            let child = match &entry {
                Entry::Started { child: Some(child), .. } => Some((*child, level.part_of(*child))),
                _ => None,
            };
            let event = level.event(entry);
            // Entries that the reader has already received only update the state. If its position is within another
            // run, reading continues there.
            let had = skip.is_some_and(|skip| number <= skip);
            if skip == Some(number) {
                self.ahead.pop_front();
            } else if !had {
                self.ahead.clear();
            }
            match child {
                Some((child, part)) if !had || skip == Some(number) => {
                    self.levels.push(Level::new(child, Some(part)));
                }
                _ if skip == Some(number) => self.ahead.clear(),
                _ => {}
            }
            if had {
                return Ok(None);
            }
            if let Some(last) = cursor.last_mut() {
                *last = number;
            }
            return Ok(event.map(|what| PlacedEvent::new(cursor, run, what)));
        }
        if !self.caught_up
            && let Some(reported) = self.look_up(&cursor).await?
        {
            return Ok(Some(reported));
        }
        // Entries that `look_up` found come first.
        if self.caught_up {
            return Ok(self.wait(cursor).await);
        }
        Ok(None)
    }

    /// Fills the innermost level with available entries.
    async fn read(&mut self) -> Result<(), StoreFailure> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(());
        };
        if level.read.is_empty() {
            let entries = entries(&self.agents, level.run, level.after).await?;
            // The text of these turns was sent live before they were written, and late text would come after the turn.
            // So the received text is dropped, and the subscription is renewed.
            let turns = entries
                .iter()
                .any(|(_, entry)| matches!(entry, Entry::ModelTurn { .. }));
            level.read.extend(entries);
            if turns && self.live.is_some() {
                self.join();
            }
        }
        Ok(())
    }

    /// Nothing can be read now: has this level ended, or will more come?
    async fn look_up(&mut self, cursor: &[u64]) -> Result<Option<PlacedEvent>, RunError> {
        let Some(run) = self.levels.last().map(|level| level.run) else {
            return Ok(None);
        };
        let looks = Arc::clone(&self.looks);
        let _look = looks.acquire().await;
        let row = self.agents.runs.get(&self.tenant, None, run).await?;
        let has_ended = row.as_ref().is_some_and(|row| row.status.has_ended());
        let waits = row
            .as_ref()
            .is_some_and(|row| row.status == RunStatus::AwaitingConfirmation);
        // Reads what was written between the two reads.
        self.read().await?;
        if self.levels.last().is_some_and(|level| !level.read.is_empty()) {
            return Ok(None);
        }
        match (row, self.levels.len()) {
            (Some(row), 1) if has_ended => {
                self.ended = true;
                let last = cursor.last().copied().unwrap_or_default() + 1;
                // A reader that has already received the end has everything.
                let had = self.ahead.front().is_some_and(|ahead| *ahead >= last);
                let what = RunEventKind::End { run: Box::new(row) };
                return Ok((!had).then(|| PlacedEvent::new(vec![last], run, what)));
            }
            (_, 2..) if has_ended || self.caller_continued().await? => {
                self.levels.pop();
                self.ahead.clear();
            }
            _ if !has_ended && !waits && self.live.is_none() && self.unrecorded.is_hopeless(self.root) => {
                return Err(RunError::Unrecorded(self.root));
            }
            _ => self.caught_up = true,
        }
        Ok(None)
    }

    /// Has the parent run continued? Then this run has no further events, or was never created.
    async fn caller_continued(&self) -> Result<bool, StoreFailure> {
        let Some(above) = self.levels.iter().rev().nth(1) else {
            return Ok(false);
        };
        if !above.read.is_empty() {
            return Ok(true);
        }
        Ok(!self.agents.runs.journal(above.run, above.after, 1).await?.is_empty())
    }
}

/// The next page of a journal.
pub(super) async fn entries(agents: &Agents, run: RunId, after: u64) -> Result<Vec<(u64, Entry)>, StoreFailure> {
    let stored = agents.runs.journal_within(run, after, PAGE, PAGE_BYTES).await?;
    let read = stored.iter().map(|stored| match log::read(stored) {
        Ok(entry) => Ok((stored.number, entry)),
        Err(error) => {
            tracing::error!(run_id = %run, %error, "the journal of a run cannot be read");
            Err(StoreFailure::Unavailable)
        }
    });
    read.collect()
}
