//! The metrics `gavel_model_*`.

use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Label, counter, gauge, histogram};

use crate::domain::decision::Usage;
use crate::domain::journal::FaultKind;
use gavel_upstream::breaker::BreakerState;
use gavel_upstream::labels::Labels;

/// The metrics of one model at one endpoint. Cached for the default model, because the lookup costs more than counting.
#[derive(Clone)]
pub(super) struct Metrics {
    answered: Counter,
    seconds: Histogram,
    input: Counter,
    output: Counter,
    thought: Counter,
    cached: Counter,
    breaker: Gauge,
    endpoint: &'static str,
    model: String,
}

/// Label values for models, because definitions can name any model.
pub(super) static MODELS: Labels = Labels::new();

impl Metrics {
    pub(super) fn of(endpoint: &'static str, model: &str) -> Self {
        let model = MODELS.of(model);
        let both = || {
            [
                Label::from_static_parts("endpoint", endpoint),
                Label::new("model", model.to_owned()),
            ]
        };
        let tokens = |kind| count("gavel_model_tokens_total", both(), "kind", kind);
        Self {
            answered: count("gavel_model_attempts_total", both(), "outcome", "answered"),
            seconds: histogram!("gavel_model_attempt_seconds", both().to_vec()),
            input: tokens("input"),
            output: tokens("output"),
            thought: tokens("thought"),
            cached: tokens("cached"),
            breaker: gauge!("gavel_model_breaker_state", "endpoint" => endpoint),
            endpoint,
            model: model.to_owned(),
        }
    }

    /// Records one finished request.
    pub(super) fn attempt(&self, fault: Option<FaultKind>, took: Duration, usage: Usage) {
        match fault {
            None => self.answered.increment(1),
            Some(fault) => self
                .counter("gavel_model_attempts_total", "outcome", fault.as_str())
                .increment(1),
        }
        self.seconds.record(took);
        self.input.increment(usage.input_tokens);
        self.output.increment(usage.output_tokens);
        self.thought.increment(usage.thought_tokens);
        self.cached.increment(usage.cached_tokens);
    }

    /// Records that a request is about to be retried.
    pub(super) fn retry(&self, after: FaultKind) {
        self.counter("gavel_model_retries_total", "after", after.as_str())
            .increment(1);
    }

    /// Records a call that finally failed.
    pub(super) fn fault(&self, fault: FaultKind) {
        self.counter("gavel_model_faults_total", "kind", fault.as_str())
            .increment(1);
    }

    /// The breaker's state: 0 closed, 1 half-open, 2 open.
    pub(super) fn breaker(&self, state: BreakerState) {
        self.breaker.set(match state {
            BreakerState::Closed => 0.0,
            BreakerState::HalfOpen => 1.0,
            BreakerState::Open => 2.0,
        });
    }

    fn counter(&self, name: &'static str, label: &'static str, value: &'static str) -> Counter {
        let endpoint = Label::from_static_parts("endpoint", self.endpoint);
        count(name, [endpoint, Label::new("model", self.model.clone())], label, value)
    }
}

fn count(name: &'static str, [endpoint, model]: [Label; 2], label: &'static str, value: &'static str) -> Counter {
    counter!(name, vec![endpoint, model, Label::from_static_parts(label, value)])
}

/// The default model's metrics, made on first use. They also reach a recorder that was installed after the adapter was
/// made.
pub(super) struct DefaultMetrics(OnceLock<Metrics>);

impl DefaultMetrics {
    /// Reserves the label value of the default model, however many other models follow.
    pub(super) fn of(model: &str) -> Self {
        MODELS.of(model);
        Self(OnceLock::new())
    }

    pub(super) fn get(&self, endpoint: &'static str, model: &str) -> &Metrics {
        self.0.get_or_init(|| Metrics::of(endpoint, model))
    }
}
