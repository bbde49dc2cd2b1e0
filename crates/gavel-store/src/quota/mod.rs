//! Quota. [`LocalQuota`] counts in this process only. [`LeasedQuota`] shares each user's token bucket with the other
//! replicas, a block at a time, and behaves as the local one while the buckets are unavailable.

mod leased;

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use governor::RateLimiter;
use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DashMapStateStore;

use crate::domain::ids::{TenantId, UserId};
use crate::ports::BoxFuture;
use crate::ports::quota::{Ask, Lease, Quota, QuotaState};
pub use leased::LeasedQuota;

/// The user whose requests are counted together; hashed once per request.
type Key = (TenantId, UserId);

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
        let rate = governor::Quota::per_minute(per_minute).allow_burst(burst);
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

    fn per_minute(&self) -> NonZeroU32 {
        self.per_minute
    }

    fn burst(&self) -> NonZeroU32 {
        self.burst
    }

    fn state(&self, allowed: bool, remaining: u32, reset: Duration) -> QuotaState {
        let reset_s = u32::try_from(reset.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
        QuotaState {
            allowed,
            limit: self.per_minute.get(),
            window_s: 60,
            remaining,
            reset_s,
        }
    }

    fn count(&self, key: &Key) -> QuotaState {
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

/// How long a leased token can be used.
const HOLD: Duration = Duration::from_secs(1);
/// How long a leased token can be put back; after that it is lost. The bucket may have refilled meanwhile, and the
/// token would be extra. So in any time `t` all replicas together admit at most the burst, plus the refill in `t`, plus
/// the refill in [`RETURN`] and one [`ROUND`].
const RETURN: Duration = Duration::from_millis(1750);
/// How often unused tokens are looked for, and how long a round of putting them back may take.
const ROUND: Duration = Duration::from_millis(250);

/// How fast a bucket fills, and how much it holds.
#[derive(Clone, Copy, Debug)]
struct Rate {
    interval_us: u32,
    burst: u32,
}

impl Rate {
    fn new(per_minute: NonZeroU32, burst: NonZeroU32) -> Self {
        Self {
            // Rounded up, so that the rate never exceeds the configured one.
            interval_us: 60_000_000_u32.div_ceil(per_minute.get()),
            burst: burst.get(),
        }
    }

    fn ask(self, returned: u32, waiting: u32, block: u32) -> Ask {
        Ask {
            interval_us: self.interval_us,
            burst: self.burst,
            returned,
            waiting,
            block,
        }
    }

    /// How long this many tokens take to refill.
    fn time(self, tokens: u32) -> Duration {
        Duration::from_micros(u64::from(tokens) * u64::from(self.interval_us))
    }

    /// Tokens in a bucket that is full after `missing`.
    fn left(self, missing: Duration) -> u32 {
        let there = self.time(self.burst).saturating_sub(missing).as_micros();
        u32::try_from(there / u128::from(self.interval_us)).unwrap_or(u32::MAX)
    }

    /// How long until the bucket has a token.
    fn next(self, missing: Duration) -> Duration {
        missing.saturating_sub(self.time(self.burst - 1))
    }
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Allowance {
    allowed: bool,
    remaining: u32,
    /// Time until the next token if the request was rejected, else until the bucket is full.
    reset: Duration,
}

/// Empty by default.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// Tokens left to use.
    tokens: u32,
    /// Tokens of the latest lease.
    leased: u32,
    /// Tokens that the bucket had left for all replicas after that lease.
    left: u32,
    /// When that lease was requested.
    since: Option<Instant>,
    /// The lease returned no token, and none will be available before this time.
    none_until: Option<Instant>,
}

impl Block {
    /// Takes a token, or rejects where no replica can have one. `None`: a new lease is needed.
    fn spend(&mut self, now: Instant, rate: Rate) -> Option<Allowance> {
        if let Some(until) = self.none_until.filter(|until| now < *until) {
            return Some(Allowance {
                allowed: false,
                remaining: 0,
                reset: until - now,
            });
        }
        if self.tokens == 0 || self.age(now) >= HOLD {
            return None;
        }
        self.tokens -= 1;
        let remaining = self.tokens + self.left;
        Some(Allowance {
            allowed: true,
            remaining,
            reset: rate.time(rate.burst.saturating_sub(remaining)),
        })
    }

    /// What to request when `waiting` requests wait. A user who used up the last block quickly gets one twice as large.
    /// Otherwise the next block is as large as the used part of the last one. Unused tokens are returned.
    fn ask(&mut self, now: Instant, waiting: u32, rate: Rate) -> Ask {
        let block = match self.age(now) < HOLD {
            true => self.leased.saturating_mul(2),
            false => self.leased - self.tokens,
        };
        rate.ask(self.give_back(now), waiting, block)
    }

    /// Stores the result of a lease that was requested at `asked` and answered at `now`.
    fn fill(&mut self, asked: Instant, now: Instant, lease: Lease, rate: Rate) {
        *self = Self {
            tokens: lease.tokens,
            leased: lease.tokens,
            left: rate.left(lease.missing),
            since: Some(asked),
            none_until: (lease.tokens == 0).then(|| now + rate.next(lease.missing)),
        };
    }

    /// Removes the unused tokens and returns those that can be put back. Tokens older than [`RETURN`] are lost.
    fn give_back(&mut self, now: Instant) -> u32 {
        let tokens = std::mem::take(&mut self.tokens);
        self.leased -= tokens;
        if self.age(now) < RETURN { tokens } else { 0 }
    }

    /// Whether neither its tokens nor its rejection apply any more.
    fn has_ended(&self, now: Instant) -> bool {
        self.age(now) >= HOLD && self.none_until.is_none_or(|until| until <= now)
    }

    fn age(&self, now: Instant) -> Duration {
        self.since
            .map_or(Duration::MAX, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod local_tests {
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

#[cfg(test)]
mod block_tests {
    use super::*;

    fn rate(per_minute: u32, burst: u32) -> Rate {
        Rate::new(NonZeroU32::new(per_minute).unwrap(), NonZeroU32::new(burst).unwrap())
    }

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn lease(tokens: u32, missing: Duration) -> Lease {
        Lease { tokens, missing }
    }

    #[test]
    fn a_rate_that_does_not_divide_a_minute_is_rounded_to_less_than_was_set() {
        for per_minute in [1, 7, 60, 999, 700_000, 1_000_000] {
            let rate = rate(per_minute, 1);
            assert!(rate.time(per_minute) >= Duration::from_secs(60), "{per_minute}");
        }
    }

    #[test]
    fn what_is_missing_tells_what_is_left_and_when_the_next_token_comes() {
        let rate = rate(60, 20);
        assert_eq!(rate.left(Duration::ZERO), 20);
        assert_eq!(rate.left(ms(1)), 19);
        assert_eq!(rate.left(ms(19_000)), 1);
        assert_eq!(rate.next(ms(19_000)), Duration::ZERO);
        assert_eq!((rate.left(ms(19_400)), rate.next(ms(19_400))), (0, ms(400)));
        assert_eq!((rate.left(ms(20_000)), rate.next(ms(20_000))), (0, ms(1_000)));
    }

    /// C-US5-3
    #[test]
    fn a_block_is_used_token_by_token_and_what_remains_counts_what_the_bucket_has() {
        let (rate, now) = (rate(60, 20), Instant::now());
        let mut block = Block::default();
        assert_eq!(block.spend(now, rate), None);
        block.fill(now, now, lease(2, ms(5_000)), rate);
        let reported: Vec<_> = (0..2).map(|_| block.spend(now, rate).unwrap()).collect();
        assert!(reported.iter().all(|reported| reported.allowed));
        assert_eq!((reported[0].remaining, reported[0].reset), (16, ms(4_000)));
        assert_eq!((reported[1].remaining, reported[1].reset), (15, ms(5_000)));
        assert_eq!(block.spend(now, rate), None);
    }

    #[test]
    fn an_empty_bucket_is_not_asked_again_before_its_next_token() {
        let (rate, now) = (rate(60, 20), Instant::now());
        let mut block = Block::default();
        block.fill(now, now, lease(0, ms(19_700)), rate);
        let reported = block.spend(now + ms(300), rate).unwrap();
        assert_eq!(
            (reported.allowed, reported.remaining, reported.reset),
            (false, 0, ms(400))
        );
        assert!(!block.has_ended(now + ms(699)));
        assert_eq!(block.spend(now + ms(700), rate), None);
        assert!(block.has_ended(now + ms(1_000)));
    }

    #[test]
    fn a_quick_user_gets_larger_blocks_and_another_gets_what_was_used() {
        let (rate, start) = (rate(60, 20), Instant::now());
        let mut block = Block::default();
        assert_eq!(block.ask(start, 1, rate).block, 0);
        block.fill(start, start, lease(3, ms(0)), rate);
        for _ in 0..3 {
            block.spend(start + ms(900), rate).unwrap();
        }
        assert_eq!(block.ask(start + ms(999), 1, rate).block, 6);
        block.fill(start, start, lease(6, ms(0)), rate);
        block.spend(start, rate).unwrap();
        let ask = block.ask(start + HOLD, 1, rate);
        assert_eq!((ask.block, ask.returned), (1, 5));
    }

    #[test]
    fn a_token_is_used_within_its_time_put_back_after_it_and_then_lost() {
        let (rate, start) = (rate(60, 20), Instant::now());
        let mut block = Block::default();
        block.fill(start, start, lease(4, ms(0)), rate);
        let (mut early, mut late) = (block, block);
        assert!(block.spend(start + HOLD - ms(1), rate).is_some());
        assert_eq!(early.spend(start + HOLD, rate), None);
        assert_eq!((early.give_back(start + HOLD), early.give_back(start + HOLD)), (4, 0));
        assert_eq!(late.give_back(start + RETURN), 0);
    }
}
