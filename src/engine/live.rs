//! What watchers of a run on this replica are told beside its journal: the model's words as they come, and that there is
//! more in the journal. Nothing of it is kept; who misses it finds the whole turn in the journal. Only a run that is cancelled
//! within a turn ends with what was said of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;

use crate::domain::ids::RunId;

/// Tells them. Runs that one called share its watchers.
#[derive(Clone, Debug)]
pub struct Live {
    run: RunId,
    sender: broadcast::Sender<LiveEvent>,
    /// The words of the turn that is under way.
    said: Arc<Mutex<String>>,
}

/// What they are told.
#[derive(Clone, Debug)]
pub enum LiveEvent {
    /// More words of the model, in this run.
    Delta(RunId, Arc<str>),
    /// The words of this turn so far are void.
    Reset(RunId),
    /// There is more to read in the store.
    Written,
}

impl Live {
    /// Events a slow watcher may be behind; then it misses some, and is told so.
    const CAPACITY: usize = 256;
    /// Most bytes of words that a new watcher is given.
    const HANDED_OVER: usize = 16 * 1024;

    /// For a run that nobody called.
    #[must_use]
    pub fn new(run: RunId) -> Self {
        Self {
            run,
            sender: broadcast::channel(Self::CAPACITY).0,
            said: Arc::default(),
        }
    }

    /// For a run that this one called.
    #[must_use]
    pub fn of(&self, child: RunId) -> Self {
        Self {
            run: child,
            sender: self.sender.clone(),
            said: Arc::default(),
        }
    }

    /// A new watcher, with the words so far of the turn that is under way: those and what it hears are all of them, each once.
    /// Where they are many it gets none, so that many watchers cost little; the turn comes whole at its end.
    #[must_use]
    pub fn watch(&self) -> (String, broadcast::Receiver<LiveEvent>) {
        let words = self.words();
        let said = match words.len() <= Self::HANDED_OVER {
            true => words.clone(),
            false => String::new(),
        };
        (said, self.sender.subscribe())
    }

    /// The words so far of the turn that is under way.
    pub(super) fn said(&self) -> String {
        self.words().clone()
    }

    /// The turn is in the journal now, or came to nothing: its words, which are forgotten here.
    pub(super) fn turn_over(&self) -> String {
        std::mem::take(&mut *self.words())
    }

    fn words(&self) -> MutexGuard<'_, String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn delta(&self, text: &str) {
        let mut words = self.words();
        words.push_str(text);
        // Before anybody else begins to watch.
        self.tell(LiveEvent::Delta(self.run, Arc::from(text)));
    }

    pub(super) fn reset(&self) {
        let mut words = self.words();
        words.clear();
        self.tell(LiveEvent::Reset(self.run));
    }

    pub(super) fn written(&self) {
        self.tell(LiveEvent::Written);
    }

    /// Nobody may be there to hear it.
    fn tell(&self, event: LiveEvent) {
        let _ = self.sender.send(event);
    }
}
