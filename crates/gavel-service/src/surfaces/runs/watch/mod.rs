//! Watches a run: its events, read from the event log, from the beginning or from a reader's position, on any process.
//! The text of a turn as it arrives is available only on the process that executes the run.

mod item;
mod live;
mod read;
mod sent_turn;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::sync::broadcast::Receiver;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(crate) use item::{LogItem, Logged};
pub(super) use live::{LOOK, pause};
pub(super) use read::entries;
use read::{parsed, projection};
use sent_turn::SentTurn;

use super::RunError;
use super::work::Unrecorded;
use crate::api::events::{Event, Numbered, RunEvent};
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{RunId, TenantId};
use crate::domain::journal::Entry;
use crate::engine::agent::Agents;
use crate::engine::live::{LiveEvent, Said};
use crate::engine::projection::Projection;
use crate::surfaces::StoreFailure;

/// Entries per read, and their bytes without the last one. A reader that does not read holds no more of the log than
/// this.
const PAGE: u32 = 32;
const PAGE_BYTES: usize = 64 << 10;
/// How often in a row a failed read is repeated, after a pause that grows by `BREATH` each time. The pauses add up to
/// some seconds, enough for a busy database to recover or a restarted one to be available again.
const ASKED_AGAIN: u32 = 6;
const BREATH: Duration = Duration::from_millis(250);

/// An event of a run or of one that it called, with its position in the event log.
pub type PlacedEvent = Numbered<RunEvent>;

/// An entry that was read and that the reader has not received yet.
struct Read {
    position: u64,
    run: RunId,
    /// Its number in its run.
    number: u64,
    at_us: i64,
    entry: Entry,
}

/// A reader of one run.
pub struct Watch {
    agents: Arc<Agents>,
    /// The runs that cannot be recorded, so that waiting for them is pointless.
    unrecorded: Arc<Unrecorded>,
    tenant: TenantId,
    run: RunId,
    /// The position of the last entry that the reader has received.
    after: u64,
    read: VecDeque<Read>,
    /// What the entries of each run refer to.
    projections: HashMap<RunId, Projection>,
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
        after: u64,
        stop: CancellationToken,
        looks: Arc<Semaphore>,
    ) -> Self {
        Self {
            agents,
            unrecorded,
            tenant,
            run,
            after,
            read: VecDeque::new(),
            projections: HashMap::new(),
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
        let Some(last) = self.after.checked_sub(1) else {
            return Ok(false);
        };
        let _look = self.looks.acquire().await;
        let run = self.agents.runs.get(&self.tenant, None, self.run).await?;
        if !run.is_some_and(|run| run.status.has_ended()) {
            return Ok(false);
        }
        Ok(self.agents.runs.events(self.run, last, 1, PAGE_BYTES).await?.is_empty())
    }

    /// The next event; `None` after the last one, and when the service stops. If the future is dropped, no event is
    /// lost.
    ///
    /// # Errors
    /// The store remains unavailable, or contains unreadable data; [`RunError::Unrecorded`] for a run that repeatedly
    /// cannot be recorded.
    pub async fn next(&mut self) -> Result<Option<PlacedEvent>, RunError> {
        while let Some(LogItem { position, run, what }) = self.next_item().await? {
            let event = match what {
                Logged::Entry(entry, _) => self.projections.entry(run).or_default().event(&entry),
                Logged::Live(event) => Some(event),
                Logged::End(run) => Some(Event::End { run }),
            };
            if let Some(what) = event {
                return Ok(Some(Numbered {
                    number: position,
                    event: RunEvent { run_id: run, what },
                }));
            }
        }
        Ok(None)
    }

    /// Like [`Watch::next`], for a reader that makes its own events.
    ///
    /// # Errors
    /// Those of [`Watch::next`].
    pub(crate) async fn next_item(&mut self) -> Result<Option<LogItem>, RunError> {
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
    async fn step(&mut self) -> Result<Option<LogItem>, RunError> {
        if !self.caught_up && self.read.is_empty() {
            let looks = Arc::clone(&self.looks);
            let _look = looks.acquire().await;
            self.read_on().await?;
        }
        if let Some(next) = self.read.front() {
            let (run, number) = (next.run, next.number);
            if !self.projections.contains_key(&run) {
                let known = projection(&self.agents, run, number).await?;
                self.projections.insert(run, known);
            }
            return Ok(self.handle());
        }
        if !self.caught_up
            && let Some(reported) = self.look_up().await?
        {
            return Ok(Some(reported));
        }
        // Entries that `look_up` found come first.
        if self.caught_up {
            return Ok(self.wait().await);
        }
        Ok(None)
    }

    /// Whether the run has ended, or was deleted, and all was read. Otherwise the service stops.
    pub(crate) const fn is_at_end(&self) -> bool {
        self.ended
    }

    /// The next entry, or that the text before it is void.
    fn handle(&mut self) -> Option<LogItem> {
        let next = self.read.front()?;
        let run = next.run;
        // The next turn may differ from the one whose text was sent: the process was stopped, or this reader missed
        // events.
        if let Entry::ModelTurn { turn, .. } = &next.entry
            && let Some(words) = self.under_way.remove(&run)
            && !words.begin(turn)
        {
            return Some(self.placed(run, Logged::Live(Event::Reset)));
        }
        let next = self.read.pop_front()?;
        self.patience = LOOK;
        if matches!(next.entry, Entry::ModelFault { .. }) {
            self.under_way.remove(&run);
        }
        self.after = next.position;
        Some(self.placed(run, Logged::Entry(Box::new(next.entry), next.at_us)))
    }

    /// An item at the reader's position.
    const fn placed(&self, run: RunId, what: Logged) -> LogItem {
        LogItem {
            position: self.after,
            run,
            what,
        }
    }

    /// Reads the entries that follow.
    async fn read_on(&mut self) -> Result<(), StoreFailure> {
        if !self.read.is_empty() {
            return Ok(());
        }
        let logged = self.agents.runs.events(self.run, self.after, PAGE, PAGE_BYTES).await?;
        let read = logged.iter().map(|logged| {
            Ok(Read {
                position: logged.position,
                run: logged.run,
                number: logged.entry.number,
                at_us: logged.entry.at_us,
                entry: parsed(logged.run, &logged.entry)?,
            })
        });
        self.read = read.collect::<Result<_, StoreFailure>>()?;
        // The text of these turns was sent live before they were written, and late text would come after the turn. So
        // the received text is dropped, and the subscription is renewed.
        let turns = self
            .read
            .iter()
            .any(|read| matches!(read.entry, Entry::ModelTurn { .. }));
        if turns && self.live.is_some() {
            self.join();
        }
        Ok(())
    }

    /// Nothing can be read now: has the run ended, or will more come?
    async fn look_up(&mut self) -> Result<Option<LogItem>, RunError> {
        let looks = Arc::clone(&self.looks);
        let _look = looks.acquire().await;
        let row = self.agents.runs.get(&self.tenant, None, self.run).await?;
        // Reads what was written between the two reads.
        self.read_on().await?;
        if !self.read.is_empty() {
            return Ok(None);
        }
        match row {
            Some(row) if row.status.has_ended() => {
                self.ended = true;
                self.after = self.after.saturating_add(1);
                return Ok(Some(self.placed(self.run, Logged::End(Box::new(row)))));
            }
            // It was deleted.
            None => self.ended = true,
            Some(row) => {
                let waits = row.status == RunStatus::AwaitingConfirmation;
                if !waits && self.live.is_none() && self.unrecorded.is_hopeless(self.run) {
                    return Err(RunError::Unrecorded(self.run));
                }
                self.caught_up = true;
            }
        }
        Ok(None)
    }
}
