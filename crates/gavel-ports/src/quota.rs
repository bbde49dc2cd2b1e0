//! Request quotas of users.

use std::sync::Arc;
use std::time::Duration;

use super::BoxFuture;
use crate::domain::ids::{TenantId, UserId};

/// Counts requests per user.
pub trait Quota: Send + Sync {
    /// Takes one request from the user's quota.
    fn take<'a>(&'a self, tenant: &'a TenantId, user: &'a UserId) -> BoxFuture<'a, QuotaState>;
}

/// The quota after a request was counted (`RateLimit`, `RateLimit-Policy`, `Retry-After`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaState {
    /// Is the request allowed?
    pub allowed: bool,
    /// Requests per window.
    pub limit: u32,
    /// The window, in seconds.
    pub window_s: u32,
    /// How many requests may follow at once.
    pub remaining: u32,
    /// Seconds until the next request is allowed, or until the quota is full again.
    pub reset_s: u32,
}

/// Token buckets that all replicas share, one for each user. A bucket that was never used is full.
pub trait Buckets: Send + Sync {
    /// Takes tokens from a user's bucket, for the caller to use.
    fn lease<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: &'a UserId,
        ask: Ask,
    ) -> BoxFuture<'a, Result<Lease, BucketsUnavailable>>;

    /// Deletes buckets that are full. Returns how many.
    fn prune(&self) -> BoxFuture<'_, Result<u64, BucketsUnavailable>>;
}

/// A request to a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// One token is added each time this many microseconds have passed.
    pub interval_us: u32,
    /// Tokens in a full bucket.
    pub burst: u32,
    /// Unused tokens of an earlier lease. They are returned to the bucket first.
    pub returned: u32,
    /// Tokens for requests that are waiting.
    pub waiting: u32,
    /// Tokens wanted for future requests. Beyond the waiting requests, at most a quarter of the available tokens is
    /// given, so that other replicas get some as well.
    pub block: u32,
}

/// The tokens that a bucket gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Tokens to use.
    pub tokens: u32,
    /// How long until the bucket is full if nothing is taken from it.
    pub missing: Duration,
}

/// The buckets are unavailable; the message comes from the implementation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BucketsUnavailable(pub Arc<str>);
