//! What is counted: `gavel_model_*`.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Histogram, counter, gauge, histogram};

use super::breaker::BreakerState;
use crate::domain::decision::Usage;
use crate::domain::journal::FaultKind;

/// The meters of one model. Made once for the default model, since looking them up costs more than counting.
#[derive(Clone)]
pub(super) struct Meters {
    answered: Counter,
    seconds: Histogram,
    input: Counter,
    output: Counter,
    thought: Counter,
    cached: Counter,
    model: String,
}

impl Meters {
    pub(super) fn of(model: &str) -> Self {
        let tokens =
            |kind: &'static str| counter!("gavel_model_tokens_total", "model" => model.to_owned(), "kind" => kind);
        Self {
            answered: counter!("gavel_model_attempts_total", "model" => model.to_owned(), "outcome" => "answered"),
            seconds: histogram!("gavel_model_attempt_seconds", "model" => model.to_owned()),
            input: tokens("input"),
            output: tokens("output"),
            thought: tokens("thought"),
            cached: tokens("cached"),
            model: model.to_owned(),
        }
    }

    /// One request has ended.
    pub(super) fn attempt(&self, fault: Option<FaultKind>, took: Duration, usage: Usage) {
        match fault {
            None => self.answered.increment(1),
            Some(fault) => self
                .counter("gavel_model_attempts_total", "outcome", kind(fault))
                .increment(1),
        }
        self.seconds.record(took);
        self.input.increment(usage.input_tokens);
        self.output.increment(usage.output_tokens);
        self.thought.increment(usage.thought_tokens);
        self.cached.increment(usage.cached_tokens);
    }

    /// A request is about to be repeated.
    pub(super) fn retry(&self, after: FaultKind) {
        self.counter("gavel_model_retries_total", "after", kind(after))
            .increment(1);
    }

    /// A call has failed for good.
    pub(super) fn fault(&self, fault: FaultKind) {
        self.counter("gavel_model_faults_total", "kind", kind(fault))
            .increment(1);
    }

    fn counter(&self, name: &'static str, label: &'static str, value: &'static str) -> Counter {
        counter!(name, "model" => self.model.clone(), label => value)
    }
}

/// 0 closed, 1 half-open, 2 open.
pub(super) fn breaker(state: BreakerState) {
    gauge!("gavel_model_breaker_state").set(match state {
        BreakerState::Closed => 0.0,
        BreakerState::HalfOpen => 1.0,
        BreakerState::Open => 2.0,
    });
}

/// The default model's meters, made at their first use: a recorder installed after the adapter was made still gets them.
#[derive(Default)]
pub(super) struct DefaultMeters(OnceLock<Meters>);

impl DefaultMeters {
    pub(super) fn get(&self, model: &str) -> &Meters {
        self.0.get_or_init(|| Meters::of(model))
    }
}

fn kind(fault: FaultKind) -> &'static str {
    match fault {
        FaultKind::Unavailable => "unavailable",
        FaultKind::Timeout => "timeout",
        FaultKind::Malformed => "malformed",
        FaultKind::Blocked => "blocked",
    }
}
