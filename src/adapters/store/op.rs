//! The ops of the writer, and the tickets of callers that wait for them.

use tokio::sync::oneshot;

use super::runs::op::{RunDone, RunOp};
use crate::adapters::handover::{Handover, NotHandedOver};
use crate::domain::ids::DecisionId;
use crate::ports::claims::{Claim, Claimant, Claimed};
use crate::ports::commit::{Commit, Committed, Fact, Writer};
use crate::ports::records::RecordError;
use crate::ports::sessions::Session;
use std::sync::Arc;

/// One op. Repeating it does no harm, since a commit may succeed without acknowledgement.
pub(super) enum Op {
    Commit(Commit),
    Claim(Claim, Claimant),
    /// Runs, definitions and planning sessions.
    Run(Box<RunOp>),
    /// Console logins.
    Session(SessionOp),
    /// The opening of the row was not acknowledged, so no work was started: closes it and frees its claim.
    Abandon(DecisionId, Option<Arc<str>>),
    /// The record of the decision was not acknowledged, so the caller received no answer: notes that in its row.
    MarkUnanswered(DecisionId),
    /// The close of an open row was lost: closes it based on its intents.
    CloseLost(DecisionId),
    /// Renews the lease.
    RenewLease,
    /// Closes open records of dead processes.
    Sweep,
    /// Deletes expired rows.
    Prune,
    /// Ends the lease.
    EndLease,
}

impl Op {
    /// Whether it must be written even if the caller gave up: true if it records something that happened.
    pub(super) fn must_finish(&self) -> bool {
        match self {
            Self::Commit(commit) => records_the_past(commit),
            Self::Run(op) => op.must_finish(),
            Self::Abandon(..) | Self::MarkUnanswered(_) | Self::CloseLost(_) => true,
            Self::Claim(..) | Self::Session(_) | Self::RenewLease | Self::Sweep | Self::Prune | Self::EndLease => false,
        }
    }

    /// Whether it must survive a power loss.
    pub(super) fn survives_power_loss(&self) -> bool {
        match self {
            Self::Commit(commit) => commit.facts.iter().any(survives_power_loss),
            // Recovery's assumptions about the outcomes of intents must: the audit log has them.
            Self::Abandon(..) | Self::CloseLost(_) | Self::Sweep => true,
            Self::Run(op) => op.survives_power_loss(),
            // The work that a key is claimed for is written after the claim.
            Self::Claim(..) => false,
            Self::Session(_) | Self::MarkUnanswered(_) | Self::RenewLease | Self::Prune | Self::EndLease => false,
        }
    }

    /// Whether it records the outcome of finished work. Its deadline is longer.
    pub(super) fn closes(&self) -> bool {
        match self {
            Self::Commit(commit) => commit.closed().is_some() || records_the_past(commit),
            Self::Run(op) => op.must_finish(),
            Self::Claim(..)
            | Self::Session(_)
            | Self::Abandon(..)
            | Self::MarkUnanswered(_)
            | Self::CloseLost(_)
            | Self::RenewLease
            | Self::Sweep
            | Self::Prune
            | Self::EndLease => false,
        }
    }

    /// The op that follows if it was written, or may have been, without acknowledgement.
    pub(super) fn outcome_unknown(&self) -> Option<Op> {
        match self {
            Self::Commit(commit) if commit.writer == Writer::Process => {
                commit.facts.iter().find_map(|fact| match fact {
                    Fact::Opened(decision) => Some(Self::Abandon(decision.id, None)),
                    // An opened decision may have had effects, so its recorded outcome is kept in any case.
                    Fact::Closed(decision) if !decision.opened => Some(Self::MarkUnanswered(decision.open.id)),
                    _ => None,
                })
            }
            Self::Claim(claim, Claimant::Decision(decision)) => {
                Some(Self::Abandon(decision.id, Some(Arc::clone(&claim.scope))))
            }
            Self::Run(op) => op.outcome_unknown().map(|op| Self::Run(Box::new(op))),
            _ => None,
        }
    }
}

/// Whether it records what has already happened, so that it must be written even if the caller gave up. A commit that
/// announces calls does not: without its acknowledgement nothing is sent. Neither does a wait.
fn records_the_past(commit: &Commit) -> bool {
    match commit.writer {
        Writer::Process => commit.closed().is_some_and(|decision| decision.opened),
        Writer::Holder { .. } => !commit.announces() && commit.wait().is_none(),
    }
}

/// Whether a fact must survive a power loss. Intents must, since their calls follow, and so must everything that was
/// acknowledged or that the audit log has. The rest of a journal's tail need not: without it the model is asked again,
/// and a call that was sent is in doubt, or is repeated where that does no harm.
fn survives_power_loss(fact: &Fact) -> bool {
    match fact {
        Fact::Intended(_) | Fact::Begun(_) | Fact::Outcome(_) | Fact::Waits(_) | Fact::Ended(_) | Fact::Planned(..) => {
            true
        }
        Fact::Closed(decision) => decision
            .calls
            .iter()
            .any(|call| call.open.has_side_effect() && call.started_at.is_some()),
        // The plan is lost with the entries that changed it, and only with them. Versions and ends are acknowledged.
        Fact::Worked(_, worked) => worked.changed.is_some() || worked.ended.is_some(),
        Fact::Opened(_) | Fact::Action(_) | Fact::Called(..) | Fact::Spent(_) | Fact::Said(_) => false,
    }
}

/// The result of an op.
#[derive(Debug)]
pub(super) enum Done {
    Written,
    Committed(Committed),
    Claimed(Claimed),
    Run(RunDone),
    /// Numbers of rows that recovery closed: decisions, calls.
    Swept(u64, u64),
    /// Whether there may be more to delete.
    Pruned(bool),
}

/// An op in the queue.
pub(super) struct Ticket {
    pub(super) op: Op,
    pub(super) answer: oneshot::Sender<Result<Done, RecordError>>,
    /// Whether a COMMIT that includes it may have been sent. An op that was reported as unwritten is never committed.
    pub(super) handover: Arc<Handover>,
    /// True once a COMMIT that includes it was attempted with an unknown result.
    pub(super) uncertain: bool,
}

impl Ticket {
    /// A ticket without a waiting caller.
    pub(super) fn silent(op: Op) -> Self {
        Self {
            op,
            answer: oneshot::channel().0,
            handover: Arc::default(),
            uncertain: false,
        }
    }

    /// Marks that a COMMIT is about to be sent; false if the op must not be committed.
    pub(super) fn commit(&self) -> bool {
        self.handover.hand_over() != Err(NotHandedOver::GivenUp) || self.op.must_finish()
    }

    /// Whether a COMMIT that includes it was sent, with an unknown result.
    pub(super) fn is_committing(&self) -> bool {
        self.handover.is_handed_over()
    }

    /// Marks that the transaction was not committed.
    pub(super) fn not_committed(&self) {
        if !self.uncertain {
            self.handover.take_back();
        }
    }

    /// Whether it still needs to be written.
    pub(super) fn wanted(&self) -> bool {
        self.op.must_finish() || !self.answer.is_closed()
    }
}

/// Operations on a login. Each is idempotent.
#[derive(Clone, Debug)]
pub(super) enum SessionOp {
    Begin(Session),
    Seen(Arc<str>, i64),
    End(Arc<str>),
}
