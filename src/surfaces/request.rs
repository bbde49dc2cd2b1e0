//! What every request that starts work carries, and how its errors are named.

use std::fmt;
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

/// One invalid place of a request.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
pub struct FieldError {
    /// JSON pointer into the body (empty: the body itself), or the name of a query parameter or header.
    pub pointer: String,
    /// What was found, and what is allowed.
    pub detail: String,
}

impl FieldError {
    /// An error at this place.
    #[must_use]
    pub fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            detail: detail.into(),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pointer, self.detail)
    }
}
