//! Tools: what is there, and one call. All of them are MCP tools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::BoxFuture;
use super::runs::Hold;
use crate::domain::ids::ActionId;
use crate::domain::journal::CallFailure;
use crate::domain::tool::Tool;

/// The way out to side effects.
pub trait Tools: Send + Sync {
    /// The tools known now. Cheap: a pointer is copied.
    fn catalog(&self) -> Arc<Catalog>;

    /// Waits until every server that could offer one of `names` is connected or known to be down,
    /// at most until `deadline`. Returns at once when nothing is being connected.
    fn ready<'a>(&'a self, names: &'a [String], deadline: Instant) -> BoxFuture<'a, ()>;

    /// Has a server say anew what its tools are: a server need not tell when they change. The catalog has them then.
    ///
    /// # Errors
    /// Why it did not say, in words for an operator.
    fn read_anew<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<(), String>>;

    /// Calls a tool. Only `engine/act.rs` and `gavel mcp call` do. Dropping the future cancels
    /// the call, and the server is told.
    fn call<'a>(&'a self, request: CallRequest<'a>) -> BoxFuture<'a, CallReply>;
}

/// An immutable snapshot of all tools of all servers: one generation.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Grows by one with every change.
    pub generation: u64,
    /// By server, then name.
    pub tools: Vec<Arc<Tool>>,
    /// Servers that are being connected for the first time.
    pub connecting: BTreeSet<Arc<str>>,
    /// Servers that are not there, with the reason in words an operator can use.
    pub down: BTreeMap<Arc<str>, String>,
    /// Tools that were left out, with the reason.
    pub left_out: Vec<LeftOut>,
}

/// A tool that cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Whose.
    pub server: Arc<str>,
    /// Which.
    pub tool: String,
    /// Why.
    pub reason: String,
}

/// One call, ready to be sent.
#[derive(Clone, Debug)]
pub struct CallRequest<'a> {
    /// From the snapshot the decision uses.
    pub tool: &'a Arc<Tool>,
    /// Canonical JSON object, sent as it is.
    pub arguments: &'a RawValue,
    /// The tenant of the user.
    pub tenant: &'a str,
    /// The acting user, as the server is told.
    pub user: &'a str,
    /// The surface: `chat`, …
    pub origin: &'static str,
    /// The run (on chat the decision).
    pub run_id: &'a str,
    /// The action.
    pub action_id: ActionId,
    /// Stable over attempts.
    pub idempotency_key: &'a str,
    /// When the first attempt was begun, in microseconds since the epoch, where this is a further one.
    pub first_attempt_us: Option<i64>,
    /// The account that whoever gave leave was shown, as the server named it.
    pub account: Option<&'a str>,
    /// W3C `traceparent`, if there is one.
    pub traceparent: Option<&'a str>,
    /// Longest wait.
    pub timeout: Duration,
    /// Fires when the run is cancelled.
    pub cancel: &'a CancellationToken,
    /// Has a person given leave for it, now or for good? That is for the tool as it is here (promise 4): over a connection whose
    /// server offers it otherwise nothing is sent ([`CallReply::NotSent`]).
    pub has_leave: bool,
    /// The lease it is made under, where there is one: asked right before anything is sent, and once it may be another's
    /// nothing is ([`CallReply::NotSent`]).
    pub hold: Option<&'a Hold>,
}

/// The outcome of one attempt.
#[derive(Debug)]
pub enum CallReply {
    /// The tool answered: its data (`structuredContent`, else its content), capped.
    Data(Arc<RawValue>),
    /// Nothing left this process: no server can know of it.
    NotSent(CallFailure),
    /// It was sent and failed, and it is known that nothing was begun, or the tool itself said so.
    Failed(CallFailure),
    /// It was sent, and no answer came (timeout, cancel, lost connection): nobody knows.
    Unknown(CallFailure),
}
