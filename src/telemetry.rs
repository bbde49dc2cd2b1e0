//! Logs and traces. Both tell what happened, never what was said: no payloads, no secrets.
//!
//! Logs go to standard error, since standard output belongs to answers (`gavel chat --json | jq`) and to
//! protocols. Traces go to an OTLP collector when one is named; without one nothing of it runs.

mod context;
mod traces;

use std::io::IsTerminal;

use tracing_subscriber::filter::Filtered;
use tracing_subscriber::layer::{Layered, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

pub use context::{continue_trace, traceparent};
pub use traces::{Collector, TracesError};

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// Text on a terminal, else JSON.
    Auto,
    /// For people.
    Text,
    /// One JSON object a line: `timestamp`, `level`, `target`, the event's fields, and its `span`.
    Json,
}

/// Why logs or traces cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The filter does not parse.
    #[error("the log filter is wrong: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// The exporter cannot be built.
    #[error(transparent)]
    Traces(#[from] TracesError),
    /// Somebody else has set up logs.
    #[error("logs are set up already: {0}")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Keeps telemetry going. [`Telemetry::finish`] sends what is left of the traces.
#[must_use = "traces that are not sent yet are lost when this is dropped"]
#[derive(Debug, Default)]
pub struct Telemetry {
    traces: Option<traces::Traces>,
}

impl Telemetry {
    /// Sets up logs, and traces if there is a `collector`, for the whole process. With a collector it must be
    /// called inside a tokio runtime, on which traces are then sent.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(filter: &str, lines: Lines, collector: Option<Collector>) -> Result<Self, StartError> {
        let traces = collector.map(traces::Traces::start).transpose()?;
        let logs = logs(filter, lines)?;
        match &traces {
            Some(traces) => logs.with(traces.layer()).try_init()?,
            // Not an absent layer: one that might want a span would have every span asked about, each time.
            None => logs.try_init()?,
        }
        Ok(Self { traces })
    }

    /// Sends what is left of the traces; waits a few seconds at most. Blocks: call it outside of async code.
    pub fn finish(self) {
        if let Some(traces) = self.traces {
            traces.finish();
        }
    }
}

/// What logs, alone.
fn logs(filter: &str, lines: Lines) -> Result<Logs, tracing_subscriber::filter::ParseError> {
    let layer = match lines {
        Lines::Json => json(),
        Lines::Auto if !std::io::stderr().is_terminal() => json(),
        Lines::Auto | Lines::Text => text(),
    };
    Ok(tracing_subscriber::registry().with(layer.with_filter(EnvFilter::try_new(filter)?)))
}

type Logs = Layered<Filtered<Boxed, EnvFilter, Registry>, Registry>;
type Boxed = Box<dyn Layer<Registry> + Send + Sync>;

fn json() -> Boxed {
    let layer = tracing_subscriber::fmt::layer().json().flatten_event(true);
    layer
        .with_current_span(true)
        .with_span_list(false)
        .with_writer(std::io::stderr)
        .boxed()
}

fn text() -> Boxed {
    // https://no-color.org: set and not empty means no color.
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let color = std::io::stderr().is_terminal() && !plain;
    tracing_subscriber::fmt::layer()
        .with_ansi(color)
        .with_writer(std::io::stderr)
        .boxed()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tracing::Subscriber;
    use tracing_subscriber::filter::LevelFilter;

    use super::*;

    /// DESIGN.md section 12: a span compares its level with this one number before it does anything else.
    #[test]
    fn without_a_collector_spans_of_level_debug_are_off_by_their_level_alone() {
        let subscriber = logs("info,rmcp=warn", Lines::Json).unwrap();
        assert_eq!(subscriber.max_level_hint(), Some(LevelFilter::INFO));
    }
}
