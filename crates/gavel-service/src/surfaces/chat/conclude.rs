//! Records a decision and answers: after a run, without one, or when the run could not be recorded.

use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tracing::Instrument;

use super::super::request::RequestMeta;
use super::request::OverLimit;
use super::{Accepted, Answer, Chat, answer, intended, record};
use crate::api::problem::Code;
use crate::domain::decision::Outcome;
use crate::domain::journal::Entry;
use crate::domain::templates::{ReplyArgs, Text};
use crate::engine::derive::{self, Derived};
use crate::engine::journal::Journal;
use crate::engine::{Ending, Record};
use crate::ports::commit::{Commit, Fact};
use crate::ports::quota::QuotaState;
use crate::ports::records::{RecordError, StoredAnswer};
use crate::surfaces::problem::Problem;

impl Chat {
    /// The reply to the user when the model gave no final text: the text of an answer that was cut, or a fixed reply.
    pub(super) fn fixed_reply(&self, outcome: Outcome, journal: &Journal) -> String {
        if let Some(said) = derive::cut(journal) {
            return format!("{said}\n\n{}", Text::ModelCut.with(&[]));
        }
        let args = ReplyArgs {
            seconds: self.constitution.limits.deadline.as_secs(),
            iterations: self.constitution.limits.iterations,
            // Requests that are too long are answered by the surface, which names the field.
            subject: "work on one message",
            limit: "16 MiB",
            progress: derive::progress(journal),
        };
        outcome.reply(&args)
    }

    /// Answers a request without asking the model.
    pub(super) async fn refused(
        &self,
        accepted: &Accepted,
        outcome: Outcome,
        over: Option<OverLimit>,
    ) -> Result<Answer, Problem> {
        let args = ReplyArgs {
            seconds: retry_after(accepted.quota).into(),
            subject: over.map_or("", |over| over.subject),
            limit: over.map_or("", |over| over.limit),
            ..ReplyArgs::default()
        };
        let response = outcome.reply(&args);
        let derived = Derived {
            decision_type: outcome.decision_type(false),
            outcome,
            intent: Arc::from("none"),
            words: None,
        };
        self.conclude(
            record(accepted),
            derived,
            response,
            accepted.meta.clone(),
            accepted.quota,
        )
        .await
    }

    /// Commit 2, then the answer.
    pub(super) async fn conclude(
        &self,
        record: Record,
        derived: Derived,
        response: String,
        meta: RequestMeta,
        quota: Option<QuotaState>,
    ) -> Result<Answer, Problem> {
        let duration = self.engine.clock.instant().saturating_duration_since(record.began);
        let decision = answer::decision(&record, &derived, response, duration);
        let status = derived.outcome.status();
        let body: Arc<str> = answer::body(&decision).into();
        let answer = meta.idempotency.map(|key| StoredAnswer {
            scope: key.scope,
            status,
            body: Arc::clone(&body),
        });
        let closed = record.closed(
            &self.engine.prices,
            &derived,
            &decision.response,
            (duration, self.engine.clock.now_us()),
            answer,
        );
        let commit = Commit::of_process(vec![Fact::Closed(closed)]);
        match self.engine.recorder.commit(commit).await {
            Ok(_) => Ok(Answer {
                status,
                body,
                decision: Some(decision),
                quota,
            }),
            Err(error) => Err(unrecorded(&record, &error)),
        }
    }

    /// Abandons a run whose intents could not be made durable. A row that commit 1 may have written is closed, now or
    /// when the store is available again. The idempotency claim is released unless a call was sent.
    pub(super) fn abandon(&self, record: Record, meta: RequestMeta, error: RecordError) -> Problem {
        let failure = unrecorded(&record, &error);
        if record.is_opened() {
            let derived = derive::derive(&record.journal, &Ending::Broken);
            let response = self.fixed_reply(derived.outcome, &record.journal);
            let duration = self.engine.clock.instant().saturating_duration_since(record.began);
            let decision = answer::decision(&record, &derived, response, duration);
            let released = (failure.code == Code::RecordUnavailable)
                .then_some(meta.idempotency)
                .flatten();
            let answer = released.map(|key| StoredAnswer {
                scope: key.scope,
                status: 503,
                body: Arc::from(""),
            });
            let closed = record.closed(
                &self.engine.prices,
                &derived,
                &decision.response,
                (duration, self.engine.clock.now_us()),
                answer,
            );
            // The caller has already waited for the unavailable store, and the answer does not depend on this.
            let (recorder, id) = (Arc::clone(&self.engine.recorder), record.decision.id);
            let closing = async move {
                let commit = Commit::of_process(vec![Fact::Closed(closed)]);
                match AssertUnwindSafe(recorder.commit(commit)).catch_unwind().await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => {
                        tracing::warn!(decision_id = %id, %error, "an abandoned decision is closed later")
                    }
                    Err(_) => recorder.lose(id),
                }
            };
            self.running.spawn(closing.in_current_span());
        }
        failure
    }
}

/// The error when recording failed; it depends on whether a call was sent.
pub(super) fn unrecorded(record: &Record, error: &RecordError) -> Problem {
    let id = record.decision.id;
    let mut started = record.journal.iter().filter_map(Entry::started);
    let acted = started.any(|call| intended(record).contains(&call));
    tracing::error!(decision_id = %id, %error, acted, "a decision could not be recorded");
    if acted {
        Problem::unrecorded(id)
    } else {
        Code::RecordUnavailable.into()
    }
}

/// Seconds that a rejected caller should wait (`Retry-After`).
pub fn retry_after(quota: Option<QuotaState>) -> u32 {
    let exceeded = quota.filter(|quota| !quota.allowed);
    exceeded.map_or(1, |quota| quota.reset_s.max(1))
}
