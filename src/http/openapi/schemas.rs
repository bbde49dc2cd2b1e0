//! Schemas of requests and responses. Response types derive theirs; the schemas below describe what gavel parses by
//! hand (the request) or what the store writes (rows).

use serde_json::Value;
use utoipa::openapi::schema::{AdditionalProperties, AllOfBuilder, AnyOf, ArrayBuilder, OneOfBuilder, SchemaType};
use utoipa::openapi::{Array, ComponentsBuilder, Object, Ref, RefOr, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

use super::parts::string;
use crate::domain::action::Grant;
use crate::domain::agent_run::AgentRun;
use crate::domain::decision::{AgentDecision, DecisionType, Outcome};
use crate::domain::event::Event;
use crate::domain::thread::{Thread, ThreadSummary};
use crate::http::agents::AgentPut;
use crate::http::approvals::{ResolveBody, SettleBody};
use crate::http::error::{AgentProblem, Code, Problem};
use crate::http::health::{Live, Ready};
use crate::http::spelling::Spelling;
use crate::http::threads::SayBody;
use crate::surfaces::agents::{AgentDetail, AgentInfo, RunEvent, VersionDetail, VersionInfo};
use crate::surfaces::approvals::{ActionInDoubt, PendingApproval};
use crate::surfaces::threads::RunAnswer;

/// All schemas, including those they refer to.
pub(super) fn all(components: ComponentsBuilder) -> ComponentsBuilder {
    let mut nested = Vec::new();
    ChatRequest::schemas(&mut nested);
    AgentDecision::schemas(&mut nested);
    Event::schemas(&mut nested);
    DecisionPage::schemas(&mut nested);
    DecisionDetail::schemas(&mut nested);
    ToolInvocationPage::schemas(&mut nested);
    AgentRun::schemas(&mut nested);
    AgentInfo::schemas(&mut nested);
    AgentDetail::schemas(&mut nested);
    AgentPut::schemas(&mut nested);
    VersionInfo::schemas(&mut nested);
    VersionDetail::schemas(&mut nested);
    RunEvent::schemas(&mut nested);
    RunAnswer::schemas(&mut nested);
    PendingApproval::schemas(&mut nested);
    ActionInDoubt::schemas(&mut nested);
    ResolveBody::schemas(&mut nested);
    Thread::schemas(&mut nested);
    ThreadSummary::schemas(&mut nested);
    Grant::schemas(&mut nested);
    Live::schemas(&mut nested);
    Ready::schemas(&mut nested);
    Problem::schemas(&mut nested);
    AgentProblem::schemas(&mut nested);
    components
        .schemas_from_iter(nested)
        .schema_from::<ChatRequest>()
        .schema_from::<AgentDecision>()
        .schema_from::<DecisionType>()
        .schema_from::<Outcome>()
        .schema_from::<Event>()
        .schema("DecisionLine", decision_line())
        .schema("ErrorLine", error_line())
        .schema(
            "Heartbeat",
            typed("heartbeat").description(Some("No event happened for a while.")),
        )
        .schema("StreamLine", stream_line())
        .schema_from::<DecisionPage>()
        .schema_from::<DecisionDetail>()
        .schema_from::<ToolInvocationPage>()
        .schema_from::<AgentRun>()
        .schema_from::<AgentInfo>()
        .schema_from::<AgentDetail>()
        .schema_from::<AgentPut>()
        .schema_from::<VersionInfo>()
        .schema_from::<VersionDetail>()
        .schema_from::<RunEvent>()
        .schema_from::<RunAnswer>()
        .schema_from::<PendingApproval>()
        .schema_from::<ActionInDoubt>()
        .schema_from::<ResolveBody>()
        .schema_from::<SettleBody>()
        .schema_from::<SayBody>()
        .schema_from::<Thread>()
        .schema_from::<ThreadSummary>()
        .schema_from::<Grant>()
        .schema("ThreadLine", thread_line())
        .schema("ApprovalPage", paged(Spelling::Camel, "approvals", "PendingApproval"))
        .schema("ThreadPage", paged(Spelling::Camel, "threads", "ThreadSummary"))
        .schema("ActionInDoubtPage", paged(Spelling::Camel, "actions", "ActionInDoubt"))
        .schema("GrantPage", paged(Spelling::Camel, "grants", "Grant"))
        .schema("RunLine", run_line())
        .schema("AgentPage", paged(Spelling::Snake, "agents", "AgentInfo"))
        .schema("VersionPage", paged(Spelling::Snake, "versions", "VersionInfo"))
        .schema("RunPage", paged(Spelling::Snake, "runs", "AgentRun"))
        .schema("Inputs", inputs())
        .schema("Settled", settled())
        .schema("JsonSchema", Object::with_type(Type::Object))
        .schema_from::<Live>()
        .schema_from::<Ready>()
        .schema_from::<Problem<'_>>()
        .schema_from::<AgentProblem<'_>>()
        .schema("OpenApi", Object::with_type(Type::Object))
}

/// An object with a list.
fn listing(name: &str, of: &str) -> Object {
    let list = ArrayBuilder::new().items(Ref::from_schema_name(of));
    Object::builder()
        .schema_type(Type::Object)
        .property(name, list)
        .required(name)
        .build()
}

/// A line of a thread run's stream.
fn thread_line() -> Object {
    let types = ["status", "delta", "reset", "heartbeat", "result", "error"];
    Object::builder()
        .schema_type(Type::Object)
        .property("type", string().enum_values(Some(types)))
        .property(
            "status",
            Object::builder()
                .schema_type(SchemaType::from_iter([Type::String, Type::Integer]))
                .description(Some(
                    "In the first line: `planning` or `queued`, or the state of a run that already existed. Of an `error`: the status of \
                     the problem.",
                )),
        )
        .property("threadId", string().description(Some("In the first line.")))
        .property("runId", string().description(Some("In the first line.")))
        .property("delta", string().description(Some("More text of the model.")))
        .property("result", Ref::from_schema_name("RunAnswer"))
        .property(
            "error",
            string().description(Some(
                "What happened, as text. The line also has the fields of the problem that another route would return, except `type`.",
            )),
        )
        .property("title", string().description(Some("Of the problem.")))
        .property("detail", string().description(Some("Of the problem: as `error`.")))
        .property("code", string().description(Some("Of the problem.")))
        .property("errorClass", string().description(Some("Of the problem.")))
        .required("type")
        .build()
}

/// As [`listing`], with pages.
fn paged(spelling: Spelling, name: &str, of: &str) -> Object {
    let token = Object::builder()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .description(Some("Token of the next page; null on the last."));
    let mut page = listing(name, of);
    page.properties
        .insert(spelling.next_page_token().to_owned(), RefOr::T(token.build().into()));
    page.required.push(spelling.next_page_token().to_owned());
    page
}

fn inputs() -> RefOr<Schema> {
    let by_name = Object::builder()
        .schema_type(Type::Object)
        .description(Some("The agent's inputs by name, as in its definition."));
    let text = string().description(Some("The text, for an agent with one text input."));
    OneOfBuilder::new().item(by_name).item(text).into()
}

/// A line of a run's event stream.
fn run_line() -> RefOr<Schema> {
    let id = Object::builder()
        .schema_type(Type::Object)
        .property(
            "id",
            string().description(Some("The position of this event in the stream.")),
        )
        .required("id");
    let event = AllOfBuilder::new().item(Ref::from_schema_name("RunEvent")).item(id);
    OneOfBuilder::new()
        .item(event)
        .item(Ref::from_schema_name("ErrorLine"))
        .item(Ref::from_schema_name("Heartbeat"))
        .into()
}

fn settled() -> Object {
    let settled = Object::builder()
        .schema_type(Type::Object)
        .property_names(Some(Schema::from(
            string().format(Some(SchemaFormat::Custom("uuid".to_owned()))).build(),
        )))
        .additional_properties(Some(RefOr::T(Schema::from(Object::with_type(Type::Boolean)))))
        .description(Some(
            "For each in-doubt call, by its action_id: whether it had its effect.",
        ));
    Object::builder()
        .schema_type(Type::Object)
        .property("settled", settled)
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .build()
}

/// `code` of a problem.
pub(in crate::http) fn code() -> RefOr<Schema> {
    string()
        .enum_values(Some(Code::ALL.iter().map(|code| code.as_str())))
        .into()
}

/// A UUID.
pub(in crate::http) fn id() -> RefOr<Schema> {
    string().format(Some(SchemaFormat::Custom("uuid".to_owned()))).into()
}

/// `errors` of a problem.
pub(in crate::http) fn field_errors() -> RefOr<Schema> {
    let pointer = string().description(Some(
        "JSON pointer into the body, or the name of a query parameter or header.",
    ));
    let detail = string().description(Some("What was found, and what is allowed."));
    let error = Object::builder()
        .schema_type(Type::Object)
        .property("pointer", pointer)
        .required("pointer")
        .property("detail", detail)
        .required("detail");
    Array::new(error).into()
}

fn typed(name: &str) -> utoipa::openapi::schema::ObjectBuilder {
    Object::builder()
        .schema_type(Type::Object)
        .property("type", string().enum_values(Some([name])))
        .required("type")
}

/// The decision, with its `type`.
fn decision_line() -> RefOr<Schema> {
    utoipa::openapi::schema::AllOfBuilder::new()
        .item(typed("decision"))
        .item(Ref::from_schema_name("AgentDecision"))
        .description(Some("The last line: the decision as `POST /v1/chat` returns it."))
        .into()
}

fn error_line() -> RefOr<Schema> {
    typed("error")
        .property("problem", Ref::from_schema_name("Problem"))
        .required("problem")
        .description(Some("The last line, if there is no decision."))
        .into()
}

fn stream_line() -> RefOr<Schema> {
    let lines = ["Event", "DecisionLine", "ErrorLine", "Heartbeat"];
    lines
        .into_iter()
        .fold(OneOfBuilder::new(), |one_of, name| {
            one_of.item(Ref::from_schema_name(name))
        })
        .into()
}

/// Any JSON value.
fn any() -> RefOr<Schema> {
    Value::schema()
}

/// The outcome, or null while the decision is open.
fn outcome_or_null() -> RefOr<Schema> {
    nullable("Outcome")
}

fn type_or_null() -> RefOr<Schema> {
    nullable("DecisionType")
}

fn nullable(name: &str) -> RefOr<Schema> {
    let null = Object::with_type(Type::Null);
    RefOr::T(
        AnyOf::builder()
            .item(null)
            .item(Ref::from_schema_name(name))
            .build()
            .into(),
    )
}

/// A message with its whole context.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes what surfaces/chat/request.rs reads by hand")]
struct ChatRequest {
    /// The user's message. Not blank, no NUL; over 32 KiB the decision is `ERROR:USER_INPUT`.
    #[schema(min_length = 1)]
    message: String,
    /// The acting user; required unless the caller's token names one. No invisible characters, and not blank.
    #[schema(min_length = 1, max_length = 256)]
    user_id: Option<String>,
    /// The id of your conversation; absent: gavel generates one. No invisible characters, and not blank.
    #[schema(min_length = 1, max_length = 256)]
    conversation_id: Option<String>,
    /// Earlier messages, oldest first; over 200 entries or 256 KiB the decision is `ERROR:USER_INPUT`.
    #[schema(inline)]
    history: Option<Vec<HistoryEntry>>,
    /// A subset of the constitution's allowlist; absent: the whole allowlist.
    #[schema(example = json!(["list_tasks"]))]
    tools: Option<Vec<String>>,
    /// IANA time zone, for "today" and "tomorrow"; absent: UTC.
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
}

/// An earlier message. No NUL.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "describes what surfaces/chat/request.rs reads by hand")]
struct HistoryEntry {
    #[schema(inline)]
    role: HistoryRole,
    content: String,
}

/// The author of the message.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes what surfaces/chat/request.rs reads by hand")]
enum HistoryRole {
    User,
    Assistant,
}

/// A recorded decision. Values that are not kept or not known yet are null.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the store's rows")]
struct DecisionRecord {
    #[schema(format = "uuid")]
    decision_id: String,
    conversation_id: String,
    #[schema(schema_with = type_or_null)]
    decision_type: (),
    #[schema(schema_with = outcome_or_null)]
    outcome_category: (),
    /// Depending on `records.content`: the text, its keyed hash, or null.
    #[schema(required = true)]
    response: Option<String>,
    #[schema(required = true)]
    iterations: Option<u32>,
    #[schema(required = true)]
    model: Option<String>,
    usage: RecordedUsage,
    #[schema(required = true)]
    duration_ms: Option<u64>,
    /// The surface that decided: `chat`.
    surface: String,
    user_id: String,
    #[schema(inline)]
    status: RecordStatus,
    /// The first tool called, or `respond`, `clarify`, `refuse`, `none`.
    #[schema(required = true)]
    intent: Option<String>,
    /// As `response`, depending on `records.content`.
    #[schema(required = true)]
    message: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    /// Hash of the definition in effect for this decision.
    definition_hash: String,
    /// Details of a failure, for operators.
    #[schema(required = true)]
    error_detail: Option<String>,
    request_id: String,
    /// Whether recovery closed the decision after its process had died.
    recovered: bool,
}

/// Token counts, null while unknown.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the store's rows")]
struct RecordedUsage {
    #[schema(required = true)]
    input_tokens: Option<u64>,
    #[schema(required = true)]
    output_tokens: Option<u64>,
    #[schema(required = true)]
    thought_tokens: Option<u64>,
    #[schema(required = true)]
    cached_tokens: Option<u64>,
}

/// `open` until its outcome is recorded.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes the store's rows")]
enum RecordStatus {
    Open,
    Closed,
}

/// A recorded decision, with its tool calls.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the store's rows")]
struct DecisionDetail {
    #[schema(inline)]
    #[serde(flatten)]
    decision: DecisionRecord,
    tool_calls: Vec<RecordedCall>,
}

/// A recorded tool call.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the store's rows")]
struct RecordedCall {
    sequence: u32,
    tool: String,
    /// Canonical arguments, depending on `records.content`.
    #[schema(schema_with = any)]
    parameters: (),
    result: RecordedResult,
    #[schema(required = true)]
    server: Option<String>,
    status: CallStatus,
    /// Digest of the tool's definition at the time of the call.
    #[schema(required = true)]
    tool_digest: Option<String>,
    side_effect: bool,
    /// Hex SHA-256 of the canonical arguments; a keyed hash or null, depending on `records.content`.
    #[schema(required = true)]
    input_hash: Option<String>,
    /// The last policy decision: `allow`, `require_approval` or `deny`; null if the call ended before the policy
    /// decided.
    #[schema(required = true)]
    policy: Option<String>,
    /// The source of that decision: `rule NAME`, `grant ID`, `tool`, `definition`, `side_effects`; null if no approval
    /// was required, or the call was invalid.
    #[schema(required = true)]
    decided_by: Option<String>,
}

/// The result of a call.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the store's rows")]
struct RecordedResult {
    success: bool,
    /// Depending on `records.content`.
    #[schema(schema_with = any)]
    data: (),
    #[schema(required = true)]
    error: Option<crate::domain::decision::ToolFailure>,
    #[schema(required = true)]
    duration_ms: Option<u64>,
}

/// The state of a call; `in_doubt`: it may or may not have had its effect.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "describes the store's rows")]
enum CallStatus {
    Started,
    Completed,
    Failed,
    InDoubt,
    NotSent,
}

/// A recorded tool call, listed without its decision.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the store's rows")]
struct ToolInvocation {
    #[serde(flatten)]
    #[schema(inline)]
    call: RecordedCall,
    #[schema(format = "uuid")]
    tool_invocation_id: String,
    #[schema(format = "uuid")]
    decision_id: String,
    user_id: String,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime, required = true)]
    started_at: Option<String>,
}

/// A page of decisions.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a list")]
struct DecisionPage {
    decisions: Vec<DecisionRecord>,
    /// Token of the next page; null on the last.
    #[schema(required = true)]
    next_page_token: Option<String>,
}

/// A page of tool calls.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes a list")]
struct ToolInvocationPage {
    tool_invocations: Vec<ToolInvocation>,
    /// Token of the next page; null on the last.
    #[schema(required = true)]
    next_page_token: Option<String>,
}
