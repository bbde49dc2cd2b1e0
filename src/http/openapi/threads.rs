//! The operations of threads and approvals.

use serde_json::json;
use utoipa::openapi::path::Parameter;
use utoipa::openapi::response::ResponseBuilder;

use super::agents::{EVENT_ID, JSON, LAST, STOP, WATCH, acting, body, like, lines, user};
use super::operations::{About, CALLER, get, listed, plain};
use super::parts::{self, content, response};
use crate::http::error::Code;
use crate::http::routes::Route;

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
    Code::WrongDefinition,
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
    Code::RunNotOver,
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

/// One of them.
pub(super) fn about(route: Route) -> About {
    match route {
        Route::Say => About {
            parameters: acting([parts::header("Prefer", PREFER, parts::string())]),
            body: Some(body("SayBody", "What you say.", say())),
            problems: SAY,
            answers: run_answers(dressed),
            ..plain("say", "threads", "Says something in a thread", SAID, response(""))
        },
        Route::SayStream => About {
            parameters: acting([]),
            body: Some(body("SayBody", "What you say.", say())),
            problems: SAY,
            answers: vec![(
                200,
                dressed(response("Lines.")).content("application/x-ndjson", content("ThreadLine", None)),
            )],
            ..plain(
                "sayStreaming",
                "threads",
                "Says something, and tells the answer as it comes",
                STREAM,
                response(""),
            )
        },
        Route::Threads => About {
            parameters: listed([user()].into_iter().chain(parts::ordered(
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
                "Reads a run as its user is told of it",
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
            answers: vec![(200, lines()), (204, response("You have had the end already."))],
            ..plain(
                "watchThreadRun",
                "threads",
                "Tells what a run does",
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
                ACTION_FIELDS,
                "tool = \"gmail_send\"",
                "`created_at` (the default) or `created_at desc`.",
            ))),
            problems: LIST,
            ..get(
                "listPendingApprovals",
                "approvals",
                "Lists what waits for a person",
                PENDING,
                "ApprovalPage",
                None,
            )
        },
        Route::ActionsInDoubt => About {
            parameters: listed([user()].into_iter().chain(parts::ordered(
                ACTION_FIELDS,
                "tool = \"gmail_send\"",
                "`created_at` (the default) or `created_at desc`.",
            ))),
            problems: LIST,
            ..get(
                "listActionsInDoubt",
                "approvals",
                "Lists actions in doubt",
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
                "Your answer.",
                json!({"approvalId": "019300aa-0000-7000-8000-000000000000", "decision": "approve_once"}),
            )),
            problems: RESOLVE,
            answers: vec![(200, answer("The run, as far as it came."))],
            ..plain(
                "resolveApproval",
                "approvals",
                "Answers what waits for a person",
                RESOLVED,
                response(""),
            )
        },
        Route::SettleAction => About {
            parameters: listed([parts::path("id", "The action's id."), user(), parts::key_of_answer()]),
            body: Some(body("SettleBody", "What you found out.", json!({"happened": true}))),
            problems: SETTLE,
            answers: vec![(200, answer("The run, with the action as it is now."))],
            ..plain(
                "settleAction",
                "approvals",
                "Says what became of an action in doubt",
                SETTLED,
                response(""),
            )
        },
        Route::Grants => About {
            parameters: listed([user()].into_iter().chain(parts::listing(
                "grant_id, tool, user_id, created_at",
                "tool = \"gmail_send\"",
            ))),
            problems: LIST,
            ..get(
                "listGrants",
                "approvals",
                "Lists standing leave",
                GRANTS,
                "GrantPage",
                None,
            )
        },
        Route::Grant => About {
            parameters: listed([parts::path("id", "The grant's id."), user()]),
            problems: LIST_ONE,
            ..get("getGrant", "approvals", "Has one grant", GRANT, "Grant", None)
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
            answers: vec![(204, response("It holds no longer."))],
            ..plain(
                "revokeGrant",
                "approvals",
                "Takes standing leave back",
                REVOKE,
                response(""),
            )
        },
    }
}

const ACTION_FIELDS: &str = "tool, user_id, agent_id, created_at";
const PREFER: &str = "`respond-async` or `wait=N` (RFC 7240).";
const SAID: &str = "Waits until the run is over or waits for a person. Each side effect needs leave, unless a grant or the operator's \
                    policy gives it. While a run of the thread is going, another message is 409 `thread_busy` with that run's \
                    id, or waits its turn (`runs.while_busy`).";
const STREAM: &str = "NDJSON: first `status` with the thread, then `delta`s as the model speaks (`reset` voids those of the turn so far), \
                      last `result` with the run, or `error`. A client that leaves cancels nothing; the run's events can be joined.";
const THREADS: &str = "The latest active first; your own, whatever role you have. One in which something is said while you turn the pages goes \
                       to the front.";
const THREAD: &str =
    "With its latest 200 messages, or those before `before`. Another user's thread answers 404, as a missing one does.";
const RUN: &str = "`status` has the words of the wire; `state` names the truth where they have none for it.";
const EVENTS: &str = "As `GET /api/runs/{id}/events`.";
const CANCEL: &str = "What it waits for does not run. One that is over stays as it is.";
const PENDING: &str = "Oldest first; your own, or with the role `approver` all of the tenant's.";
const IN_DOUBT: &str = "They were begun, and it is not known whether they had their effect; nothing repeats them. Look where the effect would \
                        be seen, and settle each. Oldest first; your own, or with the role `approver` all of the tenant's.";
const RESOLVED: &str = "Of many who answer one wins; the same answer by the same caller is answered again. An approval covers exactly \
                        these arguments, of the tool as it was, once. `approve_and_always_allow_recipient` also allows later calls \
                        of the tool to exactly the same recipients. What was approved runs at once; the agent goes on when \
                        everything it asked is answered, and is waited for where it answers in a thread, or with `Prefer: wait=N`.";
const SETTLED: &str = "When its run is over; one of the trigger's that is paused takes it in the body of its resume.";
const GRANTS: &str = "Your own, or with the role `approver` all of the tenant's; revoked ones too.";
const GRANT: &str = "Your own, or with the role `approver` any of the tenant's; a revoked one too.";
const REVOKE: &str = "For every call that was not judged yet.";

fn say() -> serde_json::Value {
    json!({"prompt": "E-mail Ann that I am late."})
}

fn run() -> Parameter {
    parts::path("id", "The run's id.")
}

fn answer(about: &str) -> ResponseBuilder {
    response(about).content(JSON, content("RunAnswer", None))
}

/// With the headers of a request that makes a run.
fn dressed(response: ResponseBuilder) -> ResponseBuilder {
    parts::with_replayed(parts::with_quota(response))
}

fn run_answers(dressed: fn(ResponseBuilder) -> ResponseBuilder) -> Vec<(u16, ResponseBuilder)> {
    vec![
        (200, dressed(answer("The run, which is over or waits for a person."))),
        (202, dressed(answer("The run, which goes on; `Location` has it."))),
    ]
}
