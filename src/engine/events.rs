//! Sends the journal to watchers, without ever waiting for them.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::Run;
use crate::domain::decision::ToolFailure;
use crate::domain::event::{Event, Numbered};
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallResult, Entry, Proposed, Target};

/// The destination of events. Bounded: a slow reader misses deltas, never entries, since a run has fewer entries than
/// [`EventSink::RESERVE`].
#[derive(Clone, Debug)]
pub struct EventSink {
    sender: mpsc::Sender<Numbered>,
    number: u64,
    /// Number of calls reported as not run.
    refused: u32,
}

impl EventSink {
    /// Slots reserved for entries: 5 iterations of 16 calls with two events each, and [`EventSink::REFUSED`].
    const RESERVE: usize = 256;
    /// Maximum number of calls reported as not run; a model may propose any number of them.
    const REFUSED: u32 = 64;
    /// How many events a slow reader may be behind.
    const CAPACITY: usize = 1024;

    /// A sink and the stream of its events.
    #[must_use]
    pub fn channel() -> (Self, mpsc::Receiver<Numbered>) {
        let (sender, receiver) = mpsc::channel(Self::CAPACITY);
        let sink = Self {
            sender,
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

    /// Reports that a call was not run, up to a maximum; the answer lists them all.
    fn refused(&mut self, event: Event) {
        self.refused += 1;
        if self.refused <= Self::REFUSED {
            self.tell(event);
        }
    }

    /// Reports that the text and thoughts since the last turn are void. Unlike them, this event uses a reserved slot.
    pub(super) fn reset(&self) {
        let _ = self.sender.try_send(Numbered {
            number: self.number,
            event: Event::Reset,
        });
    }

    /// Sends more text or thoughts, if the reader keeps up.
    pub(super) fn delta(&self, event: Event) {
        if self.sender.capacity() > Self::RESERVE {
            let _ = self.sender.try_send(Numbered {
                number: self.number,
                event,
            });
        }
    }
}

impl Run {
    /// Appends an entry and sends it.
    pub(super) fn push(&mut self, entry: Entry) {
        if let Some(mut sink) = self.context.events.take() {
            if let Some(event) = self.event_of(&entry) {
                match &entry {
                    Entry::Result { call, .. } if !self.was_started(*call) => sink.refused(event),
                    _ => sink.tell(event),
                }
            }
            self.context.events = Some(sink);
        }
        self.record.journal.push(entry);
    }

    fn event_of(&self, entry: &Entry) -> Option<Event> {
        match entry {
            Entry::ModelTurn { turn, .. } => Some(Event::Turn {
                iteration: super::iterations(&self.record.journal) + 1,
                text: turn.text(),
            }),
            Entry::Result { call, result } => Some(self.result_event(*call, result)),
            Entry::User(_)
            | Entry::ModelFault { .. }
            | Entry::Decided { .. }
            | Entry::ApprovalResolved { .. }
            | Entry::Started { .. }
            | Entry::Step { .. }
            | Entry::Prompted { .. }
            | Entry::Halted
            | Entry::Suspended
            | Entry::Recovered
            | Entry::Resumed { .. } => None,
        }
    }

    fn result_event(&self, id: ActionId, result: &CallResult) -> Event {
        let call = self.proposed(id);
        Event::ToolResult {
            sequence: call.map_or(0, |call| call.sequence),
            tool: call.map_or_else(|| Arc::from(""), tool_name),
            success: result.outcome.is_ok(),
            error: result.outcome.as_ref().err().map(|failure| ToolFailure {
                code: failure.code.as_str(),
                message: failure.for_callers().into_owned(),
            }),
            duration_ms: u64::try_from(result.duration_us / 1000).unwrap_or(0),
        }
    }

    fn was_started(&self, id: ActionId) -> bool {
        let started = |entry: &Entry| matches!(entry, Entry::Started { call, .. } if *call == id);
        self.record.journal.iter().rev().any(started)
    }

    /// The call with this id.
    fn proposed(&self, id: ActionId) -> Option<&Proposed> {
        let mut entries = self.record.journal.iter().rev();
        entries.find_map(|entry| entry.calls().iter().find(|call| call.id == id))
    }
}

/// The tool's own name, or the model's name for an unknown tool.
#[must_use]
pub fn tool_name(call: &Proposed) -> Arc<str> {
    match &call.target {
        Target::Tool(tool) => Arc::clone(&tool.name),
        Target::Unresolved(tool) => Arc::clone(&tool.name),
        Target::Agent(name) => Arc::clone(name),
        Target::Verdict(_) | Target::Unknown => Arc::from(call.call.name.as_str()),
    }
}
