//! Runs of agents and their journals, made durable as they go (DESIGN.md sections 2 and 8).
//!
//! A run that somebody works on is leased: its row names the holder, until when, and a fence that grows with every
//! holder. Whatever a holder writes is written only while it still holds the lease, so one that was given up for dead
//! can do no more. A run that another one called has no lease of its own: that of the outermost run covers them all.
//!
//! What leaves for a tool's server is no write, and nothing there knows a fence. So a holder that cannot ask the store knows by
//! its own clock until when nobody else can have the run, and sends nothing after that: a [`Hold`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use super::BoxFuture;
use super::clock::Clock;
use super::records::{CallRecord, ClosedDecision, Intent, ListQuery, OpenDecision, QueryError, RecordError};
use crate::domain::action::{ActionStatus, Details};
use crate::domain::agent_run::{AgentRun, DoubtfulCall, RunStatus, StopReason};
use crate::domain::decision::Usage;
use crate::domain::ids::{ActionId, ApprovalId, GrantId, ProjectId, RunId, TenantId, ThreadId, UserId};
use crate::domain::tool::{FailureCode, Tool};

/// Where runs are kept. Writes return when they are durable. A [`NewRun`], an [`Append`] with intents, an end and a
/// cancellation survive a loss of power; what else a journal loses with it is asked again, or is in doubt.
pub trait Runs: Send + Sync {
    /// How long a lease lasts that is not prolonged.
    fn lease_length(&self) -> Duration;

    /// A new run with its open decision, in one commit. A run that another one called is not made twice: the one
    /// that is there already counts as made.
    fn create(&self, run: NewRun) -> BoxFuture<'_, Result<Created, RecordError>>;

    /// Takes a run up: one that is queued, or whose holder's lease has run out. `None`: somebody else has it, it has ended, or
    /// [`MOST_TAKES`] processes in a row did not return it.
    fn take(&self, run: RunId) -> BoxFuture<'_, Result<Option<Lease>, RecordError>>;

    /// Appends to a journal, and makes the intents of side effects durable, in one commit. Written before counts as written.
    fn append(&self, batch: Append) -> BoxFuture<'_, Result<Held, RecordError>>;

    /// Ends a run: its row, what is left of its journal, and its decision with all calls, in one commit.
    /// The intents and effects it tells of have happened: when it fails, the writer keeps trying.
    fn finish(&self, run: FinishedRun) -> BoxFuture<'_, Result<Held, RecordError>>;

    /// A run waits for a person: what is left of its journal, the questions, and its state, in one commit. The outermost
    /// run's lease ends with it.
    fn suspend(&self, suspend: Suspend) -> BoxFuture<'_, Result<Suspended, RecordError>>;

    /// Prolongs leases, and tells which are lost and which runs shall be cancelled (those that they called among them).
    fn renew(&self, leases: Vec<Lease>) -> BoxFuture<'_, Result<Renewed, RecordError>>;

    /// Gives leases up at once, without an end of the runs: the next process that looks takes them up.
    fn release(&self, leases: Vec<Lease>) -> BoxFuture<'_, Result<(), RecordError>>;

    /// Asks for a run to be cancelled, by name. One that is queued is cancelled at once, with its decision.
    fn cancel<'a>(&'a self, run: RunId, by: &'a str) -> BoxFuture<'a, Result<(), RecordError>>;

    /// Ends runs that [`MOST_TAKES`] processes in a row took up and did not return, as failed, without reading their journals: at most so
    /// many, which it returns. What had been sent and has no result is in doubt.
    fn give_up(&self, most: u32) -> BoxFuture<'_, Result<Vec<RunId>, RecordError>>;

    /// The run whose turn it is among those that nobody works on, queued or left by their holder: see [`Turn`]. One that was taken
    /// `takes` times in a row without being returned is passed over.
    fn waiting<'a>(&'a self, turn: Turn<'a>, takes: u32) -> BoxFuture<'a, Result<Option<Waiting>, RecordError>>;

    /// The run that the idempotency claim of this scope made, and the claim's fingerprint; `None` while nobody claims it.
    /// What it says may change at once: [`Runs::create`] and [`Runs::claim_key`] alone claim.
    fn claimed<'a>(&'a self, scope: &'a str) -> BoxFuture<'a, Result<Option<Claimant>, QueryError>>;

    /// Claims an idempotency key for what is about to be done to a run, which to do twice changes nothing. False where the key came with
    /// another request before.
    fn claim_key(&self, run: RunId, scope: Arc<str>, fingerprint: Arc<str>)
    -> BoxFuture<'_, Result<bool, RecordError>>;

    /// A run with all that is needed to go on with it.
    fn load(&self, run: RunId) -> BoxFuture<'_, Result<Option<StoredRun>, QueryError>>;

    /// Where a run stands, for who does not go on with it.
    fn standing(&self, run: RunId) -> BoxFuture<'_, Result<Option<Standing>, QueryError>>;

    /// Has somebody cancelled the run, or one that called it? Whoever works on it need not have heard.
    fn is_cancelled(&self, run: RunId) -> BoxFuture<'_, Result<bool, QueryError>>;

    /// A page of a journal, by number: what comes after `after`.
    fn journal(&self, run: RunId, after: u64, most: u32) -> BoxFuture<'_, Result<Vec<StoredEntry>, QueryError>> {
        self.journal_within(run, after, most, usize::MAX)
    }

    /// As [`Self::journal`], for whoever holds the page for as long as a reader takes: it ends with the entry that makes it
    /// longer than `bytes`. Empty where nothing comes after `after`.
    fn journal_within(
        &self,
        run: RunId,
        after: u64,
        most: u32,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredEntry>, QueryError>>;

    /// The row as everybody is shown it; `None` when the tenant (or the user, where one is given) has no such run.
    fn get<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        run: RunId,
    ) -> BoxFuture<'a, Result<Option<AgentRun>, QueryError>>;

    /// A page of the runs of a project, newest first. Fields to filter by: `agent_id`, `status`, `user_id`,
    /// `parent_run_id`, `definition_hash`, `created_at`, `stop_reason`. Without a word on `parent_run_id` only those
    /// that no other run called.
    fn list<'a>(
        &'a self,
        tenant: &'a TenantId,
        project: &'a ProjectId,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<RunPage, QueryError>>;
}

/// So many processes in a row may take a run up and not return it: killed, frozen, or parted from the database. Then it is given up. An
/// end, a wait for an approval and a hand-over at a stop return it.
pub const MOST_TAKES: u32 = 3;

/// Tenants and users take turns in the order of their names. Who asks remembers who was last.
#[derive(Clone, Copy, Debug)]
pub enum Turn<'a> {
    /// Of the first tenant whose name comes after this one.
    Tenant(&'a str),
    /// Of this tenant, the oldest run of the first user whose name comes after this one.
    User(&'a TenantId, &'a str),
}

/// A run that waits for a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which.
    pub run: RunId,
    /// Whose.
    pub tenant: TenantId,
    /// On whose behalf.
    pub user: UserId,
    /// Processes in a row that took it up and did not return it.
    pub takes: u32,
}

/// One page of runs.
#[derive(Clone, Debug, Default)]
pub struct RunPage {
    /// The rows.
    pub runs: Vec<AgentRun>,
    /// For the next page; absent on the last.
    pub next_page_token: Option<String>,
}

/// A run that is to be.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// Whose agents.
    pub project: ProjectId,
    /// Which agent.
    pub agent: Arc<str>,
    /// The version of its definition, where it has any.
    pub version: Option<i64>,
    /// Its decision, as yet open: the tenant, the user, the hash of the definition and the time stand there. Its owner is
    /// no process, so no process's death closes it.
    pub decision: OpenDecision,
    /// The run that calls this one.
    pub parent: Option<Parent>,
    /// The paused run that this one goes on with. It must be paused, and no other run may have gone on with it.
    pub resumes: Option<RunId>,
    /// What a person says of that run's calls in doubt. The surface tells the engine by `settings`; this is for the audit.
    pub settled: Option<Settled>,
    /// The definitions it runs under, as whoever goes on with it needs them.
    pub snapshot: Snapshot,
    /// Inputs, a JSON object.
    pub input: Arc<RawValue>,
    /// Limits and the like that this run was given; JSON, read by the surface alone.
    pub settings: Arc<RawValue>,
    /// Queued, or taken up at once by this process.
    pub queued: bool,
    /// The idempotency claim of the request: scope and fingerprint, hex SHA-256 each.
    pub claim: Option<(Arc<str>, Arc<str>)>,
    /// The thread it belongs to.
    pub thread: Option<InThread>,
}

/// Doubts that a person has settled.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Who, by name.
    pub by: Arc<str>,
    /// Did the call happen?
    pub calls: BTreeMap<ActionId, bool>,
}

/// A run's place in a thread.
#[derive(Clone, Debug)]
pub struct InThread {
    /// Which.
    pub thread: ThreadId,
    /// Does it begin with this run?
    pub is_new: bool,
    /// What the user says.
    pub message: Arc<str>,
    /// Shall the run wait its turn while another one of the thread is going? Else it is not made.
    pub queue: bool,
}

/// The caller of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The run.
    pub run: RunId,
    /// Its call.
    pub action: ActionId,
    /// The lease it is done under, of the outermost run.
    pub lease: Lease,
}

/// Definitions and schemas by hash of their text. The same text is kept once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Hex SHA-256 of `text`.
    pub hash: Arc<str>,
    /// JSON, read by the surface alone.
    pub text: Arc<str>,
}

/// What came of making a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// It is there. With its lease, when it was to be taken up at once.
    New(Option<Lease>),
    /// The same request made this run before.
    Replayed(RunId),
    /// The idempotency key came with another body before.
    Mismatch,
    /// The run to go on with is not paused; so it is.
    NotPaused(RunStatus),
    /// The run to go on with is not there any more.
    NothingToResume,
    /// This run went on with it already.
    ResumedBy(RunId),
    /// The lease it was to be done under is lost.
    LeaseLost,
    /// This run of its thread is going.
    ThreadBusy(RunId),
    /// The user has no such thread.
    NoThread,
}

/// Who has an idempotency claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The run that was made.
    pub run: RunId,
    /// Hex SHA-256 of the request that made it.
    pub fingerprint: Arc<str>,
}

/// The right to work on a run, and on those that it called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The outermost run.
    pub run: RunId,
    /// Grows with every holder.
    pub fence: i64,
}

/// A lease as its holder knows it without asking: until when nobody else can have it, by this process's own clock. Shared by
/// all that is done under the lease.
#[derive(Clone)]
pub struct Hold(Arc<Holding>);

struct Holding {
    lease: Lease,
    length: Duration,
    clock: Arc<dyn Clock>,
    until: Mutex<Instant>,
}

impl Hold {
    /// The part of a lease's length that is kept for what lies between the last look and the server, and for clocks that do
    /// not run alike: a tenth.
    const MARGIN: u32 = 10;

    /// Of a lease that the store gave. `asked` is the instant before it was asked: the store's own count began later.
    #[must_use]
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
    #[must_use]
    pub fn lease(&self) -> Lease {
        self.0.lease
    }

    /// The store has prolonged it; `asked` as in [`Hold::new`].
    pub fn prolong(&self, asked: Instant) {
        let mut until = self.until();
        *until = (*until).max(asked + self.0.length);
    }

    /// What is left of it; nothing once somebody else may have it.
    #[must_use]
    pub fn left(&self) -> Duration {
        let until = *self.until();
        until.saturating_duration_since(self.0.clock.instant())
    }

    /// Is it certain that nobody else has it?
    #[must_use]
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

/// Was the lease still held?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// It was, and everything is written.
    Yes,
    /// It was not, and nothing is written.
    No,
    /// It was, and nothing is written: leave for one of the calls is over, was taken back, or was never given, or somebody has
    /// cancelled the run.
    NoLeave,
}

/// More of a journal.
#[derive(Clone, Debug)]
pub struct Append {
    /// The right to.
    pub lease: Lease,
    /// Whose journal.
    pub run: RunId,
    /// In order, without gaps.
    pub entries: Vec<StoredEntry>,
    /// Side effects that are about to be sent.
    pub intents: Vec<Intent>,
    /// Calls that are about to be sent and that a person was asked about, whether or not they have side effects: their actions
    /// were approved, and are now executing.
    pub asked: Vec<ActionId>,
    /// Actions among them that needed no leave.
    pub actions: Vec<NewAction>,
    /// What came of actions.
    pub outcomes: Vec<ActionOutcome>,
    /// What came of side effects, for the log of tools, with the decision they belong to: it is known before that is closed, and a
    /// run may wait for a person in between.
    pub ended: Option<(OpenDecision, Vec<CallRecord>)>,
    /// What runs have used by now, where these entries change it: this run, and the flows that it is a step of.
    pub spent: Vec<Spent>,
}

/// What a run has used so far; of a flow, all its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// The run.
    pub run: RunId,
    /// Model calls.
    pub steps: u32,
    /// Tokens.
    pub usage: Usage,
}

impl Append {
    /// Does it say that calls are about to be sent, which nobody may send before it is written?
    #[must_use]
    pub fn announces(&self) -> bool {
        !self.intents.is_empty() || !self.asked.is_empty()
    }
}

/// An action that is to be.
#[derive(Clone, Debug)]
pub struct NewAction {
    /// Its id, that of the call.
    pub id: ActionId,
    /// The question to a person, and how long it stands; none where nobody needs to be asked.
    pub approval: Option<(ApprovalId, Duration)>,
    /// Place in its run.
    pub sequence: u32,
    /// The tool.
    pub tool: Arc<Tool>,
    /// Canonical arguments.
    pub arguments: Arc<RawValue>,
    /// The model that proposed it.
    pub model: Arc<str>,
    /// What a person should know.
    pub details: Details,
    /// The standing leave by which nobody is asked.
    pub grant: Option<GrantId>,
    /// The question as the thread tells it.
    pub words: Arc<str>,
}

/// What came of an action.
#[derive(Clone, Debug)]
pub struct ActionOutcome {
    /// Which.
    pub id: ActionId,
    /// Completed, failed or in doubt.
    pub status: ActionStatus,
    /// Why it failed: code and words.
    pub error: Option<(FailureCode, Arc<str>)>,
    /// The line of its thread; absent where it was not executed.
    pub words: Option<Arc<str>>,
}

/// A run that waits for a person.
#[derive(Clone, Debug)]
pub struct Suspend {
    /// The right to say so.
    pub lease: Lease,
    /// Which run.
    pub run: RunId,
    /// What is left of its journal.
    pub entries: Vec<StoredEntry>,
    /// What came of actions before.
    pub outcomes: Vec<ActionOutcome>,
    /// The questions. Those that were asked before stay as they are.
    pub actions: Vec<NewAction>,
    /// All calls that it waits for a word on, whether they are asked about now or were before.
    pub waits: Vec<ActionId>,
    /// The run that it called and that waits; where this is given it asks nothing itself.
    pub child: Option<RunId>,
    /// What runs have used by now, where these entries change it: this run, and the flows that it is a step of.
    pub spent: Vec<Spent>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspended {
    /// It waits.
    Yes,
    /// Somebody has answered meanwhile, or nobody was ever asked: it goes on.
    Answered,
    /// The lease is lost, and nothing is written.
    LeaseLost,
}

/// One entry of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// A run that is over.
#[derive(Clone, Debug)]
pub struct FinishedRun {
    /// The right to say so.
    pub lease: Lease,
    /// Which run.
    pub run: RunId,
    /// Completed, failed, cancelled or paused.
    pub status: RunStatus,
    /// The final text.
    pub summary: Option<Arc<str>>,
    /// The structured output.
    pub output: Option<Arc<RawValue>>,
    /// Why it failed or was cut short.
    pub error_message: Option<Arc<str>>,
    /// What cut it short.
    pub stop_reason: Option<StopReason>,
    /// What it came back from.
    pub recovered_from: Option<StopReason>,
    /// Calls in doubt.
    pub in_doubt: Vec<DoubtfulCall>,
    /// Model calls.
    pub steps: u32,
    /// Tokens.
    pub usage: Usage,
    /// What is left of its journal.
    pub entries: Vec<StoredEntry>,
    /// What came of actions.
    pub outcomes: Vec<ActionOutcome>,
    /// What its thread tells of it.
    pub words: Option<Arc<str>>,
    /// Microseconds since the epoch.
    pub completed_at: i64,
    /// Its decision; `opened` is true.
    pub decision: ClosedDecision,
}

/// What became of leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewed {
    /// Somebody else has them, or had them last. That of a run which its holder has ended is not lost: who ends a run
    /// learns so from [`Runs::finish`].
    pub lost: Vec<Lease>,
    /// Runs to be cancelled.
    pub cancelled: Vec<RunId>,
}

/// A run as it stands in its row.
#[derive(Clone, Debug)]
pub struct StoredRun {
    /// Its id.
    pub id: RunId,
    /// Where it is.
    pub status: RunStatus,
    /// Whose.
    pub tenant: TenantId,
    /// On whose behalf.
    pub user: UserId,
    /// Of which project.
    pub project: ProjectId,
    /// Which agent.
    pub agent: Arc<str>,
    /// The version of its definition.
    pub version: Option<i64>,
    /// Its decision, as it was opened. The message is empty where the content mode keeps none.
    pub decision: OpenDecision,
    /// The run and the call that made it.
    pub parent: Option<(RunId, ActionId)>,
    /// The thread it belongs to.
    pub thread: Option<ThreadId>,
    /// The paused run it goes on with.
    pub resumes: Option<RunId>,
    /// The run that goes on with it.
    pub resumed_by: Option<RunId>,
    /// What it runs under.
    pub snapshot: Snapshot,
    /// Inputs.
    pub input: Arc<RawValue>,
    /// As [`NewRun::settings`].
    pub settings: Arc<RawValue>,
    /// Shall it be cancelled?
    pub cancel: bool,
    /// How often it was taken up.
    pub fence: i64,
    /// Microseconds since the epoch.
    pub started_at: Option<i64>,
    /// How it came out, where it is over.
    pub summary: Option<Arc<str>>,
    /// Its structured output.
    pub output: Option<Arc<RawValue>>,
    /// Why it failed or was cut short.
    pub error_message: Option<Arc<str>>,
    /// What cut it short.
    pub stop_reason: Option<StopReason>,
    /// Calls in doubt.
    pub in_doubt: Vec<DoubtfulCall>,
    /// Model calls.
    pub steps: u32,
    /// Tokens.
    pub usage: Usage,
}

/// Where a run stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// In its life.
    pub status: RunStatus,
    /// The run and the call that made it.
    pub parent: Option<(RunId, ActionId)>,
    /// The paused run it goes on with.
    pub resumes: Option<RunId>,
    /// Calls in doubt.
    pub in_doubt: Vec<DoubtfulCall>,
    /// Model calls.
    pub steps: u32,
    /// Tokens.
    pub usage: Usage,
    /// The thread it is a run of.
    pub thread: Option<ThreadId>,
}
