//! `POST /v1/chat`: receives one message, returns one decision.

pub(super) mod stream;
mod wire;

use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use bytes::Bytes;
use serde_json::json;

use super::about::About;
use super::answer::Answer;
use super::error::{Code, Error};
use super::exchange::Exchange;
use super::headers::{self, IDEMPOTENCY_REPLAYED};
use super::request::{Ctx, Meta, Request, Take};
use crate::api::chat::AgentDecision;
use crate::domain::ids::UserId;
use crate::surfaces::caller::NotThatUser;
use crate::surfaces::chat::request::ChatRequest;
use crate::surfaces::chat::{self, ChatError, retry_after};

/// Problems of a chat request, beside those that follow from its parameters.
const PROBLEMS: [Code; 4] = [
    Code::Forbidden,
    Code::StillRunning,
    Code::OutcomeUnrecorded,
    Code::Internal,
];

/// Decides about one message.
///
/// The message comes with its whole context; gavel keeps nothing between requests except its records. The decision is
/// recorded before the response is sent.
#[utoipa::path(
    post,
    path = "/v1/chat",
    operation_id = "decide",
    tag = "chat",
    responses(
        (
            status = 200,
            description = "The decision, for every outcome except the two below.",
            body = AgentDecision,
            example = json!(wire::example())
        ),
        (
            status = 429,
            description = "`REFUSAL:RATE_LIMITED`, a decision like any other.",
            headers(("Retry-After"))
        ),
        (
            status = 503,
            description = "`REFUSAL:OVERLOADED`, a decision like any other.",
            headers(("Retry-After"))
        ),
    ),
    extensions(("x-problems" = json!(PROBLEMS)))
)]
pub(super) async fn decide(
    ctx: Ctx,
    Asked(request): Asked,
    Meta(meta): Meta,
    Asking(user): Asking,
) -> Result<Decided, Error> {
    let keyed = meta.idempotency.is_some();
    let answer = ctx.chat.decide(&ctx.caller, user, request, meta, None).await?;
    Ok(Decided { answer, keyed })
}

/// The message and its context. The body also names the user.
pub(crate) struct Asked(ChatRequest);

impl Take for Asked {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        let body = request.arriving().json().await?;
        let mut chat = ChatRequest::from_json(request.keep(body)).map_err(Error::Invalid)?;
        request.user = match request.caller().act_for(chat.user.take()) {
            Ok(Some(user)) => Some(user),
            Ok(None) => {
                let detail = "is missing; a string is required, since no token names the user";
                return Err(Error::invalid("/user_id", detail));
            }
            Err(NotThatUser) => return Err(Error::UserMismatch),
        };
        Ok(Self(chat))
    }

    fn describe(about: &mut About<'_>) {
        let example = json!({"message": "add a task to call mom", "user_id": "me"});
        about.json::<wire::ChatRequest>("At most 1 MiB. Unknown fields are refused.", example, true);
        about.problems(&[Code::UserMismatch]);
    }
}

/// The user of the message. It is taken last, since other parameters refer to it.
pub(crate) struct Asking(UserId);

impl Take for Asking {
    async fn take(request: &mut Request) -> Result<Self, Error> {
        request.user.take().map(Self).ok_or(Error::Internal)
    }
}

/// A decision as it was recorded, byte for byte.
pub(crate) struct Decided {
    answer: chat::Answer,
    /// Whether the request has an `Idempotency-Key`.
    keyed: bool,
}

impl Answer for Decided {
    fn respond(self, exchange: Exchange) -> HttpResponse {
        let shape = Shape::of(&self.answer, self.keyed);
        let mut response = HttpResponse::build(shape.status);
        response.insert_header((header::CONTENT_TYPE, shape.content_type));
        for header in shape.headers {
            response.insert_header(header);
        }
        exchange.finish(Ok(response.body(Bytes::from_owner(Text(self.answer.body)))))
    }

    fn describe(about: &mut About<'_>) {
        about.answers::<AgentDecision>(&HEADERS);
    }
}

/// Headers of a decision, recorded or streamed.
const HEADERS: [&str; 3] = ["RateLimit-Policy", "RateLimit", "Idempotency-Replayed"];

/// Status and headers of a response, without its body.
struct Shape {
    status: StatusCode,
    /// A response stored by recovery is a problem, every other a decision.
    content_type: HeaderValue,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Shape {
    fn of(answer: &chat::Answer, keyed: bool) -> Self {
        let mut headers = Vec::with_capacity(5);
        headers.push((header::CACHE_CONTROL, headers::NO_STORE));
        if let Some(quota) = &answer.quota {
            headers.extend(headers::rate_limit(quota));
        }
        if matches!(answer.status, 429 | 503) {
            let outcome = answer.decision.as_ref().map(|decision| decision.outcome_category);
            let wait = outcome.map_or(1, |outcome| retry_after(outcome, answer.quota));
            headers.push((header::RETRY_AFTER, headers::seconds(wait)));
        }
        if keyed && answer.decision.is_none() {
            headers.push((IDEMPOTENCY_REPLAYED, headers::TRUE));
        }
        Self {
            status: StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            content_type: if is_decision(answer) {
                headers::JSON
            } else {
                headers::PROBLEM_JSON
            },
            headers,
        }
    }
}

/// Whether a stored response is a decision; otherwise it is the problem that recovery stored instead.
fn is_decision(answer: &chat::Answer) -> bool {
    matches!(answer.status, 200 | 429 | 503)
}

/// Text shared with the record, sent without copying.
struct Text(Arc<str>);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl From<ChatError> for Error {
    fn from(error: ChatError) -> Self {
        match error {
            ChatError::Invalid(errors) => Self::Invalid(errors),
            ChatError::RecordUnavailable => Self::RecordUnavailable,
            ChatError::OutcomeUnrecorded(id) => Self::OutcomeUnrecorded(id),
            ChatError::KeyReused => Self::KeyReused,
            ChatError::StillRunning => Self::StillRunning,
        }
    }
}
