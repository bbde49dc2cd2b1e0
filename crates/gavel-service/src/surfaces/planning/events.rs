//! Watches a planning session: one stream over the logs of its runs, in the order of their creation, on any process.
//!
//! An event's id is its place: the number of the run, the position in the log of that run, and a number among the events
//! of that position. Every event is made of what is stored and never changes, so each process makes the same ones. The
//! log of a run is read as its own watchers read it ([`Watch`]). Between two runs the session waits for a person, and
//! no process announces what comes next: its row is read as often as readers read a run that another process executes.

mod follow;
mod projection;
mod runs;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::projection::{Projected, Projection};
use self::runs::SessionRun;
use super::{Planning, PlanningError};
use crate::api::planning::{SessionEvent, VersionKind};
use crate::api::runs::AgentRun;
use crate::domain::ids::{PlanningSessionId, UserId};
use crate::surfaces::StoreFailure;
use crate::surfaces::caller::{Caller, Identity};
use crate::surfaces::runs::{RunError, Watch};

/// How often in a row a failed read of the session is repeated.
const ASKED_AGAIN: u32 = 6;

/// What a reader of a session gets.
pub enum Watched {
    /// The events that follow.
    Events(Box<SessionWatch>),
    /// Nothing: the reader has received the last event already.
    Reported,
    /// Nothing: the session has no run of this number.
    UnknownEvent,
}

/// A reader of one session.
pub struct SessionWatch {
    planning: Arc<Planning>,
    /// The session's user, as whom it is read on: whether the caller may read it was decided at the start.
    owner: Caller,
    session: PlanningSessionId,
    /// What the reader has received.
    after: EventId,
    /// The last event that is stored.
    last: EventId,
    runs: Vec<SessionRun>,
    /// Events that are not handed over yet.
    ready: VecDeque<Ready>,
    stage: Stage,
    patience: Duration,
    faults: u32,
}

/// An event with its place.
#[derive(Clone, Debug)]
pub struct SessionLine {
    /// Its id. Text that arrives has the id of the event before it, since it is never stored.
    pub id: EventId,
    /// When it was recorded, RFC 3339; `None` if it is not stored, or follows from what was recorded before.
    pub at: Option<String>,
    /// What happened.
    pub event: SessionEvent,
}

struct Ready {
    id: EventId,
    at: Option<String>,
    what: Projected,
}

/// Where the reader is.
enum Stage {
    /// Before the run of this index.
    Before(usize),
    /// In the log of a run.
    Within(Box<Within>),
    /// After a run.
    After(After),
    /// After the last event; or the service stops.
    Ended,
}

struct Within {
    index: usize,
    watch: Watch,
    projection: Projection,
    /// The version that the next change of the plan makes.
    next_version: u32,
    is_execution: bool,
}

struct After {
    index: usize,
    /// The position after the last entry of the run.
    end: u64,
    /// The run; `None` if it is no longer kept.
    run: Option<Box<AgentRun>>,
    is_execution: bool,
    /// Were the plan that it made, and the status, sent?
    is_shown: bool,
    /// The edits that were sent.
    edits: u32,
    /// The version that was current when the versions were read last.
    version: u32,
}

impl Planning {
    /// Streams the events of a session, after this one, until it has ended.
    ///
    /// # Errors
    /// There is no such session; the store is unavailable.
    pub async fn watch(
        self: &Arc<Self>,
        caller: &Caller,
        user: Option<&UserId>,
        session: PlanningSessionId,
        after: Option<EventId>,
    ) -> Result<Watched, StoreFailure> {
        let stored = self.readable(caller, user, session).await?;
        let owner = Caller {
            identity: Identity::User(stored.user),
            ..caller.clone()
        };
        let runs = self.runs_of(stored.id).await?;
        if let Some(after) = after {
            let index = (after.run as usize).checked_sub(1);
            let Some(run) = index.and_then(|index| runs.get(index)) else {
                return Ok(Watched::UnknownEvent);
            };
            // The result has the position after the end of the last run.
            let is_last = after.run as usize == runs.len() && after.position >= 2;
            if stored.status.has_ended() && is_last {
                let end = self.runs.watch(&owner, None, run.id, after.position - 1).await?;
                if end.is_reported().await? {
                    return Ok(Watched::Reported);
                }
            }
        }
        Ok(Watched::Events(Box::new(SessionWatch {
            planning: Arc::clone(self),
            owner,
            session,
            after: after.unwrap_or_default(),
            last: EventId::default(),
            // What a reader has received of earlier runs is not read again.
            stage: Stage::Before(after.map_or(0, |after| after.run as usize - 1)),
            runs,
            ready: VecDeque::new(),
            patience: Duration::ZERO,
            faults: 0,
        })))
    }
}

impl SessionWatch {
    /// The next event; `None` after the last one, and when the service stops. If the future is dropped, no event is
    /// lost.
    ///
    /// # Errors
    /// The store remains unavailable, or contains unreadable data; the run of the session repeatedly cannot be recorded.
    pub async fn next(&mut self) -> Result<Option<SessionLine>, PlanningError> {
        loop {
            match self.step().await {
                Ok(Some(line)) => return Ok(Some(line)),
                Ok(None) if matches!(self.stage, Stage::Ended) && self.ready.is_empty() => return Ok(None),
                Ok(None) => self.faults = 0,
                Err(PlanningError::Run(RunError::Store(StoreFailure::Unavailable))) if self.faults < ASKED_AGAIN => {
                    self.faults += 1;
                    self.pause().await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Hands over an event, or makes the next ones.
    async fn step(&mut self) -> Result<Option<SessionLine>, PlanningError> {
        if !self.ready.is_empty() {
            return Ok(self.hand_over().await?);
        }
        match &mut self.stage {
            Stage::Before(index) => {
                let index = *index;
                self.begin(index).await?;
            }
            Stage::Within(within) => {
                let item = within.watch.next_item().await?;
                self.patience = Duration::ZERO;
                self.take(item);
            }
            Stage::After(_) => self.look_after().await?,
            Stage::Ended => {}
        }
        Ok(None)
    }

    /// The first event that is ready, unless the reader has received it.
    async fn hand_over(&mut self) -> Result<Option<SessionLine>, StoreFailure> {
        let Some(Ready { id, what, .. }) = self.ready.front() else {
            return Ok(None);
        };
        let is_new = *id > self.after || matches!(what, Projected::Live(_));
        let changed = match (what, &self.stage) {
            (Projected::PlanChanged, Stage::Within(within)) => {
                let before = within.next_version.saturating_sub(1);
                let versions = self.planning.sessions.versions(self.session, before, 1).await?;
                let version = versions.into_iter().next();
                version.filter(|version| version.version == within.next_version && version.kind == VersionKind::Changed)
            }
            _ => None,
        };
        let Some(Ready { id, at, what }) = self.ready.pop_front() else {
            return Ok(None);
        };
        let event = match what {
            Projected::Event(event) | Projected::Live(event) => Some((at, event)),
            Projected::PlanChanged => changed.map(|version| {
                if let Stage::Within(within) = &mut self.stage {
                    within.next_version += 1;
                    within.projection.set_plan(&version.plan);
                }
                (at, SessionEvent::of_version(version, true))
            }),
        };
        let event = event.filter(|_| is_new);
        Ok(event.map(|(at, event)| SessionLine { id, at, event }))
    }

    fn push(&mut self, id: EventId, at: Option<String>, event: SessionEvent) {
        self.last = id;
        let what = Projected::Event(event);
        self.ready.push_back(Ready { id, at, what });
    }

    async fn pause(&mut self) {
        let Some(last) = self.runs.last() else { return };
        let continues = self.planning.runs.before_next_look(last.id, &mut self.patience).await;
        if !continues {
            self.stage = Stage::Ended;
        }
    }
}

/// An id in the log of the run of this index.
fn at_run(index: usize, position: u64, part: u32) -> EventId {
    EventId {
        run: u32::try_from(index + 1).unwrap_or(u32::MAX),
        position,
        part,
    }
}

// The place of an event in the events of its session.

/// The place of an event in the events of its session. It is the same at every process, and after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventId {
    /// The run: 1, 2, 3 … in the order in which the runs of the session were created.
    pub run: u32,
    /// The position in the log of that run. What follows the run has the position after its last entry.
    pub position: u64,
    /// The events of one position: 0, 1, 2 …
    pub part: u32,
}

impl EventId {
    /// Parses an id; each has one spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let mut next = || parts.next();
        let (run, position, part) = (next()?, next()?, next()?);
        let id = Self {
            run: run.parse().ok()?,
            position: position.parse().ok()?,
            part: part.parse().ok()?,
        };
        (id.run > 0 && id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.run, self.position, self.part)
    }
}

#[cfg(test)]
mod tests {
    use super::EventId;

    #[test]
    fn an_id_has_one_spelling_and_ids_are_ordered() {
        let id = |text: &str| EventId::parse(text).unwrap();
        for text in ["1.0.0", "2.17.1", "10.4294967296.2"] {
            assert_eq!(id(text).to_string(), text);
        }
        for invalid in [
            "", "1", "1.0", "0.0.0", "1.0.0.0", "01.0.0", "1.+1.0", "1.a.0", "-1.0.0", "1..0",
        ] {
            assert_eq!(EventId::parse(invalid), None, "{invalid:?}");
        }
        assert!(id("1.9.0") < id("1.10.0") && id("1.10.0") < id("1.10.1") && id("1.99.9") < id("2.0.0"));
    }
}
