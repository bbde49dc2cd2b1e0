//! The operations of agents and their runs.

use serde_json::json;
use utoipa::openapi::path::Parameter;
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::ObjectBuilder;
use utoipa::openapi::{Content, Required};

use super::operations::{About, CALLER, GET_PROBLEMS, get, listed, plain};
use super::parts::{self, content, response};
use crate::http::error::Code;
use crate::http::routes::Route;
use crate::http::spelling::Spelling;
use crate::surfaces::agents::MOST_TIME;

pub(super) const JSON: &str = "application/json";
/// Numbers separated by dots.
pub(super) const EVENT_ID: &str = "^[0-9]{1,18}([.][0-9]{1,18}){0,15}$";
const RUN_FIELDS: &str = "agent_id, status, user_id, parent_run_id, definition_hash, created_at, stop_reason";

const LIST: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::UserMismatch,
    Code::NotFound,
    Code::QueryTooSlow,
    Code::RecordUnavailable,
    CALLER[1],
];
const READ: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::UserMismatch,
    Code::NotFound,
    Code::RecordUnavailable,
    CALLER[1],
];
pub(super) const WATCH: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::UserMismatch,
    Code::NotFound,
    Code::RecordUnavailable,
    Code::Overloaded,
    CALLER[1],
];
pub(super) const STOP: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::UserMismatch,
    Code::Forbidden,
    Code::NotFound,
    Code::OutcomeUnrecorded,
    Code::RecordUnavailable,
    Code::RunUnreadable,
    CALLER[1],
];
const PUT: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::Forbidden,
    Code::NotFound,
    Code::RequestTimeout,
    Code::ReadOnly,
    Code::TooManyAgents,
    Code::VersionConflict,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidDefinition,
    Code::OutcomeUnrecorded,
    Code::RecordUnavailable,
    Code::Overloaded,
    CALLER[1],
];
const TRIGGER: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::UserMismatch,
    Code::Forbidden,
    Code::NotFound,
    Code::RequestTimeout,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidDefinition,
    Code::IdempotencyKeyReused,
    Code::RateLimited,
    Code::OutcomeUnrecorded,
    Code::RecordUnavailable,
    Code::RunUnreadable,
    Code::Overloaded,
    CALLER[1],
];
const RESUME: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::UserMismatch,
    Code::Forbidden,
    Code::NotFound,
    Code::RequestTimeout,
    Code::NotPaused,
    Code::AlreadyResumed,
    Code::PartOfRun,
    Code::StepLimitExceeded,
    Code::CallsInDoubt,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::IdempotencyKeyReused,
    Code::RateLimited,
    Code::OutcomeUnrecorded,
    Code::RecordUnavailable,
    Code::RunUnreadable,
    Code::Overloaded,
    CALLER[1],
];

/// Describes one operation.
pub(super) fn about(route: Route) -> About {
    match route {
        Route::Agents => About {
            parameters: listed([project()].into_iter().chain(parts::paging(Spelling::Snake))),
            problems: GET_PROBLEMS,
            ..get(
                "listAgents",
                "agents",
                "Lists the agents of a project",
                AGENTS,
                "AgentPage",
                None,
            )
        },
        Route::Agent => About {
            parameters: listed([project(), agent()]),
            problems: GET_PROBLEMS,
            answers: vec![(200, definition_in_any_form())],
            ..get("getAgent", "agents", "Reads one agent", AGENT, "AgentDetail", None)
        },
        Route::PutAgent => About {
            parameters: listed([
                project(),
                agent(),
                parts::header("If-Match", IF_MATCH, like("^\"[1-9][0-9]{0,17}\"$")),
                parts::header("If-None-Match", IF_NONE_MATCH, like("^[*]$")),
            ]),
            body: Some(definition()),
            problems: PUT,
            answers: vec![
                (200, put("A new version, or the current one if nothing changed.")),
                (201, put("A new agent.")),
            ],
            ..plain(
                "putAgent",
                "agents",
                "Puts an agent's definition",
                PUT_AGENT,
                response(""),
            )
        },
        Route::Versions => About {
            parameters: listed([project(), agent()].into_iter().chain(parts::paging(Spelling::Snake))),
            problems: GET_PROBLEMS,
            ..get(
                "listVersions",
                "agents",
                "Lists the versions of an agent",
                VERSIONS,
                "VersionPage",
                None,
            )
        },
        Route::Version => About {
            parameters: listed([project(), agent(), version()]),
            problems: GET_PROBLEMS,
            ..get(
                "getVersion",
                "agents",
                "Reads one version of an agent",
                VERSION,
                "VersionDetail",
                None,
            )
        },
        Route::RestoreVersion => About {
            parameters: listed([project(), agent(), version()]),
            problems: PUT,
            answers: vec![(200, put("The current agent."))],
            ..plain(
                "restoreVersion",
                "agents",
                "Restores an earlier version",
                RESTORE,
                response(""),
            )
        },
        Route::Trigger => About {
            parameters: acting([
                project(),
                agent(),
                parts::query("timeout_s", TIMEOUT, seconds()),
                parts::query("time_zone", TIME_ZONE, parts::string()),
                parts::header("Prefer", PREFER, parts::string()),
            ]),
            body: Some(agent_input()),
            problems: TRIGGER,
            answers: run_answers(),
            ..plain("triggerAgent", "runs", "Runs an agent", TRIGGERED, response(""))
        },
        Route::Runs => About {
            parameters: {
                let list = parts::listing(Spelling::Snake, RUN_FIELDS, "status = \"paused\"");
                listed([project(), user()].into_iter().chain(list))
            },
            problems: LIST,
            ..get("listRuns", "runs", "Lists the runs of a project", RUNS, "RunPage", None)
        },
        Route::Run => About {
            parameters: listed([run(), user()]),
            problems: READ,
            ..get("getRun", "runs", "Reads one run", RUN, "AgentRun", None)
        },
        Route::RunEvents => About {
            parameters: listed([
                run(),
                user(),
                parts::header("Last-Event-ID", LAST, like(EVENT_ID)),
                parts::query("after", LAST, like(EVENT_ID)),
            ]),
            problems: WATCH,
            answers: vec![
                (200, lines()),
                (204, response("You have received the last event already.")),
            ],
            ..plain("watchRun", "runs", "Watches the events of a run", EVENTS, response(""))
        },
        Route::CancelRun => About {
            parameters: listed([run(), user(), parts::key_of_answer()]),
            problems: STOP,
            answers: vec![
                (200, run_answer("The run has ended.")),
                (
                    202,
                    run_answer("The run ends when the process that executes it receives the cancellation."),
                ),
            ],
            ..plain("cancelRun", "runs", "Cancels a run", CANCEL, response(""))
        },
        Route::ResumeRun => About {
            parameters: acting([
                run(),
                parts::query("timeout_s", TIMEOUT, seconds()),
                parts::header("Prefer", PREFER, parts::string()),
            ]),
            body: Some(body(
                "Settled",
                "The outcomes of in-doubt calls; `{}` if there are none.",
                json!({}),
            )),
            problems: RESUME,
            answers: run_answers(),
            ..plain("resumeRun", "runs", "Resumes a paused run", RESUMED, response(""))
        },
        _ => About {
            parameters: listed([parts::path(
                "schema",
                "`agent.schema.json` or `agent-front-matter.schema.json`.",
            )]),
            problems: &[Code::NotFound],
            answers: vec![(
                200,
                response("The schema.").content("application/schema+json", content("JsonSchema", None)),
            )],
            ..plain(
                "getAgentSchema",
                "reference",
                "JSON Schema of a definition, for editors",
                SCHEMA,
                response(""),
            )
        },
    }
}

const AGENTS: &str = "Sorted by name, without the definitions. Agents from files belong to the project `default`, beside agents put there through the API.";
const AGENT: &str = "With `Accept: application/yaml`, `text/markdown` or `application/x-protobuf`, returns only the definition, in that format.";
const PUT_AGENT: &str = "Requires the role `operator`: a definition decides which tools run without approval. It is checked together with \
                         the other agents of its project; all errors are reported at once. Runs that have started keep the \
                         version they started with.";
const IF_MATCH: &str = "The version that must be current, in double quotes, as in `ETag`.";
const IF_NONE_MATCH: &str = "`*`: there must be no such agent yet.";
const VERSIONS: &str = "Newest first; only for agents created through the API. A version never changes.";
const VERSION: &str = "With its definition.";
const RESTORE: &str = "Makes the earlier definition the current one, as a new version. Requires the role `operator`.";
const TRIGGERED: &str = "Waits until the run has ended. With `Prefer: respond-async` the run is queued and answered at once, with \
                         `Prefer: wait=N` after at most N seconds. The run reports its outcome: 200 means that it has ended, \
                         not that it succeeded. A client that disconnects does not cancel it.";
const TIMEOUT: &str = "Seconds, in place of the definition's limit.";
const TIME_ZONE: &str =
    "The IANA name of the user's time zone, such as `Europe/Berlin`. Absent: the agent learns that it is unknown.";
const PREFER: &str = "`respond-async` or `wait=N` (RFC 7240).";
const RUNS: &str = "Latest first. Without a condition on `parent_run_id`, only runs that no other run called. A user sees only their own.";
const RUN: &str = "A run of another tenant or user answers 404, like a missing one.";
pub(super) const LAST: &str = "The id of the last event received; the events after it follow.";
const EVENTS: &str = "From the first event, or from the one after `Last-Event-ID`, until the run ends. The last event is `end`; a later request gets 204. \
                      Events of the runs that it called follow at the place of the call, under their own `run_id`. The replica that executes \
                      the run also sends partial text (`delta`); all replicas send the whole text in `turn`.";
const CANCEL: &str = "Also cancels the runs that it called. A run that has ended remains unchanged.";
const RESUMED: &str = "Continues as a new run, with a fresh budget of steps and time, at most 500 steps over all resumes for an agent \
                       with a limit of its own. A run can be resumed once; after that, resume the run that continued it.";
const SCHEMA: &str = "For the JSON and YAML forms, and for Markdown front matter. Open: no credentials are required.";

fn project() -> Parameter {
    parts::path("project", "The project; `default` contains the agents from files.")
}

fn agent() -> Parameter {
    parts::path("agent", "The agent's name.")
}

fn version() -> Parameter {
    parts::path("version", "1, 2, 3 …")
}

fn run() -> Parameter {
    parts::path("id", "The run's id.")
}

pub(super) fn user() -> Parameter {
    named(
        "The acting user, for a caller that is a service (`auth.mode` `none` or `api_key`). With `none`, absent means `local`; a \
         service that reads may omit it to see its whole tenant.",
    )
}

/// The user whose records are requested.
pub(super) fn of_user() -> Parameter {
    named(
        "The user whose rows are returned, for a caller that is a service (`auth.mode` `none` or `api_key`). Absent: those of the \
         whole tenant. A user may name only themselves.",
    )
}

fn named(about: &str) -> Parameter {
    let schema = parts::string().min_length(Some(1)).max_length(Some(256));
    // Non-ASCII letters are accepted as UTF-8, which the schema of a header cannot express.
    parts::header("X-Gavel-User", about, schema.pattern(Some("^[!-~]{1,256}$")))
}

pub(super) fn like(pattern: &str) -> ObjectBuilder {
    parts::string().pattern(Some(pattern))
}

fn seconds() -> ObjectBuilder {
    let most = i64::try_from(MOST_TIME.as_secs()).unwrap_or(i64::MAX);
    parts::integer(1).maximum(Some(most))
}

pub(super) fn acting(own: impl IntoIterator<Item = Parameter>) -> Vec<Parameter> {
    own.into_iter().chain([user()]).chain(parts::acting()).collect()
}

pub(super) fn body(schema: &str, about: &str, example: serde_json::Value) -> RequestBody {
    RequestBodyBuilder::new()
        .description(Some(about))
        .required(Some(Required::True))
        .content(JSON, content(schema, Some(example)))
        .build()
}

fn agent_input() -> RequestBody {
    let about = "The agent's inputs by name. An agent with one text input also accepts the text alone, as text/plain or as a JSON string. An \
                 agent without inputs needs no body. At most 1 MiB.";
    let example = json!({"objective": "Where is the rate limit applied?"});
    RequestBodyBuilder::new()
        .description(Some(about))
        .required(Some(Required::False))
        .content(JSON, content("Inputs", Some(example)))
        .content("text/plain", Content::new(Some(parts::string().build())))
        .build()
}

fn definition() -> RequestBody {
    let text = || Content::new(Some(parts::string().build()));
    RequestBodyBuilder::new()
        .description(Some(
            "A definition in any form; its name must be that of the path. At most 1 MiB.",
        ))
        .required(Some(Required::True))
        .content(JSON, content("JsonSchema", None))
        .content("application/yaml", text())
        .content("text/markdown", text())
        .content("application/x-protobuf", Content::default())
        .build()
}

fn definition_in_any_form() -> ResponseBuilder {
    let text = || Content::new(Some(parts::string().build()));
    response("The agent.")
        .content(JSON, content("AgentDetail", None))
        .content("application/yaml", text())
        .content("text/markdown", text())
        .content("application/x-protobuf", Content::default())
}

fn put(about: &str) -> ResponseBuilder {
    response(about).content(JSON, content("AgentPut", None))
}

fn run_answer(about: &str) -> ResponseBuilder {
    response(about).content(JSON, content("AgentRun", None))
}

fn run_answers() -> Vec<(u16, ResponseBuilder)> {
    let dressed = |response| parts::with_replayed(parts::with_quota(response));
    vec![
        (200, dressed(run_answer("The run, which has ended."))),
        (
            202,
            dressed(run_answer("The run, which is still in progress; `Location` names it.")),
        ),
    ]
}

pub(super) fn lines() -> ResponseBuilder {
    let about = "One event per line. With `Accept: text/event-stream` each is an SSE message.";
    ["application/x-ndjson", "text/event-stream"]
        .into_iter()
        .fold(response(about), |response, media| {
            response.content(media, content("RunLine", None))
        })
}
