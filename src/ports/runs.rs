//! Runs of agents and their journals, made durable while they execute (DESIGN.md sections 2 and 8).
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

use serde_json::value::RawValue;

use super::BoxFuture;
use super::clock::Clock;
use super::records::{CallRecord, ClosedDecision, Intent, ListQuery, OpenDecision, QueryError, RecordError};
use crate::domain::action::{ActionStatus, Details};
use crate::domain::agent_run::{AgentRun, InDoubtCall, RunStatus, StopReason};
use crate::domain::decision::Usage;
use crate::domain::ids::{ActionId, ApprovalId, GrantId, ProjectId, RunId, TenantId, ThreadId, UserId};
use crate::domain::tool::{FailureCode, Tool};

/// The store of runs. Writes return when they are durable. A [`NewRun`], an [`Append`] with intents, an end and a
/// cancellation survive a power failure. Other journal entries lost in one are requested from the model again, or their
/// actions are in doubt.
pub trait Runs: Send + Sync {
    /// How long a lease lasts without renewal.
    fn lease_length(&self) -> Duration;

    /// Creates a run with its open decision, in one commit. A child run is not created twice: an existing one counts as
    /// created.
    fn create(&self, run: NewRun) -> BoxFuture<'_, Result<Created, RecordError>>;

    /// Claims a run that is queued, or whose holder's lease has expired. `None`: another process has it, it has ended,
    /// or [`MOST_TAKES`] processes in a row did not return it.
    fn take(&self, run: RunId) -> BoxFuture<'_, Result<Option<Lease>, RecordError>>;

    /// Appends to a journal, and makes the intents of side effects durable, in one commit. Entries that are already
    /// written are accepted.
    fn append(&self, batch: Append) -> BoxFuture<'_, Result<Held, RecordError>>;

    /// Ends a run: its row, the rest of its journal, and its decision with all calls, in one commit. The effects in it
    /// have already happened, so when the write fails, the writer keeps trying.
    fn finish(&self, run: FinishedRun) -> BoxFuture<'_, Result<Held, RecordError>>;

    /// Suspends a run for an approval: the rest of its journal, the approval requests and its state, in one commit.
    /// This also ends the lease of the outermost run.
    fn suspend(&self, suspend: Suspend) -> BoxFuture<'_, Result<Suspended, RecordError>>;

    /// Renews leases. Returns which leases are lost and which runs (child runs included) must be cancelled.
    fn renew(&self, leases: Vec<Lease>) -> BoxFuture<'_, Result<Renewed, RecordError>>;

    /// Ends leases at once without ending the runs. The next process that looks claims the runs.
    fn release(&self, leases: Vec<Lease>) -> BoxFuture<'_, Result<(), RecordError>>;

    /// Requests the cancellation of a run, in a caller's name. A queued run is cancelled at once, with its decision.
    fn cancel<'a>(&'a self, run: RunId, by: &'a str) -> BoxFuture<'a, Result<(), RecordError>>;

    /// Fails runs that [`MOST_TAKES`] processes in a row claimed and did not return, without reading their journals.
    /// Handles at most `most` runs and returns them. Calls that were sent and have no result are in doubt.
    fn give_up(&self, most: u32) -> BoxFuture<'_, Result<Vec<RunId>, RecordError>>;

    /// The run whose turn it is among those without a worker, queued or abandoned: see [`Turn`]. A run that was taken
    /// `takes` times in a row without being returned is skipped.
    fn waiting<'a>(&'a self, turn: Turn<'a>, takes: u32) -> BoxFuture<'a, Result<Option<Waiting>, RecordError>>;

    /// The run that the idempotency claim of this scope created, with the claim's fingerprint. `None` while the scope
    /// is unclaimed. The result may be outdated at once: only [`Runs::create`] and [`Runs::claim_key`] claim.
    fn claimed<'a>(&'a self, scope: &'a str) -> BoxFuture<'a, Result<Option<Claimant>, QueryError>>;

    /// Claims an idempotency key for an operation on a run that is harmless to repeat. False where the key was used
    /// with another request before.
    fn claim_key(&self, run: RunId, scope: Arc<str>, fingerprint: Arc<str>)
    -> BoxFuture<'_, Result<bool, RecordError>>;

    /// A run with all that is needed to continue it.
    fn load(&self, run: RunId) -> BoxFuture<'_, Result<Option<StoredRun>, QueryError>>;

    /// A run's state, for readers that do not execute it.
    fn standing(&self, run: RunId) -> BoxFuture<'_, Result<Option<RunState>, QueryError>>;

    /// Was the run, or a run that called it, cancelled? Its worker may not have noticed yet.
    fn is_cancelled(&self, run: RunId) -> BoxFuture<'_, Result<bool, QueryError>>;

    /// A page of a journal, by number: the entries after `after`.
    fn journal(&self, run: RunId, after: u64, most: u32) -> BoxFuture<'_, Result<Vec<StoredEntry>, QueryError>> {
        self.journal_within(run, after, most, usize::MAX)
    }

    /// Like [`Self::journal`], for callers that hold the page while a slow reader consumes it. The page ends with the
    /// entry that makes it longer than `bytes`. Empty if nothing follows `after`.
    fn journal_within(
        &self,
        run: RunId,
        after: u64,
        most: u32,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<StoredEntry>, QueryError>>;

    /// The public view of a run; `None` when the tenant (or the given user) has no such run.
    fn get<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: Option<&'a UserId>,
        run: RunId,
    ) -> BoxFuture<'a, Result<Option<AgentRun>, QueryError>>;

    /// A page of the runs of a project, newest first. Fields to filter by: `agent_id`, `status`, `user_id`,
    /// `parent_run_id`, `definition_hash`, `created_at`, `stop_reason`. Without a filter on `parent_run_id`, only runs
    /// without a parent.
    fn list<'a>(
        &'a self,
        tenant: &'a TenantId,
        project: &'a ProjectId,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<RunPage, QueryError>>;
}

/// This many processes in a row may claim a run without returning it (killed, frozen, or cut off from the database)
/// before it fails. An end, a wait for an approval and a hand-over at shutdown return it.
pub const MOST_TAKES: u32 = 3;

/// Tenants and users take turns in the order of their names. The caller remembers the last one.
#[derive(Clone, Copy, Debug)]
pub enum Turn<'a> {
    /// The first tenant whose name follows this one.
    Tenant(&'a str),
    /// Of this tenant, the oldest run of the first user whose name follows this one.
    User(&'a TenantId, &'a str),
}

/// A run that waits for a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which run.
    pub run: RunId,
    /// The tenant.
    pub tenant: TenantId,
    /// The acting user.
    pub user: UserId,
    /// Processes in a row that claimed it without returning it.
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
    /// The run that calls this one.
    pub parent: Option<Parent>,
    /// The paused run that this one resumes. It must be paused, and no other run may have resumed it.
    pub resumes: Option<RunId>,
    /// The user's answers about that run's in-doubt calls. The engine gets them through `settings`; this copy is for
    /// the audit log.
    pub settled: Option<Settled>,
    /// The definitions it runs under, for any process that continues it.
    pub snapshot: Snapshot,
    /// Inputs, a JSON object.
    pub input: Arc<RawValue>,
    /// Limits and other settings of this run; JSON, read by the surface alone.
    pub settings: Arc<RawValue>,
    /// True: queued. False: claimed at once by this process.
    pub queued: bool,
    /// The idempotency claim of the request: scope and fingerprint, hex SHA-256 each.
    pub claim: Option<(Arc<str>, Arc<str>)>,
    /// The thread it belongs to.
    pub thread: Option<InThread>,
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

/// Definitions and schemas, keyed by the hash of their text. The same text is stored once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Hex SHA-256 of `text`.
    pub hash: Arc<str>,
    /// JSON, read by the surface alone.
    pub text: Arc<str>,
}

/// The result of creating a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Created {
    /// Created, with its lease if this process claimed it at once.
    New(Option<Lease>),
    /// The same request created this run before.
    Replayed(RunId),
    /// The idempotency key was used with another body before.
    Mismatch,
    /// The run to resume is not paused; its status.
    NotPaused(RunStatus),
    /// The run to resume no longer exists.
    NothingToResume,
    /// This run already resumed it.
    ResumedBy(RunId),
    /// The lease of the parent is lost.
    LeaseLost,
    /// This run of the thread is active.
    ThreadBusy(RunId),
    /// The user has no such thread.
    NoThread,
}

/// The owner of an idempotency claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The run that was created.
    pub run: RunId,
    /// Hex SHA-256 of the request that created it.
    pub fingerprint: Arc<str>,
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

    /// Records a renewal by the store; `asked` as in [`Hold::new`].
    pub fn prolong(&self, asked: Instant) {
        let mut until = self.until();
        *until = (*until).max(asked + self.0.length);
    }

    /// The time left; zero once another process may hold the lease.
    #[must_use]
    pub fn left(&self) -> Duration {
        let until = *self.until();
        until.saturating_duration_since(self.0.clock.instant())
    }

    /// Is it certain that no other process holds the lease?
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
    /// Yes, and everything is written.
    Yes,
    /// No, and nothing is written.
    No,
    /// The lease was held, but nothing is written: the approval of one of the calls has expired, was revoked or never
    /// given, or the run was cancelled.
    ApprovalGone,
}

/// Further entries of a journal.
#[derive(Clone, Debug)]
pub struct Append {
    /// The lease to write under.
    pub lease: Lease,
    /// The run of the journal.
    pub run: RunId,
    /// In order, without gaps.
    pub entries: Vec<StoredEntry>,
    /// Side effects that are about to be sent.
    pub intents: Vec<Intent>,
    /// Calls about to be sent that needed an approval, with or without side effects. Their approved actions become
    /// executing.
    pub asked: Vec<ActionId>,
    /// Actions among them that required no approval.
    pub actions: Vec<NewAction>,
    /// Outcomes of actions.
    pub outcomes: Vec<ActionOutcome>,
    /// Outcomes of side effects for the tool-call log, with their decision. They are known before the decision is
    /// closed, and a run may wait for an approval in between.
    pub ended: Option<(OpenDecision, Vec<CallRecord>)>,
    /// Total usage of runs, where these entries change it: this run, and the flows that it is a step of.
    pub spent: Vec<Spent>,
}

/// What a run has used so far; for a flow, the sum of its steps.
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
    /// Does it announce calls that must not be sent before it is written?
    #[must_use]
    pub fn announces(&self) -> bool {
        !self.intents.is_empty() || !self.asked.is_empty()
    }
}

/// An action to be created.
#[derive(Clone, Debug)]
pub struct NewAction {
    /// Its id, which is the call's id.
    pub id: ActionId,
    /// The approval and its lifetime; `None` where no approval is required.
    pub approval: Option<(ApprovalId, Duration)>,
    /// Position in its run.
    pub sequence: u32,
    /// The tool.
    pub tool: Arc<Tool>,
    /// Canonical arguments.
    pub arguments: Arc<RawValue>,
    /// The model that proposed it.
    pub model: Arc<str>,
    /// Details for the approver.
    pub details: Details,
    /// The grant that makes an approval unnecessary.
    pub grant: Option<GrantId>,
    /// The thread's text of the approval request.
    pub words: Arc<str>,
}

/// The outcome of an action.
#[derive(Clone, Debug)]
pub struct ActionOutcome {
    /// Which action.
    pub id: ActionId,
    /// Completed, failed or in doubt.
    pub status: ActionStatus,
    /// Why it failed: code and message.
    pub error: Option<(FailureCode, Arc<str>)>,
    /// The thread message; `None` if the action was not executed.
    pub words: Option<Arc<str>>,
}

/// A run to suspend until an approval is resolved.
#[derive(Clone, Debug)]
pub struct Suspend {
    /// The lease to write under.
    pub lease: Lease,
    /// Which run.
    pub run: RunId,
    /// The rest of its journal.
    pub entries: Vec<StoredEntry>,
    /// Outcomes of earlier actions.
    pub outcomes: Vec<ActionOutcome>,
    /// The actions to approve. Existing approval requests stay unchanged.
    pub actions: Vec<NewAction>,
    /// All calls that the run waits for, from this request or from earlier ones.
    pub waits: Vec<ActionId>,
    /// The child run that waits. If given, this run has no approval requests of its own.
    pub child: Option<RunId>,
    /// Total usage of runs, where these entries change it: this run, and the flows that it is a step of.
    pub spent: Vec<Spent>,
}

/// The result of suspending a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspended {
    /// The run is suspended.
    Yes,
    /// An approval was resolved meanwhile, or none was needed: the run continues.
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

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct FinishedRun {
    /// The lease to write under.
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
    /// The stop reason or crash that it recovered from.
    pub recovered_from: Option<StopReason>,
    /// In-doubt calls.
    pub in_doubt: Vec<InDoubtCall>,
    /// Model calls.
    pub steps: u32,
    /// Tokens.
    pub usage: Usage,
    /// The rest of its journal.
    pub entries: Vec<StoredEntry>,
    /// Outcomes of actions.
    pub outcomes: Vec<ActionOutcome>,
    /// The thread message about its end.
    pub words: Option<Arc<str>>,
    /// Microseconds since the epoch.
    pub completed_at: i64,
    /// Its decision; `opened` is true.
    pub decision: ClosedDecision,
}

/// The result of renewing leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewed {
    /// Leases that another process holds or held last. The lease of a run that its holder has ended is not lost: the
    /// holder learns of the end from [`Runs::finish`].
    pub lost: Vec<Lease>,
    /// Runs to cancel.
    pub cancelled: Vec<RunId>,
}

/// A run as its row stores it.
#[derive(Clone, Debug)]
pub struct StoredRun {
    /// Its id.
    pub id: RunId,
    /// Its status.
    pub status: RunStatus,
    /// The tenant.
    pub tenant: TenantId,
    /// The acting user.
    pub user: UserId,
    /// The project.
    pub project: ProjectId,
    /// The agent's name.
    pub agent: Arc<str>,
    /// The version of its definition.
    pub version: Option<i64>,
    /// Its decision, as it was opened. The message is empty where the content mode stores none.
    pub decision: OpenDecision,
    /// The parent run and the call that created this run.
    pub parent: Option<(RunId, ActionId)>,
    /// The thread it belongs to.
    pub thread: Option<ThreadId>,
    /// The paused run that this one resumes.
    pub resumes: Option<RunId>,
    /// The run that resumes this one.
    pub resumed_by: Option<RunId>,
    /// The definitions it runs under.
    pub snapshot: Snapshot,
    /// Inputs.
    pub input: Arc<RawValue>,
    /// As [`NewRun::settings`].
    pub settings: Arc<RawValue>,
    /// Must it be cancelled?
    pub cancel: bool,
    /// How often it was claimed.
    pub fence: i64,
    /// Microseconds since the epoch.
    pub started_at: Option<i64>,
    /// Its final text, if it has ended.
    pub summary: Option<Arc<str>>,
    /// Its structured output.
    pub output: Option<Arc<RawValue>>,
    /// Why it failed or was cut short.
    pub error_message: Option<Arc<str>>,
    /// What cut it short.
    pub stop_reason: Option<StopReason>,
    /// In-doubt calls.
    pub in_doubt: Vec<InDoubtCall>,
    /// Model calls.
    pub steps: u32,
    /// Tokens.
    pub usage: Usage,
}

/// The state of a run.
#[derive(Clone, Debug)]
pub struct RunState {
    /// Its status.
    pub status: RunStatus,
    /// The parent run and the call that created this run.
    pub parent: Option<(RunId, ActionId)>,
    /// The paused run that this one resumes.
    pub resumes: Option<RunId>,
    /// In-doubt calls.
    pub in_doubt: Vec<InDoubtCall>,
    /// Model calls.
    pub steps: u32,
    /// Tokens.
    pub usage: Usage,
    /// The thread it belongs to.
    pub thread: Option<ThreadId>,
}
