//! How much a caller may ask for.

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
