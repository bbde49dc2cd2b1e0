//! The record: decisions and tool calls, made durable before the answer leaves (DESIGN.md section 7).

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::BoxFuture;
use crate::domain::decision::{DecisionType, Outcome, Usage};
use crate::domain::ids::{ActionId, ConversationId, DecisionId, InstanceId, TenantId, UserId};
use crate::domain::journal::CallFailure;
use crate::domain::policy::Effect;
use crate::domain::tool::Tool;

/// Writes the record. Each call returns when what it was given is durable, or is known not to be.
pub trait Recorder: Send + Sync {
    /// Is the store known to be away? No I/O: what the last writes told.
    ///
    /// # Errors
    /// Why nothing can be recorded now.
    fn available(&self) -> Result<(), RecordError>;

    /// Commit 1: the decision row `open`, the idempotency claim, and the intents of the first effects.
    fn open(&self, row: OpenDecision, intents: Vec<Intent>) -> BoxFuture<'_, Result<(), RecordError>>;

    /// Intents of later effects of an open decision. Survives power loss when it returns.
    fn intend(&self, intents: Vec<Intent>) -> BoxFuture<'_, Result<(), RecordError>>;

    /// Commit 2: the decision and all its calls, closed. Inserts what no commit 1 has written.
    /// When it fails after an effect, the writer keeps trying in the background.
    fn close(&self, decision: ClosedDecision) -> BoxFuture<'_, Result<(), RecordError>>;

    /// Nobody will close this decision: should its row be open, recovery closes it soon.
    fn lose(&self, decision: DecisionId);

    /// Claims an idempotency key before anything is asked.
    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Claimed, RecordError>>;
}

/// Why something was not recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not written, and it will not be, but for what the writer must finish: the store is away, locked or full; `0` says so
    /// for operators.
    #[error("the record store is unavailable: {0}")]
    Unavailable(Arc<str>),
    /// Its commit was begun, and nobody heard how it ended: it may be written, now or in a moment.
    #[error("it is not known whether it was recorded: {0}")]
    Uncertain(Arc<str>),
}

/// What is known of a decision before it is made.
#[derive(Clone, Debug)]
pub struct OpenDecision {
    /// Its id.
    pub id: DecisionId,
    /// Whose.
    pub tenant: TenantId,
    /// `chat`, …
    pub surface: &'static str,
    /// On whose behalf.
    pub user: UserId,
    /// In which conversation.
    pub conversation: ConversationId,
    /// What the person said (content mode applies).
    pub message: Arc<str>,
    /// Hash of the definition it ran under.
    pub definition_hash: Arc<str>,
    /// The edge's id of the request.
    pub request_id: Arc<str>,
    /// Microseconds since the epoch.
    pub created_at: i64,
}

/// A finished decision with its calls.
#[derive(Clone, Debug)]
pub struct ClosedDecision {
    /// As in commit 1.
    pub open: OpenDecision,
    /// What was decided.
    pub decision_type: DecisionType,
    /// How it came out.
    pub outcome: Outcome,
    /// First tool called, or `respond`, `clarify`, `refuse`, `none`.
    pub intent: Arc<str>,
    /// The words given (content mode applies).
    pub response: Arc<str>,
    /// The model asked.
    pub model: Arc<str>,
    /// Model calls.
    pub iterations: u32,
    /// Tokens.
    pub usage: Usage,
    /// Microseconds from the parsed request to this commit.
    pub duration_us: i64,
    /// What operators should know of a failure; safe, without payload.
    pub error_detail: Option<Arc<str>>,
    /// Every call proposed, in order.
    pub calls: Vec<CallRecord>,
    /// The claim to settle with the stored answer, if the request had a key.
    pub answer: Option<StoredAnswer>,
    /// True when commit 1 was made (so that rows exist to be updated).
    pub opened: bool,
}

/// What the gate said of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruled {
    /// Its answer.
    pub effect: Effect,
    /// What decided it, in words such as `rule colleagues`; nothing where a call needed no leave, or was wrong in itself.
    pub by: Option<Arc<str>>,
}

/// A side effect that is about to be sent.
#[derive(Clone, Debug)]
pub struct Intent {
    /// Its id.
    pub id: ActionId,
    /// Of which decision.
    pub decision: DecisionId,
    /// Whose.
    pub tenant: TenantId,
    /// Place in the run.
    pub sequence: u32,
    /// The tool; its digest is recorded.
    pub tool: Arc<Tool>,
    /// Canonical arguments (content mode applies).
    pub arguments: Arc<RawValue>,
    /// What the gate said of it.
    pub ruled: Option<Ruled>,
    /// The key sent along.
    pub idempotency_key: Arc<str>,
    /// Microseconds since the epoch.
    pub started_at: i64,
}

/// A call as it ended.
#[derive(Clone, Debug)]
pub struct CallRecord {
    /// Its id.
    pub id: ActionId,
    /// Place in the run.
    pub sequence: u32,
    /// The tool; `None` when the model named nothing granted.
    pub tool: Option<Arc<Tool>>,
    /// The name the model used.
    pub name: Arc<str>,
    /// Canonical arguments, or the model's own when nothing was sent (content mode applies).
    pub arguments: Arc<RawValue>,
    /// What the gate said of it; nothing where it was not asked.
    pub ruled: Option<Ruled>,
    /// The key sent along, when it was sent.
    pub idempotency_key: Option<Arc<str>>,
    /// Microseconds since the epoch; `None` when nothing was sent.
    pub started_at: Option<i64>,
    /// From sending to the answer, microseconds.
    pub duration_us: i64,
    /// Data (content mode applies) or failure; `FailureCode::InDoubt` makes the row `in_doubt`.
    pub outcome: Result<Arc<RawValue>, CallFailure>,
}

/// A claim of `Idempotency-Key` (DESIGN.md section 9): caller, user, route and key, for 24 h.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Hex SHA-256 over caller, tenant, user, route and key.
    pub scope: Arc<str>,
    /// Hex SHA-256 of the request's body.
    pub fingerprint: Arc<str>,
    /// The decision it will lead to.
    pub decision: OpenDecision,
}

/// What a claim met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// Ours: the decision row is open, go on.
    New,
    /// Done before: this was the answer.
    Answered(StoredAnswer),
    /// The same key came with another body.
    Mismatch,
    /// The first request is still running.
    Running,
}

/// An answer kept for a retried request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAnswer {
    /// Which claim.
    pub scope: Arc<str>,
    /// HTTP status. 429 and 503 are not kept: the claim is released, so that a retry is a new request.
    pub status: u16,
    /// JSON body.
    pub body: Arc<str>,
}

/// Who writes: rows of a dead instance are finished by recovery.
#[derive(Clone, Copy, Debug)]
pub struct Owner(pub InstanceId);

/// What analysts ask for. All reads are bounded by `page_size`.
pub trait Decisions: Send + Sync {
    /// A page of decisions of one tenant.
    fn list<'a>(&'a self, tenant: &'a TenantId, query: &'a ListQuery) -> BoxFuture<'a, Result<Page, QueryError>>;
    /// One decision with its calls; `None` when the tenant has no such one.
    fn get<'a>(
        &'a self,
        tenant: &'a TenantId,
        id: DecisionId,
    ) -> BoxFuture<'a, Result<Option<serde_json::Value>, QueryError>>;
    /// A page of tool calls of one tenant.
    fn tool_invocations<'a>(
        &'a self,
        tenant: &'a TenantId,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<Page, QueryError>>;
    /// Does the store answer? For `/readyz` and `doctor`.
    fn ping(&self) -> BoxFuture<'_, Result<(), QueryError>>;
}

/// `page_size`, `page_token`, `filter`, `order_by` as the caller gave them, and the user they are bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// 1..=1000.
    pub page_size: u32,
    /// From the page before.
    pub page_token: Option<String>,
    /// `field = "value" AND field >= "value"`.
    pub filter: Option<String>,
    /// `created_at desc` (default) or `created_at`.
    pub order_by: Option<String>,
    /// Only this user's rows (a caller that is a user, not a service).
    pub user: Option<UserId>,
}

/// One page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Rows as JSON objects.
    pub items: Vec<serde_json::Value>,
    /// For the next page; absent on the last.
    pub next_page_token: Option<String>,
}

/// Why a query has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The caller's words are off; names the field, the value and what is allowed.
    #[error("{field}: {detail}")]
    Invalid {
        /// `filter`, `order_by`, `page_size`, `page_token`.
        field: &'static str,
        /// What was found and what is allowed.
        detail: String,
    },
    /// The answer would take longer than `limit`.
    #[error("the query took more than {} s; narrow it, with a created_at for example", limit.as_secs())]
    TooSlow {
        /// The longest a query may take.
        limit: Duration,
    },
    /// The store is away.
    #[error("the record store is unavailable: {0}")]
    Unavailable(Arc<str>),
}
