//! `POST /v1/chat`: receives one message, returns one decision.

pub(super) mod stream;
mod wire;

use crate::http::request::Raw;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use tracing::Instrument;

use super::error::{Code, Error};
use super::exchange::Exchange;
use super::headers::{self, IDEMPOTENCY_REPLAYED};
use super::openapi::params::Acting;
use super::{State, body, idempotency};
use crate::domain::decision::AgentDecision;
use crate::domain::ids::UserId;
use crate::surfaces::caller::{Caller, NotThatUser};
use crate::surfaces::chat::request::ChatRequest;
use crate::surfaces::chat::{Answer, ChatError, retry_after};
use crate::surfaces::request::{FieldError, RequestMeta};

/// Problems of a chat request, beside those of its credentials and its body.
const PROBLEMS: [Code; 6] = [
    Code::UserMismatch,
    Code::Forbidden,
    Code::StillRunning,
    Code::IdempotencyKeyReused,
    Code::OutcomeUnrecorded,
    Code::Internal,
];

/// A validated request for the surface.
struct Ask {
    caller: Caller,
    user: UserId,
    request: ChatRequest,
    meta: RequestMeta,
    keyed: bool,
}

/// Decides about one message.
///
/// The message comes with its whole context; gavel keeps nothing between requests except its records. The decision is
/// recorded before the response is sent.
#[utoipa::path(
    post,
    path = "/v1/chat",
    operation_id = "decide",
    tag = "chat",
    params(Acting),
    request_body(
        content = wire::ChatRequest,
        description = "At most 1 MiB. Unknown fields are refused.",
        example = json!({"message": "add a task to call mom", "user_id": "me"})
    ),
    responses(
        (
            status = 200,
            description = "The decision, for every outcome except the two below.",
            body = AgentDecision,
            headers(("RateLimit-Policy"), ("RateLimit"), ("Idempotency-Replayed")),
            example = json!(wire::example())
        ),
        (
            status = 429,
            description = "`REFUSAL:RATE_LIMITED`, a decision like any other.",
            body = AgentDecision,
            headers(("RateLimit-Policy"), ("RateLimit"), ("Idempotency-Replayed"), ("Retry-After"))
        ),
        (
            status = 503,
            description = "`REFUSAL:OVERLOADED`, a decision like any other.",
            body = AgentDecision,
            headers(("RateLimit-Policy"), ("RateLimit"), ("Idempotency-Replayed"), ("Retry-After"))
        ),
    ),
    extensions(("x-problems" = json!(PROBLEMS)))
)]
pub(super) async fn decide(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    let answer = answer(&state, &exchange, &request, payload)
        .instrument(exchange.span.clone())
        .await;
    exchange.finish(answer)
}

async fn answer(
    state: &State,
    exchange: &Exchange,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let ask = ask(state, exchange, request, payload).await?;
    let answer = state
        .edge
        .chat
        .decide(&ask.caller, ask.user, ask.request, ask.meta, None)
        .await?;
    Ok(respond(answer, ask.keyed))
}

/// Authenticates, reads and parses the body within its limits, then checks user and idempotency.
async fn ask(state: &State, exchange: &Exchange, request: &HttpRequest, payload: Payload) -> Result<Ask, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let body = body::read(state, request, payload, &caller).await?;
    let mut chat = ChatRequest::from_json(&body).map_err(Error::Invalid)?;
    let user = match caller.act_for(chat.user.take()) {
        Ok(Some(user)) => user,
        Ok(None) => return Err(Error::Invalid(vec![missing_user()])),
        Err(NotThatUser) => return Err(Error::UserMismatch),
    };
    let key = idempotency::key(request.headers())?;
    let idempotency = key.map(|key| idempotency::claim(key, &caller, Some(&user), request.path(), &body));
    let keyed = idempotency.is_some();
    let meta = RequestMeta {
        request_id: Arc::clone(&exchange.id.text),
        traceparent: headers::traceparent(request.headers()),
        idempotency,
        shed: None,
    };
    Ok(Ask {
        caller,
        user,
        request: chat,
        meta,
        keyed,
    })
}

fn missing_user() -> FieldError {
    FieldError {
        pointer: "/user_id".to_owned(),
        detail: "is missing; a string is required, since no token names the user".to_owned(),
    }
}

/// Returns the decision as it was recorded, byte for byte.
fn respond(answer: Answer, keyed: bool) -> HttpResponse {
    let shape = Shape::of(&answer, keyed);
    let mut response = HttpResponse::build(shape.status);
    response.insert_header((header::CONTENT_TYPE, shape.content_type));
    for header in shape.headers {
        response.insert_header(header);
    }
    response.body(Bytes::from_owner(Text(answer.body)))
}

/// Status and headers of a response, without its body.
struct Shape {
    status: StatusCode,
    /// A response stored by recovery is a problem, every other a decision.
    content_type: HeaderValue,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Shape {
    fn of(answer: &Answer, keyed: bool) -> Self {
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
fn is_decision(answer: &Answer) -> bool {
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
