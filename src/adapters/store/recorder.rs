//! Port [`Recorder`]: each call becomes an op in the writer's queue.

use super::Store;
use super::op::{Done, Op};
use crate::ports::BoxFuture;
use crate::ports::records::{Claim, Claimed, ClosedDecision, Intent, OpenDecision, RecordError, Recorder};

impl Recorder for Store {
    fn available(&self) -> Result<(), RecordError> {
        match self.shared.state.reason() {
            Some(reason) => Err(RecordError::Unavailable(reason)),
            None => Ok(()),
        }
    }

    fn open(&self, row: OpenDecision, intents: Vec<Intent>) -> BoxFuture<'_, Result<(), RecordError>> {
        Box::pin(async move { self.queue.ask(Op::Open(Box::new(row), intents)).await.map(drop) })
    }

    fn intend(&self, intents: Vec<Intent>) -> BoxFuture<'_, Result<(), RecordError>> {
        Box::pin(async move { self.queue.ask(Op::Intend(intents)).await.map(drop) })
    }

    fn close(&self, decision: ClosedDecision) -> BoxFuture<'_, Result<(), RecordError>> {
        Box::pin(async move { self.queue.ask(Op::Close(Box::new(decision))).await.map(drop) })
    }

    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Claimed, RecordError>> {
        Box::pin(async move {
            match self.queue.ask(Op::Claim(Box::new(claim))).await? {
                Done::Claimed(claimed) => Ok(claimed),
                Done::Written | Done::Swept(..) => unreachable!("a claim is answered as a claim"),
            }
        })
    }
}
