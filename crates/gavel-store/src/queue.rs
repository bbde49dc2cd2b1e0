//! Sends ops to the writer, with a deadline for every caller that waits.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gavel_upstream::handover::Handover;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};

use super::audit::{Entry, Signer, Trail};
use super::config::StoreConfig;
use super::db::{Conn, Value};
use super::error::Fault;
use super::metrics::Failure;
use super::op::{Op, Ticket};
use super::table::Writing;
use super::texts::Known;
use super::writer::Shared;
use crate::domain::ids::{ActionId, DecisionId, RunId};
use crate::domain::tool::FailureCode;
use crate::ports::commit::Writer;
use crate::ports::metrics::STORE_LOST;
use crate::ports::records::RecordError;

/// The sending end.
#[derive(Clone)]
pub(super) struct Queue {
    shared: Arc<Shared>,
    sender: mpsc::Sender<Ticket>,
}

impl Queue {
    pub(super) fn new(shared: Arc<Shared>, sender: mpsc::Sender<Ticket>) -> Self {
        Self { shared, sender }
    }

    /// Writes `op` and waits until it is durable, known to be unwritten, or past the deadline. After the deadline the
    /// writer keeps retrying an op that must be written. Any other op that is reported as unavailable is not written
    /// later.
    pub(super) async fn ask<T: 'static>(&self, op: Op) -> Result<T, RecordError> {
        let deadline = match op.closes() {
            true => self.shared.config.close_deadline,
            false => self.shared.config.write_deadline,
        };
        let (answer, mut answered) = oneshot::channel();
        let handover = Arc::default();
        let ticket = Ticket {
            op,
            answer,
            handover: Arc::clone(&handover),
            uncertain: false,
        };
        self.push(ticket)?;
        let done = match tokio::time::timeout(deadline, &mut answered).await {
            Ok(Ok(answer)) => answer?,
            Ok(Err(_)) => return Err(given_up(&handover, "the store was shut down".into())),
            Err(_) => {
                // From here on the writer knows that its answer is not received; one that it has given counts.
                answered.close();
                match answered.try_recv() {
                    Ok(answer) => answer?,
                    Err(_) => return Err(given_up(&handover, self.shared.state.gave_up())),
                }
            }
        };
        let done: Box<dyn Any> = done;
        Ok(*done
            .downcast()
            .unwrap_or_else(|_| unreachable!("the answer of another op")))
    }

    /// Queues a ticket without waiting for its result.
    pub(super) fn hand_over(&self, ticket: Ticket) {
        // Fails only when the queue is full or closed; `push` notes the op as lost.
        let _ = self.push(ticket);
    }

    fn push(&self, ticket: Ticket) -> Result<(), RecordError> {
        let (ticket, reason) = match self.sender.try_send(ticket) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Full(ticket)) => (ticket, "too many records wait to be written"),
            Err(mpsc::error::TrySendError::Closed(ticket)) => (ticket, "the store was shut down"),
        };
        Failure::Queue.count();
        self.shared.pending_cleanup.note(&ticket.op);
        Err(RecordError::Unavailable(reason.into()))
    }
}

/// The caller gave up. Returns `Unavailable` if the op is known to be unwritten, else `Uncertain`.
fn given_up(handover: &Handover, reason: Arc<str>) -> RecordError {
    match handover.give_up() {
        true => RecordError::Uncertain(reason),
        false => RecordError::Unavailable(reason),
    }
}

// What each op of a transaction writes with.

/// What a transaction needs besides its ops.
pub(super) struct Batch<'a> {
    pub(super) writing: &'a Writing,
    pub(super) config: &'a StoreConfig,
    /// The key that signs the audit log.
    pub(super) signer: Option<&'a Signer>,
    /// The audit entries of this transaction.
    pub(super) trail: Trail,
    /// The texts that need not be written again.
    pub(super) known: &'a Known,
}

impl Batch<'_> {
    /// Closes calls that have no recorded outcome. The statement returns `id`, `run_id` (the decision), `tool` and
    /// `side_effect`. Returns the number of calls.
    pub(super) async fn end_unrecorded(
        &self,
        conn: &mut Conn,
        sql: &'static str,
        values: Vec<Value>,
        code: FailureCode,
    ) -> Result<u64, Fault> {
        #[derive(Deserialize)]
        struct Call {
            id: ActionId,
            run_id: RunId,
            tool: String,
            side_effect: bool,
        }
        let calls: Vec<Call> = conn.all(sql, values).await?;
        for call in calls.iter().filter(|call| call.side_effect) {
            self.audit(Entry::outcome(call.id, call.run_id, &call.tool, Some(code)));
        }
        Ok(calls.len() as u64)
    }
}

/// Makes the rows of a decision or run true again, given what its caller knows. In the order of execution: what was not
/// begun must not be taken for lost, and a decision is marked as unanswered last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cleanup {
    /// The opening of the row was not acknowledged, so no work was started: closes it and frees its claim.
    Abandon(DecisionId, Option<Arc<str>>),
    /// The creation of the run was not acknowledged, so no worker starts it: ends it, and frees its claim.
    AbandonRun(RunId, Option<Arc<str>>),
    /// The close of an open row was lost: closes it based on its intents.
    CloseLost(DecisionId),
    /// The record of the decision was not acknowledged, so the caller received no answer: notes that in its row.
    MarkUnanswered(DecisionId),
}

impl Cleanup {
    /// What remains to be done if `op` was not written, and will not be.
    fn after(op: &Op) -> Option<Self> {
        match op {
            Op::Cleanup(cleanup) => Some(cleanup.clone()),
            Op::Commit(commit) => {
                let closed = commit.closed()?;
                match commit.writer {
                    Writer::Process if !closed.opened => return None,
                    Writer::Process => {
                        let decision = closed.open.id;
                        tracing::error!(%decision, "the outcome of an open decision is lost; recovery will close it");
                    }
                    Writer::Holder { run, .. } => {
                        tracing::error!(%run, "the end of a run could not be recorded; another process continues the run when its lease expires");
                    }
                }
                STORE_LOST.get().increment(1);
                (commit.writer == Writer::Process).then_some(Self::CloseLost(closed.open.id))
            }
            _ => None,
        }
    }
}

/// The remaining cleanups.
#[derive(Default)]
pub(super) struct PendingCleanup(Mutex<BTreeSet<Cleanup>>);

impl PendingCleanup {
    /// Notes what remains to be done because of `op`, if anything. It may be noted twice.
    pub(super) fn note(&self, op: &Op) {
        self.lock().extend(Cleanup::after(op));
    }

    /// Removes and returns what remains, in order.
    pub(super) fn take(&self) -> impl Iterator<Item = Op> {
        std::mem::take(&mut *self.lock()).into_iter().map(Op::Cleanup)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Cleanup>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod pending_cleanup_tests {
    use super::*;

    #[test]
    fn what_was_not_acknowledged_is_not_forgotten_in_a_long_outage() {
        let pending = PendingCleanup::default();
        let (open, unacknowledged) = (DecisionId::new(), DecisionId::new());
        let expected = [
            Cleanup::CloseLost(open),
            Cleanup::CloseLost(unacknowledged),
            Cleanup::MarkUnanswered(unacknowledged),
        ];
        // Regardless of what else is noted about it, and when.
        for cleanup in expected.iter().rev() {
            pending.note(&Op::Cleanup(cleanup.clone()));
        }
        pending.note(&Op::RenewLease);
        assert_eq!(left(&pending), expected);
        assert!(left(&pending).is_empty());
    }

    /// Promise: recorded. The answers "not recorded" and "not started" must become true. So both are abandoned as soon as
    /// the store is available, however many records wait, with their claims, and nothing of them is in doubt.
    #[test]
    fn what_was_not_begun_is_abandoned_after_a_long_outage_too() {
        let pending = PendingCleanup::default();
        let (decision, scope): (_, Option<Arc<str>>) = (DecisionId::new(), Some("scope".into()));
        let expected = [
            Cleanup::Abandon(decision, scope.clone()),
            Cleanup::AbandonRun(RunId::new(), scope),
            Cleanup::CloseLost(decision),
        ];
        for cleanup in expected.iter().rev().chain(&expected) {
            pending.note(&Op::Cleanup(cleanup.clone()));
        }
        assert_eq!(left(&pending), expected);
    }

    fn left(pending: &PendingCleanup) -> Vec<Cleanup> {
        let cleanup = |op| match op {
            Op::Cleanup(cleanup) => cleanup,
            other => unreachable!("{other:?}"),
        };
        pending.take().map(cleanup).collect()
    }
}
