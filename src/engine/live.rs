//! What watchers of a run on this replica are told beside its journal: the model's words and thoughts as they come, and that there is
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
    /// What was said of the turn that is under way.
    said: Arc<Mutex<Said>>,
}

/// What the model has said of a turn so far.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Of its thinking.
    pub thoughts: String,
    /// For the person.
    pub words: String,
}

/// What they are told.
#[derive(Clone, Debug)]
pub enum LiveEvent {
    /// More words of the model, in this run.
    Delta(RunId, Arc<str>),
    /// More of its thoughts.
    Thought(RunId, Arc<str>),
    /// The words and thoughts of this turn so far are void.
    Reset(RunId),
    /// There is more to read in the store.
    Written,
}

impl Live {
    /// Events a slow watcher may be behind; then it misses some, and is told so.
    const CAPACITY: usize = 256;
    /// Most bytes of words, and of thoughts, that a new watcher is given.
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

    /// A new watcher, with the words and thoughts so far of the turn that is under way: those and what it hears are all of them,
    /// each once. Where they are many it gets none, so that many watchers cost little; the turn comes whole at its end.
    #[must_use]
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
        (handed_over, self.sender.subscribe())
    }

    /// The words so far of the turn that is under way.
    pub(super) fn said(&self) -> String {
        self.so_far().words.clone()
    }

    /// The turn is in the journal now, or came to nothing: its words, which are forgotten here, as its thoughts are.
    pub(super) fn turn_over(&self) -> String {
        std::mem::take(&mut *self.so_far()).words
    }

    fn so_far(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn delta(&self, text: &str) {
        let mut said = self.so_far();
        said.words.push_str(text);
        // Before anybody else begins to watch.
        self.tell(LiveEvent::Delta(self.run, Arc::from(text)));
    }

    pub(super) fn thought(&self, text: &str) {
        let mut said = self.so_far();
        // No watcher is given more of them.
        if said.thoughts.len() <= Self::HANDED_OVER {
            said.thoughts.push_str(text);
        }
        self.tell(LiveEvent::Thought(self.run, Arc::from(text)));
    }

    pub(super) fn reset(&self) {
        let mut said = self.so_far();
        *said = Said::default();
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
