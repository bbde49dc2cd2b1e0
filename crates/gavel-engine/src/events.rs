//! Sends the journal of a chat's run to its reader, without ever waiting for it.

use crate::journal::Journal;
use tokio::sync::mpsc;

use super::ledger::Call;
use super::projection::Projection;
use crate::api::events::{Event, Numbered};
use crate::domain::journal::Entry;
use crate::ports::model::ModelEvent;

/// The destination of events. Bounded: a slow reader misses deltas, never entries, since a run has fewer entries than
/// [`EventSink::RESERVE`].
#[derive(Clone, Debug)]
pub struct EventSink {
    sender: mpsc::Sender<Numbered<Event>>,
    projection: Projection,
    number: u64,
    /// Number of calls reported as not run.
    refused: u32,
}

impl EventSink {
    /// Slots reserved for entries: 5 iterations with a turn and 16 calls, each with two events, and [`EventSink::REFUSED`].
    const RESERVE: usize = 256;
    /// Maximum number of calls reported as not run; a model may propose any number of them.
    const REFUSED: u32 = 64;
    /// How many events a slow reader may be behind.
    const CAPACITY: usize = 1024;

    /// A sink and the stream of its events.
    pub fn channel() -> (Self, mpsc::Receiver<Numbered<Event>>) {
        let (sender, receiver) = mpsc::channel(Self::CAPACITY);
        let sink = Self {
            sender,
            projection: Projection::default(),
            number: 0,
            refused: 0,
        };
        (sink, receiver)
    }

    /// Sends an entry. A reader that has disconnected does not affect the run.
    pub fn tell(&mut self, event: Event) {
        self.number += 1;
        let _ = self.sender.try_send(Numbered {
            number: self.number,
            event,
        });
    }

    /// Sends the event of an entry that is appended to this journal.
    pub(super) fn entry(&mut self, journal: &Journal, entry: &Entry) {
        let Some(event) = self.projection.event(entry) else {
            return;
        };
        let was_started = |id| journal.ledger().call(id).is_some_and(Call::was_started);
        match entry.result() {
            Some((call, _)) if !was_started(call) => self.refused(event),
            _ => self.tell(event),
        }
    }

    /// Reports that a call was not run, up to a maximum; the answer lists them all.
    fn refused(&mut self, event: Event) {
        self.refused += 1;
        if self.refused <= Self::REFUSED {
            self.tell(event);
        }
    }

    /// Sends what arrives of a turn, if the reader keeps up. That it is void uses a reserved slot.
    pub(super) fn arrived(&self, event: ModelEvent<'_>) {
        let (event, is_reserved) = match event {
            ModelEvent::Delta(text) => (Event::Delta { text: text.into() }, false),
            ModelEvent::Thought(text) => (Event::Thought { text: text.into() }, false),
            ModelEvent::Reset => (Event::Reset, true),
        };
        if is_reserved || self.sender.capacity() > Self::RESERVE {
            let _ = self.sender.try_send(Numbered {
                number: self.number,
                event,
            });
        }
    }
}
