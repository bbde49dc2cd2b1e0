//! Request quotas of users.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::domain::ids::{TenantId, UserId};

/// Counts requests per user.
#[async_trait]
pub trait Quota: Send + Sync {
    /// Takes one request from the user's quota.
    async fn take(&self, tenant: &TenantId, user: &UserId) -> QuotaState;
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
#[async_trait]
pub trait Buckets: Send + Sync {
    /// Takes a token from a user's bucket. Returns how long until the bucket is full; `None` if it had no token.
    async fn take(&self, tenant: &TenantId, user: &UserId, rate: Rate) -> Result<Option<Duration>, BucketsUnavailable>;

    /// Deletes buckets that are full. Returns how many.
    async fn prune(&self) -> Result<u64, BucketsUnavailable>;
}

/// How fast a bucket fills, and how much it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// One token is added each time this many microseconds have passed.
    pub interval_us: u32,
    /// Tokens in a full bucket.
    pub burst: u32,
}

impl Rate {
    /// How long this many tokens take to refill.
    #[must_use]
    pub fn time(self, tokens: u32) -> Duration {
        Duration::from_micros(u64::from(tokens) * u64::from(self.interval_us))
    }

    /// Tokens in a bucket that is full after `missing`.
    #[must_use]
    pub fn left(self, missing: Duration) -> u32 {
        let there = self.time(self.burst).saturating_sub(missing).as_micros();
        u32::try_from(there / u128::from(self.interval_us)).unwrap_or(u32::MAX)
    }
}

/// The buckets are unavailable; the message comes from the implementation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BucketsUnavailable(pub Arc<str>);
