//! Watches a run: its events, read from the event log, from the beginning or from a reader's position, on any process.
//! The text of a turn as it arrives is available only on the process that executes the run.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::work::Unrecorded;
use crate::api::events::{Event, Numbered, RunEvent};
use crate::api::problem::Code;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{RunId, TenantId};
use crate::domain::journal::{Entry, ModelTurn, Part};
use crate::domain::time::Timestamp;
use crate::engine::agent::{Agents, Begins};
use crate::engine::live::{LiveEvent, Said};
use crate::engine::log;
use crate::engine::projection::Projection;
use crate::ports::runs::StoredEntry;
use crate::surfaces::problem::Problem;

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
    pub async fn is_reported(&self) -> Result<bool, Problem> {
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
    /// The store remains unavailable, or contains unreadable data; the run repeatedly cannot be
    /// recorded.
    pub async fn next(&mut self) -> Result<Option<PlacedEvent>, Problem> {
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
                Err(problem) if problem.code == Code::RecordUnavailable && self.faults < ASKED_AGAIN => {
                    self.faults += 1;
                    let _ = timeout(BREATH * self.faults, self.stop.cancelled()).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Handles one entry, or waits once for more.
    async fn step(&mut self) -> Result<Option<PlacedEvent>, Problem> {
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
    fn handle(&mut self) -> Option<PlacedEvent> {
        let next = self.read.front()?;
        let run = next.run;
        // The next turn may differ from the one whose text was sent: the process was stopped, or this reader missed
        // events.
        if let Some((turn, _)) = next.entry.turn()
            && let Some(words) = self.under_way.remove(&run)
            && !words.begin(turn)
        {
            return Some(self.placed(run, None, Event::Reset));
        }
        let next = self.read.pop_front()?;
        self.patience = LOOK;
        if matches!(next.entry, Entry::ModelFault { .. }) {
            self.under_way.remove(&run);
        }
        self.after = next.position;
        let what = self.projections.entry(run).or_default().event(&next.entry)?;
        Some(self.placed(run, Some(next.at_us), what))
    }

    /// An event at the reader's position. `at_us`: when it was recorded.
    fn placed(&self, run_id: RunId, at_us: Option<i64>, what: Event) -> PlacedEvent {
        let at = at_us.map(Timestamp);
        Numbered {
            number: self.after,
            event: RunEvent { run_id, at, what },
        }
    }

    /// Reads the entries that follow.
    async fn read_on(&mut self) -> Result<(), Problem> {
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
        self.read = read.collect::<Result<_, Problem>>()?;
        // The text of these turns was sent live before they were written, and late text would come after the turn. So
        // the received text is dropped, and the subscription is renewed.
        let turns = self.read.iter().any(|read| read.entry.turn().is_some());
        if turns && self.live.is_some() {
            self.join();
        }
        Ok(())
    }

    /// Nothing can be read now: has the run ended, or will more come?
    async fn look_up(&mut self) -> Result<Option<PlacedEvent>, Problem> {
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
                return Ok(Some(self.placed(self.run, None, Event::End { run: Box::new(row) })));
            }
            // It was deleted.
            None => self.ended = true,
            Some(row) => {
                let waits = row.status == RunStatus::AwaitingConfirmation;
                if !waits && self.live.is_none() && self.unrecorded.is_hopeless(self.run) {
                    return Err(super::unrecorded(self.run));
                }
                self.caught_up = true;
            }
        }
        Ok(None)
    }
}

/// Interval between reads for a run that this process executes. It announces new entries, so the reads only catch lost
/// announcements.
const MOST_REPORTED: Duration = Duration::from_secs(5);
/// Interval between reads without announcements: at first, and after a while without new entries.
pub(super) const LOOK: Duration = Duration::from_millis(300);
const SELDOM: Duration = Duration::from_secs(1);

impl Watch {
    /// Subscribes to live events, with the text of the current turn so far. The text of a turn is complete before the
    /// turn is written.
    fn join(&mut self) {
        let joined = self.agents.running.live(self.run).map(|live| live.watch());
        (self.said, self.live) = joined.map_or_else(Default::default, |(said, live)| (said, Some(live)));
    }

    /// Waits for more entries, or for the model's text.
    async fn wait(&mut self) -> Option<PlacedEvent> {
        // The next worker asks the model again.
        if self.void {
            let run = self.under_way.keys().next().copied();
            let Some(run) = run else {
                self.void = false;
                return None;
            };
            self.under_way.remove(&run);
            return Some(self.placed(run, None, Event::Reset));
        }
        let stop = self.stop.clone();
        let Some(live) = &mut self.live else {
            let begins = self.agents.running.begins(self.run);
            if self.agents.running.live(self.run).is_none() {
                tokio::select! {
                    _ = timeout(self.patience, begins.wait()) => {}
                    () = stop.cancelled() => {}
                }
            }
            self.patience = (self.patience * 2).min(SELDOM);
            self.caught_up = false;
            return None;
        };
        if let Some(what) = said_before(&mut self.said) {
            let reported = self.under_way.entry(self.run).or_default();
            match &what {
                Event::Thought { text } => reported.add_thought(text),
                Event::Delta { text } => reported.add(text),
                _ => {}
            }
            return Some(self.placed(self.run, None, what));
        }
        let received = tokio::select! {
            received = timeout(MOST_REPORTED, live.recv()) => received,
            () = stop.cancelled() => return None,
        };
        let (run_id, what) = match received {
            Ok(Ok(LiveEvent::Delta(run, text))) => {
                self.under_way.entry(run).or_default().add(&text);
                (run, Event::Delta { text })
            }
            Ok(Ok(LiveEvent::Thought(run, text))) => {
                self.under_way.entry(run).or_default().add_thought(&text);
                (run, Event::Thought { text })
            }
            Ok(Ok(LiveEvent::Reset(run))) => {
                self.under_way.remove(&run);
                (run, Event::Reset)
            }
            Ok(Err(RecvError::Closed)) => {
                // This process stopped executing the run, and may claim it again.
                self.live = None;
                self.void = !self.under_way.is_empty();
                self.caught_up = false;
                tokio::time::sleep(Duration::from_millis(20)).await;
                return None;
            }
            Ok(Ok(LiveEvent::Written) | Err(RecvError::Lagged(_))) | Err(_) => {
                self.caught_up = false;
                return None;
            }
        };
        Some(self.placed(run_id, None, what))
    }
}

/// The text of a turn from before a watcher subscribed: its thoughts, then its text, each once.
fn said_before(said: &mut Said) -> Option<Event> {
    let thoughts = std::mem::take(&mut said.thoughts);
    if !thoughts.is_empty() {
        return Some(Event::Thought { text: thoughts.into() });
    }
    let words = std::mem::take(&mut said.words);
    (!words.is_empty()).then(|| Event::Delta { text: words.into() })
}

/// Waits for an announcement of a run that this process executes. Otherwise waits until execution starts, or for a time
/// that doubles with each call.
pub(super) async fn pause(live: &mut Option<Receiver<LiveEvent>>, begins: Begins<'_>, patience: &mut Duration) {
    let Some(receiver) = live else {
        let _ = timeout(*patience, begins.wait()).await;
        *patience = (*patience * 2).min(SELDOM);
        return;
    };
    let written = async {
        loop {
            match receiver.recv().await {
                Ok(LiveEvent::Written) | Err(RecvError::Lagged(_)) => return true,
                Ok(LiveEvent::Delta(..) | LiveEvent::Thought(..) | LiveEvent::Reset(_)) => {}
                Err(RecvError::Closed) => return false,
            }
        }
    };
    if let Ok(false) = timeout(MOST_REPORTED, written).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What the entries of a run from this number on refer to.
async fn projection(agents: &Agents, run: RunId, number: u64) -> Result<Projection, Problem> {
    let (mut projection, mut after) = (Projection::default(), 0);
    while after + 1 < number {
        let page = entries(agents, run, after).await?;
        let Some((last, _)) = page.last() else { break };
        after = *last;
        for (_, entry) in page.iter().take_while(|(at, _)| *at < number) {
            projection.learn(entry);
        }
    }
    Ok(projection)
}

/// The next page of a journal.
async fn entries(agents: &Agents, run: RunId, after: u64) -> Result<Vec<(u64, Entry)>, Problem> {
    let stored = agents.runs.journal(run, after, PAGE).await?;
    let read = stored.iter().map(|stored| Ok((stored.number, parsed(run, stored)?)));
    read.collect()
}

pub(super) fn parsed(run: RunId, stored: &StoredEntry) -> Result<Entry, Problem> {
    log::read(stored).map_err(|error| {
        tracing::error!(run_id = %run, %error, "the journal of a run cannot be read");
        Code::RecordUnavailable.into()
    })
}

/// Text and thoughts of one turn that a reader has already received, as length and hash, so that a slow reader keeps no
/// text.
#[derive(Default)]
struct SentTurn {
    words: Beginning,
    thoughts: Beginning,
}

#[derive(Default)]
struct Beginning {
    bytes: usize,
    hash: Sha256,
}

impl SentTurn {
    fn add(&mut self, words: &str) {
        self.words.add(words);
    }

    fn add_thought(&mut self, text: &str) {
        self.thoughts.add(text);
    }

    /// Does the turn begin with the received text?
    fn begin(self, turn: &ModelTurn) -> bool {
        let thoughts = turn.parts.iter().filter_map(|part| match part {
            Part::Thought(text) => Some(text.as_str()),
            Part::Text(_) | Part::Call(_) | Part::Other => None,
        });
        self.words.begin(&turn.text()) && self.thoughts.begin(&thoughts.collect::<String>())
    }
}

impl Beginning {
    fn add(&mut self, text: &str) {
        self.bytes += text.len();
        self.hash.update(text);
    }

    fn begin(self, text: &str) -> bool {
        let reported = text.as_bytes().get(..self.bytes);
        reported.is_some_and(|reported| Sha256::digest(reported) == self.hash.finalize())
    }
}

#[cfg(test)]
mod sent_turn_tests {
    use super::*;

    #[test]
    fn the_sent_text_is_recognized_in_a_text_that_begins_with_it() {
        let reported = |pieces: &[&str]| {
            let mut words = Beginning::default();
            pieces.iter().for_each(|piece| words.add(piece));
            words
        };
        let turn = "Was soll ich schreiben, Änn?";
        for pieces in [&[][..], &["Was soll ", "ich schreiben"], &[turn]] {
            assert!(reported(pieces).begin(turn), "{pieces:?}");
        }
        for other in [&["soll "][..], &[turn, "!"], &["Was soll ich schreiben, xx"]] {
            assert!(!reported(other).begin(turn), "{other:?}");
        }
    }
}
