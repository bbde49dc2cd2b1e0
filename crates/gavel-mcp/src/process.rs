//! A server as a child process: how it is started and ended, what it writes to stderr, and the exchange of messages over
//! its pipes.
//!
//! Three tasks belong to a child. One writes queued messages, so that no caller that gives up leaves half a line. One
//! logs stderr. One reads stdout, hands each answer to its request, and ends the child: its stdin is closed, then it
//! gets SIGTERM, then SIGKILL.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gavel_upstream::handover::SendGate;
use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::ExposeSecret;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Level;

use super::attempt::{Attempt, Lost, Outbound};
use super::config::TransportConfig;
use super::inbox::Inbox;
use super::lines::{Line, Lines, answered_by};
use super::log;
use super::message::{self, Id, Incoming, Says, Unreadable};
use super::result::ERROR_BYTES;
use super::secrets::{Parts, Secrets};
use super::source::Source;
use crate::domain::budget::Share;
use crate::domain::text::{capped, visible};

/// How long a child may take to end after each signal.
const GRACE: Duration = Duration::from_secs(3);
/// Messages that wait to be written. A child that does not read makes later ones wait.
const QUEUE: usize = 64;

/// A running child.
pub(super) struct Process {
    pub(super) pid: Option<u32>,
    /// What it last wrote to stderr.
    pub(super) last_lines: LastLines,
    queue: mpsc::Sender<Queued>,
    pending: Arc<Pending>,
    /// The child is to end.
    stop: CancellationToken,
    /// The child is to be killed.
    kill: CancellationToken,
    /// The child has ended.
    ended: CancellationToken,
}

/// A message that waits to be written.
struct Queued {
    line: Vec<u8>,
    /// For a request: its id, and the gate that it passes.
    request: Option<(u32, SendGate)>,
    /// For a reply: its slot.
    _slot: Option<OwnedSemaphorePermit>,
}

impl Queued {
    fn new(body: impl Into<Vec<u8>>) -> Self {
        let mut line = body.into();
        line.push(b'\n');
        Self {
            line,
            request: None,
            _slot: None,
        }
    }
}

/// The requests in progress, by id. `None` once there are no more answers.
#[derive(Default)]
struct Pending(Mutex<Option<HashMap<u32, oneshot::Sender<Attempt>>>>);

impl Pending {
    fn lock(&self) -> MutexGuard<'_, Option<HashMap<u32, oneshot::Sender<Attempt>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, id: i64) -> Option<oneshot::Sender<Attempt>> {
        self.lock().as_mut()?.remove(&u32::try_from(id).ok()?)
    }

    /// Ends the request in this way, if it is in progress.
    fn end(&self, id: i64, attempt: Attempt) -> bool {
        let waiting = self.take(id);
        let was = waiting.is_some();
        // The caller may have given up at this moment.
        let _ = waiting.map(|waiting| waiting.send(attempt));
        was
    }
}

/// Forgets a request whose caller no longer waits.
struct Forget<'a>(&'a Pending, u32);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        drop(self.0.take(self.1.into()));
    }
}

impl Process {
    /// Starts the child with only `base_env` of gavel's environment, in its own process group, so that its descendants
    /// end with it.
    ///
    /// # Errors
    /// Why it could not be started.
    pub(super) fn start(
        inbox: &Arc<Inbox>,
        config: &TransportConfig,
        base_env: &[(&'static str, String)],
    ) -> Result<Self, String> {
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
            .env_clear()
            .envs(base_env.iter().map(|(name, value)| (*name, value)))
            .envs(env.iter().map(|(name, value)| (name, value.expose_secret())));
        if let Some(cwd) = cwd {
            process.current_dir(cwd);
        }
        Self::spawn(process, inbox).map_err(|error| {
            let own = env.iter().find(|(name, _)| name == "PATH");
            let path = own.map(|(_, value)| value.expose_secret()).or_else(|| {
                let base = base_env.iter().find(|(name, _)| *name == "PATH");
                base.map(|(_, value)| value.as_str())
            });
            not_started(command, cwd.as_deref(), path, &error)
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the tasks end with the child, whose end the shutdown waits for"
    )]
    fn spawn(mut process: Command, inbox: &Arc<Inbox>) -> io::Result<Self> {
        process
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = process.spawn()?;
        let not_a_pipe = || io::Error::other("a stream of the child is not a pipe");
        let stdin = child.stdin.take().ok_or_else(not_a_pipe)?;
        let stdout = child.stdout.take().ok_or_else(not_a_pipe)?;
        let stderr = child.stderr.take().ok_or_else(not_a_pipe)?;

        let pid = child.id();
        let group = pid.and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let mut child = Leader(child, group);
        let (queue, queued) = mpsc::channel(QUEUE);
        let running = Self {
            pid,
            last_lines: LastLines::default(),
            queue,
            pending: Arc::new(Pending(Mutex::new(Some(HashMap::new())))),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        tokio::spawn(log(inbox.source.clone(), stderr, running.last_lines.clone()));
        let mut writer = tokio::spawn(write(queued, stdin, running.pending.clone(), running.stop.clone()));
        let reader = Reader {
            inbox: inbox.clone(),
            pending: running.pending.clone(),
            queue: running.queue.downgrade(),
        };
        let (stop, kill, ended) = (running.stop.clone(), running.kill.clone(), running.ended.clone());
        tokio::spawn(async move {
            // Stdout stays open until the child has ended, because some programs end badly without it.
            let mut lines = Lines::new(stdout, reader.inbox.clone());
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = reader.run(&mut lines) => {}
            }
            // Every caller that waits for an answer learns that none will come.
            drop(reader.pending.lock().take());
            stop.cancel();
            if let Err(error) = end(&mut child, &mut writer, reader.inbox.is_flooded(), &kill).await {
                tracing::warn!(%error, "a child could not be ended");
            }
            drop((child, lines));
            ended.cancel();
        });
        Ok(running)
    }

    /// Sends a request, and waits for its answer.
    pub(super) async fn exchange(&self, request: Outbound<'_>) -> Attempt {
        let (sender, answer) = oneshot::channel();
        match &mut *self.pending.lock() {
            Some(pending) => drop(pending.insert(request.id, sender)),
            None => return Attempt::NotSent(Lost::Connection, "the child has ended".to_owned()),
        }
        let _forget = Forget(&self.pending, request.id);
        let queued = Queued {
            request: Some((request.id, request.gate.clone())),
            ..Queued::new(request.body)
        };
        // A request that has not entered the queue has not been sent. The gate says the same.
        let _ = self.queue.send(queued).await;
        match answer.await {
            Ok(attempt) => attempt,
            Err(_) if request.gate.give_up() => Attempt::Lost(
                Lost::Connection,
                "the connection ended before the server answered".to_owned(),
            ),
            Err(_) => Attempt::NotSent(Lost::Connection, "the child has ended".to_owned()),
        }
    }

    /// Sends a notification.
    pub(super) fn notify(&self, body: String) -> impl Future<Output = ()> + Send + 'static {
        let queue = self.queue.clone();
        async move {
            // This fails if the child is gone; then no notification is needed.
            let _ = queue.send(Queued::new(body)).await;
        }
    }

    /// Can no more answers arrive?
    pub(super) fn is_closed(&self) -> bool {
        self.pending.lock().is_none()
    }

    /// Completes when the child has ended.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Ends the child.
    pub(super) fn close(&self) {
        self.stop.cancel();
    }
}

impl Drop for Process {
    /// A child whose connection was given up is killed.
    fn drop(&mut self) {
        self.stop.cancel();
        self.kill.cancel();
    }
}

/// Ends the child. A child that floods is killed, because it would keep writing.
async fn end(
    child: &mut Leader,
    writer: &mut JoinHandle<()>,
    floods: bool,
    kill: &CancellationToken,
) -> io::Result<()> {
    if !floods && kill.run_until_cancelled(end_gently(child, writer)).await == Some(true) {
        return Ok(());
    }
    // It may still be waiting for the child to read.
    writer.abort();
    child.signal(Signal::KILL);
    child.wait().await
}

/// Closes the child's stdin, and asks it to end. Returns whether it has.
async fn end_gently(child: &mut Leader, writer: &mut JoinHandle<()>) -> bool {
    // What is still queued is written first, such as a cancellation.
    if tokio::time::timeout(GRACE, &mut *writer).await.is_err() {
        writer.abort();
    }
    if tokio::time::timeout(GRACE, child.wait()).await.is_ok() {
        return true;
    }
    child.signal(Signal::TERM);
    tokio::time::timeout(GRACE, child.wait()).await.is_ok()
}

/// Writes what is queued, until the child is to end and the rest has been written.
async fn write(
    mut queued: mpsc::Receiver<Queued>,
    mut stdin: impl AsyncWrite + Unpin,
    pending: Arc<Pending>,
    stop: CancellationToken,
) {
    loop {
        let next = tokio::select! {
            biased;
            next = queued.recv() => next,
            () = stop.cancelled() => {
                queued.close();
                queued.recv().await
            }
        };
        let Some(next) = next else { return };
        // Nothing can delay the write between this check and the pipe.
        let passed = next.request.as_ref().map_or(Ok(()), |(_, gate)| gate.pass());
        let written = match passed {
            Ok(()) => stdin.write_all(&next.line).await.map_err(|error| error.to_string()),
            Err(why) => Err(why.to_string()),
        };
        // Without its last bytes, which include the line end, no server can have acted on it.
        if let (Err(why), Some((id, _))) = (written, next.request) {
            pending.end(id.into(), Attempt::NotSent(Lost::Connection, why));
        }
    }
}

/// Reads stdout.
struct Reader {
    inbox: Arc<Inbox>,
    pending: Arc<Pending>,
    queue: mpsc::WeakSender<Queued>,
}

impl Reader {
    /// Reads until the end of stdout, or until it cannot be used any more.
    async fn run(&self, lines: &mut Lines<impl AsyncRead + Unpin>) {
        loop {
            let handled = match lines.next().await {
                Ok(Some(Line::Whole(line, share))) => self.line(&line, share),
                Ok(Some(Line::Unread(id, attempt))) => {
                    self.pending.end(id, attempt);
                    Ok(())
                }
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if let Err(error) = handled {
                let log = &self.inbox.source.log;
                log::line!(*log, error, "stdout of a child cannot be read any more", %error);
                return;
            }
        }
    }

    /// Handles one line. Servers print text there that belongs on stderr, also as JSON.
    fn line(&self, line: &Bytes, mut share: Option<Share>) -> io::Result<()> {
        let bytes = line.len();
        let mut flood = Ok(());
        let read = message::read(line, &mut |incoming| {
            let handled = match incoming {
                Incoming::Answer(Id::Number(id), says) => {
                    let attempt = self.attempt(says, share.take());
                    match self.pending.end(id, attempt) {
                        true => Ok(()),
                        false => self.inbox.noise(bytes),
                    }
                }
                Incoming::Request {
                    id,
                    method,
                    is_versioned: true,
                } => self.inbox.request(method, id, bytes).map(|reply| {
                    let queue = self.queue.upgrade();
                    // If the child does not read, the reply is dropped.
                    if let (Some(reply), Some(queue)) = (reply, queue) {
                        let _ = queue.try_send(Queued {
                            _slot: Some(reply.slot),
                            ..Queued::new(reply.body)
                        });
                    }
                }),
                Incoming::Notification {
                    method,
                    is_versioned: true,
                } => self.inbox.notification(method, bytes),
                _ => self.inbox.noise(bytes),
            };
            if handled.is_err() {
                flood = handled;
            }
        });
        flood.map_err(io::Error::other)?;
        match read {
            Ok(()) => Ok(()),
            Err(why) => self.no_message(line, &why),
        }
    }

    fn attempt(&self, says: Says, share: Option<Share>) -> Attempt {
        let source = &self.inbox.source;
        match says {
            Says::Result(result) => Attempt::Result(result, share),
            Says::Error(error) => Attempt::error(&error, source),
            Says::Nothing(why) => Attempt::unreadable(source.said(&why, ERROR_BYTES)),
        }
    }

    /// A line that is not a message. If it answers a request, the request ends.
    fn no_message(&self, line: &[u8], why: &Unreadable) -> io::Result<()> {
        let log = &self.inbox.source.log;
        let line = line.trim_ascii();
        let Some(id) = answered_by(line) else {
            if !line.is_empty() {
                self.inbox.noise(line.len()).map_err(io::Error::other)?;
            }
            log::line!(*log, debug, "a line on stdout is not a message; it is ignored");
            return Ok(());
        };
        // The reason quotes nothing of the line.
        log::line!(*log, warn, "an answer on stdout cannot be read", %why);
        let words = "the answer is not a readable JSON-RPC message";
        self.pending.end(id, Attempt::unreadable(words));
        Ok(())
    }
}

/// A child, the leader of its own process group.
struct Leader(Child, Option<Pid>);

impl Leader {
    /// Sends a signal to the group. This fails if the group has just ended.
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.1 {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Waits for the child. Its group ends with it.
    async fn wait(&mut self) -> io::Result<()> {
        self.0.wait().await?;
        self.signal(Signal::KILL);
        Ok(())
    }
}

/// Programs that start servers, and the software they belong to.
const COME_FROM: [(&str, &str); 9] = [
    ("npx", "Node.js"),
    ("npm", "Node.js"),
    ("node", "Node.js"),
    ("bunx", "Bun"),
    ("deno", "Deno"),
    ("uvx", "uv"),
    ("uv", "uv"),
    ("docker", "Docker"),
    ("podman", "Podman"),
];

/// A message for an operator. `path` is the variable `PATH` of the child.
fn not_started(command: &str, cwd: Option<&Path>, path: Option<&str>, error: &io::Error) -> String {
    if let Some(cwd) = cwd
        && !cwd.is_dir()
    {
        let what = if cwd.exists() {
            "is not a directory"
        } else {
            "does not exist"
        };
        return format!("its `cwd`, {}, {what}", cwd.display());
    }
    let is_path = command.contains('/');
    match error.kind() {
        ErrorKind::NotFound if !is_path => {
            let from = COME_FROM.iter().find(|(program, _)| *program == command);
            let install = from.map(|(_, from)| format!("install {from}, or ")).unwrap_or_default();
            let place = path.map_or_else(|| "there is no PATH".to_owned(), |path| format!("PATH is {path}"));
            format!("its `command`, `{command}`, was not found ({place}); {install}give its whole path")
        }
        ErrorKind::NotFound if cwd.map_or_else(|| Path::new(command).exists(), |cwd| cwd.join(command).exists()) => {
            format!(
                "its `command`, `{command}`, could not be started: the interpreter that its first line names does not exist"
            )
        }
        ErrorKind::NotFound => format!("its `command`, `{command}`, does not exist"),
        ErrorKind::PermissionDenied => format!("its `command`, `{command}`, may not be executed"),
        _ => format!("its `command`, `{command}`, could not be started: {error}"),
    }
}

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
            Level::ERROR => log::line!(source.log, error, target: "gavel::mcp::stderr", "{words}"),
            Level::WARN => log::line!(source.log, warn, target: "gavel::mcp::stderr", "{words}"),
            Level::DEBUG => log::line!(source.log, debug, target: "gavel::mcp::stderr", "{words}"),
            Level::TRACE => log::line!(source.log, trace, target: "gavel::mcp::stderr", "{words}"),
            _ => log::line!(source.log, info, target: "gavel::mcp::stderr", "{words}"),
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
mod tests;

#[cfg(test)]
mod stderr_tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::RefCell;
    use std::sync::Once;

    use super::*;
    use crate::config::McpConfig;
    use crate::source;

    fn source(secret: &str) -> Arc<Source> {
        let text = serde_json::json!({"mcpServers": {"s": {"command": "x", "env": {"API_KEY": secret}}}}).to_string();
        let config = McpConfig::from_file("mcp.json", &text, &|_| None).unwrap();
        Source::new(&config.servers[0], &source::budget())
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
