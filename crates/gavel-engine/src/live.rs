//! Live events for watchers of a run on this replica, in addition to its journal. They are the model's text and
//! thoughts as they arrive, and notifications of new journal entries. Nothing is stored; a watcher that misses events
//! finds the whole turn in the journal. Only a run that is cancelled within a turn ends with the text so far.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::broadcast;

use crate::domain::ids::RunId;
use crate::ports::model::ModelEvent;

/// Sends live events. Child runs share the watchers of their parent.
#[derive(Clone, Debug)]
pub struct Live {
    run: RunId,
    /// Made for the first watcher: most runs have none.
    sender: Arc<OnceLock<broadcast::Sender<LiveEvent>>>,
    /// The text and thoughts of the current turn.
    said: Arc<Mutex<Said>>,
}

/// What the model has sent of a turn so far.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Its thoughts.
    pub thoughts: String,
    /// Its text for the user.
    pub words: String,
}

/// A live event.
#[derive(Clone, Debug)]
pub enum LiveEvent {
    /// More text of the model, in this run.
    Delta(RunId, Arc<str>),
    /// More of its thoughts.
    Thought(RunId, Arc<str>),
    /// The text and thoughts of this turn so far are void.
    Reset(RunId),
    /// The store has new entries.
    Written,
}

impl Live {
    /// How many events a slow watcher may be behind; beyond that it misses some, and is notified.
    const CAPACITY: usize = 256;
    /// Maximum bytes of text, and of thoughts, that a new watcher gets.
    const HANDED_OVER: usize = 16 * 1024;

    /// For a run without a parent.
    pub fn new(run: RunId) -> Self {
        Self {
            run,
            sender: Arc::default(),
            said: Arc::default(),
        }
    }

    /// For a child run.
    pub fn of(&self, child: RunId) -> Self {
        Self {
            run: child,
            sender: Arc::clone(&self.sender),
            said: Arc::default(),
        }
    }

    /// Are both the channel of the same execution?
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.said, &other.said)
    }

    /// A new watcher, with the text and thoughts of the current turn so far. Together with the following events they
    /// are complete, without duplicates. If they are long, the watcher gets none, so that many watchers cost little;
    /// the whole turn follows at its end.
    pub fn watch(&self) -> (Said, broadcast::Receiver<LiveEvent>) {
        let said = self.so_far();
        let handed_over = |text: &String| match text.len() <= Self::HANDED_OVER {
            true => text.clone(),
            false => String::new(),
        };
        let handed_over = Said {
            thoughts: handed_over(&said.thoughts),
            words: handed_over(&said.words),
        };
        let sender = self.sender.get_or_init(|| broadcast::channel(Self::CAPACITY).0);
        (handed_over, sender.subscribe())
    }

    /// The text of the current turn so far.
    pub(super) fn said(&self) -> String {
        self.so_far().words.clone()
    }

    /// Ends the turn, which is now in the journal or has failed. Returns its text, and clears text and thoughts.
    pub(super) fn turn_over(&self) -> String {
        std::mem::take(&mut *self.so_far()).words
    }

    fn so_far(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what arrives of a turn.
    pub(super) fn arrived(&self, event: ModelEvent<'_>) {
        // Held while it is sent, so that a new watcher gets every delta exactly once.
        let mut said = self.so_far();
        match event {
            ModelEvent::Delta(text) => said.words.push_str(text),
            // No watcher gets more of them.
            ModelEvent::Thought(text) if said.thoughts.len() <= Self::HANDED_OVER => said.thoughts.push_str(text),
            ModelEvent::Thought(_) => {}
            ModelEvent::Reset => *said = Said::default(),
        }
        self.tell(|| match event {
            ModelEvent::Delta(text) => LiveEvent::Delta(self.run, text.into()),
            ModelEvent::Thought(text) => LiveEvent::Thought(self.run, text.into()),
            ModelEvent::Reset => LiveEvent::Reset(self.run),
        });
    }

    pub(super) fn written(&self) {
        self.tell(|| LiveEvent::Written);
    }

    /// There may be no receiver.
    fn tell(&self, event: impl FnOnce() -> LiveEvent) {
        if let Some(sender) = self.sender.get() {
            let _ = sender.send(event());
        }
    }
}
