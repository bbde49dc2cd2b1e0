//! Records requests for which no run is begun: every request is a decision (promise: recorded).

use std::sync::Arc;

use super::{RunError, Runs, conversation};
use crate::domain::budget::Exceeded;
use crate::domain::decision::{DecisionType, Outcome, Usage};
use crate::domain::ids::{RunId, UserId};
use crate::ports::commit::{Commit, Fact};
use crate::ports::records::{ClosedDecision, OpenDecision};
use crate::surfaces::StoreFailure;
use crate::surfaces::caller::Caller;
use crate::surfaces::request::RequestMeta;

impl Runs {
    /// Records a request that its surface refuses. The decision has these words and no more. It names no conversation
    /// of the user: it was not checked whether that is theirs.
    ///
    /// # Errors
    /// The user's quota is exceeded; nothing can be recorded.
    pub(crate) async fn without_run(
        &self,
        caller: &Caller,
        user: UserId,
        surface: &'static str,
        (words, meta): (&str, &RequestMeta),
        (outcome, detail): (Outcome, Option<Arc<str>>),
    ) -> Result<(), RunError> {
        let quota = self.quota.take(&caller.tenant, &user).await;
        let id = RunId::new();
        let open = OpenDecision {
            id: id.decision(),
            tenant: caller.tenant.clone(),
            surface,
            user,
            conversation: conversation(id),
            message: Arc::from(words),
            definition_hash: Arc::from(""),
            requested_model: Arc::from(self.agents.engine.model.default_model()),
            request_id: Arc::clone(&meta.request_id),
            created_at: self.now_us(),
        };
        if !quota.allowed {
            self.record(open, DecisionType::Refuse, Outcome::RateLimited, None)
                .await?;
            return Err(RunError::RateLimited(quota));
        }
        self.record(open, DecisionType::RespondOnly, outcome, detail).await?;
        Ok(())
    }

    pub(super) async fn refuse(
        &self,
        open: &OpenDecision,
        outcome: Outcome,
        why: Option<Exceeded>,
    ) -> Result<(), StoreFailure> {
        self.not_begun(open.clone(), DecisionType::Refuse, outcome, why).await
    }

    pub(super) async fn not_begun(
        &self,
        open: OpenDecision,
        decision_type: DecisionType,
        outcome: Outcome,
        why: Option<Exceeded>,
    ) -> Result<(), StoreFailure> {
        // Whether a thread belongs to the user is checked only when the run is created.
        let conversation = conversation(open.id);
        let open = OpenDecision { conversation, ..open };
        let why = why.map(|exceeded| exceeded.to_string().into());
        self.record(open, decision_type, outcome, why).await
    }

    pub(super) async fn record(
        &self,
        open: OpenDecision,
        decision_type: DecisionType,
        outcome: Outcome,
        error_detail: Option<Arc<str>>,
    ) -> Result<(), StoreFailure> {
        let refused = ClosedDecision {
            open,
            decision_type,
            outcome,
            intent: Arc::from("none"),
            response: Arc::from(""),
            model: None,
            service_tier: None,
            iterations: 0,
            usage: Usage::default(),
            duration_us: 0,
            error_detail,
            calls: Vec::new(),
            answer: None,
            opened: false,
        };
        let commit = Commit::of_process(vec![Fact::Closed(refused)]);
        let closed = self.agents.engine.recorder.commit(commit).await;
        closed.map(drop).map_err(|error| {
            tracing::error!(%error, "a request was rejected, since nothing can be recorded");
            StoreFailure::Unavailable
        })
    }
}
