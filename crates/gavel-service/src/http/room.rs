//! Limits of the edge per caller: bytes of request bodies, open streams, and bytes of responses that wait for their
//! readers.

mod kept;

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse};

use super::EdgeLimits;
use crate::domain::budget::{Budget, Exceeded, Pool, Share};
use crate::domain::ids::UserId;
use crate::surfaces::caller::Caller;

/// The budgets of the edge.
pub(super) struct Room {
    bodies: Arc<Budget>,
    streams: Arc<Budget>,
    answers: Arc<Budget>,
}

impl Room {
    pub(super) fn new(limits: &EdgeLimits) -> Self {
        Self {
            bodies: Budget::new(Pool::Bodies, limits.bodies),
            streams: Budget::new(Pool::Streams, limits.streams),
            answers: Budget::new(Pool::Answers, limits.answers),
        }
    }

    /// Reserves room for a body. The body itself may name the user, so the room counts for the key or token.
    ///
    /// # Errors
    /// A limit would be exceeded.
    pub(super) fn body(&self, caller: &Caller, bytes: u64) -> Result<Share, Exceeded> {
        self.bodies.take(caller.tenant.as_str(), &caller.name(), bytes)
    }

    /// Reserves room for a body of an unauthenticated client, by its address.
    ///
    /// # Errors
    /// A limit would be exceeded.
    pub(super) fn unknown_body(&self, address: &str, bytes: u64) -> Result<Share, Exceeded> {
        self.bodies.take("", address, bytes)
    }

    /// Reserves room for a stream of the acting user, or of the caller if no user is named.
    ///
    /// # Errors
    /// A limit would be exceeded.
    pub(super) fn stream(&self, caller: &Caller, user: Option<&UserId>) -> Result<Share, Exceeded> {
        let tenant = caller.tenant.as_str();
        match user {
            Some(user) => self.streams.take(tenant, user.as_str(), 1),
            None => self.streams.take(tenant, &caller.name(), 1),
        }
    }

    /// Reserves room for a response until its reader has received it; small ones need none. A request that changed
    /// state is always answered, because its caller must learn the outcome.
    ///
    /// # Errors
    /// A limit would be exceeded.
    pub(super) fn answer(&self, request: &HttpRequest, response: HttpResponse) -> Result<HttpResponse, Exceeded> {
        kept::kept(&self.answers, request, response)
    }
}
