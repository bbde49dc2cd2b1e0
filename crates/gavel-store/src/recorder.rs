//! Port [`Recorder`]: each call becomes an op in the writer's queue.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tracing::Instrument;
use tracing::field::Empty;

use super::Store;
use super::db::Dialect;
use super::op::{Op, Ticket};
use super::queue::Cleanup;
use crate::domain::ids::DecisionId;
use crate::ports::claims::{Claim, Claimant, Claimed};
use crate::ports::commit::{Commit, Committed, Recorder};
use crate::ports::metrics::{DECISION_SECONDS, DECISIONS};
use crate::ports::records::RecordError;

impl Store {
    /// Writes `op` in a span that covers the caller's wait: from entering the queue to the group commit.
    pub(super) async fn write<T: 'static>(&self, op: Op) -> Result<T, RecordError> {
        let what = op.nature().name;
        let span = tracing::debug_span!(
            "commit",
            otel.name = %format_args!("COMMIT {what}"),
            otel.kind = "client",
            otel.status_code = Empty,
            db.system.name = match self.shared.target.dialect() {
                Dialect::Sqlite => "sqlite",
                Dialect::Postgres => "postgresql",
            },
            db.operation.name = "COMMIT",
            gavel.record.op = what,
            error.type = Empty,
        );
        let done = self.queue.ask(op).instrument(span.clone()).await;
        if let Err(error) = &done
            && !span.is_disabled()
        {
            let kind = match error {
                RecordError::Unavailable(_) => "unavailable",
                RecordError::Uncertain(_) => "uncertain",
            };
            span.record("error.type", kind);
            span.record("otel.status_code", "ERROR");
        }
        done
    }
}

#[async_trait]
impl Recorder for Store {
    fn available(&self) -> Result<(), RecordError> {
        match self.shared.state.reason() {
            Some(reason) => Err(RecordError::Unavailable(reason)),
            None => Ok(()),
        }
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, RecordError> {
        let commit = Arc::new(commit);
        let committed = self.write(Op::Commit(Arc::clone(&commit))).await?;
        if let (Some(decision), Committed::Written) = (commit.closed(), committed) {
            let own = (decision.duration_us - decision.times.human_us).max(0);
            let own = Duration::from_micros(own.unsigned_abs());
            DECISION_SECONDS.with([decision.open.surface.into()]).record(own);
            let labels = [decision.open.surface.into(), decision.outcome.as_str().into()];
            DECISIONS.with(labels).increment(1);
            tracing::info!(
                decision_id = %decision.open.id,
                surface = decision.open.surface,
                decision_type = decision.decision_type.as_str(),
                outcome = decision.outcome.as_str(),
                intent = &*decision.intent,
                tool_calls = decision.calls.len(),
                duration_ms = decision.duration_us / 1000,
                model = decision.model.as_deref(),
                "a decision was recorded"
            );
        }
        Ok(committed)
    }

    fn lose(&self, decision: DecisionId) {
        self.queue
            .hand_over(Ticket::silent(Op::Cleanup(Cleanup::CloseLost(decision))));
    }

    async fn claim(&self, claim: Claim, by: Claimant) -> Result<Claimed, RecordError> {
        self.write(Op::Claim(claim, by)).await
    }
}
