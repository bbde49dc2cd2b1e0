//! The operations of threads and approvals.

use serde_json::json;
use utoipa::openapi::path::Parameter;
use utoipa::openapi::response::ResponseBuilder;

use super::agents::{EVENT_ID, JSON, LAST, STOP, WATCH, acting, body, like, lines, user};
use super::operations::{About, CALLER, get, listed, plain};
use super::parts::{self, content, response};
use crate::http::error::Code;
use crate::http::routes::Route;
use crate::http::spelling::Spelling;

const SAY: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::UserMismatch,
    Code::Forbidden,
    Code::NotFound,
    Code::RequestTimeout,
    Code::ThreadBusy,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::InvalidDefinition,
    Code::IdempotencyKeyReused,
    Code::RateLimited,
    Code::OutcomeUnrecorded,
    Code::RecordUnavailable,
    Code::RunUnreadable,
    Code::AgentUnavailable,
    Code::Overloaded,
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
const LIST: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::UserMismatch,
    Code::Forbidden,
    Code::QueryTooSlow,
    Code::RecordUnavailable,
    CALLER[1],
];
const LIST_ONE: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::UserMismatch,
    Code::Forbidden,
    Code::NotFound,
    Code::QueryTooSlow,
    Code::RecordUnavailable,
    CALLER[1],
];
const LIST_OWN: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::UserMismatch,
    Code::QueryTooSlow,
    Code::RecordUnavailable,
    CALLER[1],
];
const RESOLVE: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::UserMismatch,
    Code::Forbidden,
    Code::NotFound,
    Code::RequestTimeout,
    Code::AlreadyResolved,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::NotGrantable,
    Code::IdempotencyKeyReused,
    Code::OutcomeUnrecorded,
    Code::RecordUnavailable,
    Code::RunUnreadable,
    Code::Overloaded,
    CALLER[1],
];
const SETTLE: &[Code] = &[
    Code::InvalidRequest,
    CALLER[0],
    Code::UserMismatch,
    Code::Forbidden,
    Code::NotFound,
    Code::RequestTimeout,
    Code::NotInDoubt,
    Code::RunInProgress,
    Code::PartOfRun,
    Code::BodyTooLarge,
    Code::UnsupportedMediaType,
    Code::IdempotencyKeyReused,
    Code::OutcomeUnrecorded,
    Code::RecordUnavailable,
    Code::RunUnreadable,
    Code::Overloaded,
    CALLER[1],
];

/// Describes one operation.
pub(super) fn about(route: Route) -> About {
    match route {
        Route::Say => About {
            parameters: acting([parts::header("Prefer", PREFER, parts::string())]),
            body: Some(body("SayBody", "The message.", say())),
            problems: SAY,
            answers: run_answers(dressed),
            ..plain("say", "threads", "Sends a message to a thread", SAID, response(""))
        },
        Route::SayStream => About {
            parameters: acting([]),
            body: Some(body("SayBody", "The message.", say())),
            problems: SAY,
            answers: vec![(
                200,
                dressed(response("Lines.")).content("application/x-ndjson", content("ThreadLine", None)),
            )],
            ..plain(
                "sayStreaming",
                "threads",
                "Sends a message and streams the answer",
                STREAM,
                response(""),
            )
        },
        Route::Threads => About {
            parameters: listed([user()].into_iter().chain(parts::ordered(
                Spelling::Camel,
                "agent_id, user_id, created_at, updated_at",
                "updated_at >= \"2026-11-01T00:00:00Z\"",
                "`updated_at desc` (the default) or `updated_at`.",
            ))),
            problems: LIST_OWN,
            ..get(
                "listThreads",
                "threads",
                "Lists your threads",
                THREADS,
                "ThreadPage",
                None,
            )
        },
        Route::Thread => About {
            parameters: listed([
                parts::path("id", "The thread's id."),
                user(),
                parts::query("before", "Messages before this number.", parts::integer(0)),
            ]),
            problems: READ,
            ..get("getThread", "threads", "Reads a thread", THREAD, "Thread", None)
        },
        Route::ThreadRun => About {
            parameters: listed([run(), user()]),
            problems: READ,
            ..get(
                "getThreadRun",
                "threads",
                "Reads a run of a thread",
                RUN,
                "RunAnswer",
                None,
            )
        },
        Route::ThreadRunEvents => About {
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
            ..plain(
                "watchThreadRun",
                "threads",
                "Watches the events of a run",
                EVENTS,
                response(""),
            )
        },
        Route::CancelThreadRun => About {
            parameters: listed([run(), user(), parts::key_of_answer()]),
            problems: STOP,
            answers: run_answers(|response| response),
            ..plain("cancelThreadRun", "threads", "Cancels a run", CANCEL, response(""))
        },
        Route::PendingApprovals => About {
            parameters: listed([user()].into_iter().chain(parts::ordered(
                Spelling::Camel,
                ACTION_FIELDS,
                "tool = \"gmail_send\"",
                "`created_at` (the default) or `created_at desc`.",
            ))),
            problems: LIST,
            ..get(
                "listPendingApprovals",
                "approvals",
                "Lists pending approval requests",
                PENDING,
                "ApprovalPage",
                None,
            )
        },
        Route::ActionsInDoubt => About {
            parameters: listed([user()].into_iter().chain(parts::ordered(
                Spelling::Camel,
                ACTION_FIELDS,
                "tool = \"gmail_send\"",
                "`created_at` (the default) or `created_at desc`.",
            ))),
            problems: LIST,
            ..get(
                "listActionsInDoubt",
                "approvals",
                "Lists in-doubt actions",
                IN_DOUBT,
                "ActionInDoubtPage",
                None,
            )
        },
        Route::ResolveApproval => About {
            parameters: listed([
                user(),
                parts::header("Prefer", PREFER, parts::string()),
                parts::key_of_answer(),
            ]),
            body: Some(body(
                "ResolveBody",
                "Your decision.",
                json!({"approvalId": "019300aa-0000-7000-8000-000000000000", "decision": "approve_once"}),
            )),
            problems: RESOLVE,
            answers: vec![(200, answer("The run in its current state."))],
            ..plain(
                "resolveApproval",
                "approvals",
                "Resolves an approval",
                RESOLVED,
                response(""),
            )
        },
        Route::SettleAction => About {
            parameters: listed([parts::path("id", "The action's id."), user(), parts::key_of_answer()]),
            body: Some(body("SettleBody", "The outcome you found.", json!({"happened": true}))),
            problems: SETTLE,
            answers: vec![(200, answer("The run, with the current state of the action."))],
            ..plain(
                "settleAction",
                "approvals",
                "Settles an in-doubt action",
                SETTLED,
                response(""),
            )
        },
        Route::Grants => About {
            parameters: listed([user()].into_iter().chain(parts::listing(
                Spelling::Camel,
                "grant_id, tool, user_id, created_at",
                "tool = \"gmail_send\"",
            ))),
            problems: LIST,
            ..get("listGrants", "approvals", "Lists grants", GRANTS, "GrantPage", None)
        },
        Route::Grant => About {
            parameters: listed([parts::path("id", "The grant's id."), user()]),
            problems: LIST_ONE,
            ..get("getGrant", "approvals", "Reads one grant", GRANT, "Grant", None)
        },
        _ => About {
            parameters: listed([parts::path("id", "The grant's id."), user()]),
            problems: &[
                Code::InvalidRequest,
                CALLER[0],
                Code::UserMismatch,
                Code::Forbidden,
                Code::NotFound,
                Code::RecordUnavailable,
                CALLER[1],
            ],
            answers: vec![(204, response("The grant is revoked."))],
            ..plain("revokeGrant", "approvals", "Revokes a grant", REVOKE, response(""))
        },
    }
}

const ACTION_FIELDS: &str = "tool, user_id, agent_id, created_at";
const PREFER: &str = "`respond-async` or `wait=N` (RFC 7240).";
const SAID: &str = "Waits until the run has ended or waits for approval. Each side effect requires approval, unless a grant or the \
                    operator's policy allows it. While a run of the thread is in progress, another message is rejected with 409 \
                    `thread_busy` and that run's id, or waits its turn (`runs.while_busy`).";
const STREAM: &str = "NDJSON: first `status` with the thread, then `delta`s with the model's text (`reset` discards those of the current turn), \
                      last `result` with the run, or `error`. A client that disconnects cancels nothing and can watch the run's events.";
const THREADS: &str = "The latest active first; only your own, whatever your role. A thread that receives a message while you page through the \
                       list moves to the front.";
const THREAD: &str =
    "With its latest 200 messages, or those before `before`. A thread of another user answers 404, like a missing one.";
const RUN: &str =
    "`status` has the values of the specification; `state` gives the exact state where these have none for it.";
const EVENTS: &str = "As `GET /api/runs/{id}/events`.";
const CANCEL: &str = "Actions that wait for approval are not executed. A run that has ended remains unchanged.";
const PENDING: &str = "Oldest first; your own, or all of the tenant with the role `approver`.";
const IN_DOUBT: &str = "These actions were started and their outcome is unknown; gavel does not repeat them. Check where the effect would be \
                        visible, and settle each one. Oldest first; your own, or all of the tenant with the role `approver`.";
const RESOLVED: &str = "If several approvers decide, the first decision wins; repeating it as the same caller returns it again. An approval \
                        covers exactly these arguments, of the tool as it was, once. `approve_and_always_allow_recipient` also allows \
                        later calls of the tool to exactly the same recipients. An approved action is executed at once. The agent continues \
                        when all its approval requests are resolved; the response waits for it in a thread, or with `Prefer: wait=N`.";
const SETTLED: &str =
    "Possible after its run has ended. For a paused run that was triggered, settle it in the body of the resume.";
const GRANTS: &str = "Your own, or all of the tenant with the role `approver`; including revoked ones.";
const GRANT: &str = "Your own, or any of the tenant with the role `approver`; also a revoked one.";
const REVOKE: &str = "Applies to every call that the policy has not decided yet.";

fn say() -> serde_json::Value {
    json!({"prompt": "E-mail Ann that I am late."})
}

fn run() -> Parameter {
    parts::path("id", "The run's id.")
}

fn answer(about: &str) -> ResponseBuilder {
    response(about).content(JSON, content("RunAnswer", None))
}

/// Adds the headers of a request that creates a run.
fn dressed(response: ResponseBuilder) -> ResponseBuilder {
    parts::with_replayed(parts::with_quota(response))
}

fn run_answers(dressed: fn(ResponseBuilder) -> ResponseBuilder) -> Vec<(u16, ResponseBuilder)> {
    vec![
        (200, dressed(answer("The run, which has ended or waits for approval."))),
        (
            202,
            dressed(answer("The run, which is still in progress; `Location` names it.")),
        ),
    ]
}
