//! A server's unsolicited messages: requests, notifications, and data that is not a message.
//!
//! Each is charged to an allowance of its connection. A request is answered while few answers are in progress,
//! otherwise dropped. A server that exceeds the allowance loses its connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::connection::SideTasks;
use super::log;
use super::source::Source;

/// The allowance of a connection, and how much of it returns per second. A notification costs 1, a request [`REQUEST`],
/// and each KiB 1 more. A busy server sends a few hundred notifications per second, and a request every few seconds.
const ALLOWANCE: f64 = 50_000.0;
const EACH_SECOND: f64 = 5_000.0;
/// Requests cost more because they must be answered.
const REQUEST: usize = 50;
/// Maximum replies in progress. Over HTTP, each takes a connection.
const REPLIES: usize = 16;
/// Longest id that is sent back or kept, in bytes of JSON.
pub(super) const MAX_ID: usize = 1024;
/// Longest method that is reported, in bytes.
const MAX_METHOD: usize = 128;

/// The server has exceeded its allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server sends more requests, notifications or other lines of its own than gavel reads (at once 1000 requests, 50000 \
     other messages or 48 MiB, and a tenth of that a second)"
)]
pub(super) struct Flood;

/// The answer to a request of a server, and its slot among those in progress.
pub(super) struct Reply {
    /// One JSON-RPC message.
    pub(super) body: String,
    pub(super) slot: OwnedSemaphorePermit,
}

/// The unsolicited messages of one connection.
pub(super) struct Inbox {
    pub(super) source: Arc<Source>,
    pub(super) background: SideTasks,
    /// What is left of the allowance, and when that was counted.
    allowance: Mutex<(f64, Instant)>,
    replies: Arc<Semaphore>,
    flood: CancellationToken,
}

impl Inbox {
    pub(super) fn new(source: Arc<Source>, background: SideTasks) -> Arc<Self> {
        Arc::new(Self {
            source,
            background,
            allowance: Mutex::new((ALLOWANCE, Instant::now())),
            replies: Arc::new(Semaphore::new(REPLIES)),
            flood: CancellationToken::new(),
        })
    }

    /// Handles a notification of `bytes`.
    ///
    /// # Errors
    /// The allowance is exceeded: the connection ends.
    pub(super) fn notification(&self, method: &str, bytes: usize) -> Result<(), Flood> {
        self.charge(1, bytes)?;
        if method == "notifications/tools/list_changed" {
            self.background.changed.notify_one();
        }
        Ok(())
    }

    /// Handles a request of `bytes`, and returns the reply to be sent.
    ///
    /// # Errors
    /// The allowance is exceeded: the connection ends.
    pub(super) fn request(&self, method: &str, id: &RawValue, bytes: usize) -> Result<Option<Reply>, Flood> {
        self.charge(REQUEST, bytes)?;
        let id = id.get();
        let slot = Arc::clone(&self.replies).try_acquire_owned();
        let (Ok(slot), true) = (slot, id.len() <= MAX_ID) else {
            let method = self.source.words(method, MAX_METHOD);
            log::line!(
                self.source.log,
                warn,
                "a request of the server is not answered: its id is too long, or {REPLIES} answers are in progress",
                method
            );
            return Ok(None);
        };
        // gavel offers nothing, so it provides nothing. Elicitation is rejected with an error too: to decline it would
        // be a user's decision, and no user was asked.
        let body = match method {
            "ping" => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
            _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"not supported"}}}}"#),
        };
        Ok(Some(Reply { body, slot }))
    }

    /// Charges `bytes` that are not a message, or not an expected one.
    ///
    /// # Errors
    /// The allowance is exceeded: the connection ends.
    pub(super) fn noise(&self, bytes: usize) -> Result<(), Flood> {
        self.charge(1, bytes)
    }

    fn charge(&self, message: usize, bytes: usize) -> Result<(), Flood> {
        // Every change is complete before anything could panic.
        let mut allowance = self.allowance.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let back = now.duration_since(allowance.1).as_secs_f64() * EACH_SECOND;
        let left = (allowance.0 + back).min(ALLOWANCE) - (message + bytes / 1024) as f64;
        *allowance = (left, now);
        if left < 0.0 {
            self.flood.cancel();
        }
        // Once exceeded, this remains so: the connection is closed a moment later.
        if self.is_flooded() { Err(Flood) } else { Ok(()) }
    }

    /// Has the server exceeded its allowance?
    pub(super) fn is_flooded(&self) -> bool {
        self.flood.is_cancelled()
    }

    /// Completes when the server has exceeded its allowance.
    pub(super) async fn flooded(&self) {
        self.flood.cancelled().await;
    }
}

#[cfg(any(test, fuzzing))]
pub(super) mod testing {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::config::McpConfig;
    use crate::source;

    /// For a connection to a server `s`.
    pub(crate) fn inbox() -> Arc<Inbox> {
        let text = r#"{"mcpServers": {"s": {"command": "x"}}}"#;
        let config = McpConfig::from_file("mcp.json", text, &|_| None).unwrap();
        let source = Source::new(&config.servers[0], &source::budget());
        Inbox::new(source, SideTasks::default())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::testing::inbox;
    use super::*;

    fn id(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn a_ping_is_answered_and_everything_else_refused_with_the_servers_own_id() {
        let server = inbox();
        let ping = server.request("ping", &id("\"p\""), 40).unwrap().unwrap();
        assert_eq!(ping.body, r#"{"jsonrpc":"2.0","id":"p","result":{}}"#);
        for method in ["sampling/createMessage", "elicitation/create", "roots/list", "x"] {
            let refused = server.request(method, &id("9"), 40).unwrap().unwrap();
            assert!(refused.body.contains(r#""id":9,"error":{"code":-32601"#), "{method}");
        }
    }

    #[test]
    fn few_replies_are_under_way_and_no_long_id_is_sent_back() {
        let server = inbox();
        let long = id(&format!("\"{}\"", "x".repeat(MAX_ID)));
        assert!(server.request("ping", &long, 2000).unwrap().is_none());
        let mut under_way: Vec<_> = (0..100)
            .filter_map(|_| server.request("ping", &id("1"), 40).unwrap())
            .collect();
        assert_eq!(under_way.len(), REPLIES);
        under_way.pop();
        assert!(server.request("ping", &id("1"), 40).unwrap().is_some());
    }

    #[test]
    fn requests_notifications_and_bytes_beyond_the_allowance_end_the_connection() {
        let request = |server: &Inbox| server.request("ping", &id("1"), 40).is_ok();
        let notification = |server: &Inbox| server.notification("notifications/progress", 100).is_ok();
        let large = |server: &Inbox| server.noise(1024 * 1024).is_ok();
        for (send, least, most) in [
            (&request as &dyn Fn(&Inbox) -> bool, 1000, 3000),
            (&notification, 50_000, 150_000),
            (&large, 48, 150),
        ] {
            let server = inbox();
            let sent = (0..).take_while(|_| send(&server)).count();
            assert!((least..most).contains(&sent), "{sent}");
            assert!(server.is_flooded());
            assert!(!notification(&server), "it has ended for good");
        }
    }
}
