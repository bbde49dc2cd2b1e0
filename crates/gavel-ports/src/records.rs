//! The decision log: decisions and tool calls, made durable before the response is sent.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

pub use crate::api::Page;
pub use crate::api::decisions::Turn;
use crate::api::decisions::{DecisionDetail, DecisionRecord, Erased, ToolInvocation};
use crate::api::filter::FilterFields;
use crate::api::why::{AuditProof, CallApproval};
use crate::domain::canonical;
use crate::domain::decision::{DecisionType, LimitReached, Outcome, Usage};
use crate::domain::definition::Definition;
use crate::domain::ids::{ActionId, ConversationId, DecisionId, ProjectId, TenantId, UserId};
use crate::domain::journal::{CallFailure, Speaker};
use crate::domain::policy::{Effect, Lost, SURFACES};
use crate::domain::tool::Tool;

/// Why something was not recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not written, and it will not be, except for what the writer must finish: the store is unavailable, locked or
    /// full. `0` has the details for operators.
    #[error("the record store is unavailable: {0}")]
    Unavailable(Arc<str>),
    /// The commit was started and its outcome is unknown: the data may be written, now or in a moment.
    #[error("it is unknown whether it was recorded: {0}")]
    Uncertain(Arc<str>),
}

/// The name of a surface, one of [`SURFACES`].
pub type Surface = &'static str;

fn surface<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Surface, D::Error> {
    let name = String::deserialize(deserializer)?;
    let surface = SURFACES.into_iter().find(|surface| *surface == name);
    surface.ok_or_else(|| D::Error::custom(format!("{name:?} is no surface")))
}

/// A text that the content mode may have left out.
fn or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The part of a decision that is known at its start, as its columns are named.
#[derive(Clone, Debug, Deserialize)]
pub struct OpenDecision {
    /// Its id.
    pub id: DecisionId,
    /// The tenant.
    pub tenant: TenantId,
    /// `chat`, …
    #[serde(deserialize_with = "surface")]
    pub surface: Surface,
    /// The acting user.
    #[serde(rename = "user_id")]
    pub user: UserId,
    /// The conversation.
    #[serde(rename = "conversation_id")]
    pub conversation: ConversationId,
    /// The user's message (content mode applies).
    #[serde(deserialize_with = "or_empty")]
    pub message: Arc<str>,
    /// Hash of the definition it ran under.
    pub definition_hash: Arc<str>,
    /// The model that is asked.
    pub requested_model: Arc<str>,
    /// The agent; `None` for a chat.
    pub agent_id: Option<Arc<str>>,
    /// The user's time zone, by its IANA name, if the request had one.
    pub time_zone: Option<Arc<str>>,
    /// The tools that the request asked for, if not for all.
    pub tools_subset: Option<Vec<String>>,
    /// The lines of earlier conversation that came with the request.
    pub history_entries: u32,
    /// The W3C trace of the request, 32 hex digits: gavel's own, else the caller's.
    pub trace_id: Option<Arc<str>>,
    /// The request's id, as the HTTP layer assigned it.
    pub request_id: Arc<str>,
    /// Microseconds since the epoch.
    pub created_at: i64,
}

/// Where the time of a decision went, in microseconds. No moment counts twice; what is left is gavel's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Waiting for approvers.
    pub human_us: i64,
    /// The model.
    pub model_us: i64,
    /// Tools, and agents that were called.
    pub tool_us: i64,
}

/// What was said before, oldest first.
pub type History = Arc<[(Speaker, String)]>;

/// What a model was asked with, beside the row itself. The log keeps the text of each once, by its hash.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The definition; its hash is in the row already.
    pub definition: Arc<Definition>,
    /// The functions that were offered.
    pub toolset: Arc<Kept>,
    /// What was said before (content mode applies).
    pub history: History,
}

/// A text that is stored once, by its hash.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Kept {
    /// Hex SHA-256 of the text.
    pub hash: Arc<str>,
    /// The text.
    pub text: Arc<str>,
}

impl Kept {
    /// A text with its hash.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        Self {
            hash: canonical::hash(&text),
            text,
        }
    }
}

/// A finished decision with its calls.
#[derive(Clone, Debug)]
pub struct ClosedDecision {
    /// As in commit 1.
    pub open: OpenDecision,
    /// What the model was asked with; `None` if it was not asked.
    pub asked: Option<Arc<Asked>>,
    /// What was decided.
    pub decision_type: DecisionType,
    /// The outcome.
    pub outcome: Outcome,
    /// The first tool called, or `respond`, `clarify`, `refuse`, `none`.
    pub intent: Arc<str>,
    /// The response text (content mode applies).
    pub response: Arc<str>,
    /// The model that answered last; `None` if none did.
    pub model: Option<Arc<str>>,
    /// The tier that served its answer, if the provider names it.
    pub service_tier: Option<Arc<str>>,
    /// Every model call, in order.
    pub turns: Vec<Turn>,
    /// Tokens.
    pub usage: Usage,
    /// Microseconds from the parsed request to this commit.
    pub duration_us: i64,
    /// Where they went.
    pub times: Times,
    /// The limits that it reached.
    pub limits: Vec<LimitReached>,
    /// When it was closed; microseconds since the epoch.
    pub closed_at: i64,
    /// Details of a failure for operators; safe, without payload.
    pub error_detail: Option<Arc<str>>,
    /// Every proposed call, in order.
    pub calls: Vec<ClosedCall>,
    /// The idempotency claim to complete with the stored answer, if the request had a key.
    pub answer: Option<StoredAnswer>,
    /// True when commit 1 was made, so that rows exist to update.
    pub opened: bool,
}

impl ClosedDecision {
    /// A request that was refused before anything was done.
    pub fn refused(open: OpenDecision, decision_type: DecisionType, outcome: Outcome) -> Self {
        Self {
            closed_at: open.created_at,
            open,
            asked: None,
            decision_type,
            outcome,
            intent: "none".into(),
            response: "".into(),
            model: None,
            service_tier: None,
            turns: Vec::new(),
            usage: Usage::default(),
            duration_us: 0,
            times: Times::default(),
            limits: Vec::new(),
            error_detail: None,
            calls: Vec::new(),
            answer: None,
            opened: false,
        }
    }
}

/// An answer that is kept for retried requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAnswer {
    /// The claim's scope.
    pub scope: Arc<str>,
    /// HTTP status. 429 and 503 are not kept: the claim is released, so that a retry is a new request.
    pub status: u16,
    /// JSON body.
    pub body: Arc<str>,
}

/// The policy's decision on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyOutcome {
    /// The effect.
    pub effect: Effect,
    /// The cause in words, such as `rule colleagues`. `None` where a call requires no approval, or was invalid in
    /// itself.
    pub by: Option<Arc<str>>,
    /// What else matched the call, and did not decide.
    pub lost: Vec<Lost>,
}

/// The part of a tool call that is known before it is sent.
#[derive(Clone, Debug)]
pub struct OpenCall {
    /// Its id.
    pub id: ActionId,
    /// Its decision.
    pub decision: DecisionId,
    /// The tenant.
    pub tenant: TenantId,
    /// Place in the run.
    pub sequence: u32,
    /// The model call that proposed it, from 1; `None` for a step of a flow.
    pub turn: Option<u32>,
    /// The tool, whose digest is recorded; `None` when the model named no tool on the allowlist.
    pub tool: Option<Arc<Tool>>,
    /// The name the model used.
    pub name: Arc<str>,
    /// What the model said beside it, with the first call of a turn (content mode applies).
    pub words: Option<String>,
    /// Canonical arguments, or the model's own when nothing was sent (content mode applies).
    pub arguments: Arc<RawValue>,
    /// The policy's decision on it; `None` where the policy was not asked.
    pub policy: Option<PolicyOutcome>,
    /// The idempotency key, if it is sent.
    pub idempotency_key: Option<Arc<str>>,
    /// When it is sent, or when its decision began if nothing is. Microseconds since the epoch.
    pub created_at: i64,
}

impl OpenCall {
    /// Whether it acts, so that it is recorded before it is sent.
    pub fn has_side_effect(&self) -> bool {
        self.tool.as_ref().is_some_and(|tool| tool.side_effect)
    }
}

/// A call that has ended.
#[derive(Clone, Debug)]
pub struct ClosedCall {
    /// As it was before it was sent.
    pub open: OpenCall,
    /// Microseconds since the epoch; `None` when nothing was sent.
    pub started_at: Option<i64>,
    /// Time from sending to the answer, in microseconds.
    pub duration_us: i64,
    /// Data (content mode applies) or failure; `FailureCode::InDoubt` makes the row `in_doubt`.
    pub outcome: Result<Arc<RawValue>, CallFailure>,
}

/// Queries of the decision log. All reads are bounded by `page_size`.
#[async_trait]
pub trait Decisions: Send + Sync {
    /// A page of decisions of one tenant.
    async fn list(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<DecisionRecord>, QueryError>;
    /// One decision with its calls; `None` when the tenant has no such decision.
    async fn get(&self, tenant: &TenantId, id: DecisionId) -> Result<Option<DecisionDetail>, QueryError>;
    /// Texts of a user's decisions that the log keeps by their hash, each with its hash; `None` for one whose content is not
    /// kept.
    async fn texts(
        &self,
        tenant: &TenantId,
        user: &str,
        hashes: &[&str],
    ) -> Result<Vec<(String, Option<String>)>, QueryError>;
    /// What other logs say of a decision, or of one of its calls.
    async fn evidence(
        &self,
        tenant: &TenantId,
        decision: DecisionId,
        action: Option<ActionId>,
    ) -> Result<Evidence, QueryError>;
    /// A page of tool calls of one tenant.
    async fn tool_invocations(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<ToolInvocation>, QueryError>;
    /// Erases the next part of a user's texts. It is done once `after` is `None`; repeating a part does no harm.
    async fn erase(&self, erasure: Erasure) -> Result<Erasure, RecordError>;
    /// What filters of lists can ask for.
    fn filter_fields(&self) -> FilterFields;
    /// Does the store respond? For `/readyz` and `doctor`.
    async fn ping(&self) -> Result<(), QueryError>;
}

/// The erasure of a user's texts, and how far it is.
#[derive(Clone, Debug)]
pub struct Erasure {
    /// The tenant.
    pub tenant: TenantId,
    /// The user.
    pub user: UserId,
    /// Who asked for it.
    pub actor: String,
    /// The last decision that is done; empty at the beginning, `None` at the end.
    pub after: Option<String>,
    /// Its id, and what is done so far.
    pub erased: Erased,
}

/// What other logs say of a decision.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The project of its run, while that is kept.
    pub project: Option<ProjectId>,
    /// The approvals and grants of its calls, while its run is kept.
    pub approvals: Vec<CallApproval>,
    /// Its rows of the audit log.
    pub audit: AuditProof,
}

/// `page_size`, `page_token`, `filter`, `order_by` as the caller gave them, and the user that the result is limited to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// 1..=1000.
    pub page_size: u32,
    /// From the previous page.
    pub page_token: Option<String>,
    /// `field = "value" AND field >= "value"`.
    pub filter: Option<String>,
    /// `created_at desc` (default) or `created_at`.
    pub order_by: Option<String>,
    /// Only this user's rows, where the caller is a user and not a service.
    pub user: Option<UserId>,
}

/// Why a query failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The query is invalid. Names the field, the value and what is allowed.
    #[error("{field}: {detail}")]
    Invalid {
        /// `filter`, `order_by`, `page_size`, `page_token`.
        field: &'static str,
        /// The value found and what is allowed.
        detail: String,
    },
    /// The query would take longer than `limit`.
    #[error("the query took more than {} s; narrow it, with a created_at for example", limit.as_secs())]
    TooSlow {
        /// The longest a query may take.
        limit: Duration,
    },
    /// The store is unavailable.
    #[error("the record store is unavailable: {0}")]
    Unavailable(Arc<str>),
}
