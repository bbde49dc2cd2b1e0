//! One configured server: its connections, how many calls it gets at a time, and what a call comes to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use metrics::{Counter, Gauge, Histogram};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::attempt::{Attempt, Lost, Outgoing, says_not_begun};
use super::config::{Connection, Identity, ServerConfig, TransportConfig};
use super::definition::{self, Offer};
use super::link::{Link, Listener, Session, State};
use super::log;
use super::meta::IdentitySigner;
use super::outputs::Outputs;
use super::peer;
use super::pins::{AcceptedTool, PinError, Pins};
use super::registry::Registry;
use super::result::{self, ERROR_BYTES, Said};
use super::source::Source;
use super::status::{ServerState, ServerStatus};
use super::users::Users;
use crate::domain::budget::Budget;
use crate::domain::journal::{CallFailure, WordsOf};
use crate::domain::tool::{FailureCode, Tool};
use crate::ports::tools::{CallReply, CallRequest, LeftOut};

/// A call waits this long for a connection that is being opened.
const WAIT: Duration = Duration::from_secs(2);
/// A server that has not answered a call in this time is slow or hangs, however long the call might have taken.
const FAIR: Duration = Duration::from_secs(5);

/// What all servers share.
pub(super) struct Common {
    pub(super) registry: Registry,
    pub(super) pins: Pins,
    pub(super) signer: Option<IdentitySigner>,
    /// The memory that answers take.
    pub(super) answers: Arc<Budget>,
    pub(super) base_env: Arc<Vec<(&'static str, String)>>,
    pub(super) attempt_limit: Duration,
    pub(super) result_bytes: usize,
    pub(super) max_users: usize,
    pub(super) user_idle: Duration,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

/// One server.
pub(super) struct Server {
    pub(super) config: Arc<ServerConfig>,
    source: Arc<Source>,
    common: Arc<Common>,
    /// The connection that lists; calls of all users go over it unless each has their own.
    link: Arc<Link>,
    users: Option<Arc<Users>>,
    shelf: Arc<Shelf>,
    /// Closed at the shutdown.
    permits: Semaphore,
    outputs: Outputs,
    meters: Meters,
}

struct Meters {
    answered: Counter,
    not_sent: Counter,
    failed: Counter,
    unknown: Counter,
    seconds: Histogram,
}

impl Server {
    /// Starts connecting in the background, unless the server is off.
    pub(super) fn start(config: ServerConfig, common: &Arc<Common>) -> Self {
        let source = Source::new(&config, &common.answers);
        let config = Arc::new(config);
        let shelf = Arc::new(Shelf {
            config: config.clone(),
            source: source.clone(),
            common: common.clone(),
            listed: Mutex::default(),
        });
        let link = Link::new(config.clone(), source.clone(), common, shelf.clone());
        let per_user = config.gavel.connection == Connection::PerUser;
        let users = per_user.then(|| Users::new(&config, &source, common));
        if let Some(users) = &users {
            common.tasks.spawn(users.clone().watch());
        }
        match &config.off {
            Some(reason) => {
                link.stop();
                common.registry.down(&config.name, reason, false);
            }
            None => {
                common.registry.connecting(&config.name);
                is_up(&config).set(0.0);
                common.tasks.spawn(link.clone().supervise());
            }
        }
        let calls = |outcome| metrics::counter!("gavel_mcp_calls_total", "server" => config.name.to_string(), "outcome" => outcome);
        Self {
            meters: Meters {
                answered: calls("answered"),
                not_sent: calls("not_sent"),
                failed: calls("failed"),
                unknown: calls("unknown"),
                seconds: metrics::histogram!("gavel_mcp_call_seconds", "server" => config.name.to_string()),
            },
            permits: Semaphore::new(config.gavel.max_concurrent),
            common: common.clone(),
            users,
            outputs: Outputs::default(),
            config,
            source,
            link,
            shelf,
        }
    }

    /// Is it being connected for the first time?
    pub(super) fn is_starting(&self) -> bool {
        self.config.off.is_none() && self.link.is_starting()
    }

    /// Waits until it is connected or known to be down.
    pub(super) async fn started(&self) {
        self.link.started().await;
    }

    /// Lists its tools again.
    ///
    /// # Errors
    /// Why they could not be listed.
    pub(super) async fn refresh(&self, deadline: Instant) -> Result<(), String> {
        match &self.config.off {
            Some(reason) => Err(reason.clone()),
            None => self.link.refresh(deadline).await,
        }
    }

    pub(super) fn shelf(&self) -> &Arc<Shelf> {
        &self.shelf
    }

    /// Makes one call.
    pub(super) async fn call(&self, request: CallRequest<'_>) -> CallReply {
        let started = Instant::now();
        let reply = self.attempt(&request, started).await;
        let (counter, outcome) = match &reply {
            CallReply::Data(_) => (&self.meters.answered, "answered"),
            CallReply::NotSent(_) => (&self.meters.not_sent, "not_sent"),
            CallReply::Failed(_) => (&self.meters.failed, "failed"),
            CallReply::Unknown(_) => (&self.meters.unknown, "unknown"),
        };
        counter.increment(1);
        let took = started.elapsed();
        self.meters.seconds.record(took.as_secs_f64());
        if let CallReply::NotSent(failure) | CallReply::Failed(failure) | CallReply::Unknown(failure) = &reply {
            tracing::debug!(
                server = &*self.config.name,
                tool = &*request.tool.name,
                outcome,
                code = failure.code.as_str(),
                ms = took.as_millis(),
                "call"
            );
        }
        reply
    }

    async fn attempt(&self, request: &CallRequest<'_>, started: Instant) -> CallReply {
        let link = match &self.users {
            None => self.link.clone(),
            Some(users) => match users.link(request.user) {
                Ok(link) => link,
                Err(words) => return unavailable(words),
            },
        };
        let permit = match link.breaker.admit(started) {
            Ok(permit) => permit,
            Err(pause) => {
                let ms = pause.as_millis();
                return unavailable(format!(
                    "many calls in a row did not get through; tried again in {ms} ms"
                ));
            }
        };
        let identity = match self.identity(request.user) {
            Ok(identity) => identity,
            Err(error) => return unavailable(format!("no identity token: {error}")),
        };
        let outgoing = Outgoing {
            request,
            identity: identity.as_deref(),
            deadline: started + request.timeout,
        };
        let (attempt, given) = tokio::select! {
            biased;
            slot = self.permits.acquire() => match slot {
                Ok(_slot) => {
                    let given = outgoing.deadline.saturating_duration_since(Instant::now());
                    let compare = Compare {
                        at_all: self.config.gavel.pin || request.has_leave,
                        // Only the connection that lists has been asked: this one may have heard nothing for long.
                        read_anew: self.users.is_some() && request.has_leave,
                    };
                    (send(&link, &outgoing, started, compare).await, given)
                }
                Err(_) => return not_sent(Lost::Cancelled, "gavel is shutting down".to_owned()),
            },
            lost = outgoing.given_up() => {
                return not_sent(lost, format!("{} for a free place", lost.words(request.timeout)));
            }
        };
        match &attempt {
            Attempt::Result(..) | Attempt::Error { .. } | Attempt::Refused(_) | Attempt::SessionGone => {
                permit.answered();
            }
            Attempt::NotSent(lost, _) | Attempt::Lost(lost, _) if tells_of_the_server(*lost, request.tool, given) => {
                if permit.fault(Instant::now()) {
                    // It may take calls and never answer one: then it is connected to, or started, anew.
                    link.suspect();
                }
            }
            Attempt::NotSent(..) | Attempt::Lost(..) => drop(permit),
        }
        let words_of = match self.config.gavel.expose_errors {
            true => WordsOf::TrustedServer,
            false => WordsOf::Server,
        };
        match self.reply(request.tool, attempt) {
            CallReply::Failed(failure) => CallReply::Failed(CallFailure { words_of, ..failure }),
            CallReply::Unknown(failure) => CallReply::Unknown(CallFailure { words_of, ..failure }),
            reply @ (CallReply::Data(_) | CallReply::NotSent(_)) => reply,
        }
    }

    fn reply(&self, tool: &Tool, attempt: Attempt) -> CallReply {
        let (code, message) = match attempt {
            // What it takes of the budget is given back when what is left of it is made.
            Attempt::Result(text, _held) => match result::read(&text, self.common.result_bytes, &self.source) {
                Said::Reply(CallReply::Data(data)) => {
                    self.outputs.check(tool, &data, &self.source);
                    return CallReply::Data(data);
                }
                Said::Reply(reply) => return reply,
                Said::Unreadable(why) => return unknown(tool, Lost::Connection, why),
                Said::Task => {
                    let why = "it went on as a task on the server, which gavel does not follow".to_owned();
                    return unknown(tool, Lost::Connection, why);
                }
            },
            Attempt::Error { code, message } => {
                let message = format!("{message} (code {code})");
                if tool.side_effect && !says_not_begun(code) {
                    return unknown(tool, Lost::Connection, message);
                }
                (FailureCode::ProtocolError, message)
            }
            Attempt::Refused(message) => (FailureCode::ProtocolError, message),
            Attempt::SessionGone => (
                FailureCode::ProtocolError,
                "the server does not keep its session".to_owned(),
            ),
            Attempt::NotSent(lost, message) => return not_sent(lost, message),
            Attempt::Lost(lost, message) => return unknown(tool, lost, message),
        };
        CallReply::Failed(CallFailure::new(code, message))
    }

    fn identity(&self, user: &str) -> Result<Option<String>, String> {
        match (&self.config.gavel.identity, &self.common.signer) {
            (Identity::Token, Some(signer)) => signer.sign(&self.config.name, user).map(Some),
            (Identity::Token, None) => Err("no secret is set".to_owned()),
            (Identity::None | Identity::Argument(_), _) => Ok(None),
        }
    }

    /// Tells of what was not logged.
    pub(super) fn flush_log(&self) {
        self.source.log.flush();
    }

    /// Calls that wait for a place wait no longer, and none gets one any more.
    pub(super) fn close(&self) {
        self.permits.close();
    }

    /// How it is.
    pub(super) fn status(&self) -> ServerStatus {
        let (transport, place) = match &self.config.transport {
            Some(config @ TransportConfig::Stdio { .. }) => (Some("stdio"), Some(config.place())),
            Some(config @ TransportConfig::Http { .. }) => (Some("http"), Some(config.place())),
            None => (None, None),
        };
        let mut session: Option<Arc<Session>> = None;
        let (state, reason) = match (&self.config.off, self.link.state()) {
            (Some(reason), _) => (ServerState::Off, Some(reason.clone())),
            (None, State::Up(up)) => {
                session = Some(up);
                (ServerState::Up, None)
            }
            (None, State::Connecting { lost }) => (ServerState::Connecting, lost.map(|reason| reason.to_string())),
            (None, State::Down(reason)) => (ServerState::Down, Some(reason.to_string())),
            (None, State::Closed) => (ServerState::Down, Some("closed".to_owned())),
        };
        let catalog = self.common.registry.current();
        let name = &self.config.name;
        ServerStatus {
            name: name.clone(),
            transport,
            place,
            state,
            reason,
            protocol: session.as_ref().map(|session| session.protocol.clone()),
            software: session.as_ref().and_then(|session| session.software.clone()),
            pid: session.as_ref().and_then(|session| session.pid),
            tools: catalog.tools.iter().filter(|tool| tool.server == *name).count(),
            left_out: catalog.left_out.iter().filter(|left| left.server == *name).count(),
            connections: self.link.opened(),
            users: self.users.as_ref().map_or(0, |users| users.count()),
            breaker_open: match &self.users {
                None => self.link.breaker.is_open(),
                Some(users) => users.all_failing(),
            },
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Is the tool compared with what its server lists over the connection?
#[derive(Clone, Copy)]
struct Compare {
    at_all: bool,
    /// After the server was asked over this connection.
    read_anew: bool,
}

/// Sends it; once more when the session was of no use and nothing can have begun.
async fn send(link: &Link, outgoing: &Outgoing<'_>, started: Instant, compare: Compare) -> Attempt {
    let wait = outgoing.deadline.min(started + WAIT);
    let mut again = true;
    let mut is_read = false;
    loop {
        let session = tokio::select! {
            session = link.session(wait) => session,
            () = outgoing.cancel().cancelled() => {
                return Attempt::NotSent(Lost::Cancelled, "cancelled before it could be sent".to_owned());
            }
        };
        let session = match session {
            Ok(session) => session,
            // Its own time was over before a connection could be there.
            Err(reason) if Instant::now() >= outgoing.deadline => {
                return Attempt::NotSent(Lost::Timeout, reason.to_owned());
            }
            Err(reason) => return Attempt::NotSent(Lost::Connection, reason.to_owned()),
        };
        // Each time anew: the way here may have taken long.
        if !outgoing.may_be_sent() {
            return outgoing.lease_lost();
        }
        // It may be another session than the one over which its server was last asked; or one that has not heard of a change.
        let differs = compare.at_all && !session.offers(outgoing.request.tool);
        if (differs || compare.read_anew) && !is_read {
            is_read = true;
            let _ = link.refresh(outgoing.deadline.min(Instant::now() + WAIT)).await;
            continue;
        }
        if differs {
            return Attempt::NotSent(Lost::Changed, Lost::Changed.words(outgoing.request.timeout));
        }
        let attempt = send_over(&session, outgoing).await;
        match &attempt {
            Attempt::SessionGone if again => link.renew(&session),
            Attempt::NotSent(Lost::Connection, _) if again && session.direct.is_none() => link.renew(&session),
            Attempt::NotSent(Lost::Connection, _) | Attempt::Lost(Lost::Connection, _) => {
                link.suspect();
                return attempt;
            }
            _ => return attempt,
        }
        again = false;
    }
}

/// Does a call that was given this much time and was lost in this way speak against its server? One that was cancelled
/// does not, nor does one to which its run had little time left to give.
fn tells_of_the_server(lost: Lost, tool: &Tool, given: Duration) -> bool {
    match lost {
        Lost::Connection => true,
        Lost::Cancelled | Lost::Lease | Lost::Changed | Lost::NoRoom => false,
        // What little of it was spent on the way here is forgiven.
        Lost::Timeout => given >= tool.timeout.min(FAIR).mul_f64(0.9),
    }
}

async fn send_over(session: &Session, outgoing: &Outgoing<'_>) -> Attempt {
    let attempt = match &session.direct {
        Some(direct) => direct.call(outgoing).await,
        None => peer::call(&session.peer, &session.beside, &session.source, outgoing).await,
    };
    let hidden = |words: String| session.source.said(&words, ERROR_BYTES).into_owned();
    match attempt {
        Attempt::Refused(words) => Attempt::Refused(hidden(words)),
        Attempt::NotSent(lost, words) => Attempt::NotSent(lost, hidden(words)),
        Attempt::Lost(lost, words) => Attempt::Lost(lost, hidden(words)),
        // They were made of the server's words, and came without secrets.
        attempt @ (Attempt::Result(..) | Attempt::Error { .. } | Attempt::SessionGone) => attempt,
    }
}

fn unavailable(message: String) -> CallReply {
    CallReply::NotSent(CallFailure::new(FailureCode::Unavailable, message))
}

fn not_sent(lost: Lost, message: String) -> CallReply {
    let code = match lost {
        // The run itself was over.
        Lost::Cancelled => FailureCode::LimitReached,
        Lost::Timeout | Lost::Connection | Lost::Lease | Lost::Changed | Lost::NoRoom => FailureCode::Unavailable,
    };
    CallReply::NotSent(CallFailure::new(code, message))
}

fn unknown(tool: &Tool, lost: Lost, message: String) -> CallReply {
    let code = match lost {
        _ if tool.side_effect => FailureCode::InDoubt,
        Lost::Timeout | Lost::Cancelled => FailureCode::Timeout,
        Lost::NoRoom => FailureCode::Overloaded,
        Lost::Connection | Lost::Lease | Lost::Changed => FailureCode::ProtocolError,
    };
    CallReply::Unknown(CallFailure::new(code, message))
}

/// A server's tools on their way to the catalog: read, and held back where they are pinned.
pub(super) struct Shelf {
    config: Arc<ServerConfig>,
    source: Arc<Source>,
    common: Arc<Common>,
    listed: Mutex<Listed>,
}

/// What a server offers.
#[derive(Default)]
struct Listed {
    /// All that could be read, held back or not.
    offer: Offer,
    /// Is the server there? Only then may its tools be put into the catalog.
    connected: bool,
    /// What is held back.
    held: Vec<LeftOut>,
}

impl Shelf {
    /// The tools that are held back, as the server gives them now.
    pub(super) fn held_back(&self) -> Vec<Arc<Tool>> {
        let listed = lock(&self.listed);
        let is_held = |tool: &&Arc<Tool>| listed.held.iter().any(|held| *held.tool == *tool.name);
        let tools = listed.offer.tools.iter().filter(|_| listed.connected);
        tools.filter(is_held).cloned().collect()
    }

    /// Accepts the definition a pinned tool has now; with `digest` only if that is its digest.
    ///
    /// # Errors
    /// [`PinError`].
    pub(super) fn accept(&self, tool: &str, digest: Option<&str>) -> Result<AcceptedTool, PinError> {
        let server = &self.config.name;
        if !self.config.gavel.pin {
            return Err(PinError::NotPinned(server.to_string()));
        }
        let mut listed = lock(&self.listed);
        let mut known = listed.offer.tools.iter().filter(|_| listed.connected);
        let Some(tool) = known.find(|known| &*known.name == tool).cloned() else {
            return Err(PinError::UnknownTool {
                server: server.to_string(),
                tool: tool.to_owned(),
            });
        };
        if digest.is_some_and(|digest| *digest != *tool.digest) {
            return Err(PinError::OtherDigest {
                server: server.to_string(),
                tool: tool.name.to_string(),
                now: tool.digest.to_string(),
            });
        }
        let before = self.common.pins.accept(server, &tool.name, &tool.digest)?;
        self.publish(&mut listed);
        Ok(AcceptedTool { before, tool })
    }

    /// Is this a server whose tools are pinned?
    pub(super) fn is_pinned(&self) -> bool {
        self.config.gavel.pin
    }

    /// What is held back may have been accepted meanwhile, by another process.
    ///
    /// It reads a file and may wait for its lock, so it is no work for an async task.
    pub(super) fn look_again(&self) {
        let mut listed = lock(&self.listed);
        if !listed.held.is_empty() {
            self.publish(&mut listed);
        }
    }

    fn publish(&self, listed: &mut Listed) {
        if !listed.connected {
            return;
        }
        let mut offer = Offer {
            tools: listed.offer.tools.clone(),
            left_out: listed.offer.left_out.clone(),
        };
        if self.config.gavel.pin {
            let held = self.hold_back(&mut offer);
            for left in held.iter().filter(|left| !listed.held.contains(left)) {
                log::line!(
                    self.source.log,
                    warn,
                    "tool held back",
                    tool = left.tool,
                    reason = left.reason,
                    "tool held back"
                );
            }
            for left in &listed.held {
                if !held.iter().any(|still| still.tool == left.tool) {
                    log::line!(
                        self.source.log,
                        info,
                        "tool no longer held back",
                        tool = left.tool,
                        "tool no longer held back"
                    );
                }
            }
            offer.left_out.extend(held.iter().cloned());
            listed.held = held;
        }
        self.common.registry.up(&self.config.name, offer);
    }

    /// Takes the tools out of the offer that are not as accepted.
    fn hold_back(&self, offer: &mut Offer) -> Vec<LeftOut> {
        let name = &self.config.name;
        let digests: Vec<_> = offer.tools.iter().map(|tool| (&*tool.name, &*tool.digest)).collect();
        let held: Vec<_> = match self.common.pins.check(name, &digests) {
            Ok(changed) => changed
                .into_iter()
                .map(|tool| {
                    let reason = format!(
                        "its definition is not the accepted one; `gavel mcp inspect {name} {tool}` shows it, \
                         `gavel mcp accept {name} {tool}` accepts it"
                    );
                    (tool.to_owned(), reason)
                })
                .collect(),
            // What is accepted is not known, so nothing is.
            Err(error) => {
                let reason = format!("what is accepted could not be read or kept: {error}");
                digests
                    .iter()
                    .map(|(tool, _)| ((*tool).to_owned(), reason.clone()))
                    .collect()
            }
        };
        offer
            .tools
            .retain(|tool| !held.iter().any(|(held, _)| **held == *tool.name));
        let left_out = held.into_iter().map(|(tool, reason)| LeftOut {
            server: name.clone(),
            tool,
            reason,
        });
        left_out.collect()
    }
}

impl Listener for Shelf {
    fn listed(&self, list: &[Value]) {
        let mut listed = lock(&self.listed);
        let offer = definition::read(&self.config, &self.source, list, &listed.offer.tools);
        let new = |left: &&LeftOut| !listed.offer.left_out.contains(left);
        for left in offer.left_out.iter().filter(new) {
            log::line!(
                self.source.log,
                warn,
                "tool left out",
                tool = left.tool,
                reason = left.reason,
                "tool left out"
            );
        }
        listed.offer = offer;
        for name in self.config.gavel.tools.keys() {
            if !listed.offer.tools.iter().any(|tool| *tool.name == **name) {
                log::line!(
                    self.source.log,
                    warn,
                    "settings for no tool",
                    tool = name,
                    "settings for a tool that is not offered"
                );
            }
        }
        listed.connected = true;
        self.publish(&mut listed);
        is_up(&self.config).set(1.0);
    }

    fn lost(&self, reason: &str, soon: bool) {
        // The lock is kept, so that nobody puts the tools back at the same time.
        let mut listed = lock(&self.listed);
        listed.connected = false;
        self.common.registry.down(&self.config.name, reason, soon);
        is_up(&self.config).set(0.0);
    }
}

fn is_up(server: &ServerConfig) -> Gauge {
    metrics::gauge!("gavel_mcp_server_up", "server" => server.name.to_string())
}
