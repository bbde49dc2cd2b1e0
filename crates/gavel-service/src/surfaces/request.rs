//! What every request that starts work carries, and how its errors are named.

use std::sync::Arc;

use crate::domain::budget::Exceeded;
pub use crate::ports::claims::Claim;

/// The metadata of a request, from the HTTP layer.
#[derive(Clone, Debug)]
pub struct RequestMeta {
    /// The request's id, as the HTTP layer assigned it.
    pub request_id: Arc<str>,
    /// W3C `traceparent`, if the caller sent one.
    pub traceparent: Option<String>,
    /// `Idempotency-Key`, if the caller sent one.
    pub idempotency: Option<Claim>,
    /// The HTTP layer has no capacity for the answer: the request is rejected as overload, and the rejection is
    /// recorded.
    pub shed: Option<Exceeded>,
}
