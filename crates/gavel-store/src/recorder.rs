//! Port [`Recorder`]: each call becomes an op in the writer's queue.

use std::sync::Arc;

use async_trait::async_trait;
use tracing::Instrument;
use tracing::field::Empty;

use super::Store;
use super::db::Dialect;
use super::op::{Done, Op, Ticket};
use super::queue::Cleanup;
use crate::domain::decision::{DecisionType, Outcome};
use crate::domain::ids::DecisionId;
use crate::ports::claims::{Claim, Claimant, Claimed};
use crate::ports::commit::{Commit, Committed, Recorder};
use crate::ports::records::{ClosedDecision, RecordError};

impl Store {
    /// Writes `op` in a span that covers the caller's wait: from entering the queue to the group commit.
    pub(super) async fn write<T: TryFrom<Done, Error = Done>>(&self, op: Op) -> Result<T, RecordError> {
        let what = op.name();
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

/// The log line of a decision, written once the decision is recorded.
pub(super) struct LogLine {
    id: DecisionId,
    surface: &'static str,
    decision_type: DecisionType,
    outcome: Outcome,
    intent: Arc<str>,
    tool_calls: usize,
    duration_us: i64,
    model: Option<Arc<str>>,
}

impl LogLine {
    pub(super) fn of(decision: &ClosedDecision) -> Self {
        Self {
            id: decision.open.id,
            surface: decision.open.surface,
            decision_type: decision.decision_type,
            outcome: decision.outcome,
            intent: Arc::clone(&decision.intent),
            tool_calls: decision.calls.len(),
            duration_us: decision.duration_us,
            model: decision.model.clone(),
        }
    }

    pub(super) fn write(&self) {
        tracing::info!(
            decision_id = %self.id,
            surface = self.surface,
            decision_type = self.decision_type.as_str(),
            outcome = self.outcome.as_str(),
            intent = &*self.intent,
            tool_calls = self.tool_calls,
            duration_ms = self.duration_us / 1000,
            model = self.model.as_deref(),
            "a decision was recorded"
        );
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
        let line = commit.closed().map(LogLine::of);
        let committed = self.write(Op::Commit(commit)).await?;
        if let (Some(line), Committed::Written) = (line, committed) {
            line.write();
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
