//! A server's unsolicited messages: requests, notifications, and data that is not a message.
//!
//! rmcp receives only the two notifications that its subscriptions need, because it starts a task for each message and
//! logs each request that it rejects. Here a message is charged to an allowance of its connection and dropped. A
//! request is answered while few answers are in progress, otherwise dropped. A server that exceeds the allowance loses
//! its connection.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::answers::Held;
use super::background::SideTasks;
use super::log;
use super::source::Source;
use crate::domain::budget::Share;

/// The allowance of a connection, and how much of it returns per second. A notification costs 1, a request [`REQUEST`],
/// and each KiB 1 more. A busy server sends a few hundred notifications per second, and a request every few seconds.
const ALLOWANCE: f64 = 50_000.0;
const EACH_SECOND: f64 = 5_000.0;
/// Requests cost more because they must be answered.
const REQUEST: usize = 50;
/// Maximum answers in progress. Over HTTP, each takes a connection.
const ANSWERS: usize = 16;
/// Longest id that is sent back or kept, in bytes of JSON.
pub(super) const MAX_ID: usize = 1024;
/// Longest method that is reported, in bytes.
const MAX_METHOD: usize = 128;
/// Longest notification that is passed on, in bytes.
const MAX_PASSED: usize = 64 * 1024;

/// The server has exceeded its allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server sends more requests, notifications or other lines of its own than gavel reads (at once 1000 requests, 50000 \
     other messages or 48 MiB, and a tenth of that a second)"
)]
pub(super) struct Flood;

/// A list that is being read.
pub(super) struct Listing<'a>(&'a Unsolicited);

impl Listing<'_> {
    /// The share of the budget of all its pages.
    pub(super) fn end(self) -> Vec<Share> {
        lock(&self.0.list).take().unwrap_or_default()
    }
}

impl Drop for Listing<'_> {
    /// Also releases the share of a list that is given up.
    fn drop(&mut self) {
        drop(lock(&self.0.list).take());
    }
}

/// What to do with a message.
pub(super) enum Verdict {
    /// Nothing more.
    Dropped,
    /// Pass it to rmcp.
    Passed,
    /// Send this back.
    Answer(Answer),
}

/// The answer to a request of a server, and its slot among those in progress.
pub(super) struct Answer {
    /// One JSON-RPC message.
    pub(super) body: String,
    place: OwnedSemaphorePermit,
}

/// The unsolicited messages of one connection.
pub(super) struct Unsolicited {
    pub(super) source: Arc<Source>,
    pub(super) background: SideTasks,
    allowance: Mutex<Allowance>,
    answers: Arc<Semaphore>,
    flood: CancellationToken,
    /// The answer budget's share of the lists being read; `None` if there are none.
    list: Mutex<Option<Vec<Share>>>,
}

struct Allowance {
    left: f64,
    at: Instant,
}

impl Unsolicited {
    pub(super) fn new(source: Arc<Source>, background: SideTasks) -> Arc<Self> {
        Arc::new(Self {
            source,
            background,
            allowance: Mutex::new(Allowance {
                left: ALLOWANCE,
                at: Instant::now(),
            }),
            answers: Arc::new(Semaphore::new(ANSWERS)),
            flood: CancellationToken::new(),
            list: Mutex::default(),
        })
    }

    /// Handles a request or a notification of `bytes`.
    ///
    /// # Errors
    /// The allowance is exceeded: the connection ends.
    pub(super) fn receive(&self, method: &str, id: Option<&RawValue>, bytes: usize) -> Result<Verdict, Flood> {
        let Some(id) = id else {
            self.costs(1, bytes)?;
            return Ok(match method {
                "notifications/tools/list_changed" => {
                    self.background.changed.notify_one();
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
                "a request of the server is not answered: its id is too long, or {ANSWERS} answers are in progress"
            );
            return Ok(Verdict::Dropped);
        };
        // gavel offers nothing, so it provides nothing. Elicitation is rejected with an error too: to decline it would
        // be a user's decision, and no user was asked.
        let body = match method {
            "ping" => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
            _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"not supported"}}}}"#),
        };
        Ok(Verdict::Answer(Answer { body, place }))
    }

    /// Charges `bytes` that are not a message, or not an expected one.
    ///
    /// # Errors
    /// The allowance is exceeded: the connection ends.
    pub(super) fn noise(&self, bytes: usize) -> Result<(), Flood> {
        self.costs(1, bytes)
    }

    /// The server made gavel send a request again (a stream that ended).
    ///
    /// # Errors
    /// The allowance is exceeded: the connection ends.
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
        // Once exceeded, this remains so: the connection is closed a moment later.
        if self.is_flooded() { Err(Flood) } else { Ok(()) }
    }

    /// Sends an answer with `send`, in the background and for a few seconds at most.
    pub(super) fn answer(&self, answer: Answer, send: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(async move {
            send.await;
            drop(answer.place);
        });
    }

    /// Has the server exceeded its allowance?
    pub(super) fn is_flooded(&self) -> bool {
        self.flood.is_cancelled()
    }

    /// Completes when the server has exceeded its allowance.
    pub(super) async fn flooded(&self) {
        self.flood.cancelled().await;
    }

    /// Marks that a list is being read, until the returned value is dropped.
    pub(super) fn reads_list(&self) -> Listing<'_> {
        lock(&self.list).get_or_insert_default();
        Listing(self)
    }

    /// Keeps the budget share of an answer that belongs to no user while a list is read. At any other time such answers
    /// are small, or no caller waits for them.
    pub(super) fn keep(&self, held: &mut Held<'_>) {
        let share = held.take();
        if let Some(list) = &mut *lock(&self.list) {
            list.extend(share);
        }
    }

    /// Text of the server about an error.
    pub(super) fn words<'a>(&self, text: &'a str, max: usize) -> Cow<'a, str> {
        self.source.said(text, max)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is complete before anything could panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(any(test, fuzzing))]
pub(super) mod testing {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::adapters::mcp::answers;
    use crate::adapters::mcp::config::McpConfig;

    /// For a connection to a server `s`.
    pub(in crate::adapters::mcp) fn unsolicited() -> Arc<Unsolicited> {
        let text = r#"{"mcpServers": {"s": {"command": "x"}}}"#;
        let config = McpConfig::from_file("mcp.json", text, &|_| None).unwrap();
        let source = Source::new(&config.servers[0], &answers::budget());
        Unsolicited::new(source, SideTasks::default())
    }
}

#[cfg(test)]
mod tests;
