//! What a handler answers.

use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::{Header, RefOr};

use crate::http::error::Code;
use crate::http::exchange::Exchange;
use crate::http::headers::{self, IDEMPOTENCY_REPLAYED, PREFERENCE_APPLIED, Patience};
use crate::http::openapi::About;
use crate::surfaces::runs::Begun;

/// What a handler returns.
pub(super) trait Answer {
    /// Completes the exchange, or hands it over to a stream.
    fn respond(self, exchange: Exchange) -> HttpResponse;

    /// What the API description tells of it.
    fn describe(_: &mut About<'_>) {}
}

impl Answer for HttpResponse {
    fn respond(self, exchange: Exchange) -> HttpResponse {
        exchange.finish(Ok(self))
    }
}

/// An answer of 200 with a body.
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize + ToSchema> Answer for Json<T> {
    fn respond(self, exchange: Exchange) -> HttpResponse {
        exchange.finish(Ok(json(StatusCode::OK, &self.0)))
    }

    fn describe(about: &mut About<'_>) {
        about.answers::<T>(&[]);
    }
}

/// Bytes that others hold too, sent without copying.
pub(super) struct Shared<T: ?Sized>(pub(super) Arc<T>);

impl<T: AsRef<[u8]> + ?Sized> AsRef<[u8]> for Shared<T> {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

/// A response that is not stored. It is written directly: an intermediate JSON value would parse what is kept as text,
/// and take many times its size.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> HttpResponse {
    let text = serde_json::to_string(value).unwrap_or_else(|error| unreachable!("an answer is JSON: {error}"));
    HttpResponse::build(status)
        .insert_header((header::CONTENT_TYPE, headers::JSON))
        .insert_header((header::CACHE_CONTROL, headers::NO_STORE))
        .body(text)
}

/// An answer of 204.
pub(super) struct NoContent;

impl Answer for NoContent {
    fn respond(self, exchange: Exchange) -> HttpResponse {
        exchange.finish(Ok(HttpResponse::NoContent().finish()))
    }
}

/// An answer with a body and a status of its own; the description of the route gives both a meaning.
pub(super) struct Reply<T> {
    pub(super) status: StatusCode,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: T,
}

impl<T> Reply<T> {
    pub(super) fn new(status: StatusCode, body: T) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body,
        }
    }

    /// 200 for what rests, 202 for what is still in progress.
    pub(super) fn current(rests: bool, body: T) -> Self {
        let status = if rests { StatusCode::OK } else { StatusCode::ACCEPTED };
        Self::new(status, body)
    }

    /// Adds `Location`.
    pub(super) fn at(mut self, path: String) -> Self {
        let location = HeaderValue::try_from(path).ok();
        self.headers.extend(location.map(|path| (header::LOCATION, path)));
        self
    }

    /// Adds `Retry-After` to an answer of 202.
    pub(super) fn later(mut self) -> Self {
        if self.status == StatusCode::ACCEPTED {
            self.headers.push((header::RETRY_AFTER, headers::seconds(1)));
        }
        self
    }
}

impl<T: Serialize + ToSchema> Answer for Reply<T> {
    fn respond(self, exchange: Exchange) -> HttpResponse {
        let mut response = json(self.status, &self.body);
        for (name, value) in self.headers {
            response.headers_mut().insert(name, value);
        }
        exchange.finish(Ok(response))
    }

    fn describe(about: &mut About<'_>) {
        about.answers::<T>(&[]);
    }
}

/// The answer to a request that begins work: what is worked on, where it is, what the request used of the quota, and the
/// part of `Prefer` that had an effect.
pub(super) struct Started<T>(Reply<T>);

impl<T> Started<T> {
    /// `begun` is the work of this request, or of an earlier one with the same key.
    pub(super) fn new(reply: Reply<T>, begun: Option<&Begun>, patience: Patience) -> Self {
        let mut reply = reply.later();
        let used = begun.into_iter().flat_map(used);
        reply.headers.extend(used);
        let applied = patience.applied().map(HeaderValue::from_static);
        let applied = applied.map(|applied| (PREFERENCE_APPLIED, applied));
        reply.headers.extend(applied);
        Self(reply)
    }

    /// Without what concerns work that was begun.
    pub(super) fn nothing(body: T) -> Self {
        Self(Reply::new(StatusCode::OK, body))
    }
}

/// Headers of the response to a request that began a run: the quota it used, or that it is a replay.
pub(super) fn used(begun: &Begun) -> Vec<(HeaderName, HeaderValue)> {
    let quota = begun.quota.filter(|_| !begun.replayed);
    let mut lines: Vec<_> = quota.iter().flat_map(headers::rate_limit).collect();
    if begun.replayed {
        lines.push((IDEMPOTENCY_REPLAYED, headers::TRUE));
    }
    lines
}

impl<T: Serialize + ToSchema> Answer for Started<T> {
    fn respond(self, exchange: Exchange) -> HttpResponse {
        self.0.respond(exchange)
    }

    fn describe(about: &mut About<'_>) {
        about.answers::<T>(&[
            "RateLimit-Policy",
            "RateLimit",
            "Idempotency-Replayed",
            "Location",
            "Preference-Applied",
        ]);
        if let Some(accepted) = about.response("202") {
            accepted
                .headers
                .insert("Retry-After".to_owned(), RefOr::T(Header::default()));
        }
        about.problems(&[Code::RateLimited, Code::OutcomeUnrecorded, Code::RunUnreadable]);
    }
}
