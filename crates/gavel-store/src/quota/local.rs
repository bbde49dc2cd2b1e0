//! In-process quota: GCRA per user, by the `governor` crate. Sufficient for a single process.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota as Rate, RateLimiter};

use super::Key;
use crate::domain::ids::{TenantId, UserId};
use crate::ports::BoxFuture;
use crate::ports::quota::{Quota, QuotaState};

type Limiter = RateLimiter<Key, DashMapStateStore<Key>, DefaultClock, StateInformationMiddleware>;

/// Limits each user to a number of requests per minute, and a number at once.
pub struct LocalQuota {
    limiter: Limiter,
    clock: DefaultClock,
    per_minute: NonZeroU32,
    burst: NonZeroU32,
}

impl LocalQuota {
    /// How often inactive users are dropped.
    pub const SWEEP: Duration = Duration::from_secs(30);

    /// `per_minute` requests on average, `burst` at once.
    #[must_use]
    pub fn new(per_minute: NonZeroU32, burst: NonZeroU32) -> Self {
        let rate = Rate::per_minute(per_minute).allow_burst(burst);
        let limiter = RateLimiter::dashmap(rate).with_middleware::<StateInformationMiddleware>();
        Self {
            limiter,
            clock: DefaultClock::default(),
            per_minute,
            burst,
        }
    }

    /// Drops users whose quota is full again. Without it the map would grow with every user.
    pub fn sweep(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
    }

    pub(super) fn per_minute(&self) -> NonZeroU32 {
        self.per_minute
    }

    pub(super) fn burst(&self) -> NonZeroU32 {
        self.burst
    }

    pub(super) fn state(&self, allowed: bool, remaining: u32, reset: Duration) -> QuotaState {
        let reset_s = u32::try_from(reset.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
        QuotaState {
            allowed,
            limit: self.per_minute.get(),
            window_s: 60,
            remaining,
            reset_s,
        }
    }

    pub(super) fn count(&self, key: &Key) -> QuotaState {
        match self.limiter.check_key(key) {
            Ok(state) => {
                let remaining = state.remaining_burst_capacity();
                let missing = self.burst.get().saturating_sub(remaining);
                let reset = Duration::from_secs(60) * missing / self.per_minute.get();
                self.state(true, remaining, reset)
            }
            Err(until) => self.state(false, 0, until.wait_time_from(self.clock.now())),
        }
    }
}

impl Quota for LocalQuota {
    fn take<'a>(&'a self, tenant: &'a TenantId, user: &'a UserId) -> BoxFuture<'a, QuotaState> {
        let state = self.count(&(tenant.clone(), user.clone()));
        Box::pin(std::future::ready(state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(per_minute: u32, burst: u32) -> LocalQuota {
        LocalQuota::new(NonZeroU32::new(per_minute).unwrap(), NonZeroU32::new(burst).unwrap())
    }

    fn take(quota: &LocalQuota, tenant: &str, user: &str) -> QuotaState {
        quota.count(&(TenantId::parse(tenant).unwrap(), UserId::parse(user).unwrap()))
    }

    /// C-US5-3
    #[test]
    fn a_burst_is_allowed_then_the_caller_learns_when_to_come_back() {
        let quota = quota(60, 3);
        let left: Vec<_> = (0..3).map(|_| take(&quota, "t", "u").remaining).collect();
        assert_eq!(left, [2, 1, 0]);
        let over = take(&quota, "t", "u");
        assert!(!over.allowed);
        assert_eq!((over.limit, over.window_s, over.reset_s), (60, 60, 1));
    }

    #[test]
    fn users_and_tenants_do_not_share_a_quota() {
        let quota = quota(60, 1);
        assert!(take(&quota, "t", "ann").allowed);
        assert!(take(&quota, "t", "bob").allowed);
        assert!(take(&quota, "other", "ann").allowed);
        assert!(!take(&quota, "t", "ann").allowed);
    }
}
