//! Logs and traces. Both record what happened, never the content: no payloads, no secrets.
//!
//! Logs go to standard error, since standard output belongs to answers (`gavel chat --json | jq`) and to protocols.
//! Traces go to an OTLP collector if one is configured; without one, tracing does not run.

mod traces;

use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use tracing_subscriber::filter::combinator::And;
use tracing_subscriber::filter::{FilterExt, Filtered, LevelFilter, Targets};
use tracing_subscriber::layer::{Layered, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::config::{LogFormat, Otlp};
use crate::domain::text::escaped;

pub use gavel_engine::trace::{continue_trace, traceparent};

/// Keeps telemetry running. [`Telemetry::finish`] sends the remaining traces.
#[must_use = "traces that are not sent yet are lost when this is dropped"]
#[derive(Debug, Default)]
pub struct Telemetry {
    traces: Option<traces::Traces>,
}

impl Telemetry {
    /// Initializes logs, and traces if there is a `collector`, for the whole process. With a collector, call it inside
    /// the tokio runtime that sends the traces.
    ///
    /// # Errors
    /// The filter does not parse, the exporter cannot be built, or other code has already initialized logs.
    pub fn start(filter: &str, format: LogFormat, collector: Option<Otlp>) -> anyhow::Result<Self> {
        let traces = collector.map(traces::Traces::start).transpose()?;
        let logs = logs(filter, format).context("the log filter is invalid")?;
        match &traces {
            Some(traces) => logs.with(traces.layer()).try_init()?,
            // Not an absent layer: with a layer that may want spans, every span would be checked each time.
            None => logs.try_init()?,
        }
        Ok(Self { traces })
    }

    /// Sends the remaining traces; waits a few seconds at most. Blocks: call it outside of async code.
    pub fn finish(self) {
        if let Some(traces) = self.traces {
            traces.finish();
        }
    }
}

/// The subscriber that writes logs, without traces.
fn logs(filter: &str, format: LogFormat) -> Result<Logs, tracing_subscriber::filter::ParseError> {
    let layer = match format {
        LogFormat::Json => json(),
        LogFormat::Auto if !std::io::stderr().is_terminal() => json(),
        LogFormat::Auto | LogFormat::Text => text(),
    };
    let filter = EnvFilter::try_new(filter)?.and(discreet(filter));
    Ok(tracing_subscriber::registry().with(layer.with_filter(filter)))
}

type Logs = Layered<Filtered<Boxed, Filter, Registry>, Registry>;
type Filter = And<EnvFilter, Targets, Registry>;
type Boxed = Box<dyn Layer<Registry> + Send + Sync>;

/// Crates that log the content that passes through them, and the most verbose level that reveals none of it. rmcp
/// prints notifications, and at warn and error what servers cause it to say; `adapters/mcp` logs a count of these
/// instead. The trace exporter prints the collector's response, which may contain the headers it was sent. The others
/// print statements, frames and headers at debug and trace.
const TALKATIVE: [(&str, LevelFilter); 8] = [
    ("opentelemetry-otlp", LevelFilter::OFF),
    ("rmcp", LevelFilter::OFF),
    ("h2", LevelFilter::INFO),
    ("hyper", LevelFilter::INFO),
    ("hyper_util", LevelFilter::INFO),
    ("reqwest", LevelFilter::INFO),
    ("rustls", LevelFilter::INFO),
    ("sqlx", LevelFilter::INFO),
];

/// Keeps talkative crates quiet, even if the filter sets a level for all crates. A crate that the filter names gets the
/// level given there: the operator wants to read it.
fn discreet(filter: &str) -> Targets {
    let named = |name: &str| {
        filter.split(',').any(|directive| {
            let rest = directive.trim().strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['=', ':', '[']))
        })
    };
    let quiet = TALKATIVE
        .into_iter()
        .map(|(name, level)| (name, if named(name) { LevelFilter::TRACE } else { level }));
    Targets::new().with_default(LevelFilter::TRACE).with_targets(quiet)
}

fn json() -> Boxed {
    let layer = tracing_subscriber::fmt::layer().json().flatten_event(true);
    layer
        .with_current_span(true)
        .with_span_list(false)
        .with_writer(|| Shown(io::stderr()))
        .boxed()
}

/// Shows text from outside as the output of commands does: no character of it is invisible, changes the direction of text
/// or drives a terminal.
struct Shown<W>(W);

impl<W: Write> Write for Shown<W> {
    /// The formatter writes each line at once.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(escaped(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Without colors: what follows an escape character in a value could not be told from them.
fn text() -> Boxed {
    tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(|| Shown(io::stderr()))
        .boxed()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::{Arc, Mutex};

    use tracing::Subscriber;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What this filter logs for an event of every level in each crate, inside and outside a span.
    fn logged(filter: &str) -> String {
        let written = Written::default();
        let writer = written.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone());
        let filter = EnvFilter::try_new(filter).unwrap().and(discreet(filter));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer.with_filter(filter)), || {
            macro_rules! speak {
                ($($name:literal $module:literal,)*) => { $(
                    tracing::trace!(target: concat!($name, "::", $module), "frames");
                    tracing::debug!(target: concat!($name, "::", $module), "messages");
                    tracing::info!(target: concat!($name, "::", $module), "notifications");
                    tracing::warn!(target: concat!($name, "::", $module), "warnings");
                )* };
            }
            let _span = tracing::error_span!("request").entered();
            speak!(
                "gavel" "engine", "rmcp" "service", "hyper" "proto", "hyper_util" "client", "h2" "codec",
                "reqwest" "connect", "rustls" "client", "sqlx" "query", "opentelemetry-otlp" "http",
            );
        });
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    /// Secrets never reach a log.
    #[test]
    fn crates_that_print_what_passes_through_them_stay_quiet_unless_they_are_named() {
        for filter in ["info", "gavel=debug,info", "trace", "debug", "[request]=trace", "INFO"] {
            let logged = logged(filter);
            let of = |name: &str| logged.lines().filter(|line| line.contains(name)).count();
            assert!(of(" gavel::") >= 2, "{filter}: {logged}");
            assert_eq!(of(" rmcp:") + of("opentelemetry"), 0, "{filter}: {logged}");
            for name in ["hyper", "hyper_util", "h2", "reqwest", "rustls", "sqlx"] {
                assert!(of(&format!(" {name}:")) <= 2, "{filter}, {name}: {logged}");
            }
        }
        let named = logged("info,rmcp=debug,hyper::proto=trace");
        assert!(
            named.contains(&format!("DEBUG request: {}::service: messages", "rmcp")),
            "{named}"
        );
        assert!(named.contains("TRACE request: hyper::proto: frames"), "{named}");
        let quieter = logged("error,rmcpx=trace");
        assert!(quieter.is_empty(), "{quieter}");
    }

    /// External text in a log line can neither drive the reader's terminal nor hide or turn text.
    #[test]
    fn a_log_line_shows_every_character_of_a_value() {
        const EVIL: &str = "a\u{1b}[2J\u{9b}2J\u{202e}b\u{2066}\u{2028}\u{2029}\u{200b}\u{feff}\u{e0041}z";
        for json in [false, true] {
            let written = Written::default();
            let writer = written.clone();
            let layer = tracing_subscriber::fmt::layer().with_writer(move || Shown(writer.clone()));
            let layer: Boxed = match json {
                true => layer.json().boxed(),
                false => layer.with_ansi(false).boxed(),
            };
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                let _span = tracing::error_span!("request", by = EVIL, shown = %EVIL).entered();
                tracing::error!(text = EVIL, debug = ?EVIL, "{EVIL}");
            });
            let bytes = written.0.lock().unwrap().clone();
            let line = String::from_utf8(bytes).unwrap();
            assert!(
                !line.contains(|c: char| EVIL.contains(c) && !c.is_ascii_graphic() && c != ' '),
                "{line:?}"
            );
            assert!(
                line.contains("202e") && (!json || serde_json::from_str::<serde_json::Value>(&line).is_ok()),
                "{line}"
            );
        }
    }

    /// A span compares its level with this one number before it does anything else.
    #[test]
    fn without_a_collector_spans_of_level_debug_are_off_by_their_level_alone() {
        let subscriber = logs("info,rmcp=warn", LogFormat::Json).unwrap();
        assert_eq!(subscriber.max_level_hint(), Some(LevelFilter::INFO));
    }
}
