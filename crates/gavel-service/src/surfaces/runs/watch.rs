//! Watches a run: its events, read from the event log, from the beginning or from a reader's position, on any process.
//! The text of a turn as it arrives is available only on the process that executes the run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Fuse;
use sha2::{Digest, Sha256};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Runs;
use crate::api::events::{Event, Numbered, RunEvent};
use crate::api::problem::Code;
use crate::api::runs::AgentRun;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{RunId, TenantId};
use crate::domain::journal::{Entry, ModelTurn, Part};
use crate::domain::time::Timestamp;
use crate::engine::agent::{Agents, Begins};
use crate::engine::live::{LiveEvent, Said};
use crate::engine::log;
use crate::engine::projection::Projection;
use crate::ports::BoxFuture;
use crate::ports::runs::{LoggedEntry, StoredEntry};
use crate::surfaces::problem::Problem;

/// Entries per read, and their bytes without the last one. A reader that does not read holds no more of the log than
/// this.
const PAGE: u32 = 32;
pub(super) const PAGE_BYTES: usize = 64 << 10;
/// Maximum concurrent store reads for waiting callers: the other read connections are for requests.
const LOOKS: usize = 2;
/// How often in a row a failed read is repeated, after a pause that grows by `BREATH` each time. The pauses add up to
/// some seconds, enough for a busy database to recover or a restarted one to be available again.
const ASKED_AGAIN: u32 = 6;
const BREATH: Duration = Duration::from_millis(250);

/// The store reads for waiting callers of this process.
pub(crate) struct Looks(pub(super) Semaphore);

impl Default for Looks {
    fn default() -> Self {
        Self(Semaphore::new(LOOKS))
    }
}

impl Looks {
    /// Reads once it is its turn, and again for a while if the store is unavailable.
    pub(crate) async fn read<T, E, F>(&self, read: impl Fn() -> F) -> Result<T, Problem>
    where
        E: Into<Problem>,
        F: Future<Output = Result<T, E>>,
    {
        let mut faults = 0;
        loop {
            let found = {
                let _look = self.0.acquire().await;
                read().await.map_err(Into::into)
            };
            match found {
                Err(problem) if problem.code == Code::RecordUnavailable && faults < ASKED_AGAIN => {
                    faults += 1;
                    sleep(BREATH * faults).await;
                }
                found => return found,
            }
        }
    }
}

/// An event of a run or of one that it called, with its position in the event log.
pub type PlacedEvent = Numbered<RunEvent>;

/// A reader of events. They are made one after another as they are taken; nothing is made for one that was dropped.
pub struct Watch<E = PlacedEvent> {
    made: mpsc::Receiver<Result<E, Problem>>,
    making: Fuse<BoxFuture<'static, ()>>,
    /// Fires when the service stops: the reader continues at another process.
    stop: CancellationToken,
}

/// Where the events of a [`Watch`] are handed over.
pub(crate) struct Sink<E>(mpsc::Sender<Result<E, Problem>>);

impl<E> Sink<E> {
    /// Waits until the reader asks for the event after this one: what is made ahead for a slow reader takes memory.
    pub(crate) async fn send(&self, event: E) {
        // The reader is there: it polls this, and takes what was sent before it polls again.
        let _ = self.0.send(Ok(event)).await;
        yield_now().await;
    }
}

impl<E: Send + 'static> Watch<E> {
    /// `make` makes the events, until the last one.
    pub(crate) fn new<F>(stop: CancellationToken, make: impl FnOnce(Sink<E>) -> F) -> Self
    where
        F: Future<Output = Result<(), Problem>> + Send + 'static,
    {
        let (sink, made) = mpsc::channel(1);
        let events = make(Sink(sink.clone()));
        let making = async move {
            if let Err(error) = events.await {
                let _ = sink.send(Err(error)).await;
            }
        };
        Self {
            made,
            making: making.boxed().fuse(),
            stop,
        }
    }

    /// The next event; `None` after the last one, and when the service stops. If the future is dropped, no event is
    /// lost.
    ///
    /// # Errors
    /// The store remains unavailable, or contains unreadable data; the run repeatedly cannot be recorded.
    pub async fn next(&mut self) -> Result<Option<E>, Problem> {
        let next = tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            made = self.made.recv() => made,
            () = &mut self.making => self.made.recv().await,
        };
        next.transpose()
    }
}

/// An entry of the event log: position, run, time in microseconds, entry.
type Read = (u64, RunId, i64, Entry);

/// What a reader finds after its position.
enum Found {
    /// Entries, and what those of runs that it did not know refer to.
    Entries {
        page: Vec<Read>,
        projections: HashMap<RunId, Projection>,
    },
    /// The row of the run, if no entry follows; absent if the run was deleted.
    Row(Option<Box<AgentRun>>),
}

/// Makes the events of one run.
pub(super) struct Reader {
    pub(super) runs: Arc<Runs>,
    pub(super) tenant: TenantId,
    pub(super) run: RunId,
    /// The position of the last entry that was handed over.
    pub(super) after: u64,
    /// What the entries of each run refer to.
    pub(super) projections: HashMap<RunId, Projection>,
    pub(super) live: Option<Receiver<LiveEvent>>,
    /// The text of the current turn from before `live` was subscribed, until it is sent.
    pub(super) said: Said,
    /// The text already sent of turns that are not in the journal yet, by run.
    pub(super) under_way: HashMap<RunId, SentTurn>,
    pub(super) sink: Sink<PlacedEvent>,
}

impl Reader {
    /// Hands over all events until the run has ended, or was deleted.
    pub(super) async fn follow(mut self) -> Result<(), Problem> {
        let runs = Arc::clone(&self.runs);
        let (mut patience, mut has_stopped) = (LOOK, false);
        loop {
            // Subscribes before it reads, so that nothing is missed.
            let begins = runs.agents.running.begins(self.run);
            if self.live.is_none() {
                self.join();
            }
            let row = match self.look().await? {
                Found::Entries { page, projections } => {
                    patience = LOOK;
                    self.projections.extend(projections);
                    self.hand_over(page).await;
                    continue;
                }
                Found::Row(row) => row,
            };
            let Some(row) = row else { return Ok(()) };
            if row.status.has_ended() {
                self.after = self.after.saturating_add(1);
                self.send(self.run, None, Event::End { run: row }).await;
                return Ok(());
            }
            let waits = row.status == RunStatus::AwaitingConfirmation;
            if !waits && self.live.is_none() && runs.unrecorded.is_hopeless(self.run) {
                return Err(super::unrecorded(self.run));
            }
            if has_stopped {
                // These turns were not recorded: the next worker asks the model again.
                for run in std::mem::take(&mut self.under_way).into_keys() {
                    self.send(run, None, Event::Reset).await;
                }
            }
            has_stopped = match self.live {
                Some(_) => self.arriving().await,
                None => {
                    pause(&mut None, begins, &mut patience).await;
                    false
                }
            };
        }
    }

    /// Reads what follows, at one turn: hundreds of readers that wait for their next turn would hold what they have read.
    async fn look(&self) -> Result<Found, Problem> {
        let agents = &self.runs.agents;
        let page = || agents.runs.events(self.run, self.after, PAGE, PAGE_BYTES);
        let look = || async {
            let mut read = page().await?;
            if read.is_empty() {
                let row = agents.runs.get(&self.tenant, None, self.run).await?;
                // What was written between the two reads.
                read = page().await?;
                if read.is_empty() {
                    return Ok::<_, Problem>(Found::Row(row.map(Box::new)));
                }
            }
            let (mut page, mut projections) = (Vec::new(), HashMap::new());
            for LoggedEntry { position, run, entry } in read {
                if !self.projections.contains_key(&run) && !projections.contains_key(&run) {
                    projections.insert(run, projection(agents, run, entry.number).await?);
                }
                page.push((position, run, entry.at_us, parsed(run, &entry)?));
            }
            Ok(Found::Entries { page, projections })
        };
        self.runs.looks.read(look).await
    }

    /// Hands over the events of these entries. Each entry is dropped before its event is sent: a slow reader holds little.
    async fn hand_over(&mut self, page: Vec<Read>) {
        // The text of these turns was sent live before they were written, and late text would come after the turn. So
        // the received text is dropped, and the subscription is renewed.
        if self.live.is_some() && page.iter().any(|(.., entry)| entry.turn().is_some()) {
            self.join();
        }
        for (position, run, at_us, entry) in page {
            // The turn may differ from the one whose text was sent: the process was stopped, or this reader missed
            // events.
            if let Some((turn, _)) = entry.turn()
                && let Some(sent) = self.under_way.remove(&run)
                && !sent.begin(turn)
            {
                self.send(run, None, Event::Reset).await;
            }
            if matches!(entry, Entry::ModelFault { .. }) {
                self.under_way.remove(&run);
            }
            self.after = position;
            let what = self.projections.entry(run).or_default().event(&entry);
            drop(entry);
            if let Some(what) = what {
                self.send(run, Some(at_us), what).await;
            }
        }
    }

    /// Hands over an event at the reader's position. `at_us`: when it was recorded.
    async fn send(&self, run_id: RunId, at_us: Option<i64>, what: Event) {
        let at = at_us.map(Timestamp);
        let event = RunEvent { run_id, at, what };
        let number = self.after;
        self.sink.send(Numbered { number, event }).await;
    }
}

/// Interval between reads for a run that this process executes. It announces new entries, so the reads only catch lost
/// announcements.
const MOST_REPORTED: Duration = Duration::from_secs(5);
/// Interval between reads without announcements: at first, and after a while without new entries.
pub(super) const LOOK: Duration = Duration::from_millis(300);
const SELDOM: Duration = Duration::from_secs(1);

impl Reader {
    /// Subscribes to live events, with the text of the current turn so far. The text of a turn is complete before the
    /// turn is written.
    fn join(&mut self) {
        let joined = self.runs.agents.running.live(self.run).map(|live| live.watch());
        (self.said, self.live) = joined.map_or_else(Default::default, |(said, live)| (said, Some(live)));
    }

    /// Hands over the model's text, until there may be more to read. True: this process stopped executing the run, and
    /// may claim it again.
    async fn arriving(&mut self) -> bool {
        let Said { thoughts, words } = std::mem::take(&mut self.said);
        if !thoughts.is_empty() {
            self.arrived(self.run, Event::Thought { text: thoughts.into() }).await;
        }
        if !words.is_empty() {
            self.arrived(self.run, Event::Delta { text: words.into() }).await;
        }
        while let Some(live) = &mut self.live {
            match timeout(MOST_REPORTED, live.recv()).await {
                Ok(Ok(LiveEvent::Delta(run, text))) => self.arrived(run, Event::Delta { text }).await,
                Ok(Ok(LiveEvent::Thought(run, text))) => self.arrived(run, Event::Thought { text }).await,
                Ok(Ok(LiveEvent::Reset(run))) => self.arrived(run, Event::Reset).await,
                Ok(Ok(LiveEvent::Written) | Err(RecvError::Lagged(_))) | Err(_) => return false,
                Ok(Err(RecvError::Closed)) => {
                    self.live = None;
                    sleep(Duration::from_millis(20)).await;
                }
            }
        }
        true
    }

    async fn arrived(&mut self, run: RunId, what: Event) {
        let under_way = &mut self.under_way;
        match &what {
            Event::Delta { text } => under_way.entry(run).or_default().words.add(text),
            Event::Thought { text } => under_way.entry(run).or_default().thoughts.add(text),
            _ => drop(under_way.remove(&run)),
        }
        self.send(run, None, what).await;
    }
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
        sleep(Duration::from_millis(20)).await;
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
pub(super) struct SentTurn {
    words: Beginning,
    thoughts: Beginning,
}

#[derive(Default)]
struct Beginning {
    bytes: usize,
    hash: Sha256,
}

impl SentTurn {
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
