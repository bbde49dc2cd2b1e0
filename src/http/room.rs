//! What callers may have under way at the edge: bytes of bodies, open streams, and bytes of answers that wait for their readers.

mod kept;

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse};

use super::EdgeLimits;
use crate::domain::budget::{Budget, Exceeded, Share};
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
            bodies: Budget::new("bytes of request bodies", limits.bodies),
            streams: Budget::new("open streams", limits.streams),
            answers: Budget::new("bytes of answers", limits.answers),
        }
    }

    /// Room for a body. The user may stand in it, so it counts for the key or the token.
    ///
    /// # Errors
    /// A limit would be exceeded.
    pub(super) fn body(&self, caller: &Caller, bytes: u64) -> Result<Share, Exceeded> {
        self.bodies.take(caller.tenant.as_str(), &caller.name(), bytes)
    }

    /// Room for a body of a client that has not shown who it is, by its address.
    ///
    /// # Errors
    /// A limit would be exceeded.
    pub(super) fn unknown_body(&self, address: &str, bytes: u64) -> Result<Share, Exceeded> {
        self.bodies.take("", address, bytes)
    }

    /// Room for a stream of the user who acts; of the caller where none is named.
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

    /// Room for an answer until its reader has taken it; small ones need none. A request that changed something is answered in
    /// any case: its caller has to learn what came of it.
    ///
    /// # Errors
    /// A limit would be exceeded.
    pub(super) fn answer(&self, request: &HttpRequest, response: HttpResponse) -> Result<HttpResponse, Exceeded> {
        kept::kept(&self.answers, request, response)
    }
}
