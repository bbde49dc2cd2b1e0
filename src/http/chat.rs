//! `POST /v1/chat`: one request, one decision.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::web::{Bytes, Data, Payload};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};

use super::error::Problem;
use super::{Edge, REQUEST_ID, body, request};
use crate::domain::decision::Outcome;
use crate::surfaces::chat::request::ChatRequest;
use crate::surfaces::chat::{Answer, ChatError, EventSink, QuotaState, RequestMeta, retry_after};

/// Answers one message.
#[utoipa::path(post, path = "/v1/chat", tag = "chat", request_body = super::docs::ChatBody,
    params(super::docs::PostHeaders),
    responses(
        (status = 200, description = "The decision, whatever its outcome but the two below", body = super::docs::Decision),
        (status = 429, description = "REFUSAL:RATE_LIMITED, as a decision", body = super::docs::Decision),
        (status = 503, description = "REFUSAL:OVERLOADED, as a decision; or the problem record_unavailable", body = super::docs::Decision),
        (status = "default", description = "A problem document", body = super::error::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn decide(request: HttpRequest, payload: Payload, edge: Data<Edge>) -> HttpResponse {
    let request_id = request::request_id(request.headers());
    match answer(&request, payload, &edge, &request_id).await {
        Ok(answer) => respond(answer, &request_id),
        Err(problem) => problem.respond(),
    }
}

async fn answer(request: &HttpRequest, payload: Payload, edge: &Edge, id: &Arc<str>) -> Result<Answer, Problem> {
    let accepted = accept(request, payload, edge, "/v1/chat", id).await?;
    accepted
        .decide(edge, None)
        .await
        .map_err(|error| Problem::of(error, id))
}

/// A request that parses, from a known caller.
pub(super) struct Accepted {
    caller: crate::surfaces::caller::Caller,
    user: crate::domain::ids::UserId,
    request: ChatRequest,
    meta: RequestMeta,
}

/// Auth, limits and parse, user, idempotency (DESIGN.md section 9: the order at the edge).
pub(super) async fn accept(
    request: &HttpRequest,
    payload: Payload,
    edge: &Edge,
    route: &str,
    request_id: &Arc<str>,
) -> Result<Accepted, Problem> {
    let caller = request::caller(&edge.auth, request.headers(), request_id).await?;
    request::expect_json(request, request_id)?;
    let body: Bytes = body::read(payload, request_id).await?;
    let mut chat = ChatRequest::from_json(&body).map_err(|errors| Problem::fields(errors, request_id))?;
    let user = request::acting_user(&caller, chat.user.take(), request_id)?;
    let meta = request::meta(request, route, &caller, &user, &body, request_id)?;
    Ok(Accepted {
        caller,
        user,
        request: chat,
        meta,
    })
}

impl Accepted {
    pub(super) async fn decide(self, edge: &Edge, events: Option<EventSink>) -> Result<Answer, ChatError> {
        edge.chat
            .decide(&self.caller, self.user, self.request, self.meta, events)
            .await
    }
}

fn respond(answer: Answer, request_id: &Arc<str>) -> HttpResponse {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut builder = HttpResponseBuilder::new(status);
    builder.insert_header((header::CONTENT_TYPE, HeaderValue::from_static("application/json")));
    if let Ok(id) = HeaderValue::from_str(request_id) {
        builder.insert_header((REQUEST_ID, id));
    }
    if let Some(quota) = answer.quota {
        quota_headers(&mut builder, quota);
    }
    if answer.status != 200 {
        let outcome = if answer.status == 429 {
            Outcome::RateLimited
        } else {
            Outcome::Overloaded
        };
        builder.insert_header((header::RETRY_AFTER, retry_after(outcome, answer.quota)));
    }
    if answer.decision.is_none() {
        builder.insert_header(("idempotency-replayed", "true"));
    }
    builder.body(Bytes::from_owner(Shared(answer.body)))
}

/// Draft-ietf-httpapi-ratelimit-headers: the policy, and what is left of it.
fn quota_headers(builder: &mut HttpResponseBuilder, quota: QuotaState) {
    let (limit, window) = (quota.limit, quota.window_s);
    builder.insert_header(("ratelimit-policy", format!("\"user\";q={limit};w={window}")));
    builder.insert_header((
        "ratelimit",
        format!("\"user\";r={};t={}", quota.remaining, quota.reset_s),
    ));
}

/// The answer's text, sent without a copy.
struct Shared(Arc<str>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
