//! One commit: who writes, the entries of a journal, and the facts that hold from then on.
//!
//! Chat and agents write in the same way. The store turns every fact into rows, all of them or none.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::claims::{Claim, Claimant, Claimed};
use super::planning::MadePlan;
use super::records::{ClosedCall, ClosedDecision, OpenCall, OpenDecision, PolicyOutcome, RecordError};
use super::runs::{Lease, StoredEntry};
use crate::api::planning::Cleanup;
use crate::api::runs::InDoubtCall;
use crate::domain::action::{ActionStatus, Details};
use crate::domain::agent_run::{RunStatus, StopReason};
use crate::domain::decision::Usage;
use crate::domain::ids::{ActionId, ApprovalId, DecisionId, GrantId, PlanningSessionId, RunId};
use crate::domain::journal::ToolRef;
use crate::domain::plan::{Change, Plan};
use crate::domain::planning_session::{SessionReason, SessionStatus};
use crate::domain::tool::FailureCode;

/// Writes what happens. Each call returns when its data is durable, or when the write has failed.
#[async_trait]
pub trait Recorder: Send + Sync {
    /// Is the store known to be unavailable? No I/O: this reports what the last writes found.
    ///
    /// # Errors
    /// Why nothing can be recorded now.
    fn available(&self) -> Result<(), RecordError>;

    /// Writes everything in the commit or nothing of it. A commit that [announces](Commit::announces) calls survives a
    /// power failure, and so do the outcomes of effects, a wait for an approval, and an end. Other entries lost in one
    /// are requested from the model again, or their calls are in doubt. Entries and facts that are already written are
    /// accepted.
    ///
    /// When a commit fails that records effects already made, the writer keeps trying in the background.
    async fn commit(&self, commit: Commit) -> Result<Committed, RecordError>;

    /// Claims an idempotency key. A claim by a decision opens the decision in the same commit.
    async fn claim(&self, claim: Claim, by: Claimant) -> Result<Claimed, RecordError>;

    /// This process will not close the decision. If its row is open, recovery closes it soon.
    fn lose(&self, decision: DecisionId);
}

/// One commit.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Who writes.
    pub writer: Writer,
    /// Further entries of the run's journal: in order, without gaps.
    pub entries: Vec<StoredEntry>,
    /// What holds from then on. They are written in this order; the conditions of all of them are checked before.
    pub facts: Vec<Fact>,
    /// Does it belong to the cleanup at the end of a session? A cancellation does not keep that from beginning.
    pub cleans_up: bool,
    /// Does it add a turn of the model or a result of a call? Then the processes that lost the run before do not count.
    pub progresses: bool,
}

/// Who writes a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// This process, about a decision of its own that has no run: a chat request.
    Process,
    /// The holder of a lease, about a run under it.
    Holder {
        /// The lease of the outermost run.
        lease: Lease,
        /// The run.
        run: RunId,
    },
}

/// Something that holds once it is committed.
#[derive(Clone, Debug)]
pub enum Fact {
    /// A decision is open.
    Opened(OpenDecision),
    /// A side effect is about to be sent. Survives power loss.
    Intended(OpenCall),
    /// A call that needed an approval is about to be sent, with or without side effects. Its approved action becomes
    /// executing.
    Begun(ActionId),
    /// An action exists: an approval is requested for it, or it needs none and starts. An existing one stays unchanged.
    Action(NewAction),
    /// An action has ended.
    Outcome(ActionOutcome),
    /// Outcomes of side effects for the tool-call log, with their decision. They are known before the decision is
    /// closed, and a run may wait for an approval in between.
    Called(Vec<ClosedCall>),
    /// A run's usage has changed.
    Spent(Spent),
    /// The run waits for an approval. This also ends the lease of the outermost run.
    Waits(Wait),
    /// A decision and all its calls are closed. Inserts what no earlier commit has written.
    Closed(ClosedDecision),
    /// The run has ended. May it have actions or child runs, which end with it?
    Ended(RunEnd, bool),
    /// The agent's last line in the thread of the run, if it has one.
    Said(Arc<str>),
    /// The run of a planning session made a plan, or made none: the session moves on, unless it was ended meanwhile.
    Planned(PlanningSessionId, Planned),
    /// The work on a confirmed plan has come this far.
    Worked(PlanningSessionId, Box<Worked>),
}

/// What the run of a planning session leads to.
#[derive(Clone, Debug)]
pub enum Planned {
    /// A version of the plan, which waits for confirmation.
    Made(Box<MadePlan>),
    /// No plan: the reason, with details for callers.
    None(SessionReason, Arc<str>),
}

/// How far the work on a confirmed plan has come. The outermost run of the writer must be the session's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worked {
    /// The plan as it stands.
    pub plan: Plan,
    /// The change that makes it a new version, if it is one.
    pub changed: Option<PlanChanged>,
    /// How the session ends with it, unless it was ended meanwhile.
    pub ended: Option<SessionEnd>,
}

/// A change of a plan while it is worked through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanChanged {
    /// The reflection's own text.
    pub why: Arc<str>,
    /// How the version differs from the one before.
    pub changes: Vec<Change>,
}

/// The end of a session's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionEnd {
    /// Completed, failed, past its deadline or cancelled.
    pub status: SessionStatus,
    /// Why it did not reach its goal, with details for callers; `None` exactly if it is completed.
    pub reason: Option<(SessionReason, Arc<str>)>,
    /// What the cleanup did; `None` if there was nothing to clean up.
    pub cleanup: Option<Cleanup>,
}

/// The result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Everything is written.
    Written,
    /// Everything but the wait is written: an approval was resolved meanwhile, or none was needed. The run continues.
    Answered,
    /// The lease is lost, and nothing is written.
    LeaseLost,
    /// The lease was held, but nothing is written: the approval of one of the calls has expired, was revoked or never
    /// given, or the run was cancelled.
    ApprovalGone,
}

impl Commit {
    /// Facts about a decision of this process.
    pub fn of_process(facts: Vec<Fact>) -> Self {
        Self {
            writer: Writer::Process,
            entries: Vec::new(),
            facts,
            cleans_up: false,
            progresses: false,
        }
    }

    /// Does it announce calls that must not be sent before it is written?
    pub fn announces(&self) -> bool {
        let announces = |fact: &Fact| matches!(fact, Fact::Intended(_) | Fact::Begun(_));
        self.facts.iter().any(announces)
    }

    /// The decision that it closes.
    pub fn closed(&self) -> Option<&ClosedDecision> {
        self.facts.iter().find_map(|fact| {
            if let Fact::Closed(decision) = fact {
                Some(decision)
            } else {
                None
            }
        })
    }

    /// The end of the run that it records.
    pub fn end(&self) -> Option<&RunEnd> {
        self.facts.iter().find_map(|fact| {
            if let Fact::Ended(end, _) = fact {
                Some(end)
            } else {
                None
            }
        })
    }

    /// The wait that it records.
    pub fn wait(&self) -> Option<&Wait> {
        self.facts
            .iter()
            .find_map(|fact| if let Fact::Waits(wait) = fact { Some(wait) } else { None })
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
    /// The tool; for a call of another agent, the agent's name and the hash of its definition.
    pub tool: ToolRef,
    /// Canonical arguments.
    pub arguments: Arc<RawValue>,
    /// The model that proposed it.
    pub model: Arc<str>,
    /// What the policy decided.
    pub policy: Option<PolicyOutcome>,
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

/// What a run waits for.
#[derive(Clone, Debug)]
pub enum Wait {
    /// The resolution of all these calls, requested in this commit or earlier.
    Calls(Vec<ActionId>),
    /// A child run that waits itself.
    Child(RunId),
    /// A person's settlement of all these in-doubt calls, or the end of the run's planning session.
    Settlement(Vec<ActionId>),
}

/// What the end of a run sets in its row, and how the row is read.
#[derive(Clone, Debug, Deserialize)]
pub struct RunEnd {
    /// At the end: completed, failed, cancelled or paused.
    pub status: RunStatus,
    /// The final text.
    pub summary: Option<String>,
    /// The structured output.
    pub output: Option<Arc<RawValue>>,
    /// Why it failed or was cut short.
    pub error_message: Option<String>,
    /// What cut it short.
    pub stop_reason: Option<StopReason>,
    /// The stop reason or crash that it recovered from.
    pub recovered_from: Option<StopReason>,
    /// In-doubt calls.
    pub in_doubt: Vec<InDoubtCall>,
    /// Model calls; for a flow, those of its steps.
    pub steps: u32,
    /// Tokens; for a flow, those of its steps.
    pub usage: Usage,
    /// Microseconds since the epoch.
    pub completed_at: Option<i64>,
}

impl RunEnd {
    /// A run with this status, of which nothing else is known.
    pub fn new(status: RunStatus) -> Self {
        Self {
            status,
            summary: None,
            output: None,
            error_message: None,
            stop_reason: None,
            recovered_from: None,
            in_doubt: Vec::new(),
            steps: 0,
            usage: Usage::default(),
            completed_at: None,
        }
    }
}
