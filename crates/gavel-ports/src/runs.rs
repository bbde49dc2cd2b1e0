//! Runs of agents and their journals, made durable while they execute.
//!
//! A run that a process works on is leased. Its row names the holder, the end of the lease, and a fence that increases
//! with every holder. A holder's write succeeds only while it still holds the lease, so a holder that was presumed dead
//! can no longer write. A child run has no lease of its own: the lease of the outermost run covers it.
//!
//! A call to a tool's server is no database write, and the server knows no fence. So each holder knows by its own clock
//! until when no other process can hold the run, and sends nothing after that: see [`Hold`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::claims::{Claim, Claimed};
use super::clock::Clock;
use super::commit::RunEnd;
use super::records::{Kept, ListQuery, OpenDecision, Page, QueryError, RecordError};
use crate::api::runs::AgentRun;
use crate::domain::agent_run::RunStatus;
use crate::domain::budget::Exceeded;
use crate::domain::ids::{ActionId, PlanningSessionId, ProjectId, RunId, TenantId, ThreadId, UserId};
use crate::domain::planning_session::SessionStatus;

/// The rows of runs and their leases. Writes return when they are durable. A [`NewRun`] and a cancellation survive a
/// power failure. What happens within a run is written by [`Recorder`](super::commit::Recorder).
#[async_trait]
pub trait Runs: Send + Sync {
    /// How long a lease lasts without renewal.
    fn lease_length(&self) -> Duration;

    /// Creates a run with its open decision, in one commit. A child run is not created twice: an existing one counts as
    /// created.
    async fn create(&self, run: NewRun) -> Result<Started, RecordError>;

    /// Reopens a run that is paused, or failed since its processes were lost, in one commit: it continues with new
    /// limits.
    async fn reopen(&self, run: Reopen) -> Result<Started, RecordError>;

    /// Claims a run that is queued, or whose holder's lease has expired. `None`: another process has it, it has ended,
    /// or [`MOST_CLAIMS`] processes in a row did not return it.
    async fn take(&self, run: RunId) -> Result<Option<Lease>, RecordError>;

    /// Renews leases. Returns which leases are lost and which runs (child runs included) must be cancelled.
    async fn renew(&self, leases: Vec<Lease>) -> Result<Renewed, RecordError>;

    /// Ends leases at once without ending the runs. The next process that looks claims the runs.
    async fn release(&self, leases: Vec<Lease>) -> Result<(), RecordError>;

    /// Requests the cancellation of a run, in a caller's name. A queued run is cancelled at once, with its decision.
    async fn cancel(&self, run: RunId, by: &str) -> Result<(), RecordError>;

    /// Fails runs that [`MOST_CLAIMS`] processes in a row claimed and did not return, without reading their journals.
    /// Handles at most `most` runs and returns them. Calls that were sent and have no result are in doubt.
    async fn give_up(&self, most: u32) -> Result<Vec<RunId>, RecordError>;

    /// The run whose turn it is among those without a worker, queued or abandoned: see [`Turn`]. A run that was taken
    /// `takes` times in a row without being returned is skipped.
    async fn waiting(&self, turn: Turn<'_>, takes: u32) -> Result<Option<Waiting>, RecordError>;

    /// What a claim of this key would find; `None` while the key is unclaimed. The result may be outdated at once: only
    /// [`Runs::create`] and [`Recorder::claim`](super::commit::Recorder::claim) claim.
    async fn claimed(&self, claim: &Claim) -> Result<Option<Claimed>, QueryError>;

    /// A run with all that is needed to continue it.
    async fn load(&self, run: RunId) -> Result<Option<StoredRun>, QueryError>;

    /// A run's state, for readers that do not execute it.
    async fn run_state(&self, run: RunId) -> Result<Option<RunState>, QueryError>;

    /// Was the run, or a run that called it, cancelled? Its worker may not have noticed yet.
    async fn is_cancelled(&self, run: RunId) -> Result<bool, QueryError>;

    /// A page of a journal, by number: the entries after `after`.
    async fn journal(&self, run: RunId, after: u64, most: u32) -> Result<Vec<StoredEntry>, QueryError>;

    /// A page of the event log: the entries of this run and of the runs that it called, in the order in which they were
    /// committed, after the position `after`. The page ends with the entry that makes it longer than `bytes`, since a
    /// slow reader holds it. Empty if nothing follows.
    async fn events(&self, run: RunId, after: u64, most: u32, bytes: usize) -> Result<Vec<LoggedEntry>, QueryError>;

    /// The public view of a run; `None` when the tenant (or the given user) has no such run.
    async fn get(&self, tenant: &TenantId, user: Option<&UserId>, run: RunId) -> Result<Option<AgentRun>, QueryError>;

    /// A page of the runs of a project, newest first. Without a filter on `parent_run_id`, only runs
    /// without a parent.
    async fn list(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        query: &ListQuery,
    ) -> Result<Page<AgentRun>, QueryError>;
}

/// This many processes in a row may claim a run without progress and without returning it (killed, frozen, or cut off
/// from the database) before it fails. A turn of the model and a result of a call are progress. An end, a wait for an
/// approval and a hand-over at shutdown return it.
pub const MOST_TAKES: u32 = 3;
/// From [`MOST_TAKES`] on, a process claims the run only to end it: it starts nothing but the cleanup of a planning
/// session. Once this many processes were lost, the store ends the run.
pub const MOST_CLAIMS: u32 = 2 * MOST_TAKES;

/// Tenants and users take turns in the order of their names. The caller remembers the last one.
#[derive(Clone, Copy, Debug)]
pub enum Turn<'a> {
    /// The first tenant whose name follows this one.
    Tenant(&'a str),
    /// Of this tenant, the oldest run of the first user whose name follows this one.
    User(&'a TenantId, &'a str),
}

/// A run that waits for a process.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Waiting {
    /// Which run.
    pub run: RunId,
    /// The tenant.
    pub tenant: TenantId,
    /// The acting user.
    pub user: UserId,
    /// Processes in a row that claimed it without progress and without returning it.
    pub takes: u32,
}

/// A run to be created.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// The project of the agent.
    pub project: ProjectId,
    /// The agent's name.
    pub agent: Arc<str>,
    /// The version of its definition, where it has any.
    pub version: Option<i64>,
    /// Its open decision, with the tenant, the user, the definition's hash and the time. No process owns it, so the
    /// death of a process does not close it.
    pub decision: OpenDecision,
    /// What it comes from.
    pub origin: Origin<InThread, Parent, InSession>,
    /// The definitions it runs under, for any process that continues it.
    pub snapshot: Kept,
    /// Inputs, a JSON object.
    pub input: Arc<RawValue>,
    /// Limits and other settings of this run; JSON, read by the surface alone.
    pub settings: Arc<RawValue>,
    /// The first entries of its journal, written only if this process claims it at once.
    pub entries: Vec<StoredEntry>,
    /// True: queued. False: claimed at once by this process.
    pub queued: bool,
    /// The idempotency claim of the request.
    pub claim: Option<Claim>,
}

/// What a run comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<T = ThreadId, C = (RunId, ActionId), S = PlanningSessionId> {
    /// A caller triggered it.
    Trigger,
    /// A message in this thread.
    Thread(T),
    /// A call by another run: that run and its call.
    Called(C),
    /// A planning session.
    Session(S),
}

/// From the columns of a run.
impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Columns {
            parent_run_id: Option<RunId>,
            parent_action_id: Option<ActionId>,
            thread_id: Option<ThreadId>,
            session_id: Option<PlanningSessionId>,
        }
        let columns = Columns::deserialize(deserializer)?;
        let parent = columns.parent_run_id.zip(columns.parent_action_id);
        Ok(match (parent, columns.thread_id, columns.session_id) {
            (Some(parent), ..) => Self::Called(parent),
            (None, Some(thread), _) => Self::Thread(thread),
            (None, None, Some(session)) => Self::Session(session),
            (None, None, None) => Self::Trigger,
        })
    }
}

impl<T, C, S> Origin<T, C, S> {
    /// The thread that it belongs to.
    pub fn thread(&self) -> Option<&T> {
        match self {
            Self::Thread(thread) => Some(thread),
            Self::Trigger | Self::Called(_) | Self::Session(_) => None,
        }
    }

    /// The run that called it, with its call.
    pub fn parent(&self) -> Option<&C> {
        match self {
            Self::Called(parent) => Some(parent),
            Self::Trigger | Self::Thread(_) | Self::Session(_) => None,
        }
    }

    /// The planning session that it works for.
    pub fn session(&self) -> Option<&S> {
        match self {
            Self::Session(session) => Some(session),
            Self::Trigger | Self::Thread(_) | Self::Called(_) => None,
        }
    }
}

/// A run to be reopened: one that is paused, or failed since its processes were lost.
#[derive(Clone, Debug)]
pub struct Reopen {
    /// Which run.
    pub run: RunId,
    /// How often it was reopened before, as it was read.
    pub attempt: u32,
    /// Who continues it.
    pub place: ReopenedFor,
    /// The planning session whose plan it works through: that continues with it, and must have failed with it.
    pub session: Option<PlanningSessionId>,
    /// As [`NewRun::settings`].
    pub settings: Arc<RawValue>,
    /// The entry that follows in its journal: JSON, read by the engine alone.
    pub entry: Arc<str>,
    /// Microseconds since the epoch.
    pub at_us: i64,
}

/// Who continues a reopened run.
#[derive(Clone, Debug)]
pub enum ReopenedFor {
    /// The run that called it, under this lease.
    Parent(Lease),
    /// A caller that resumed it.
    Caller {
        /// True: queued. False: claimed at once by this process.
        queued: bool,
        /// The user's answers about the run's in-doubt calls. The engine gets them through the settings; this copy is
        /// for the audit log.
        settled: Settled,
        /// The idempotency claim of the request.
        claim: Option<Claim>,
    },
}

/// In-doubt actions that a user has settled.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The user's name.
    pub by: Arc<str>,
    /// Did the call happen?
    pub calls: BTreeMap<ActionId, bool>,
}

/// A run's position in a thread.
#[derive(Clone, Debug)]
pub struct InThread {
    /// Which thread.
    pub thread: ThreadId,
    /// Does the thread begin with this run?
    pub is_new: bool,
    /// The user's message.
    pub message: Arc<str>,
    /// Must the run wait its turn while another run of the thread is active? Otherwise it is not created.
    pub queue: bool,
}

/// A run's place in a planning session.
#[derive(Clone, Debug)]
pub struct InSession {
    /// Which session.
    pub session: PlanningSessionId,
    /// What it does there.
    pub work: SessionWork,
}

/// What a run does in a planning session.
#[derive(Clone, Debug)]
pub enum SessionWork {
    /// It makes the first plan, and the session begins with it.
    Start {
        /// The goal, in the user's own text.
        prompt: Arc<str>,
        /// The address of the repository.
        repo_url: Arc<str>,
        /// Microseconds since the epoch.
        deadline_us: i64,
    },
    /// It makes the version after this one, if the session waits for confirmation with it.
    Refine {
        /// The current version.
        version: u32,
    },
    /// It works through this version, if the session waits for confirmation with it. The audit log names who confirmed
    /// it.
    Execute {
        /// The version.
        version: u32,
        /// The person's name.
        by: Arc<str>,
    },
}

/// The parent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The run.
    pub run: RunId,
    /// The parent's call.
    pub action: ActionId,
    /// The lease of the outermost run.
    pub lease: Lease,
}

/// The result of creating or reopening a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// Created or reopened, with its lease if this process claimed it at once.
    Now(Option<Lease>),
    /// The same request created or reopened this run before.
    Before(RunId),
    /// The idempotency key was used with another body before.
    Mismatch,
    /// The lease of the parent is lost.
    LeaseLost,
    /// The user has no such thread or planning session, or there is no run to be reopened.
    NotFound,
    /// This run of the thread is active.
    ThreadBusy(RunId),
    /// The planning session does not wait for confirmation with this version; its status and version now. A deadline
    /// that has passed counts at once.
    SessionMoved(SessionStatus, u32),
    /// The planning session would exceed this limit.
    TooManySessions(Exceeded),
    /// The run to be reopened is not paused; its status.
    NotPaused(RunStatus),
}

/// The right to work on a run and its child runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The outermost run.
    pub run: RunId,
    /// Increases with every holder.
    pub fence: i64,
}

/// A lease as its holder knows it without asking the store: until when no other process can hold it, by this process's
/// own clock. All work under the lease shares it.
#[derive(Clone)]
pub struct Hold(Arc<Holding>);

struct Holding {
    lease: Lease,
    length: Duration,
    clock: Arc<dyn Clock>,
    until: Mutex<Instant>,
}

impl Hold {
    /// A tenth of the lease is reserved for the time between the last check and the server, and for clock drift.
    const MARGIN: u32 = 10;

    /// For a lease that the store granted. `asked` is the instant before the request: the store's own count started
    /// later.
    pub fn new(lease: Lease, length: Duration, clock: Arc<dyn Clock>, asked: Instant) -> Self {
        let length = length - length / Self::MARGIN;
        Self(Arc::new(Holding {
            lease,
            length,
            clock,
            until: Mutex::new(asked + length),
        }))
    }

    /// The lease.
    pub fn lease(&self) -> Lease {
        self.0.lease
    }

    /// Records a renewal by the store; `asked` as in [`Hold::new`].
    pub fn prolong(&self, asked: Instant) {
        let mut until = self.until();
        *until = (*until).max(asked + self.0.length);
    }

    /// The time left; zero once another process may hold the lease.
    pub fn left(&self) -> Duration {
        let until = *self.until();
        until.saturating_duration_since(self.0.clock.instant())
    }

    /// Is it certain that no other process holds the lease?
    pub fn is_ours(&self) -> bool {
        !self.left().is_zero()
    }

    fn until(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.0.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("lease", &self.0.lease)
            .field("left", &self.left())
            .finish()
    }
}

/// One entry of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StoredEntry {
    /// 1, 2, 3 … in its run.
    pub number: u64,
    /// Microseconds since the epoch.
    pub at_us: i64,
    /// The run's clock, microseconds.
    pub elapsed_us: i64,
    /// JSON, read by the engine alone.
    pub body: Arc<str>,
}

/// An entry as its place in the event log of its outermost run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LoggedEntry {
    /// 1, 2, 3 … in the outermost run, with all the runs that it called. The end of a run has the position after its
    /// last entry; a resume follows after that.
    pub position: u64,
    /// The run of the entry.
    pub run: RunId,
    /// The entry in its journal.
    pub entry: StoredEntry,
}

/// The result of renewing leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewed {
    /// Leases that another process holds or held last. The lease of a run that its holder has ended is not lost: the
    /// holder learns of the end from its own commit.
    pub lost: Vec<Lease>,
    /// Runs to cancel.
    pub cancelled: Vec<RunId>,
}

/// A run as its row stores it.
#[derive(Clone, Debug, Deserialize)]
pub struct StoredRun {
    /// Its id.
    pub id: RunId,
    /// The project.
    pub project: ProjectId,
    /// The agent's name.
    pub agent: Arc<str>,
    /// The version of its definition.
    pub version: Option<i64>,
    /// Its decision, as it was opened. The message is empty where the content mode stores none.
    pub decision: OpenDecision,
    /// What it comes from.
    pub origin: Origin,
    /// How often it was reopened.
    pub attempt: u32,
    /// The definitions it runs under.
    pub snapshot: Kept,
    /// Inputs.
    pub input: Arc<RawValue>,
    /// As [`NewRun::settings`].
    pub settings: Arc<RawValue>,
    /// Must it be cancelled?
    pub cancel: bool,
    /// How often it was claimed since it was created or reopened.
    pub takes: i64,
    /// Did so many processes lose it in a row that this one only ends it?
    pub is_lost: bool,
    /// How long processes have worked on it since it was created or reopened, as far as their leases were renewed.
    #[serde(deserialize_with = "micros")]
    pub worked: Duration,
    /// Microseconds since the epoch.
    pub started_at: Option<i64>,
    /// Its status, and how it ended if it has.
    pub end: RunEnd,
}

impl StoredRun {
    /// The row of a new run that this process claims at once, as [`Runs::load`] would find it.
    pub fn of(new: &NewRun) -> Self {
        Self {
            id: new.id,
            project: new.project.clone(),
            agent: Arc::clone(&new.agent),
            version: new.version,
            decision: new.decision.clone(),
            origin: match &new.origin {
                Origin::Trigger => Origin::Trigger,
                Origin::Thread(place) => Origin::Thread(place.thread),
                Origin::Called(parent) => Origin::Called((parent.run, parent.action)),
                Origin::Session(place) => Origin::Session(place.session),
            },
            attempt: 0,
            snapshot: new.snapshot.clone(),
            input: Arc::clone(&new.input),
            settings: Arc::clone(&new.settings),
            cancel: false,
            takes: 1,
            is_lost: false,
            worked: Duration::ZERO,
            started_at: Some(new.decision.created_at),
            end: RunEnd::new(RunStatus::Running),
        }
    }
}

/// The state of a run.
#[derive(Clone, Debug, Deserialize)]
pub struct RunState {
    /// What it comes from.
    pub origin: Origin,
    /// How often it was reopened.
    pub attempt: u32,
    /// Its status, and how it ended if it has.
    pub end: RunEnd,
}

fn micros<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    i64::deserialize(deserializer).map(|us| Duration::from_micros(us.unsigned_abs()))
}
