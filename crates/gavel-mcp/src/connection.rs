//! An open connection: the one path of every request, whatever its method and its transport.

use std::collections::HashMap;
use std::future::Future;
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gavel_upstream::handover::SendGate;
use rmcp::model::{ClientCapabilities, Implementation, ProtocolVersion, RequestMetaObject};
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use super::attempt::{self, Answered, Attempt, Fault, IdentitySigner, Lost, Outbound, Outgoing};
use super::bridge::Registry;
use super::http::Http;
use super::inbox::Inbox;
use super::process::Process;
use super::result::ERROR_BYTES;
use super::source::Refusal;
use super::tool_listing::Pins;
use super::{definition, log};
use crate::domain::budget::{Budget, Held};
use crate::domain::tool::Tool;

/// Delay before gavel listens again, and at least between two times.
const LISTEN_AGAIN: Duration = Duration::from_secs(5);
const LISTEN_EACH: Duration = Duration::from_secs(60);
/// How long the server may take to show whether it refuses everything.
const ASKED: Duration = Duration::from_secs(2);
/// Minimum time after a successful list before the server is asked again.
const BELIEVED: Duration = Duration::from_secs(1);

/// The transport of a connection.
pub(super) enum Wire {
    Process(Process),
    Http(Http),
}

/// A connection to a server.
pub(super) struct Connection {
    pub(super) wire: Wire,
    pub(super) inbox: Arc<Inbox>,
    /// For the 2026-07-28 era: there is no session, and every request identifies the client with these members of
    /// `_meta` (JSON text without its braces).
    modern: Option<String>,
    ids: AtomicU32,
    /// What the server said in the handshake.
    pub(super) hello: Hello,
    /// The digests of the tools that the server last listed over it, by name.
    listed: Mutex<HashMap<String, Vec<String>>>,
    /// When the server last listed its tools between calls.
    believed: Mutex<Option<Instant>>,
    /// Why it is no longer usable.
    gone: OnceLock<String>,
}

/// What a server says of itself in a handshake.
#[derive(Debug, Default)]
pub(super) struct Hello {
    pub(super) protocol: String,
    pub(super) software: Option<String>,
    /// Does it report changes of its list of tools?
    pub(super) reports_changes: bool,
}

/// gavel's name and version in the protocol.
pub(super) fn client_info() -> Implementation {
    Implementation::new("gavel", env!("CARGO_PKG_VERSION"))
}

impl Connection {
    /// Before the handshake. `is_modern`: there is no session.
    pub(super) fn new(wire: Wire, inbox: Arc<Inbox>, is_modern: bool) -> Self {
        let mut connection = Self {
            wire,
            inbox,
            modern: None,
            ids: AtomicU32::new(1),
            hello: Hello::default(),
            listed: Mutex::default(),
            believed: Mutex::default(),
            gone: OnceLock::new(),
        };
        if is_modern {
            connection.become_modern();
        }
        connection
    }

    /// From now on, requests identify the client.
    pub(super) fn become_modern(&mut self) {
        let version = ProtocolVersion::V_2026_07_28;
        if let Wire::Http(http) = &self.wire {
            http.negotiated(version.as_str());
        }
        let meta = RequestMetaObject::with_client_context(version, client_info(), ClientCapabilities::default());
        let text = serde_json::to_string(&meta).unwrap_or_default();
        self.modern = Some(text.trim_matches(['{', '}']).to_owned());
    }

    /// Makes a call. If the future is dropped or the call is given up, the server is notified.
    pub(super) async fn call(&self, call: &Outgoing<'_>) -> Attempt {
        let gate = SendGate::under(call.request.hold);
        let held = self.inbox.source.held_for(call.request.tenant, call.request.user);
        let name = Value::from(&*call.request.tool.name).to_string();
        let members = [("name", name.as_str()), ("arguments", call.arguments.get())];
        // A call that was already given up is not sent, so this is checked first.
        let answered = tokio::select! {
            biased;
            lost = call.given_up() => call.give_up(lost, &gate).into(),
            answered = self.exchange("tools/call", &members, Some(call), &gate, held) => answered,
        };
        let Answered { attempt, refusal } = answered;
        let attempt = match attempt {
            Attempt::NotSent(Lost::Connection, _) if !call.may_be_sent() => call.lease_lost(),
            attempt => attempt,
        };
        let attempt = match refusal.filter(Refusal::may_be_of_everything) {
            Some(refusal) => self.confirmed(attempt, &refusal, call).await,
            None => attempt,
        };
        let hidden = |words: String| self.inbox.source.said(&words, ERROR_BYTES).into_owned();
        match attempt {
            Attempt::Refused(words) => Attempt::Refused(hidden(words)),
            Attempt::NotSent(lost, words) => Attempt::NotSent(lost, hidden(words)),
            Attempt::Lost(lost, words) => Attempt::Lost(lost, hidden(words)),
            // These are already free of secrets.
            attempt @ (Attempt::Result(..) | Attempt::Error { .. } | Attempt::Stale(_)) => attempt,
        }
    }

    /// Sends a request that no user made, without a time limit. `members` of its parameters are JSON text.
    pub(super) async fn request(&self, method: &'static str, members: &[(&str, &str)]) -> Answered {
        let held = self.inbox.source.held();
        self.exchange(method, members, None, &SendGate::default(), held).await
    }

    async fn exchange(
        &self,
        method: &'static str,
        members: &[(&str, &str)],
        call: Option<&Outgoing<'_>>,
        gate: &SendGate,
        held: Held<'_>,
    ) -> Answered {
        let id = self.next_id();
        let mut abandoned = Abandoned {
            connection: self,
            id,
            gate,
            armed: call.is_some(),
        };
        let request = Outbound {
            id,
            method,
            body: self.encode(id, method, members, call),
            is_modern: self.modern.is_some(),
            call: call.map(|call| call.request),
            gate,
        };
        let answered = match &self.wire {
            Wire::Process(process) => process.exchange(request).await.into(),
            Wire::Http(http) => http.exchange(request, held).await,
        };
        abandoned.armed &= matches!(answered.attempt, Attempt::Lost(..));
        answered
    }

    /// A request as text. Its parameters are copied unchanged. Writing to memory does not fail.
    fn encode(&self, id: u32, method: &str, members: &[(&str, &str)], call: Option<&Outgoing<'_>>) -> Bytes {
        let length: usize = members.iter().map(|(_, value)| value.len()).sum();
        let mut body = Vec::with_capacity(768 + length);
        let _ = write!(body, r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"#);
        let begins_with = body.len();
        if self.modern.is_some() || call.is_some() {
            body.extend_from_slice(br#""_meta":{"#);
            body.extend_from_slice(self.modern.as_deref().unwrap_or_default().as_bytes());
            if let Some(call) = call {
                attempt::meta(call, |key, value| {
                    if !body.ends_with(b"{") {
                        body.push(b',');
                    }
                    let _ = write!(body, r#""{key}":"#);
                    let _ = serde_json::to_writer(&mut body, value);
                });
            }
            body.push(b'}');
        }
        for (key, value) in members {
            if body.len() > begins_with {
                body.push(b',');
            }
            let _ = write!(body, r#""{key}":{value}"#);
        }
        body.extend_from_slice(b"}}");
        body.into()
    }

    fn next_id(&self) -> u32 {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        if id >= i32::MAX as u32 {
            // Ids stay positive 32-bit numbers, which every server can read.
            self.ids.store(1, Ordering::Relaxed);
        }
        id
    }

    /// Tells the server that the handshake has ended.
    ///
    /// # Errors
    /// It was not accepted.
    pub(super) async fn initialized(&self) -> Result<(), String> {
        let body = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned();
        match &self.wire {
            Wire::Process(process) => process.notify(body).await,
            Wire::Http(http) => http.notify(body).await?,
        }
        Ok(())
    }

    /// Receives what the server sends by itself. Ends when nothing more arrives, and returns when to try again.
    ///
    /// A child's messages are read in any case, but a server without sessions reports changes only to subscribers.
    pub(super) async fn listen(&self) -> Option<Instant> {
        if self.modern.is_none() {
            if let Wire::Http(http) = &self.wire {
                http.listen().await;
            }
            return None;
        }
        if !self.hello.reports_changes {
            return None;
        }
        let began = Instant::now();
        let filter = [("notifications", r#"{"toolsListChanged":true}"#)];
        let answered = self.request("subscriptions/listen", &filter).await;
        if matches!(answered.attempt, Attempt::Error { .. } | Attempt::Refused(_)) {
            let source = &self.inbox.source;
            let error = Fault::new(answered, source).words;
            log::line!(
                source.log,
                warn,
                "no subscription: changes to its tools will not be noticed",
                error
            );
            return None;
        }
        // A server, or a proxy before it, that ends every subscription at once is not asked all the time.
        Some(began + LISTEN_EACH.max(began.elapsed() + LISTEN_AGAIN))
    }

    /// The outcome of a refused call, once it is known whether the server refuses everything.
    async fn confirmed(&self, attempt: Attempt, refusal: &Refusal, call: &Outgoing<'_>) -> Attempt {
        let believed = || self.believed.lock().unwrap_or_else(PoisonError::into_inner);
        if believed().is_some_and(|at| at.elapsed() < BELIEVED) {
            return attempt;
        }
        let limit = ASKED.min(call.deadline.saturating_duration_since(Instant::now()));
        // It changes nothing. Its content is ignored.
        let asking = self.request("tools/list", &[]);
        let asked = tokio::select! {
            () = call.cancel().cancelled() => return attempt,
            asked = tokio::time::timeout(limit, asking) => asked,
        };
        match asked {
            Ok(Answered {
                refusal: Some(other), ..
            }) if refusal.is_as(&other) && refusal.is_before_work() => {
                return Attempt::Stale(format!("it refuses all requests: {}", other.words));
            }
            Ok(Answered {
                attempt: Attempt::Result(..),
                ..
            }) => *believed() = Some(Instant::now()),
            // The link checks the server independently of the call.
            Ok(_) | Err(_) => self.inbox.background.suspect.notify_one(),
        }
        attempt
    }

    pub(super) fn pid(&self) -> Option<u32> {
        match &self.wire {
            Wire::Process(process) => process.pid,
            Wire::Http(_) => None,
        }
    }

    pub(super) fn is_usable(&self) -> bool {
        let is_closed = matches!(&self.wire, Wire::Process(process) if process.is_closed());
        self.gone.get().is_none() && !is_closed
    }

    /// Marks it as no longer usable, for this reason. Returns whether it was usable before.
    pub(super) fn end(&self, why: &str) -> bool {
        self.gone.set(why.to_owned()).is_ok()
    }

    /// Why it is no longer usable.
    pub(super) fn ended(&self) -> Option<&str> {
        self.gone.get().map(String::as_str)
    }

    /// Completes when the server has closed it, with the reason.
    pub(super) async fn closed(&self) -> String {
        let Wire::Process(process) = &self.wire else {
            return std::future::pending().await;
        };
        process.ended().await;
        match process.last_lines.get().await {
            Some(lines) => format!("the server closed the connection; on stderr it wrote: {lines}"),
            None => "the server closed the connection".to_owned(),
        }
    }

    /// Closes it. A child has ended afterwards.
    pub(super) async fn close(&self) {
        match &self.wire {
            Wire::Process(process) => {
                process.close();
                process.ended().await;
            }
            Wire::Http(http) => http.close(),
        }
    }

    /// Does its server offer exactly this definition of the tool?
    pub(super) fn offers(&self, tool: &Tool) -> bool {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let digests = listed.get(&*tool.name);
        digests.is_some_and(|digests| digests.iter().any(|digest| **digest == *tool.digest))
    }

    pub(super) fn now_lists(&self, list: &[Value]) {
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = definition::digests(list);
    }
}

/// Notifies the server that no caller waits for the answer any more. Over HTTP without sessions, the closed connection
/// does that.
struct Abandoned<'a> {
    connection: &'a Connection,
    id: u32,
    gate: &'a SendGate,
    armed: bool,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        // This also covers a dropped future of the call: a request that has not been sent yet stays unsent.
        if !self.armed || !self.gate.give_up() {
            return;
        }
        let body = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":"given up"}}}}"#,
            self.id
        );
        let background = &self.connection.inbox.background;
        match &self.connection.wire {
            Wire::Process(process) => background.spawn(process.notify(body)),
            Wire::Http(http) if self.connection.modern.is_none() => background.spawn(http.notify_aside(body)),
            Wire::Http(_) => {}
        }
    }
}

// Where a server is, without anything that may be secret.

/// Replaces a secret.
pub(super) const MASK: &str = "***";

/// The address of a server, without anything that may be secret. Of the path, only well-known words are kept.
pub(super) fn place(url: &Url) -> String {
    let parts = url.path().split('/').map(|part| match is_public(part) {
        true => part,
        false => MASK,
    });
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let host = url.host_str().unwrap_or_default();
    format!("{}://{host}{port}{}", url.scheme(), parts.collect::<Vec<_>>().join("/"))
}

/// Is it a word that is common in MCP endpoints?
pub(super) fn is_public(part: &str) -> bool {
    const WORDS: [&str; 16] = [
        "",
        "api",
        "gateway",
        "http",
        "jsonrpc",
        "mcp",
        "message",
        "messages",
        "public",
        "rpc",
        "server",
        "servers",
        "sse",
        "stream",
        "streamable-http",
        "tools",
    ];
    let version = part
        .strip_prefix('v')
        .is_some_and(|n| n.len() <= 2 && n.parse::<u8>().is_ok());
    version || WORDS.contains(&part)
}

// What all servers share.

/// Shared by all servers.
pub(super) struct Common {
    pub(super) registry: Registry,
    pub(super) pins: Pins,
    pub(super) signer: Option<IdentitySigner>,
    /// The memory budget for answers.
    pub(super) answers: Arc<Budget>,
    pub(super) base_env: Arc<Vec<(&'static str, String)>>,
    pub(super) attempt_limit: Duration,
    pub(super) result_bytes: usize,
    pub(super) max_users: usize,
    pub(super) user_idle: Duration,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

/// Time limit for messages that no caller waits for (a cancellation, an answer to the server).
const ASIDE: Duration = Duration::from_secs(5);

/// Signals from the users of a connection to its link, and the tasks that they do not wait for.
#[derive(Clone, Debug, Default)]
pub(super) struct SideTasks {
    /// The server reported that its tools have changed.
    pub(super) changed: Arc<Notify>,
    /// The server should be checked.
    pub(super) suspect: Arc<Notify>,
    /// The server asked not to be called before this time.
    rests: Arc<Mutex<Option<Instant>>>,
    tasks: TaskTracker,
}

impl SideTasks {
    /// The shutdown waits for `tasks`.
    pub(super) fn new(tasks: &TaskTracker) -> Self {
        Self {
            tasks: tasks.clone(),
            ..Self::default()
        }
    }

    /// The server asks not to be called for this long.
    pub(super) fn rest(&self, pause: Duration) {
        *self.rests.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + pause);
    }

    /// Until when the server must not be called, if that is in the future.
    pub(super) fn rests(&self) -> Option<Instant> {
        let until = *self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        until.filter(|until| *until > Instant::now())
    }

    /// Runs this for at most five seconds. May be called while a future is dropped. Without a runtime there is no
    /// connection left to use.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let bounded = async {
            if tokio::time::timeout(ASIDE, work).await.is_err() {
                tracing::debug!("a message outside of a call was not delivered in time");
            }
        };
        self.tasks.spawn_on(bounded, &runtime);
    }
}

#[cfg(test)]
mod background_tests {
    use super::*;

    /// A cancellation is not lost when the process ends: the shutdown waits for it.
    #[tokio::test]
    async fn what_is_left_to_be_done_is_waited_for() {
        let tasks = TaskTracker::new();
        let (begun, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (go, tell) = (begun.clone(), done.clone());
        SideTasks::new(&tasks).spawn(async move {
            go.notified().await;
            tell.notify_one();
        });
        tasks.close();
        assert!(
            tokio::time::timeout(Duration::from_millis(20), tasks.wait())
                .await
                .is_err()
        );
        begun.notify_one();
        tasks.wait().await;
        done.notified().await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_place_shows_no_part_of_a_path_that_may_be_secret() {
        for (url, shown) in [
            ("https://u:p@host/mcp/s3cr3t/sse?a=b#c", "https://host/mcp/***/sse"),
            ("http://127.0.0.1:8080/v1/mcp/", "http://127.0.0.1:8080/v1/mcp/"),
            ("https://[::1]/", "https://[::1]/"),
            ("https://host/v123456", "https://host/***"),
        ] {
            assert_eq!(place(&Url::parse(url).unwrap()), shown);
        }
    }
}
