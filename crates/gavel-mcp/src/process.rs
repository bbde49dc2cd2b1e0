//! A server as a child process: how it is started and ended, what it writes to stderr, and the exchange of messages over
//! its pipes.
//!
//! Three tasks belong to a child. One writes queued messages, so that no caller that gives up leaves half a line. One
//! logs stderr. One reads stdout, hands each answer to its request, and ends the child: its stdin is closed, then it
//! gets SIGTERM, then SIGKILL.

use std::collections::HashMap;
use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop, ProcessGroup};
use secrecy::ExposeSecret;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::process::Command;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::attempt::{Attempt, Lost, Outbound};
use super::config::TransportConfig;
use super::group::EndsWithLeader;
use super::inbox::Inbox;
use super::lines::{Line, Lines, answered_by};
use super::log;
use super::message::{self, Id, Incoming, Says, Unreadable};
use super::result::ERROR_BYTES;
use super::stderr::{self, LastLines};
use super::unstarted;
use crate::domain::budget::Share;
use gavel_upstream::handover::SendGate;

/// How long a child may take to end after each signal.
const GRACE: Duration = Duration::from_secs(3);
const SIGTERM: i32 = 15;
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
            unstarted::words(command, cwd.as_deref(), path, &error)
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
            .stderr(Stdio::piped());
        let mut wrap = CommandWrap::from(process);
        wrap.wrap(KillOnDrop).wrap(ProcessGroup::leader()).wrap(EndsWithLeader);
        let mut child = wrap.spawn()?;
        let not_a_pipe = || io::Error::other("a stream of the child is not a pipe");
        let inner = child.inner_mut();
        let stdin = inner.stdin().take().ok_or_else(not_a_pipe)?;
        let stdout = inner.stdout().take().ok_or_else(not_a_pipe)?;
        let stderr = inner.stderr().take().ok_or_else(not_a_pipe)?;

        let (queue, queued) = mpsc::channel(QUEUE);
        let running = Self {
            pid: child.id(),
            last_lines: LastLines::default(),
            queue,
            pending: Arc::new(Pending(Mutex::new(Some(HashMap::new())))),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        tokio::spawn(stderr::log(inbox.source.clone(), stderr, running.last_lines.clone()));
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
    child: &mut Box<dyn ChildWrapper>,
    writer: &mut JoinHandle<()>,
    floods: bool,
    kill: &CancellationToken,
) -> io::Result<()> {
    if !floods && kill.run_until_cancelled(end_gently(child, writer)).await == Some(true) {
        return Ok(());
    }
    // It may still be waiting for the child to read.
    writer.abort();
    Box::into_pin(child.kill()).await
}

/// Closes the child's stdin, and asks it to end. Returns whether it has.
async fn end_gently(child: &mut Box<dyn ChildWrapper>, writer: &mut JoinHandle<()>) -> bool {
    // What is still queued is written first, such as a cancellation.
    if tokio::time::timeout(GRACE, &mut *writer).await.is_err() {
        writer.abort();
    }
    if tokio::time::timeout(GRACE, child.wait()).await.is_ok() {
        return true;
    }
    // This fails if the child has just ended.
    let _ = child.signal(SIGTERM);
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
                log::line!(*log, error, "stdout not read", %error, "stdout of a child cannot be read any more");
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
            log::line!(
                *log,
                debug,
                "line on stdout left out",
                "a line on stdout is not a message; it is ignored"
            );
            return Ok(());
        };
        // The reason quotes nothing of the line.
        log::line!(*log, warn, "answer on stdout unreadable", %why, "an answer on stdout cannot be read");
        let words = "the answer is not a readable JSON-RPC message";
        self.pending.end(id, Attempt::unreadable(words));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
