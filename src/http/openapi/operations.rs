//! The operation of each route.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use utoipa::openapi::path::{Operation, OperationBuilder, Parameter};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::response::{ResponseBuilder, ResponsesBuilder};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{Content, Required};

use super::agents::of_user;
use super::parts::{self, content, response};
use crate::http::error::Code;
use crate::http::routes::Route;
use crate::http::spelling::Spelling;

/// The responses of a route other than problems.
pub(super) type Answers = Vec<(u16, ResponseBuilder)>;

pub(super) struct About {
    pub(super) id: &'static str,
    pub(super) tag: &'static str,
    pub(super) summary: &'static str,
    pub(super) description: &'static str,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<RequestBody>,
    pub(super) answers: Answers,
    pub(super) problems: &'static [Code],
}

/// Problems of every route that authenticates its caller.
pub(super) const CALLER: [Code; 2] = [Code::Unauthenticated, Code::AuthUnavailable];

const CHAT_PROBLEMS: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::UserMismatch,
    Code::Forbidden,
    Code::RequestTimeout,
    Code::StillRunning,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::IdempotencyKeyReused,
    Code::OutcomeUnrecorded,
    Code::Internal,
    Code::RecordUnavailable,
    Code::Overloaded,
    CALLER[1],
];
const LIST_PROBLEMS: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::UserMismatch,
    Code::QueryTooSlow,
    Code::RecordUnavailable,
    CALLER[1],
];
const ONE_PROBLEMS: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::UserMismatch,
    Code::NotFound,
    Code::RecordUnavailable,
    CALLER[1],
];
pub(super) const GET_PROBLEMS: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::NotFound,
    Code::RecordUnavailable,
    CALLER[1],
];

/// The operation of a route; none for the console, whose pages and forms are for people.
pub(super) fn of(route: Route) -> Option<Operation> {
    let about = about(route)?;
    let open = matches!(about.tag, "health" | "reference" | "accounts");
    let operation = OperationBuilder::new()
        .operation_id(Some(about.id))
        .tag(about.tag)
        .summary(Some(about.summary))
        .description(Some(about.description))
        .parameters((!about.parameters.is_empty()).then_some(about.parameters))
        .request_body(about.body)
        .responses(responses(Spelling::of(Some(route)), about.answers, about.problems));
    let operation = if open {
        operation.security(SecurityRequirement::default())
    } else {
        operation
    };
    Some(operation.build())
}

/// Responses and problems by status; if both share a status, its response has both contents.
fn responses(spelling: Spelling, answers: Answers, problems: &[Code]) -> ResponsesBuilder {
    let mut codes: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in problems.iter().copied().chain([Code::MethodNotAllowed]) {
        codes.entry(code.status()).or_default().push(code);
    }
    let mut all: BTreeMap<u16, ResponseBuilder> = answers.into_iter().collect();
    for (status, codes) in codes {
        let problem = parts::problem(spelling, status, &codes);
        let merged = match all.remove(&status) {
            None => problem,
            Some(answer) => merge(answer, problem),
        };
        all.insert(status, merged);
    }
    all.into_iter()
        .fold(ResponsesBuilder::new(), |responses, (status, response)| {
            responses.response(status.to_string(), response.build())
        })
}

fn merge(answer: ResponseBuilder, problem: ResponseBuilder) -> ResponseBuilder {
    let (mut answer, problem) = (answer.build(), problem.build());
    answer.description = format!("{} Or a problem. {}", answer.description, problem.description);
    answer.headers.extend(problem.headers);
    answer.content.extend(problem.content);
    answer.into()
}

fn about(route: Route) -> Option<About> {
    Some(match route {
        Route::Chat => chat(),
        Route::ChatStream => chat_stream(),
        Route::Decisions => About {
            parameters: listed([of_user()].into_iter().chain(parts::listing(
                Spelling::Snake,
                DECISION_FIELDS,
                "outcome_category = \"ERROR:*\"",
            ))),
            problems: LIST_PROBLEMS,
            ..get(
                "listDecisions",
                "record",
                "Lists decisions",
                DECISIONS,
                "DecisionPage",
                None,
            )
        },
        Route::Decision => About {
            parameters: listed([of_user(), parts::path("id", "The `decision_id` of a response.")]),
            problems: ONE_PROBLEMS,
            ..get(
                "getDecision",
                "record",
                "Reads one decision with its tool calls",
                DECISION,
                "DecisionDetail",
                None,
            )
        },
        Route::ToolInvocations => About {
            parameters: listed([of_user()].into_iter().chain(parts::listing(
                Spelling::Snake,
                CALL_FIELDS,
                "tool = \"add_task\" AND success = false",
            ))),
            problems: LIST_PROBLEMS,
            ..get(
                "listToolInvocations",
                "record",
                "Lists tool calls",
                CALLS,
                "ToolInvocationPage",
                None,
            )
        },
        Route::Agents
        | Route::Agent
        | Route::PutAgent
        | Route::Versions
        | Route::Version
        | Route::RestoreVersion
        | Route::Trigger
        | Route::Runs
        | Route::Run
        | Route::RunEvents
        | Route::CancelRun
        | Route::ResumeRun
        | Route::AgentSchema => super::agents::about(route),
        Route::Say
        | Route::SayStream
        | Route::Threads
        | Route::Thread
        | Route::ThreadRun
        | Route::ThreadRunEvents
        | Route::CancelThreadRun
        | Route::PendingApprovals
        | Route::ResolveApproval
        | Route::ActionsInDoubt
        | Route::SettleAction
        | Route::Grants
        | Route::Grant
        | Route::RevokeGrant => super::threads::about(route),
        Route::GoogleCallback => google_callback(),
        Route::Live => get(
            "isAlive",
            "health",
            "Checks whether the process responds",
            LIVE,
            "Live",
            Some(json!({"status": "ok"})),
        ),
        Route::Ready => ready(),
        Route::Metrics => text(
            "getMetrics",
            "health",
            "Returns metrics for Prometheus",
            "Prometheus text format, version 0.0.4.",
            "text/plain",
        ),
        Route::OpenApi => get(
            "getOpenApi",
            "reference",
            "This description",
            "OpenAPI 3.1.",
            "OpenApi",
            None,
        ),
        Route::Docs => text(
            "showDocs",
            "reference",
            "This description as an interactive page",
            "Loads nothing from other hosts.",
            "text/html",
        ),
        Route::DocsAsset => About {
            parameters: listed([parts::path("asset", "Name of a file that the page loads.")]),
            problems: &[Code::NotFound, Code::Internal],
            ..asset()
        },
        Route::Root => About {
            answers: vec![(307, response("Redirects to `/docs`."))],
            ..plain(
                "getRoot",
                "reference",
                "Redirects to the description",
                "For people who open the address in a browser.",
                response(""),
            )
        },
        Route::Console
        | Route::ConsoleStyle
        | Route::ConsoleLogin
        | Route::ConsoleLogIn
        | Route::ConsoleLogOut
        | Route::ConsoleZone
        | Route::ConsoleChooseZone
        | Route::ConsoleNews
        | Route::ConsoleApprovals
        | Route::ConsoleApproval
        | Route::ConsoleResolve
        | Route::ConsoleSettle
        | Route::ConsoleThreads
        | Route::ConsoleThread
        | Route::ConsoleGrants
        | Route::ConsoleRevoke => return None,
    })
}

const DECISIONS: &str =
    "Latest first. A user sees their own rows; a service, or a user with the role `analyst`, those of the tenant.";
const DECISION: &str = "A decision of another tenant or user answers 404, like a missing one.";
const CALLS: &str = "Latest first, every call of every decision. Visibility is the same as for decisions.";
const LIVE: &str = "Does not depend on the database: a restart would not repair it.";
const DECISION_FIELDS: &str = "decision_type, outcome_category, intent, user_id, conversation_id, surface, model, status, \
                               created_at, duration_ms, iterations";
const CALL_FIELDS: &str = "tool, server, status, success, decision_id, created_at, duration_ms, user_id";

pub(super) fn listed(parameters: impl IntoIterator<Item = Parameter>) -> Vec<Parameter> {
    parameters.into_iter().chain([parts::request_id()]).collect()
}

/// A route without parameters and with one response.
pub(super) fn plain(
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
    about: &'static str,
    ok: ResponseBuilder,
) -> About {
    About {
        id,
        tag,
        summary,
        description: about,
        parameters: vec![parts::request_id()],
        body: None,
        answers: vec![(200, ok)],
        problems: &[],
    }
}

pub(super) fn get(
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
    about: &'static str,
    schema: &str,
    example: Option<Value>,
) -> About {
    let ok = response("The response.").content("application/json", content(schema, example));
    plain(id, tag, summary, about, ok)
}

fn text(id: &'static str, tag: &'static str, summary: &'static str, about: &'static str, media: &str) -> About {
    let ok = response("The text.").content(media, Content::new(Some(parts::string().build())));
    plain(id, tag, summary, about, ok)
}

fn google_callback() -> About {
    let about =
        "Only for browsers: completes what `gavel google connect` started. The state is valid once, for ten minutes.";
    let mut about = text(
        "finishGoogle",
        "accounts",
        "Receives users whom Google redirects back",
        about,
        "text/html",
    );
    let query = |name, what| parts::query(name, what, parts::string());
    about.parameters = listed([
        query(
            "state",
            "The connection in progress; only `gavel google connect` creates one.",
        ),
        query(
            "code",
            "Google's confirmation that the user consented; absent if the user declined.",
        ),
    ]);
    // The route does not exist if callbacks are disabled.
    about.problems = &[Code::NotFound];
    let page = |words| response(words).content("text/html", Content::new(Some(parts::string().build())));
    about.answers.extend([
        (400, page("No account was connected; the page gives the reason.")),
        (502, page("Google is unavailable.")),
        (503, page("The service failed; its log gives the reason.")),
    ]);
    about
}

fn asset() -> About {
    let ok = ["text/css", "text/javascript", "image/png"]
        .into_iter()
        .fold(response("The file."), |ok, media| ok.content(media, Content::default()));
    plain(
        "getDocsAsset",
        "reference",
        "A file of the description's page",
        "Compiled in.",
        ok,
    )
}

fn ready() -> About {
    let about = "Reports on gavel's own database, and names the constitution in effect; an invalid configuration prevents the \
                 start. An MCP server that is down makes it `degraded`, not unready. Details are shown only to authenticated \
                 callers.";
    let unready =
        response("Unready or stopping: send no requests here.").content("application/json", content("Ready", None));
    let mut about = get(
        "isReady",
        "health",
        "Checks whether gavel can decide",
        about,
        "Ready",
        None,
    );
    about.answers.push((503, unready));
    about
}

fn chat_body() -> RequestBody {
    let example = json!({"message": "add a task to call mom", "user_id": "me"});
    RequestBodyBuilder::new()
        .description(Some("At most 1 MiB. Unknown fields are refused."))
        .required(Some(Required::True))
        .content("application/json", content("ChatRequest", Some(example)))
        .build()
}

fn decision_example() -> Value {
    json!({
        "decision_id": "0199f0a1-7c2e-7d10-9f5e-3a1b2c3d4e5f",
        "conversation_id": "c-1",
        "decision_type": "INVOKE_TOOL",
        "outcome_category": "SUCCESS:TASK_COMPLETED",
        "response": "Added “call mom” to your tasks.",
        "tool_calls": [{
            "sequence": 1,
            "tool": "add_task",
            "parameters": {"description": "call mom"},
            "result": {"success": true, "data": {"id": "7"}, "error": null, "duration_ms": 4},
        }],
        "iterations": 2,
        "model": "gemini-3.8-flash",
        "usage": {"input_tokens": 1200, "output_tokens": 40, "thought_tokens": 0, "cached_tokens": 1000},
        "duration_ms": 1310,
    })
}

fn chat() -> About {
    let decision = || content("AgentDecision", None);
    let json = "application/json";
    let ok = response("The decision, for every outcome except the two below.")
        .content(json, content("AgentDecision", Some(decision_example())));
    let limited = response("`REFUSAL:RATE_LIMITED`, a decision like any other.").content(json, decision());
    let shed = response("`REFUSAL:OVERLOADED`, a decision like any other.").content(json, decision());
    About {
        id: "decide",
        tag: "chat",
        summary: "Decides about one message",
        description: "The message comes with its whole context; gavel keeps nothing between requests except its records. The \
                      decision is recorded before the response is sent.",
        parameters: parts::acting().into(),
        body: Some(chat_body()),
        answers: chat_answers(ok, limited, shed),
        problems: CHAT_PROBLEMS,
    }
}

fn chat_stream() -> About {
    let lines = |about: &str| {
        ["application/x-ndjson", "text/event-stream"]
            .into_iter()
            .fold(response(about), |response, media| {
                response.content(media, content("StreamLine", None))
            })
    };
    let ok = lines(
        "One object per line, the last a decision or an error. With `Accept: text/event-stream` each is an SSE message with an id.",
    );
    let limited = lines("`REFUSAL:RATE_LIMITED`: only the last line.");
    let shed = lines("`REFUSAL:OVERLOADED`: only the last line.");
    About {
        id: "decideStreamed",
        tag: "chat",
        summary: "Decides about one message and streams the events",
        description: "Streams the events of the run as they happen; a silent stream sends a heartbeat every 10 s. A request refused \
                      before the run starts has its own status; a replay is only the last line. A client that disconnects does \
                      not cancel.",
        answers: chat_answers(ok, limited, shed),
        ..chat()
    }
}

fn chat_answers(ok: ResponseBuilder, limited: ResponseBuilder, shed: ResponseBuilder) -> Answers {
    let dressed = |response| parts::with_replayed(parts::with_quota(response));
    vec![
        (200, dressed(ok)),
        (429, parts::with_retry_after(dressed(limited))),
        (503, parts::with_retry_after(dressed(shed))),
    ]
}
