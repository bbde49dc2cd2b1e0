//! What a reader gets from the process that executes the run: announcements of entries, and text as it arrives.

use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::{LogItem, Logged, Watch};
use crate::api::events::Event;
use crate::engine::agent::Begins;
use crate::engine::live::{LiveEvent, Said};

/// Interval between reads for a run that this process executes. It announces new entries, so the reads only catch lost
/// announcements.
const MOST_REPORTED: Duration = Duration::from_secs(5);
/// Interval between reads without announcements: at first, and after a while without new entries.
pub(crate) const LOOK: Duration = Duration::from_millis(300);
const SELDOM: Duration = Duration::from_secs(1);

impl Watch {
    /// Subscribes to live events, with the text of the current turn so far. The text of a turn is complete before the
    /// turn is written.
    pub(super) fn join(&mut self) {
        let joined = self.agents.running.live(self.run).map(|live| live.watch());
        (self.said, self.live) = joined.map_or_else(Default::default, |(said, live)| (said, Some(live)));
    }

    /// Waits for more entries, or for the model's text.
    pub(super) async fn wait(&mut self) -> Option<LogItem> {
        // The next worker asks the model again.
        if self.void {
            let run = self.under_way.keys().next().copied();
            let Some(run) = run else {
                self.void = false;
                return None;
            };
            self.under_way.remove(&run);
            return Some(self.placed(run, Logged::Live(Event::Reset)));
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
            return Some(self.placed(self.run, Logged::Live(what)));
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
        Some(self.placed(run_id, Logged::Live(what)))
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
pub(crate) async fn pause(live: &mut Option<Receiver<LiveEvent>>, begins: Begins<'_>, patience: &mut Duration) {
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
