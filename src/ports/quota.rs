//! How much a caller may ask for.

use std::sync::Arc;
use std::time::Duration;

use super::BoxFuture;
use crate::domain::ids::{TenantId, UserId};

/// Counts requests per user.
pub trait Quota: Send + Sync {
    /// Takes one request from the user's quota.
    fn take<'a>(&'a self, tenant: &'a TenantId, user: &'a UserId) -> BoxFuture<'a, QuotaState>;
}

/// The state after a request was counted (`RateLimit`, `RateLimit-Policy`, `Retry-After`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaState {
    /// May it go on?
    pub allowed: bool,
    /// Requests a window.
    pub limit: u32,
    /// The window, in seconds.
    pub window_s: u32,
    /// How many may follow at once.
    pub remaining: u32,
    /// Seconds until the next one is allowed, or until the quota is whole again.
    pub reset_s: u32,
}

/// Buckets of tokens that all replicas share, one for each user. A bucket that nobody has taken from is whole.
pub trait Buckets: Send + Sync {
    /// Takes tokens from a user's bucket, for the caller to spend.
    fn lease<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: &'a UserId,
        ask: Ask,
    ) -> BoxFuture<'a, Result<Lease, BucketsUnavailable>>;

    /// Forgets buckets that are whole; returns how many.
    fn prune(&self) -> BoxFuture<'_, Result<u64, BucketsUnavailable>>;
}

/// What is asked of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// One more token comes each so many microseconds.
    pub interval_us: u32,
    /// Tokens of a whole bucket.
    pub burst: u32,
    /// Tokens of an earlier lease that were not spent. They are put back first.
    pub returned: u32,
    /// Tokens for requests that wait.
    pub waiting: u32,
    /// Tokens to have, for requests that may come. Beyond those that wait, at most a quarter of what is there, so that
    /// the other replicas find some as well.
    pub block: u32,
}

/// What a bucket gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Tokens to spend.
    pub tokens: u32,
    /// How long until the bucket is whole when nobody takes from it.
    pub missing: Duration,
}

/// The buckets cannot be reached; in the words of whoever keeps them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BucketsUnavailable(pub Arc<str>);
