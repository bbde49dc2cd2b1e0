//! What a server sends of its own accord: requests, notifications, and what is no message at all.
//!
//! Nothing of it reaches rmcp but the two notifications that its subscriptions need: rmcp starts a task for each message, and
//! logs each request that it refuses. Here a message costs of an allowance of its connection, and is forgotten. A request is
//! answered where few answers are under way, else dropped. A server that sends more than the allowance ends its connection.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::answers::Held;
use super::beside::Beside;
use super::log;
use super::source::Source;
use crate::domain::budget::Share;

/// What a connection may cost at once, and what it gets back in a second. A notification costs 1, a request [`REQUEST`], and
/// each KiB 1 more. A busy server sends some hundred notifications a second, and a request every few seconds.
const ALLOWANCE: f64 = 50_000.0;
const EACH_SECOND: f64 = 5_000.0;
/// A request has to be answered.
const REQUEST: usize = 50;
/// Answers under way at one time; over HTTP each takes a connection.
const ANSWERS: usize = 16;
/// Longest id that is sent back or kept, in bytes of JSON.
pub(super) const MAX_ID: usize = 1024;
/// Longest method that is told of, in bytes.
const MAX_METHOD: usize = 128;
/// Longest notification that is handed on, in bytes.
const MAX_PASSED: usize = 64 * 1024;

/// The server has sent more than its allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server sends more requests, notifications or other lines of its own than gavel reads (at once 1000 requests, 50000 \
     other messages or 48 MiB, and a tenth of that a second)"
)]
pub(super) struct Flood;

/// A list that is being read.
pub(super) struct Listing<'a>(&'a Unsolicited);

impl Listing<'_> {
    /// What all its pages take of the budget.
    pub(super) fn end(self) -> Vec<Share> {
        lock(&self.0.list).take().unwrap_or_default()
    }
}

impl Drop for Listing<'_> {
    /// Also of one that is given up.
    fn drop(&mut self) {
        drop(lock(&self.0.list).take());
    }
}

/// What is to be done about a message.
pub(super) enum Verdict {
    /// Nothing more.
    Dropped,
    /// rmcp needs it.
    Passed,
    /// This is sent back.
    Answer(Answer),
}

/// The answer to a request of a server, and its place among those under way.
pub(super) struct Answer {
    /// One JSON-RPC message.
    pub(super) body: String,
    place: OwnedSemaphorePermit,
}

/// The messages of one connection.
pub(super) struct Unsolicited {
    pub(super) source: Arc<Source>,
    pub(super) beside: Beside,
    allowance: Mutex<Allowance>,
    answers: Arc<Semaphore>,
    flood: CancellationToken,
    /// What the lists that are being read take of the budget of answers; `None` where there are none.
    list: Mutex<Option<Vec<Share>>>,
}

struct Allowance {
    left: f64,
    at: Instant,
}

impl Unsolicited {
    pub(super) fn new(source: Arc<Source>, beside: Beside) -> Arc<Self> {
        Arc::new(Self {
            source,
            beside,
            allowance: Mutex::new(Allowance {
                left: ALLOWANCE,
                at: Instant::now(),
            }),
            answers: Arc::new(Semaphore::new(ANSWERS)),
            flood: CancellationToken::new(),
            list: Mutex::default(),
        })
    }

    /// A request or a notification of `bytes` has come.
    ///
    /// # Errors
    /// It was one too many: the connection ends.
    pub(super) fn heard(&self, method: &str, id: Option<&RawValue>, bytes: usize) -> Result<Verdict, Flood> {
        let Some(id) = id else {
            self.costs(1, bytes)?;
            return Ok(match method {
                "notifications/tools/list_changed" => {
                    self.beside.changed.notify_one();
                    Verdict::Dropped
                }
                "notifications/subscriptions/acknowledged" | "notifications/cancelled" if bytes <= MAX_PASSED => {
                    Verdict::Passed
                }
                _ => Verdict::Dropped,
            });
        };
        self.costs(REQUEST, bytes)?;
        let id = id.get();
        let place = Arc::clone(&self.answers).try_acquire_owned();
        let (Ok(place), true) = (place, id.len() <= MAX_ID) else {
            let method = self.source.words(method, MAX_METHOD);
            log::line!(
                self.source.log,
                warn,
                "request of the server dropped",
                method,
                "a request of the server is not answered: its id is too long, or {ANSWERS} answers are under way"
            );
            return Ok(Verdict::Dropped);
        };
        // Nothing is offered, so nothing is given. Elicitation is refused too: to decline would be the word of a person, and
        // none was asked.
        let body = match method {
            "ping" => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
            _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"not supported"}}}}"#),
        };
        Ok(Verdict::Answer(Answer { body, place }))
    }

    /// `bytes` have come that are no message, or none that is waited for.
    ///
    /// # Errors
    /// They were too many: the connection ends.
    pub(super) fn noise(&self, bytes: usize) -> Result<(), Flood> {
        self.costs(1, bytes)
    }

    /// The server made gavel ask it once more (a stream that ended).
    ///
    /// # Errors
    /// Once too often: the connection ends.
    pub(super) fn asked_again(&self) -> Result<(), Flood> {
        self.costs(REQUEST, 0)
    }

    fn costs(&self, message: usize, bytes: usize) -> Result<(), Flood> {
        let mut allowance = lock(&self.allowance);
        let now = Instant::now();
        let back = now.duration_since(allowance.at).as_secs_f64() * EACH_SECOND;
        let left = (allowance.left + back).min(ALLOWANCE) - (message + bytes / 1024) as f64;
        *allowance = Allowance { left, at: now };
        if left < 0.0 {
            self.flood.cancel();
        }
        // Once ended, it stays so: the connection is closed a moment later.
        if self.is_flooded() { Err(Flood) } else { Ok(()) }
    }

    /// Sends an answer as `send` does, beside everything else and for a few seconds at most.
    pub(super) fn answer(&self, answer: Answer, send: impl Future<Output = ()> + Send + 'static) {
        self.beside.spawn(async move {
            send.await;
            drop(answer.place);
        });
    }

    /// Has the server sent too much?
    pub(super) fn is_flooded(&self) -> bool {
        self.flood.is_cancelled()
    }

    /// Ends when it has.
    pub(super) async fn flooded(&self) {
        self.flood.cancelled().await;
    }

    /// A list is read from now on, until what is returned is dropped.
    pub(super) fn reads_list(&self) -> Listing<'_> {
        lock(&self.list).get_or_insert_default();
        Listing(self)
    }

    /// What an answer that is no user's takes of the budget is kept while a list is read. At any other time such answers are small, or nobody waits for them.
    pub(super) fn keep(&self, held: &mut Held<'_>) {
        let share = held.take();
        if let Some(list) = &mut *lock(&self.list) {
            list.extend(share);
        }
    }

    /// Words of the server about an error.
    pub(super) fn words<'a>(&self, text: &'a str, max: usize) -> Cow<'a, str> {
        self.source.said(text, max)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is whole before anything could panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(any(test, fuzzing))]
pub(super) mod testing {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::adapters::mcp::answers;
    use crate::adapters::mcp::config::McpConfig;

    /// Of a connection to a server `s`.
    pub(in crate::adapters::mcp) fn unsolicited() -> Arc<Unsolicited> {
        let text = r#"{"mcpServers": {"s": {"command": "x"}}}"#;
        let config = McpConfig::from_json(text, &|_| None).unwrap();
        let source = Source::new(&config.servers[0], &answers::budget());
        Unsolicited::new(source, Beside::default())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use testing::unsolicited;

    fn id(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn body(verdict: Result<Verdict, Flood>) -> Option<Answer> {
        match verdict.unwrap() {
            Verdict::Answer(answer) => Some(answer),
            Verdict::Dropped => None,
            Verdict::Passed => panic!("handed on"),
        }
    }

    #[test]
    fn a_ping_is_answered_and_everything_else_refused_with_the_servers_own_id() {
        let server = unsolicited();
        let ping = body(server.heard("ping", Some(&id("\"p\"")), 40)).unwrap();
        assert_eq!(ping.body, r#"{"jsonrpc":"2.0","id":"p","result":{}}"#);
        for method in ["sampling/createMessage", "elicitation/create", "roots/list", "x"] {
            let refused = body(server.heard(method, Some(&id("9")), 40)).unwrap();
            assert!(refused.body.contains(r#""id":9,"error":{"code":-32601"#), "{method}");
        }
    }

    #[test]
    fn few_answers_are_under_way_and_no_long_id_is_sent_back() {
        let server = unsolicited();
        let long = id(&format!("\"{}\"", "x".repeat(MAX_ID)));
        assert!(body(server.heard("ping", Some(&long), 2000)).is_none());
        let mut under_way: Vec<_> = (0..100)
            .filter_map(|_| body(server.heard("ping", Some(&id("1")), 40)))
            .collect();
        assert_eq!(under_way.len(), ANSWERS);
        under_way.pop();
        assert!(body(server.heard("ping", Some(&id("1")), 40)).is_some());
    }

    #[test]
    fn requests_notifications_and_bytes_beyond_the_allowance_end_the_connection() {
        let request = |server: &Unsolicited| server.heard("ping", Some(&id("1")), 40).is_ok();
        let notification = |server: &Unsolicited| server.heard("notifications/progress", None, 100).is_ok();
        let large = |server: &Unsolicited| server.noise(1024 * 1024).is_ok();
        for (send, least, most) in [
            (&request as &dyn Fn(&Unsolicited) -> bool, 1000, 3000),
            (&notification, 50_000, 150_000),
            (&large, 48, 150),
        ] {
            let server = unsolicited();
            let sent = (0..).take_while(|_| send(&server)).count();
            assert!((least..most).contains(&sent), "{sent}");
            assert!(server.is_flooded());
            assert!(!notification(&server), "it has ended for good");
        }
    }

    /// What nobody waits for takes nothing of the budget once it is read.
    #[test]
    fn only_the_pages_of_a_list_are_counted_until_the_list_is_read() {
        let server = unsolicited();
        let answer = || {
            let mut held = server.source.held();
            held.add(1024 * 1024).unwrap();
            server.keep(&mut held);
        };
        let used = || server.source.answers.used();
        answer();
        assert_eq!(used(), 0);
        let listing = server.reads_list();
        answer();
        answer();
        assert_eq!(used(), 4 * 1024 * 1024);
        let list = listing.end();
        answer();
        assert_eq!(used(), 4 * 1024 * 1024, "as long as the list is there");
        drop(list);
        assert_eq!(used(), 0);
        let given_up = server.reads_list();
        answer();
        drop(given_up);
        answer();
        assert_eq!(used(), 0);
    }

    #[test]
    fn only_what_subscriptions_need_is_handed_on() {
        let server = unsolicited();
        let passed = |method, bytes| matches!(server.heard(method, None, bytes), Ok(Verdict::Passed));
        assert!(passed("notifications/subscriptions/acknowledged", 100));
        assert!(!passed("notifications/subscriptions/acknowledged", MAX_PASSED + 1));
        assert!(!passed("notifications/message", 100));
        assert!(!passed("notifications/tools/list_changed", 100));
    }
}
