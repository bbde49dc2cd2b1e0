//! Limits of the edge per caller: bytes of request bodies, open streams, and bytes of responses that wait for their
//! readers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::http::header::{AUTHORIZATION, COOKIE, HeaderMap};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;

use super::EdgeLimits;
use crate::domain::budget::{Budget, Exceeded, FREE, Pool, Share};

/// The budgets of the edge.
pub(super) struct Room {
    /// Bytes of bodies. A body itself may name the user, so it counts for the key or token; that of an unauthenticated
    /// client counts for its address.
    pub(super) bodies: Arc<Budget>,
    /// Streams of the acting user, or of the caller if no user is named.
    pub(super) streams: Arc<Budget>,
    /// Bytes of responses until their readers have received them.
    pub(super) answers: Arc<Budget>,
    /// Exports of the caller.
    pub(super) exports: Arc<Budget>,
}

impl Room {
    pub(super) fn new(limits: &EdgeLimits) -> Self {
        Self {
            bodies: Budget::new(Pool::Bodies, limits.bodies),
            streams: Budget::new(Pool::Streams, limits.streams),
            answers: Budget::new(Pool::Answers, limits.answers),
            exports: Budget::new(Pool::Exports, Pool::Exports.limits(0)),
        }
    }
}

// Limits responses that clients have not read yet. A slow reader could otherwise make gavel buffer any number of them.

/// A response body with the room that it takes.
struct Kept {
    body: BoxBody,
    _room: Share,
}

impl MessageBody for Kept {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(context)
    }
}

/// The response with room for it; small ones need none. A request that changed state is always answered, because its
/// caller must learn the outcome.
///
/// # Errors
/// A limit would be exceeded.
pub(super) fn kept(
    budget: &Arc<Budget>,
    request: &HttpRequest,
    response: HttpResponse,
) -> Result<HttpResponse, Exceeded> {
    let bytes = match response.body().size() {
        BodySize::Sized(bytes) if bytes > FREE as u64 && request.method().is_safe() => bytes,
        _ => return Ok(response),
    };
    let (caller, user) = holder(request.headers());
    let room = budget.take(&caller, &user, bytes)?;
    Ok(response.map_body(|_, body| BoxBody::new(Kept { body, _room: room })))
}

/// The account that a response counts against: the caller's credentials and the user it names. They are valid, because
/// only an accepted request has a large response.
fn holder(headers: &HeaderMap) -> (String, String) {
    let text = |name: &str| {
        let value = headers.get(name).map(|value| value.as_bytes()).unwrap_or_default();
        String::from_utf8_lossy(value).into_owned()
    };
    let caller = [AUTHORIZATION.as_str(), "x-api-key", COOKIE.as_str()]
        .map(text)
        .concat();
    (caller, text("x-gavel-user"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use actix_web::test::TestRequest;

    use super::*;
    use crate::domain::budget::{Limits, Pool};

    /// Promise: bounded faults. Unread responses are limited per caller, user and process; the outcome of a change is
    /// always reported.
    #[test]
    fn large_answers_have_room_until_they_are_read() {
        let limits = Limits {
            process: 1 << 20,
            tenant: 600_000,
            user: 300_000,
        };
        let budget = Budget::new(Pool::Answers, limits);
        let answer = |request: TestRequest| {
            let large = HttpResponse::Ok().body("x".repeat(200_000));
            kept(&budget, &request.to_http_request(), large)
        };
        let by = |key: &str, user: &str| {
            TestRequest::get()
                .insert_header(("x-api-key", key.to_owned()))
                .insert_header(("x-gavel-user", user.to_owned()))
        };
        let first = answer(by("a", "ann")).unwrap();
        assert_eq!(first.body().size(), BodySize::Sized(200_000));
        assert!(answer(by("a", "ann")).is_err(), "a user's limit");
        let second = answer(by("a", "bob")).unwrap();
        let third = answer(by("a", "cy")).unwrap();
        assert!(answer(by("a", "dan")).is_err(), "a caller's limit");
        assert!(answer(by("b", "ann")).is_ok(), "another caller");
        assert!(answer(TestRequest::post().insert_header(("x-api-key", "a"))).is_ok());
        let small = HttpResponse::Ok().body("x".repeat(FREE));
        assert!(kept(&budget, &by("a", "ann").to_http_request(), small).is_ok());
        drop((first, second, third));
        assert_eq!(budget.used(), 0);
    }
}
