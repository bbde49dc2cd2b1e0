//! One connection to a server, kept alive: opened in the background, monitored, and reopened when it is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gavel_upstream::breaker::Breaker;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::error::Elapsed;
use tokio_util::sync::CancellationToken;

use super::attempt::Fault;
use super::config::ServerConfig;
use super::connect::{self, List, Open};
use super::connection::SideTasks;
use super::connection::{Common, Connection};
use super::inbox::Flood;
use super::log;
use super::source::Source;
use crate::ports::metrics::{Counter, MCP_BREAKER, MCP_LOST};

/// Consecutive faults after which calls are rejected for a while, and for how long.
const FAULTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A connection that lasted this long was good, and is reopened immediately when it is lost.
const STABLE: Duration = Duration::from_secs(5);
const CLOSE: Duration = Duration::from_secs(10);
/// The message for callers after a connection was closed permanently.
const CLOSED: &str = "the connection to the server is closed";

/// Receives a connection's tools and losses. It may read and write files, and is called on a blocking thread.
pub(super) trait Listener: Send + Sync {
    /// These are its tools, listed for the first time or again.
    fn listed(&self, list: &[Value]);
    /// The connection is lost. With `soon`, it is being reopened at this moment.
    fn lost(&self, reason: &str, soon: bool);
}

/// The state of a connection.
#[derive(Clone)]
pub(super) enum State {
    /// Being opened. `lost` is why the previous connection ended, if there was one.
    Connecting {
        lost: Option<Arc<str>>,
    },
    Up(Arc<Connection>),
    Down(Arc<str>),
    Closed,
}

/// One connection that is kept alive.
pub(super) struct Link {
    server: Arc<ServerConfig>,
    pub(super) source: Arc<Source>,
    base_env: Arc<Vec<(&'static str, String)>>,
    listener: Arc<dyn Listener>,
    attempt_limit: Duration,
    /// Whether calls succeed.
    pub(super) breaker: Breaker,
    state: watch::Sender<State>,
    /// Counts started lists and failed attempts to connect.
    begun: AtomicU64,
    /// The latest of them that has ended, for callers that requested a new list.
    ended: watch::Sender<u64>,
    background: SideTasks,
    poke: Notify,
    /// A new list is requested immediately.
    relist: Notify,
    stop: CancellationToken,
    opened: AtomicU64,
}

fn connections_lost(server: &ServerConfig) -> Counter {
    MCP_LOST.with([server.name.to_string().into()])
}

impl Link {
    pub(super) fn new(
        server: Arc<ServerConfig>,
        source: Arc<Source>,
        common: &Common,
        listener: Arc<dyn Listener>,
    ) -> Arc<Self> {
        let gauge = MCP_BREAKER.with([server.name.to_string().into()]);
        // Registered from the start, otherwise the first increase is not visible.
        connections_lost(&server).increment(0);
        Arc::new(Self {
            server,
            source,
            base_env: common.base_env.clone(),
            listener,
            attempt_limit: common.attempt_limit,
            breaker: Breaker::new(FAULTS, FIRST_PAUSE..=LONGEST_PAUSE, gauge),
            state: watch::Sender::new(State::Connecting { lost: None }),
            begun: AtomicU64::new(0),
            ended: watch::Sender::new(0),
            background: SideTasks::new(&common.tasks),
            poke: Notify::new(),
            relist: Notify::new(),
            stop: common.stop.child_token(),
            opened: AtomicU64::new(0),
        })
    }

    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Is it being opened for the first time?
    pub(super) fn is_starting(&self) -> bool {
        matches!(*self.state.borrow(), State::Connecting { lost: None })
    }

    /// How often it was opened.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Waits while it is being opened, at most until `deadline`.
    ///
    /// # Errors
    /// There is no connection, in a message for callers. The reason is only for operators, in the status and the log,
    /// because it may contain text that the server wrote to stderr.
    pub(super) async fn connection(&self, deadline: Instant) -> Result<Arc<Connection>, &'static str> {
        if let State::Up(connection) = &*self.state.borrow()
            && connection.is_usable()
        {
            return Ok(connection.clone());
        }
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| match state {
            State::Connecting { .. } => false,
            State::Up(connection) => connection.is_usable(),
            State::Down(_) | State::Closed => true,
        });
        match tokio::time::timeout_at(deadline.into(), settled).await {
            Ok(Ok(state)) => match &*state {
                State::Up(connection) => Ok(connection.clone()),
                State::Down(_) => Err("the server is not connected; gavel retries in the background"),
                State::Closed | State::Connecting { .. } => Err(CLOSED),
            },
            Ok(Err(_)) => Err(CLOSED),
            Err(_) => Err("the server is still being connected"),
        }
    }

    /// Waits until the first attempt has ended.
    pub(super) async fn started(&self) {
        let mut state = self.state.subscribe();
        // The sender lives in `self`, so the wait always ends.
        let _ = state
            .wait_for(|state| !matches!(state, State::Connecting { lost: None }))
            .await;
    }

    /// This connection is no longer usable, for this reason: a new one is opened.
    pub(super) fn renew(&self, connection: &Connection, why: &str) {
        if connection.end(why) {
            self.poke.notify_one();
        }
    }

    /// Until when the server asked not to be called.
    pub(super) fn rests(&self) -> Option<Instant> {
        self.background.rests()
    }

    /// A call could not reach the server, so the server is checked.
    pub(super) fn suspect(&self) {
        self.background.suspect.notify_one();
    }

    /// Lists the tools again immediately, or connects immediately instead of after the pause. A list that was started
    /// earlier does not count, because it may lack recent changes.
    ///
    /// # Errors
    /// Why there is no connection afterwards.
    pub(super) async fn refresh(&self, deadline: Instant) -> Result<(), String> {
        let before = self.begun.load(Ordering::Acquire);
        let mut ended = self.ended.subscribe();
        self.relist.notify_one();
        self.poke.notify_one();
        let listed = ended.wait_for(|ended| *ended > before);
        if tokio::time::timeout_at(deadline.into(), listed).await.is_err() {
            return Err("it did not answer in time".to_owned());
        }
        match self.state() {
            State::Up(_) | State::Connecting { .. } => Ok(()),
            State::Down(reason) => Err(reason.to_string()),
            State::Closed => Err("closed".to_owned()),
        }
    }

    /// Stops the link.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    /// Keeps the connection alive until it is stopped.
    pub(super) async fn supervise(self: Arc<Self>) {
        let mut pause = Pause::default();
        'connections: loop {
            let attempt = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                attempt = self.open() => attempt,
            };
            let fault = match attempt {
                (number, Ok(Ok(open))) => {
                    let since = Instant::now();
                    let inbox = open.connection.inbox.clone();
                    let reason = self.attend(open, number).await;
                    if self.stop.is_cancelled() {
                        break;
                    }
                    connections_lost(&self.server).increment(1);
                    if inbox.is_flooded() {
                        // The server would probably flood again, so it is not reopened immediately.
                        Some(Fault::passing(Flood.to_string()))
                    } else {
                        log::line!(self.source.log, warn, "connection lost", reason);
                        let reason: Arc<str> = Arc::from(reason);
                        let lost = reason.clone();
                        self.tell(move |listener| listener.lost(&lost, true)).await;
                        self.state.send_replace(State::Connecting { lost: Some(reason) });
                        if since.elapsed() >= STABLE {
                            pause = Pause::default();
                            if self.rests().is_none() {
                                continue;
                            }
                        }
                        None
                    }
                }
                (_, Ok(Err(fault))) => Some(fault),
                (_, Err(_)) => Some(Fault::passing(format!(
                    "no handshake within {} ms",
                    self.attempt_limit.as_millis()
                ))),
            };
            let is_lasting = fault.as_ref().is_some_and(|fault| fault.is_lasting);
            if let Some(Fault { words: reason, .. }) = fault {
                log::line!(self.source.log, warn, "not connected", reason);
                let reason: Arc<str> = Arc::from(reason);
                let lost = reason.clone();
                self.tell(move |listener| listener.lost(&lost, false)).await;
                self.state.send_replace(State::Down(reason));
                // Callers that requested a list meanwhile are also answered.
                self.has_ended(self.next_number());
            }
            let over = Instant::now() + pause.after(is_lasting);
            loop {
                let rests = self.rests();
                tokio::select! {
                    () = self.stop.cancelled() => break 'connections,
                    () = until(Some(rests.map_or(over, |rests| rests.max(over)))) => break,
                    // An operator does not wait for gavel's own pause, but for a pause that the server requested.
                    () = self.poke.notified() => match rests {
                        None => break,
                        Some(_) => self.has_ended(self.next_number()),
                    },
                }
            }
        }
        self.state.send_replace(State::Closed);
    }

    /// One attempt to connect, with the number of its list.
    async fn open(&self) -> (u64, Result<Result<Open, Fault>, Elapsed>) {
        let number = self.next_number();
        let opened = connect::open(&self.server, &self.base_env, &self.source, &self.background);
        (number, tokio::time::timeout(self.attempt_limit, opened).await)
    }

    fn next_number(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn has_ended(&self, number: u64) {
        self.ended.send_modify(|ended| *ended = number.max(*ended));
    }

    /// Calls the listener, and waits until it has finished.
    async fn tell(&self, what: impl FnOnce(&dyn Listener) + Send + 'static) {
        let listener = self.listener.clone();
        if tokio::task::spawn_blocking(move || what(&*listener)).await.is_err() {
            tracing::error!(
                server = &*self.server.name,
                "its tools could not be added to the catalog"
            );
        }
    }
}

// How long a link waits before it reconnects.

/// Pauses between attempts: doubled each time, with jitter.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// The same after a fault that another attempt does not change.
const FIRST_LASTING: Duration = Duration::from_secs(10);
const LONGEST_LASTING: Duration = Duration::from_secs(300);

/// Growing pauses.
#[derive(Default)]
pub(super) struct Pause {
    faults: u32,
    lasting: u32,
}

impl Pause {
    /// The pause after a fault. `lasting` means that the server's program or the configuration is at fault, so that
    /// another attempt changes nothing.
    pub(super) fn after(&mut self, lasting: bool) -> Duration {
        let longest = match lasting {
            true => doubled(FIRST_LASTING, &mut self.lasting, LONGEST_LASTING),
            false => {
                self.lasting = 0;
                doubled(FIRST, &mut self.faults, LONGEST)
            }
        };
        // Between half and the full pause, so that replicas that lost a server together do not reconnect together.
        longest.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

fn doubled(first: Duration, times: &mut u32, longest: Duration) -> Duration {
    let pause = first.saturating_mul(1 << (*times).min(10)).min(longest);
    *times += 1;
    pause
}

/// How long a list of tools must remain unchanged before it is read, because changes come in bursts. A server that
/// reports a change after every read is asked less and less often.
#[derive(Debug)]
pub(super) struct Settle {
    pause: Duration,
    read: Option<Instant>,
}

impl Settle {
    pub(super) const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(60);
    /// A list without changes for this long is settled.
    const QUIET: Duration = Duration::from_secs(1);

    pub(super) fn new() -> Self {
        Self {
            pause: Self::FIRST,
            read: None,
        }
    }

    /// The pause after a change that was reported at `now`.
    pub(super) fn after(&mut self, now: Instant) -> Duration {
        let is_at_once = self.read.is_some_and(|read| now.duration_since(read) < Self::QUIET);
        self.pause = match is_at_once {
            true => (self.pause * 2).min(Self::LONGEST),
            false => Self::FIRST,
        };
        self.pause
    }

    /// Records that the list was read.
    pub(super) fn is_read(&mut self, now: Instant) {
        self.read = Some(now);
    }
}

/// Delay before an unreadable list is read again, doubled each time.
const RELIST: Duration = Duration::from_secs(10);

const LONGEST_RELIST: Duration = Duration::from_secs(600);

/// How long a server may take to show that it is alive, or to close.
const PROBE: Duration = Duration::from_secs(2);

impl Link {
    /// Monitors an open connection until it ends, and returns why it ended. Its list was started under this number.
    // Longer than a screen: one loop over everything that can happen to a connection, with one branch for each.
    async fn attend(&self, open: Open, number: u64) -> String {
        let Open { connection, list } = open;
        // Its tools are offered a moment before it can be called. A very early caller waits for that moment.
        self.state.send_if_modified(|state| match state {
            State::Down(reason) => {
                let lost = Some(reason.clone());
                *state = State::Connecting { lost };
                true
            }
            _ => false,
        });
        self.opened.fetch_add(1, Ordering::Relaxed);
        log::line!(
            self.source.log,
            info,
            "connected",
            protocol = connection.hello.protocol,
            software = connection.hello.software.as_deref().unwrap_or_default(),
            tools = list.tools.len()
        );
        self.breaker.reset();
        self.tell_of(&connection, list).await;
        self.state.send_replace(State::Up(connection.clone()));
        self.has_ended(number);

        let mut closed = std::pin::pin!(connection.closed());
        // At most one of each is in progress, alongside everything else.
        let (mut listening, mut probe, mut relist) = (Some(Box::pin(connection.listen())), None, None);
        let mut listen_at = None;
        let read = |limit| {
            let number = self.next_number();
            let list = read_list(&connection, limit);
            Some(Box::pin(async move { (number, list.await) }))
        };
        let (mut relist_at, mut relist_pause) = (None, RELIST);
        let mut settle = Settle::new();
        let reason = loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break "stopped".to_owned(),
                () = connection.inbox.flooded() => break Flood.to_string(),
                reason = &mut closed => return reason,
                () = self.poke.notified() => if let Some(why) = connection.ended() {
                    break why.to_owned();
                },
                () = self.background.suspect.notified(), if probe.is_none() && self.rests().is_none() && connection.is_usable() => {
                    probe = read(PROBE);
                }
                // An approval waits for it, so it is read without a pause.
                () = self.relist.notified(), if relist.is_none() && self.rests().is_none() => {
                    relist_at = None;
                    relist = read(self.attempt_limit);
                }
                () = self.background.changed.notified(), if relist.is_none() => {
                    let now = Instant::now();
                    let rests = self.rests().map_or(Duration::ZERO, |until| until.duration_since(now));
                    let soon = now + settle.after(now).max(rests);
                    relist_at = Some(relist_at.map_or(soon, |at: Instant| at.min(soon)));
                }
                () = until(relist_at), if relist.is_none() => {
                    relist_at = None;
                    relist = read(self.attempt_limit);
                }
                (number, listed) = under_way(&mut probe) => match listed {
                    Ok(list) => self.listed(&connection, list, number).await,
                    // The server accepts calls but answers none, or is unreachable.
                    Err(fault) if connection.is_usable() => break fault.words,
                    Err(_) => {}
                },
                (number, listed) = under_way(&mut relist) => match listed {
                    Ok(list) => {
                        relist_pause = RELIST;
                        settle.is_read(Instant::now());
                        self.listed(&connection, list, number).await;
                    }
                    // Its calls may still succeed, so the known tools remain. If the request got no answer at all, the
                    // server is checked.
                    Err(fault) => {
                        let reason = fault.words;
                        log::line!(
                            self.source.log,
                            warn,
                            "the changed list could not be read",
                            reason
                        );
                        relist_at = Some(Instant::now() + relist_pause);
                        relist_pause = (relist_pause * 2).min(LONGEST_RELIST);
                        if !fault.answered {
                            self.background.suspect.notify_one();
                        }
                    }
                },
                again = under_way(&mut listening) => listen_at = again,
                () = until(listen_at) => {
                    listen_at = None;
                    listening = Some(Box::pin(connection.listen()));
                    // Changes during the time without a subscription are found by listing.
                    self.background.changed.notify_one();
                }
            }
        };
        drop(listening);
        // No more calls are sent over it.
        connection.end("the connection has ended");
        // Over stdio this ends the child: its stdin is closed, then SIGTERM, then SIGKILL.
        if tokio::time::timeout(CLOSE, connection.close()).await.is_err() {
            log::line!(self.source.log, warn, "the connection did not close in time");
        }
        reason
    }

    async fn listed(&self, connection: &Arc<Connection>, list: List, number: u64) {
        self.tell_of(connection, list).await;
        self.has_ended(number);
    }

    async fn tell_of(&self, connection: &Arc<Connection>, list: List) {
        let connection = connection.clone();
        self.tell(move |listener| {
            connection.now_lists(&list.tools);
            listener.listed(&list.tools);
        })
        .await;
    }
}

/// Lists the tools.
async fn read_list(connection: &Connection, limit: Duration) -> Result<List, Fault> {
    tokio::time::timeout(limit, connect::list(connection))
        .await
        .unwrap_or_else(|_| {
            Err(Fault {
                // The server may be slow but healthy. A failing call triggers a check.
                answered: true,
                ..Fault::passing(format!("no answer to `tools/list` within {} ms", limit.as_millis()))
            })
        })
}

/// Waits for the work in progress, if any.
async fn under_way<F: Future + Unpin>(work: &mut Option<F>) -> F::Output {
    match work {
        Some(running) => {
            let done = running.await;
            *work = None;
            done
        }
        None => std::future::pending().await,
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        for (lasting, first, longest) in [(false, FIRST, LONGEST), (true, FIRST_LASTING, LONGEST_LASTING)] {
            let mut pause = Pause::default();
            let pauses: Vec<_> = (0..12).map(|_| pause.after(lasting)).collect();
            assert!(pauses[0] >= first / 2 && pauses[0] <= first);
            assert!(pauses[3] >= first * 4 && pauses[3] <= first * 8);
            assert!(pauses[11] <= longest && pauses[11] >= longest / 2);
        }
    }

    #[test]
    fn a_list_that_changes_on_every_read_is_read_with_growing_intervals() {
        let mut settle = Settle::new();
        let mut now = Instant::now();
        assert_eq!(settle.after(now), Settle::FIRST);
        settle.is_read(now);
        let pauses: Vec<_> = (0..12)
            .map(|_| {
                let pause = settle.after(now);
                now += pause;
                settle.is_read(now);
                pause
            })
            .collect();
        assert_eq!(pauses[0], Settle::FIRST * 2);
        assert_eq!(pauses[11], Settle::LONGEST);
        assert_eq!(settle.after(now + Settle::QUIET), Settle::FIRST, "it was quiet");
    }
}
