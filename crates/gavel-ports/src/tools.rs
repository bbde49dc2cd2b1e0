//! Tools: the catalog, and a single call. All tools are MCP tools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::BoxFuture;
use super::runs::Hold;
use crate::domain::ids::{ActionId, PlanningSessionId};
use crate::domain::journal::CallFailure;
use crate::domain::tool::Tool;

/// The only way to cause side effects.
pub trait Tools: Send + Sync {
    /// The current tools. Cheap: copies a pointer.
    fn catalog(&self) -> Arc<Catalog>;

    /// Waits until every server that could offer one of `names` is connected or known to be down,
    /// at most until `deadline`. Returns at once when nothing is being connected.
    fn ready<'a>(&'a self, names: &'a [String], deadline: Instant) -> BoxFuture<'a, ()>;

    /// Asks a server for its current tools, since a server need not announce changes, and updates the catalog.
    ///
    /// # Errors
    /// The reason, in words for an operator.
    fn refresh_server<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<(), String>>;

    /// Calls a tool. Only `engine/act/send.rs` and `gavel mcp call` do. Dropping the future cancels the call and
    /// notifies the server.
    fn call<'a>(&'a self, request: CallRequest<'a>) -> BoxFuture<'a, CallReply>;
}

/// An immutable snapshot of all tools of all servers: one generation.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Increases by one with every change.
    pub generation: u64,
    /// By server, then name.
    pub tools: Vec<Arc<Tool>>,
    /// Servers that are being connected for the first time.
    pub connecting: BTreeSet<Arc<str>>,
    /// Unavailable servers, each with the reason in words for an operator; empty if the reason is shown elsewhere.
    pub down: BTreeMap<Arc<str>, String>,
    /// Excluded tools, with the reason.
    pub left_out: Vec<LeftOut>,
}

/// A tool that cannot be offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The server.
    pub server: Arc<str>,
    /// The tool's name.
    pub tool: String,
    /// The reason.
    pub reason: String,
}

/// One call, ready to be sent.
#[derive(Clone, Debug)]
pub struct CallRequest<'a> {
    /// From the catalog snapshot that the decision uses.
    pub tool: &'a Arc<Tool>,
    /// Canonical JSON object, sent unchanged.
    pub arguments: &'a RawValue,
    /// The tenant of the user.
    pub tenant: &'a str,
    /// The acting user, as sent to the server.
    pub user: &'a str,
    /// The surface: `chat`, …
    pub origin: &'static str,
    /// The run (for chat, the decision).
    pub run_id: &'a str,
    /// The action.
    pub action_id: ActionId,
    /// The same for all attempts.
    pub idempotency_key: &'a str,
    /// The start of the first attempt, in microseconds since the epoch, if this is a repeated one.
    pub first_attempt_us: Option<i64>,
    /// The account that the approver was shown, as the server named it.
    pub account: Option<&'a str>,
    /// The planning session that the call is made for.
    pub session: Option<PlanningSessionId>,
    /// `OWNER/REPO`, if the run is limited to one repository.
    pub repository: Option<&'a str>,
    /// The patterns of the repositories that the tenant may use, separated by blanks, if the tool limits itself to them.
    pub repositories: Option<&'a str>,
    /// The deadline of the run, if it has one; microseconds since the epoch.
    pub deadline_us: Option<i64>,
    /// W3C `traceparent`, if there is one.
    pub traceparent: Option<&'a str>,
    /// Longest wait for the answer.
    pub timeout: Duration,
    /// Fires when the run is cancelled.
    pub cancel: &'a CancellationToken,
    /// Did the user approve it, for this call or by a grant? The approval is for this definition of the tool (promise:
    /// exact approvals): over a connection whose server offers a different one, nothing is sent
    /// ([`CallReply::NotSent`]).
    pub is_approved: bool,
    /// The lease that the call is made under, if any. It is checked right before sending; once another process may hold
    /// it, nothing is sent ([`CallReply::NotSent`]).
    pub hold: Option<&'a Hold>,
}

/// The outcome of one attempt.
#[derive(Debug)]
pub enum CallReply {
    /// The tool's answer: its data (`structuredContent`, else its content), size-limited.
    Data(Arc<RawValue>),
    /// Nothing was sent, so the server knows nothing of it.
    NotSent(CallFailure),
    /// It was sent and failed, and it is certain that nothing was started, or the tool itself returned the error.
    Failed(CallFailure),
    /// It was sent, and no answer arrived (timeout, cancel, lost connection): the outcome is unknown.
    Unknown(CallFailure),
}
