//! `/openapi.json`, made from the code, and `/docs`, which shows it without a connection to anywhere.

use actix_web::HttpResponse;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{IntoParams, Modify, OpenApi, ToSchema};
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::{chat, decisions, error, health, stream};

/// The API.
#[derive(OpenApi)]
#[openapi(
    info(title = "gavel", description = "Turns chat messages into typed, logged decisions."),
    paths(
        chat::decide, stream::decide, decisions::list, decisions::get, decisions::tool_invocations,
        health::livez, health::readyz, health::metrics, openapi,
    ),
    components(schemas(error::Problem, error::ProblemField, error::Code)),
    modifiers(&Security),
    security((), ("key" = [])),
)]
pub struct ApiDoc;

struct Security;

impl Modify for Security {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        api.components
            .get_or_insert_default()
            .add_security_scheme("key", scheme);
    }
}

/// The description of the API.
#[utoipa::path(get, path = "/openapi.json", tag = "health", security(()), responses((status = 200, description = "OpenAPI 3.1", body = Value)))]
pub(super) async fn openapi() -> HttpResponse {
    static TEXT: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
        ApiDoc::openapi()
            .to_json()
            .unwrap_or_else(|error| unreachable!("the description prints as JSON: {error}"))
    });
    HttpResponse::Ok().content_type("application/json").body(TEXT.as_str())
}

/// The pages that show it; their assets are in the binary.
pub(super) fn pages() -> SwaggerUi {
    SwaggerUi::new("/docs/{_:.*}").config(Config::from("/openapi.json"))
}

/// Headers of a request that acts.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code, reason = "described, read by hand")]
pub(super) struct PostHeaders {
    /// Same key and body: the stored answer. 1 to 255 visible ASCII characters, kept for 24 h.
    #[param(
        rename = "Idempotency-Key",
        required = false,
        min_length = 1,
        max_length = 255,
        pattern = "^[!-~]+$"
    )]
    idempotency_key: Option<String>,
    /// Your name for this request; echoed.
    #[param(rename = "X-Request-Id", required = false)]
    request_id: Option<String>,
}

/// Parameters of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "described, read by hand")]
pub(super) struct ListParameters {
    /// Rows of a page.
    #[param(minimum = 1, maximum = 1000, default = 50)]
    page_size: Option<u32>,
    /// From the page before.
    page_token: Option<String>,
    /// `field = "value" AND field >= "value"`, for example `outcome_category = "ERROR:*"`.
    filter: Option<String>,
    /// `created_at desc` or `created_at`.
    order_by: Option<String>,
}

/// A message with its whole context.
#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"message": "add a task to call mom", "user_id": "me"}))]
#[allow(dead_code, reason = "described; chat/request.rs reads it")]
pub(super) struct ChatBody {
    /// What the person says; over 32 KiB the decision is ERROR:USER_INPUT. Not blank, no NUL.
    #[schema(min_length = 1)]
    message: String,
    /// On whose behalf; required unless the caller's token says it.
    #[schema(min_length = 1, max_length = 256)]
    user_id: Option<String>,
    /// Whose conversation; absent: one is made.
    #[schema(min_length = 1, max_length = 256)]
    conversation_id: Option<String>,
    /// Earlier lines, oldest first; over 200 entries or 256 KiB the decision is ERROR:USER_INPUT.
    history: Option<Vec<HistoryLine>>,
    /// A subset of the whitelist; absent: all of it.
    tools: Option<Vec<String>>,
    /// IANA time zone, for "today" and "tomorrow"; absent: UTC.
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
}

/// An earlier line.
#[derive(ToSchema, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "described; chat/request.rs reads it")]
pub(super) struct HistoryLine {
    /// Who said it.
    role: HistoryRole,
    /// What.
    content: String,
}

/// Who said it.
#[derive(ToSchema, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "described; chat/request.rs reads it")]
pub(super) enum HistoryRole {
    /// The person.
    User,
    /// The service.
    Assistant,
}

/// A decision.
#[derive(ToSchema, Serialize)]
pub(super) struct Decision {
    /// `GET /v1/decisions/{id}` finds it.
    decision_id: String,
    /// The caller's, or one made for it.
    conversation_id: String,
    /// REFUSE, REQUEST_CLARIFICATION, INVOKE_TOOL or RESPOND_ONLY.
    decision_type: String,
    /// From the closed list of docs/outcomes.md.
    #[schema(example = "SUCCESS:TASK_COMPLETED")]
    outcome_category: String,
    /// The words for the person.
    response: String,
    /// Every call the model proposed, in order.
    tool_calls: Vec<ToolCall>,
    /// Model calls made.
    iterations: u32,
    /// The model that answered.
    model: String,
    /// Tokens over all iterations.
    usage: UsageShape,
    /// Milliseconds from the parsed request to the answer.
    duration_ms: u64,
}

/// A tool call.
#[derive(ToSchema, Serialize)]
pub(super) struct ToolCall {
    /// 1, 2, 3 …
    sequence: u32,
    /// The tool's name.
    tool: String,
    /// Its arguments.
    parameters: Value,
    /// What came of it.
    result: ToolCallResult,
}

/// What came of a tool call.
#[derive(ToSchema, Serialize)]
pub(super) struct ToolCallResult {
    /// Did it do its job?
    success: bool,
    /// What it returned.
    data: Option<Value>,
    /// Why it failed.
    error: Option<ToolCallError>,
    /// Milliseconds.
    duration_ms: u64,
}

/// Why a tool call failed.
#[derive(ToSchema, Serialize)]
pub(super) struct ToolCallError {
    /// From the closed list of docs/outcomes.md.
    code: String,
    /// For a person.
    message: String,
}

/// Tokens.
#[derive(ToSchema, Serialize)]
pub(super) struct UsageShape {
    /// Prompt tokens, cached ones included.
    input_tokens: u64,
    /// Tokens of the answer.
    output_tokens: u64,
    /// Tokens spent thinking.
    thought_tokens: u64,
    /// The cached part of `input_tokens`.
    cached_tokens: u64,
}

/// A decision on the record: the fields of the answer and what was known of the request.
#[derive(ToSchema, Serialize)]
pub(super) struct DecisionRecord {
    /// Its id.
    decision_id: String,
    /// `open` or `closed`.
    status: String,
    /// The rest, by name.
    #[serde(flatten)]
    rest: std::collections::BTreeMap<String, Value>,
}

/// A page of decisions.
#[derive(ToSchema, Serialize)]
pub(super) struct DecisionPage {
    /// Rows.
    decisions: Vec<DecisionRecord>,
    /// For the next page; absent on the last.
    #[schema(nullable = false)]
    next_page_token: Option<String>,
}

/// A page of tool calls.
#[derive(ToSchema, Serialize)]
pub(super) struct ToolInvocationPage {
    /// Rows.
    tool_invocations: Vec<Value>,
    /// For the next page; absent on the last.
    #[schema(nullable = false)]
    next_page_token: Option<String>,
}

/// Readiness.
#[derive(ToSchema, Serialize)]
pub(super) struct Readiness {
    /// `ready`, `degraded` (some tools are unavailable) or `unready`.
    status: String,
    /// `ok`, or why the database does not answer.
    store: String,
    /// Is the service being stopped?
    stopping: bool,
    /// The MCP servers.
    mcp: Value,
    /// Granted tools that no server offers now.
    tools_unavailable: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_names_every_route_with_its_methods() {
        let api: Value = serde_json::from_str(&ApiDoc::openapi().to_json().unwrap()).unwrap();
        assert!(api["openapi"].as_str().unwrap().starts_with("3.1"));
        for (path, methods) in super::super::ROUTES {
            for method in methods.split(", ").filter(|method| *method != "HEAD") {
                assert!(!api["paths"][path][method.to_lowercase()].is_null(), "{method} {path}");
            }
        }
        assert_eq!(api["paths"].as_object().unwrap().len(), super::super::ROUTES.len());
    }
}
