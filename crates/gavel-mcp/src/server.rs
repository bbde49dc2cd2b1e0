//! One configured server: its connections, its concurrency limit, and the outcome of a call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::attempt::{Attempt, Lost, Outgoing};
use super::bridge::{ServerState, ServerStatus};
use super::config::{Connection, Identity, ServerConfig, TransportConfig};
use super::connection::{Common, Connection as Open, Wire};
use super::link::{Link, Listener, State};
use super::result::{self, Said};
use super::source::{Source, says_not_begun};
use super::tool_listing::{ToolListing, is_up};
use crate::domain::budget::{Budget, Limits, Pool, Share};
use crate::domain::journal::{CallFailure, OwnError, WordsOf};
use crate::domain::tool::{FailureCode, Tool};
use crate::ports::metrics::{Counter, Histogram, MCP_CALLS, MCP_SECONDS};
use crate::ports::tools::{CallReply, CallRequest};

/// How long a call waits for a connection that is being opened.
const WAIT: Duration = Duration::from_secs(2);

/// One server.
pub(super) struct Server {
    pub(super) config: Arc<ServerConfig>,
    source: Arc<Source>,
    common: Arc<Common>,
    /// The connection that lists the tools. Calls of all users use it, unless each user has a separate one.
    link: Arc<Link>,
    users: Option<Arc<Users>>,
    listing: Arc<ToolListing>,
    /// Closed at the shutdown.
    slots: Slots,
    metrics: Metrics,
}

struct Metrics {
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
        let listing = Arc::new(ToolListing::new(&config, &source, common));
        let link = Link::new(config.clone(), source.clone(), common, listing.clone());
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
        let calls = |outcome: &'static str| MCP_CALLS.with([config.name.to_string().into(), outcome.into()]);
        Self {
            metrics: Metrics {
                answered: calls("answered"),
                not_sent: calls("not_sent"),
                failed: calls("failed"),
                unknown: calls("unknown"),
                seconds: MCP_SECONDS.with([config.name.to_string().into()]),
            },
            slots: Slots::new(config.gavel.max_concurrent),
            common: common.clone(),
            users,
            config,
            source,
            link,
            listing,
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

    pub(super) fn listing(&self) -> &Arc<ToolListing> {
        &self.listing
    }

    /// Makes one call.
    pub(super) async fn call(&self, request: CallRequest<'_>) -> CallReply {
        let started = Instant::now();
        let reply = self.attempt(&request, started).await;
        let (counter, outcome) = match &reply {
            CallReply::Data(_) => (&self.metrics.answered, "answered"),
            CallReply::NotSent(_) => (&self.metrics.not_sent, "not_sent"),
            CallReply::Failed(_) => (&self.metrics.failed, "failed"),
            CallReply::Unknown(_) => (&self.metrics.unknown, "unknown"),
        };
        counter.increment(1);
        let took = started.elapsed();
        self.metrics.seconds.record(took.as_secs_f64());
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
        if let Some(until) = link.rests() {
            let ms = until.saturating_duration_since(started).as_millis();
            return unavailable(format!(
                "the server asked clients to wait; it is called again in {ms} ms"
            ));
        }
        let permit = match link.breaker.admit(started) {
            Ok(permit) => permit,
            Err(pause) => {
                let ms = pause.as_millis();
                return unavailable(match link.breaker.refuses() {
                    Some(why) => format!("the server refuses all calls: {why}; next attempt in {ms} ms"),
                    None => format!("many calls in a row failed; next attempt in {ms} ms"),
                });
            }
        };
        let identity = match self.identity(request.user) {
            Ok(identity) => identity,
            Err(error) => return unavailable(format!("no identity token: {error}")),
        };
        let arguments = result::written(request.arguments);
        let outgoing = Outgoing {
            request,
            arguments: &arguments,
            identity: identity.as_deref(),
            deadline: started + request.timeout,
        };
        let (attempt, given) = tokio::select! {
            biased;
            slot = self.slots.acquire(request.tenant, request.user) => match slot {
                Some(_slot) => {
                    let given = outgoing.deadline.saturating_duration_since(Instant::now());
                    let compare = Compare {
                        at_all: self.config.gavel.pin || request.is_approved,
                        // Only the listing connection has been asked. This one may have received no updates for a long
                        // time.
                        refresh: self.users.is_some() && request.is_approved,
                    };
                    (send(&link, &outgoing, started, compare).await, given)
                }
                None => return not_sent(Lost::Cancelled, "gavel is shutting down".to_owned()),
            },
            lost = outgoing.given_up() => {
                return not_sent(lost, format!("{} (waiting for a free slot)", lost.words(request.timeout)));
            }
        };
        match &attempt {
            Attempt::Result(..) | Attempt::Error { .. } => permit.answered(),
            // Credentials, a session or an address affect every call. A refusal of this call alone is followed by
            // successful calls.
            Attempt::Refused(why) | Attempt::Stale(why) => permit.refused(Instant::now(), why),
            Attempt::NotSent(lost, _) | Attempt::Lost(lost, _) if tells_of_the_server(*lost, request.tool, given) => {
                if permit.fault(Instant::now()) {
                    // The server may accept calls but never answer. Then it is reconnected or restarted.
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
        let (code, own, message) = match attempt {
            // The answer's share of the budget is released once its capped form is built.
            Attempt::Result(text, _held) => match result::read(&text, self.common.result_bytes, &self.source) {
                Said::Reply(reply) => return reply,
                Said::Unreadable(why) => return unknown(tool, Lost::Unreadable, why),
                Said::Task => {
                    let why = "it continues as a task on the server, which gavel does not follow".to_owned();
                    return unknown(tool, Lost::Unreadable, why);
                }
            },
            Attempt::Error { code, message } => {
                let own = OwnError {
                    code: code.to_string(),
                    details: Default::default(),
                };
                let message = format!("{message} (code {code})");
                if tool.side_effect && !says_not_begun(code) {
                    return unknown(tool, Lost::Connection, message);
                }
                (FailureCode::ProtocolError, Some(Box::new(own)), message)
            }
            Attempt::Refused(message) => (FailureCode::ProtocolError, None, message),
            Attempt::Stale(why) => (FailureCode::ProtocolError, None, why),
            Attempt::NotSent(lost, message) => return not_sent(lost, message),
            Attempt::Lost(lost, message) => return unknown(tool, lost, message),
        };
        CallReply::Failed(CallFailure {
            own,
            ..CallFailure::new(code, message)
        })
    }

    fn identity(&self, user: &str) -> Result<Option<String>, String> {
        match (&self.config.gavel.identity, &self.common.signer) {
            (Identity::Token, Some(signer)) => signer.sign(&self.config.name, user).map(Some),
            (Identity::Token, None) => Err("no secret is set".to_owned()),
            (Identity::None | Identity::Argument(_), _) => Ok(None),
        }
    }

    /// Waiting calls stop waiting for a slot, and no more slots are given out.
    pub(super) fn close(&self) {
        self.slots.close();
    }

    /// The current status.
    pub(super) fn status(&self) -> ServerStatus {
        let (transport, place) = match &self.config.transport {
            Some(config @ TransportConfig::Stdio { .. }) => (Some("stdio"), Some(config.place())),
            Some(config @ TransportConfig::Http { .. }) => (Some("http"), Some(config.place())),
            None => (None, None),
        };
        let mut open: Option<Arc<Open>> = None;
        let (state, reason) = match (&self.config.off, self.link.state()) {
            (Some(reason), _) => (ServerState::Off, Some(reason.clone())),
            (None, State::Up(up)) => {
                open = Some(up);
                match self.link.breaker.refuses() {
                    Some(why) => (ServerState::Down, Some(format!("it refuses all calls: {why}"))),
                    None => (ServerState::Up, None),
                }
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
            protocol: open.as_ref().map(|open| open.hello.protocol.clone()),
            software: open.as_ref().and_then(|open| open.hello.software.clone()),
            pid: open.as_ref().and_then(|open| open.pid()),
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

// Sends a call over a connection, and says what is known about one that was lost.

/// A server that has not answered a call within this time is slow or hangs, however long the call may take.
const FAIR: Duration = Duration::from_secs(5);

/// Is the tool compared with the server's list over the connection?
#[derive(Clone, Copy)]
struct Compare {
    at_all: bool,
    /// After the server was asked over this connection.
    refresh: bool,
}

/// Sends the call, and once more if the session was not usable and nothing can have been started.
async fn send(link: &Link, outgoing: &Outgoing<'_>, started: Instant, compare: Compare) -> Attempt {
    let wait = outgoing.deadline.min(started + WAIT);
    let mut again = true;
    let mut is_read = false;
    loop {
        let connection = tokio::select! {
            connection = link.connection(wait) => connection,
            () = outgoing.cancel().cancelled() => {
                return Attempt::NotSent(Lost::Cancelled, "cancelled before it could be sent".to_owned());
            }
        };
        let connection = match connection {
            Ok(connection) => connection,
            // The call's deadline passed before a connection was available.
            Err(reason) if Instant::now() >= outgoing.deadline => {
                return Attempt::NotSent(Lost::Timeout, reason.to_owned());
            }
            Err(reason) => return Attempt::NotSent(Lost::Connection, reason.to_owned()),
        };
        // Checked before each attempt, because reaching this point may have taken long.
        if !outgoing.may_be_sent() {
            return outgoing.lease_lost();
        }
        // This may be another session than the one over which the server was last asked, or one that missed a change.
        let differs = compare.at_all && !connection.offers(outgoing.request.tool);
        if (differs || compare.refresh) && !is_read {
            is_read = true;
            let _ = link.refresh(outgoing.deadline.min(Instant::now() + WAIT)).await;
            continue;
        }
        if differs {
            return Attempt::NotSent(Lost::Changed, Lost::Changed.words(outgoing.request.timeout));
        }
        let attempt = connection.call(outgoing).await;
        let is_child = matches!(connection.wire, Wire::Process(_));
        match &attempt {
            Attempt::Stale(why) if again => link.renew(&connection, why),
            Attempt::NotSent(Lost::Connection, why) if again && is_child => link.renew(&connection, why),
            Attempt::Stale(why) | Attempt::Lost(Lost::Session, why) => {
                link.renew(&connection, why);
                return attempt;
            }
            Attempt::NotSent(Lost::Connection, _) | Attempt::Lost(Lost::Connection | Lost::Unreadable, _) => {
                link.suspect();
                return attempt;
            }
            _ => return attempt,
        }
        again = false;
    }
}

/// Does the loss of a call that had this much time count against its server? A cancelled call does not count, nor does
/// a call whose run had little time left.
fn tells_of_the_server(lost: Lost, tool: &Tool, given: Duration) -> bool {
    match lost {
        Lost::Connection | Lost::Unreadable | Lost::Session => true,
        Lost::Cancelled | Lost::Lease | Lost::Changed | Lost::NoRoom => false,
        // A small part of the time may have been used before the call was sent.
        Lost::Timeout => given >= tool.timeout.min(FAIR).mul_f64(0.9),
    }
}

fn unavailable(message: String) -> CallReply {
    CallReply::NotSent(CallFailure::new(FailureCode::Unavailable, message))
}

fn not_sent(lost: Lost, message: String) -> CallReply {
    let code = match lost {
        // The run itself had ended.
        Lost::Cancelled => FailureCode::LimitReached,
        _ => FailureCode::Unavailable,
    };
    CallReply::NotSent(CallFailure::new(code, message))
}

fn unknown(tool: &Tool, lost: Lost, message: String) -> CallReply {
    let code = match lost {
        _ if tool.side_effect => FailureCode::InDoubt,
        Lost::Timeout | Lost::Cancelled => FailureCode::Timeout,
        Lost::NoRoom => FailureCode::Overloaded,
        Lost::Connection | Lost::Unreadable | Lost::Session | Lost::Lease | Lost::Changed => FailureCode::ProtocolError,
    };
    CallReply::Unknown(CallFailure::new(code, message))
}

/// The connections to one server.
pub(super) struct Users {
    server: Arc<ServerConfig>,
    source: Arc<Source>,
    common: Arc<Common>,
    /// Each with the time of its last use.
    links: Mutex<HashMap<String, (Arc<Link>, Instant)>>,
    /// One slot for each connection until it has ended. A child takes time to end, and this must not allow more of
    /// them.
    places: Arc<Semaphore>,
}

impl Users {
    pub(super) fn new(server: &Arc<ServerConfig>, source: &Arc<Source>, common: &Arc<Common>) -> Arc<Self> {
        Arc::new(Self {
            server: server.clone(),
            source: source.clone(),
            common: common.clone(),
            links: Mutex::default(),
            places: Arc::new(Semaphore::new(common.max_users)),
        })
    }

    /// The user's own connection. If the maximum is reached, the connection that was idle for longest is closed.
    ///
    /// # Errors
    /// All connections are in use.
    pub(super) fn link(&self, user: &str) -> Result<Arc<Link>, String> {
        let now = Instant::now();
        let mut links = self.lock();
        if let Some((link, used)) = links.get_mut(user) {
            *used = now;
            return Ok(link.clone());
        }
        if links.len() >= self.common.max_users {
            let idle = links.iter().filter(|(_, (link, _))| is_idle(link));
            let longest = idle.min_by_key(|(_, (_, used))| *used).map(|(user, _)| user.clone());
            let Some((link, _)) = longest.and_then(|user| links.remove(&user)) else {
                let most = self.common.max_users;
                return Err(format!(
                    "{most} users have a connection of their own, and all are in use"
                ));
            };
            link.stop();
        }
        let link = Link::new(self.server.clone(), self.source.clone(), &self.common, Arc::new(Deaf));
        let (places, kept) = (self.places.clone(), link.clone());
        self.common.tasks.spawn(async move {
            let _place = places.acquire_owned().await;
            kept.supervise().await;
        });
        links.insert(user.to_owned(), (link.clone(), now));
        Ok(link)
    }

    /// Closes idle connections until gavel stops.
    pub(super) async fn watch(self: Arc<Self>) {
        let pause = self.common.user_idle / 10;
        while self
            .common
            .stop
            .run_until_cancelled(tokio::time::sleep(pause))
            .await
            .is_some()
        {
            self.end_idle();
        }
    }

    fn end_idle(&self) {
        let now = Instant::now();
        self.lock().retain(|_, (link, used)| {
            if !is_idle(link) {
                *used = now;
            }
            let keep = now.duration_since(*used) < self.common.user_idle;
            if !keep {
                link.stop();
            }
            keep
        });
    }

    /// The number of connections.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Do the calls of all connected users fail?
    pub(super) fn all_failing(&self) -> bool {
        let links = self.lock();
        !links.is_empty() && links.values().all(|(link, _)| link.breaker.is_open())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Arc<Link>, Instant)>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Apart from the map, which is locked, only the link's own task holds a link that no call uses.
fn is_idle(link: &Arc<Link>) -> bool {
    Arc::strong_count(link) <= 2
}

/// The listener of a user's own connection. Its tools are those of the server.
struct Deaf;

impl Listener for Deaf {
    fn listed(&self, _: &[Value]) {}
    fn lost(&self, _: &str, _: bool) {}
}

/// The slots of one server: a call takes one of its user's share first, and then one of all.
pub(super) struct Slots {
    all: Semaphore,
    shares: Arc<Budget>,
    /// Signals that a share was returned, or that the slots are closed.
    changed: Notify,
}

/// The slot of one call. Dropping it returns it.
pub(super) struct Slot<'a> {
    // Returned before the share, so that a call that waits for the share finds a slot.
    _one: SemaphorePermit<'a>,
    _share: Shared<'a>,
}

struct Shared<'a> {
    share: Option<Share>,
    slots: &'a Slots,
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        self.share = None;
        self.slots.changed.notify_waiters();
    }
}

impl Slots {
    /// `most` calls at once.
    pub(super) fn new(most: usize) -> Self {
        let limits = Limits {
            // The semaphore limits all calls, and serves them in the order in which they came.
            process: u64::MAX,
            ..Pool::CallsToServer.limits(most as u64)
        };
        Self {
            all: Semaphore::new(most),
            shares: Budget::new(Pool::CallsToServer, limits),
            changed: Notify::new(),
        }
    }

    /// Waits for a slot. `None`: the slots are closed.
    pub(super) async fn acquire(&self, tenant: &str, user: &str) -> Option<Slot<'_>> {
        let share = loop {
            let changed = self.changed.notified();
            if let Ok(share) = self.shares.take(tenant, user, 1) {
                break share;
            }
            if self.all.is_closed() {
                return None;
            }
            changed.await;
        };
        let share = Shared {
            share: Some(share),
            slots: self,
        };
        Some(Slot {
            _one: self.all.acquire().await.ok()?,
            _share: share,
        })
    }

    /// Gives out no more slots. Waiting calls stop waiting.
    pub(super) fn close(&self) {
        self.all.close();
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// As many slots as the user gets at once.
    fn fill<'a>(slots: &'a Slots, user: &str) -> Vec<Slot<'a>> {
        std::iter::from_fn(|| slots.acquire("t", user).now_or_never().flatten()).collect()
    }

    #[tokio::test]
    async fn no_user_and_no_tenant_takes_all_slots_and_a_waiting_call_gets_the_next_one() {
        let slots = Slots::new(16);
        let mut anns = fill(&slots, "ann");
        let bobs = fill(&slots, "bob");
        assert_eq!((anns.len(), bobs.len()), (12, 2));
        assert!(slots.acquire("other", "ann").now_or_never().flatten().is_some());

        let mut waiting = Box::pin(slots.acquire("t", "ann"));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(anns.pop());
        assert!(waiting.await.is_some());
        drop((anns, bobs));
        assert_eq!(fill(&slots, "ann").len(), 12);
    }

    #[tokio::test]
    async fn one_slot_is_for_all_in_turn() {
        let slots = Slots::new(1);
        let anns = fill(&slots, "ann");
        let mut bob = Box::pin(slots.acquire("t", "bob"));
        let mut next = Box::pin(slots.acquire("t", "ann"));
        assert!(bob.as_mut().now_or_never().is_none() && next.as_mut().now_or_never().is_none());
        drop(anns);
        let bob = bob.await;
        assert!(bob.is_some() && next.as_mut().now_or_never().is_none());
        drop(bob);
        assert!(next.await.is_some());
    }

    #[tokio::test]
    async fn a_call_stops_waiting_when_the_slots_are_closed() {
        let slots = Slots::new(16);
        let anns = fill(&slots, "ann");
        let waiting = slots.acquire("t", "ann");
        let closing = async { slots.close() };
        assert!(futures_util::join!(waiting, closing).0.is_none());
        drop(anns);
        assert!(slots.acquire("t", "ann").await.is_none());
    }
}
