//! What the writer is asked to do, and who waits for it.

use tokio::sync::oneshot;

use super::runs::{RunDone, RunOp};
use super::sessions::SessionOp;
use crate::domain::ids::DecisionId;
use crate::ports::records::{Claim, Claimed, ClosedDecision, Intent, OpenDecision, RecordError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// One thing to write. Each may be done twice without harm, since a commit may go through unheard.
pub(super) enum Op {
    Open(Box<OpenDecision>, Vec<Intent>),
    Intend(Vec<Intent>),
    Close(Box<ClosedDecision>),
    Claim(Box<Claim>),
    /// Runs of agents and their definitions.
    Run(Box<RunOp>),
    /// Logins to the console.
    Session(SessionOp),
    /// Nobody heard that the row was opened, so nothing was begun: close it, free its claim.
    Abandon(DecisionId, Option<Arc<str>>),
    /// Nobody heard that the decision was recorded, so it was not answered: its row says so.
    Unsay(DecisionId),
    /// What was to be written of an open row is gone: close it as far as its intents tell.
    Lose(DecisionId),
    /// Renew the lease.
    Beat,
    /// Finish what dead processes left open.
    Sweep,
    /// Drop what has expired.
    Prune,
    /// End the lease.
    Leave,
}

impl Op {
    /// Must it be written although nobody waits any more? True where something happened that the record must tell.
    pub(super) fn must_finish(&self) -> bool {
        match self {
            Self::Close(decision) => decision.opened,
            Self::Run(op) => op.must_finish(),
            Self::Abandon(..) | Self::Unsay(_) | Self::Lose(_) => true,
            Self::Open(..)
            | Self::Intend(_)
            | Self::Claim(_)
            | Self::Session(_)
            | Self::Beat
            | Self::Sweep
            | Self::Prune
            | Self::Leave => false,
        }
    }

    /// Must it survive a loss of power? Intents must: what they announce is about to happen.
    pub(super) fn survives_power_loss(&self) -> bool {
        match self {
            Self::Open(_, intents) | Self::Intend(intents) => !intents.is_empty(),
            // What came of them must as well, and so must what recovery says of it: the audit has it.
            Self::Close(decision) => decision.calls.iter().any(|call| {
                let acts = call.tool.as_ref().is_some_and(|tool| tool.side_effect);
                acts && call.started_at.is_some()
            }),
            Self::Abandon(..) | Self::Lose(_) | Self::Sweep => true,
            Self::Run(op) => op.survives_power_loss(),
            _ => false,
        }
    }

    /// Does it tell the outcome of work that is done? Then it is waited for longer.
    pub(super) fn closes(&self) -> bool {
        match self {
            Self::Close(_) => true,
            Self::Run(op) => op.must_finish(),
            _ => false,
        }
    }

    /// What must be done when it was (or may have been) written and nobody heard of it.
    pub(super) fn unheard(&self) -> Option<Op> {
        match self {
            Self::Open(decision, _) => Some(Self::Abandon(decision.id, None)),
            Self::Claim(claim) => Some(Self::Abandon(claim.decision.id, Some(Arc::clone(&claim.scope)))),
            // One that was opened had its effect, and is recorded as it came out, heard or not.
            Self::Close(decision) if !decision.opened => Some(Self::Unsay(decision.open.id)),
            Self::Run(op) => op.unheard().map(|op| Self::Run(Box::new(op))),
            _ => None,
        }
    }
}

/// What was written.
#[derive(Debug)]
pub(super) enum Done {
    Written,
    Claimed(Claimed),
    Run(RunDone),
    /// How many rows recovery closed: decisions, calls.
    Swept(u64, u64),
    /// May there be more to drop?
    Pruned(bool),
}

/// An op on its way through the queue.
pub(super) struct Ticket {
    pub(super) op: Op,
    pub(super) answer: oneshot::Sender<Result<Done, RecordError>>,
    pub(super) progress: Arc<Progress>,
    /// True once a transaction with it was to be committed and its end is not known.
    pub(super) uncertain: bool,
}

/// How far an op has come, for the one who waits. Who gives up and who commits are one exchange each out of the same first
/// state: of what was told to be unwritten nothing is committed.
#[derive(Default)]
pub(super) struct Progress(AtomicU8);

/// Nothing of it is committed.
const WAITING: u8 = 0;
/// A COMMIT with it may have been sent.
const COMMITTING: u8 = 1;
/// Whoever waited was told that it is not written.
const GIVEN_UP: u8 = 2;

impl Progress {
    /// Nobody waits any more. True: it is not written.
    pub(super) fn give_up(&self) -> bool {
        self.go(WAITING, GIVEN_UP) != Err(COMMITTING)
    }

    /// A COMMIT with it is about to be sent. False: it was given up.
    fn commit(&self) -> bool {
        self.go(WAITING, COMMITTING) != Err(GIVEN_UP)
    }

    fn is_committing(&self) -> bool {
        self.0.load(Ordering::Acquire) == COMMITTING
    }

    fn go(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }
}

impl Ticket {
    /// Nobody waits for it.
    pub(super) fn silent(op: Op) -> Self {
        Self {
            op,
            answer: oneshot::channel().0,
            progress: Arc::default(),
            uncertain: false,
        }
    }

    /// A COMMIT with it is about to be sent; false where it may not be.
    pub(super) fn commit(&self) -> bool {
        self.progress.commit() || self.op.must_finish()
    }

    /// Was a COMMIT with it sent, of which it is not known how it ended?
    pub(super) fn is_committing(&self) -> bool {
        self.progress.is_committing()
    }

    /// The transaction was not committed.
    pub(super) fn not_committed(&self) {
        if !self.uncertain {
            // Fails where it had not come so far, or was given up: then it stays as it is.
            let _ = self.progress.go(COMMITTING, WAITING);
        }
    }

    /// Is it to be written?
    pub(super) fn wanted(&self) -> bool {
        self.op.must_finish() || !self.answer.is_closed()
    }
}
