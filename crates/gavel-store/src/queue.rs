//! Sends ops to the writer, with a deadline for every caller that waits.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::metrics::{self, Failure};
use super::op::{Done, Op, Ticket};
use super::writer::Shared;
use crate::ports::records::RecordError;
use gavel_upstream::handover::Handover;

/// The sending end.
#[derive(Clone)]
pub(super) struct Queue {
    shared: Arc<Shared>,
    sender: mpsc::Sender<Ticket>,
    write_deadline: Duration,
    close_deadline: Duration,
}

impl Queue {
    pub(super) fn new(
        shared: Arc<Shared>,
        sender: mpsc::Sender<Ticket>,
        write_deadline: Duration,
        close_deadline: Duration,
    ) -> Self {
        Self {
            shared,
            sender,
            write_deadline,
            close_deadline,
        }
    }

    /// Writes `op` and waits until it is durable, known to be unwritten, or past the deadline. After the deadline the
    /// writer keeps retrying an op that must be written. Any other op that is reported as unavailable is not written
    /// later.
    pub(super) async fn ask<T: TryFrom<Done, Error = Done>>(&self, op: Op) -> Result<T, RecordError> {
        let deadline = match op.closes() {
            true => self.close_deadline,
            false => self.write_deadline,
        };
        let (answer, answered) = oneshot::channel();
        let handover = Arc::default();
        let ticket = Ticket {
            op,
            answer,
            handover: Arc::clone(&handover),
            uncertain: false,
        };
        self.push(ticket)?;
        let done = match tokio::time::timeout(deadline, answered).await {
            Ok(Ok(answer)) => answer?,
            Ok(Err(_)) => return Err(given_up(&handover, "the store was shut down".into())),
            Err(_) => return Err(given_up(&handover, self.shared.state.gave_up())),
        };
        Ok(T::try_from(done).unwrap_or_else(|other| unreachable!("the answer of another op: {other:?}")))
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
        metrics::failures(Failure::Queue).increment(1);
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
