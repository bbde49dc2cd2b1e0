//! A server as a child process: how it is started, and how its stderr is handled.

use std::borrow::Cow;
use std::process::Stdio;
use std::sync::Arc;

use process_wrap::tokio::{CommandWrap, KillOnDrop, ProcessGroup};
use secrecy::ExposeSecret;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Command;
use tracing::Level;

use super::config::TransportConfig;
use super::group::EndsWithLeader;
use super::last_words::LastWords;
use super::log;
use super::pipes::Pipes;
use super::secrets::{Parts, Secrets};
use super::source::Source;
use super::unsolicited::Unsolicited;
use super::unstarted;
use crate::domain::text::{capped, visible};

/// A longer line of stderr is logged in pieces.
const LINE_BYTES: u64 = 4 * 1024;

/// A started child.
pub(super) struct Child {
    /// rmcp's transport over its pipes. Closing it ends the process group.
    pub(super) transport: Pipes,
    /// Its process id.
    pub(super) pid: Option<u32>,
    /// The last lines that it wrote to stderr.
    pub(super) last_words: LastWords,
}

/// Starts the child with only `base_env` of gavel's environment, in its own process group, so that its descendants end
/// with it.
///
/// # Errors
/// Why it could not be started.
pub(super) fn start(
    unsolicited: &Arc<Unsolicited>,
    config: &TransportConfig,
    base_env: &[(&'static str, String)],
) -> Result<Child, String> {
    let TransportConfig::Stdio {
        command,
        args,
        env,
        cwd,
    } = config
    else {
        return Err("not a stdio server".to_owned());
    };
    let mut process = Command::new(command);
    process
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env_clear()
        .envs(base_env.iter().map(|(name, value)| (*name, value)))
        .envs(env.iter().map(|(name, value)| (name, value.expose_secret())));
    if let Some(cwd) = cwd {
        process.current_dir(cwd);
    }
    let mut wrap = CommandWrap::from(process);
    wrap.wrap(KillOnDrop).wrap(ProcessGroup::leader()).wrap(EndsWithLeader);
    let path = env
        .iter()
        .find(|(name, _)| name == "PATH")
        .map(|(_, value)| value.expose_secret());
    let (transport, stderr) = Pipes::open(wrap, unsolicited.clone()).map_err(|error| {
        let path = path.or_else(|| {
            base_env
                .iter()
                .find(|(name, _)| *name == "PATH")
                .map(|(_, value)| value.as_str())
        });
        unstarted::words(command, cwd.as_deref(), path, &error)
    })?;
    let pid = transport.id();
    let last_words = LastWords::default();
    #[expect(
        clippy::disallowed_methods,
        reason = "ends with the child, whose end the shutdown waits for"
    )]
    tokio::spawn(log(unsolicited.source.clone(), stderr, last_words.clone()));
    Ok(Child {
        transport,
        pid,
        last_words,
    })
}

/// Logs stderr line by line until the child closes it. Secrets of its entry are masked, because servers often print
/// their settings.
async fn log(source: Arc<Source>, stderr: impl AsyncRead + Unpin, last_words: LastWords) {
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
            last_words.end();
            return;
        }
        line = hide(line, &source.secrets, Parts::Not);
        let whole = read == 0 || line.ends_with(b"\n");
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
        last_words.add(capped(text, 512).into_owned());
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
    use crate::adapters::mcp::answers;
    use crate::adapters::mcp::config::McpConfig;

    fn source(secret: &str) -> Arc<Source> {
        let text = serde_json::json!({"mcpServers": {"s": {"command": "x", "env": {"API_KEY": secret}}}}).to_string();
        let config = McpConfig::from_file("mcp.json", &text, &|_| None).unwrap();
        Source::new(&config.servers[0], &answers::budget())
    }

    /// C-FR-010
    #[tokio::test]
    async fn stderr_is_bounded_and_secrets_in_it_are_masked() {
        let words = LastWords::default();
        let text = format!("{}\nkey=canary-0123456789\n\n", "x".repeat(100_000));
        log(source("canary-0123456789"), text.as_bytes(), words.clone()).await;
        assert_eq!(words.get().await.as_deref(), Some("key=***"));
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
                log(source(value), text.as_bytes(), LastWords::default()).await;
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
