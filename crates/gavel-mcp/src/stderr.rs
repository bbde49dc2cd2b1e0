//! What a child writes to stderr: it is logged, and the last lines are kept for an operator.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio_util::sync::CancellationToken;
use tracing::Level;

use super::log;
use super::secrets::{Parts, Secrets};
use super::source::Source;
use crate::domain::text::{capped, visible};

/// A longer line of stderr is logged in pieces.
const LINE_BYTES: u64 = 4 * 1024;
/// Lines that are kept. The last ones say why a program ended, in every language: programs print the reason near the
/// end, and stack traces are indented.
const KEPT: usize = 4;
/// Maximum bytes of a kept line.
const KEPT_BYTES: usize = 256;
/// How long to wait for the rest of stderr after stdout has ended.
const REST: Duration = Duration::from_millis(300);

/// The last lines of a child's stderr that are not indented.
#[derive(Clone, Debug, Default)]
pub(super) struct LastLines {
    lines: Arc<Mutex<VecDeque<String>>>,
    ended: CancellationToken,
}

impl LastLines {
    fn add(&self, line: &str) {
        if line.starts_with([' ', '\t']) {
            return;
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= KEPT {
            lines.pop_front();
        }
        lines.push_back(capped(line, KEPT_BYTES).into_owned());
    }

    /// The lines, after ` / ` each. Waits for the rest of an ended child's stderr.
    pub(super) async fn get(&self) -> Option<String> {
        // The wait is limited, because the child may still be running.
        let _ = tokio::time::timeout(REST, self.ended.cancelled()).await;
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        Some(lines.join(" / ")).filter(|lines| !lines.is_empty())
    }
}

/// Logs stderr line by line until the child closes it. Secrets of its entry are masked, because servers often print
/// their settings.
pub(super) async fn log(source: Arc<Source>, stderr: impl AsyncRead + Unpin, last: LastLines) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        // A read error ends the stream.
        let read = (&mut stderr)
            .take(LINE_BYTES)
            .read_until(b'\n', &mut line)
            .await
            .unwrap_or(0);
        if read == 0 && line.is_empty() {
            last.ended.cancel();
            return;
        }
        line = hide(line, &source.secrets, Parts::Not);
        // A short read ends at a line end, or at the end of stderr.
        let whole = (read as u64) < LINE_BYTES || line.ends_with(b"\n");
        let rest = if whole {
            Vec::new()
        } else {
            tail(&mut line, &source.secrets)
        };
        line = hide(line, &source.secrets, Parts::Too);
        let text = visible(&String::from_utf8_lossy(&line));
        let text = text.trim_end();
        line = rest;
        if text.is_empty() {
            continue;
        }
        let (level, words) = unwrapped(text);
        match level {
            Level::ERROR => log::line!(source.log, error, "stderr", target: "gavel::mcp::stderr", "{words}"),
            Level::WARN => log::line!(source.log, warn, "stderr", target: "gavel::mcp::stderr", "{words}"),
            Level::DEBUG => log::line!(source.log, debug, "stderr", target: "gavel::mcp::stderr", "{words}"),
            Level::TRACE => log::line!(source.log, trace, "stderr", target: "gavel::mcp::stderr", "{words}"),
            _ => log::line!(source.log, info, "stderr", target: "gavel::mcp::stderr", "{words}"),
        }
        last.add(text);
    }
}

/// The level and the words of a line that a logger has written: gavel's own line has a time and a level already. A line
/// without a level is one of level INFO.
fn unwrapped(line: &str) -> (Level, &str) {
    let rest = match line.split_once(' ') {
        Some((time, rest)) if chrono::DateTime::parse_from_rfc3339(time).is_ok() => rest.trim_start(),
        _ => line,
    };
    let end = rest.find([' ', ':']).unwrap_or(rest.len());
    let level = match &rest[..end] {
        "ERROR" => Level::ERROR,
        "WARN" | "WARNING" => Level::WARN,
        "INFO" => Level::INFO,
        "DEBUG" => Level::DEBUG,
        "TRACE" => Level::TRACE,
        _ => return (Level::INFO, line),
    };
    let words = rest[end..].trim_start_matches([' ', ':']);
    (level, if words.is_empty() { line } else { words })
}

/// Removes the end of a piece, in which a secret or a character may begin that continues in the next piece.
fn tail(piece: &mut Vec<u8>, secrets: &Secrets) -> Vec<u8> {
    let mut cut = piece.len().saturating_sub(secrets.longest().max(4) - 1);
    while cut > 0 && piece[cut] & 0xc0 == 0x80 {
        cut -= 1;
    }
    piece.split_off(cut)
}

fn hide(line: Vec<u8>, secrets: &Secrets, parts: Parts) -> Vec<u8> {
    let mut line = Cow::Owned(line);
    secrets.hide_in(&mut line, parts);
    line.into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::RefCell;
    use std::sync::Once;

    use super::*;
    use crate::answers;
    use crate::config::McpConfig;

    fn source(secret: &str) -> Arc<Source> {
        let text = serde_json::json!({"mcpServers": {"s": {"command": "x", "env": {"API_KEY": secret}}}}).to_string();
        let config = McpConfig::from_file("mcp.json", &text, &|_| None).unwrap();
        Source::new(&config.servers[0], &answers::budget())
    }

    /// C-FR-010
    #[tokio::test]
    async fn stderr_is_bounded_and_secrets_in_it_are_masked() {
        let words = LastLines::default();
        let text = format!("{}\nkey=canary-0123456789\n\n", "x".repeat(100_000));
        log(source("canary-0123456789"), text.as_bytes(), words.clone()).await;
        let lines = words.get().await.unwrap();
        assert!(lines.ends_with(" / key=***") && lines.len() < 2000, "{lines}");
    }

    #[tokio::test]
    async fn the_last_lines_say_why_a_program_ended() {
        for (stderr, expected) in [
            (
                "npm warn deprecated x@1: no longer supported\nnpm error code E404\nnpm error 404 Not Found - GET x\n",
                "npm warn deprecated x@1: no longer supported / npm error code E404 / npm error 404 Not Found - GET x",
            ),
            (
                "node:internal/modules/cjs/loader:1143\n  throw err;\n  ^\n\nError: Cannot find module '/x'\n    at a (b:1)\n\n\
                 Node.js v20.0.0",
                "node:internal/modules/cjs/loader:1143 / Error: Cannot find module '/x' / Node.js v20.0.0",
            ),
            (
                "Traceback (most recent call last):\n  File \"x\", line 1\n    raise ValueError(\"no\")\nValueError: KEY is not set",
                "Traceback (most recent call last): / ValueError: KEY is not set",
            ),
        ] {
            let last = LastLines::default();
            log(source("canary-0123456789"), stderr.as_bytes(), last.clone()).await;
            assert_eq!(last.get().await.as_deref(), Some(expected));
        }
    }

    /// Promise: bounded faults.
    #[tokio::test]
    async fn a_child_that_writes_without_end_is_kept_in_a_few_lines() {
        let last = LastLines::default();
        last.ended.cancel();
        (0..10_000).for_each(|n| last.add(&format!("line {n}")));
        let lines = last.get().await;
        assert_eq!(lines.as_deref(), Some("line 9996 / line 9997 / line 9998 / line 9999"));
    }

    #[test]
    fn a_line_of_a_logger_loses_its_time_and_keeps_its_level() {
        for (line, level, words) in [
            (
                "2026-11-26T21:11:40.597791Z  INFO gavel_mcp_base::stdio: serving",
                Level::INFO,
                "gavel_mcp_base::stdio: serving",
            ),
            ("2026-11-26T21:11:40Z  WARN x: slow", Level::WARN, "x: slow"),
            ("WARNING:root:slow", Level::WARN, "root:slow"),
            ("ERROR no disk", Level::ERROR, "no disk"),
            ("DEBUG: a step", Level::DEBUG, "a step"),
            ("Errors are rare", Level::INFO, "Errors are rare"),
            (
                "2026-11-26T21:11:40Z listening",
                Level::INFO,
                "2026-11-26T21:11:40Z listening",
            ),
            ("ERROR", Level::ERROR, "ERROR"),
        ] {
            assert_eq!(unwrapped(line), (level, words), "{line}");
        }
    }

    /// C-FR-010: no part of a secret is logged, wherever it occurs in an endless line.
    #[tokio::test]
    async fn a_secret_across_two_pieces_of_a_line_is_masked() {
        static SUBSCRIBED: Once = Once::new();
        SUBSCRIBED.call_once(|| tracing::subscriber::set_global_default(Pieces).unwrap());
        for (value, secret) in [
            ("canary-0123456789", "canary-0123456789"),
            ("kanärie-öäüöäüöäü", "kanärie-öäüöäüöäü"),
            (
                "-----BEGIN KEY-----\ncanary-0123456789\n-----END-----\n",
                "canary-0123456789",
            ),
        ] {
            for before in 4000..4100 {
                let text = format!("{}{secret}{}", "x".repeat(before), "y".repeat(5000));
                log(source(value), text.as_bytes(), LastLines::default()).await;
                let pieces = PIECES.take().concat();
                assert_eq!(pieces, text.replace(secret, "***"), "{before}");
            }
        }
    }

    thread_local! {
        /// The messages that this thread has logged.
        static PIECES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    /// Collects [`PIECES`]. It subscribes for the whole process: with a subscriber of one thread, a place that another
    /// thread logs from first is never asked about again.
    struct Pieces;

    impl tracing::Subscriber for Pieces {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                if field.name() == "message" {
                    PIECES.with_borrow_mut(|pieces| pieces.push(format!("{value:?}")));
                }
            });
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }
}
