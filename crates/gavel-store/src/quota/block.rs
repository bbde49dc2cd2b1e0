//! The tokens of one user that this process holds. No I/O and no clock.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use crate::ports::quota::{Ask, Lease};

/// How long a leased token can be used.
pub(super) const HOLD: Duration = Duration::from_secs(1);
/// How long a leased token can be put back; after that it is lost. The bucket may have refilled meanwhile, and the
/// token would be extra. So in any time `t` all replicas together admit at most the burst, plus the refill in `t`, plus
/// the refill in [`RETURN`] and one [`ROUND`].
pub(super) const RETURN: Duration = Duration::from_millis(1750);
/// How often unused tokens are looked for, and how long a round of putting them back may take.
pub(super) const ROUND: Duration = Duration::from_millis(250);

/// How fast a bucket fills, and how much it holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) interval_us: u32,
    pub(super) burst: u32,
}

impl Rate {
    pub(super) fn new(per_minute: NonZeroU32, burst: NonZeroU32) -> Self {
        Self {
            // Rounded up, so that the rate never exceeds the configured one.
            interval_us: 60_000_000_u32.div_ceil(per_minute.get()),
            burst: burst.get(),
        }
    }

    pub(super) fn ask(self, returned: u32, waiting: u32, block: u32) -> Ask {
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
pub(super) struct Allowance {
    pub(super) allowed: bool,
    pub(super) remaining: u32,
    /// Time until the next token if the request was rejected, else until the bucket is full.
    pub(super) reset: Duration,
}

/// Empty by default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Block {
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
    pub(super) fn spend(&mut self, now: Instant, rate: Rate) -> Option<Allowance> {
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
    pub(super) fn ask(&mut self, now: Instant, waiting: u32, rate: Rate) -> Ask {
        let block = match self.age(now) < HOLD {
            true => self.leased.saturating_mul(2),
            false => self.leased - self.tokens,
        };
        rate.ask(self.give_back(now), waiting, block)
    }

    /// Stores the result of a lease that was requested at `asked` and answered at `now`.
    pub(super) fn fill(&mut self, asked: Instant, now: Instant, lease: Lease, rate: Rate) {
        *self = Self {
            tokens: lease.tokens,
            leased: lease.tokens,
            left: rate.left(lease.missing),
            since: Some(asked),
            none_until: (lease.tokens == 0).then(|| now + rate.next(lease.missing)),
        };
    }

    /// Removes the unused tokens and returns those that can be put back. Tokens older than [`RETURN`] are lost.
    pub(super) fn give_back(&mut self, now: Instant) -> u32 {
        let tokens = std::mem::take(&mut self.tokens);
        self.leased -= tokens;
        if self.age(now) < RETURN { tokens } else { 0 }
    }

    /// Whether neither its tokens nor its rejection apply any more.
    pub(super) fn has_ended(&self, now: Instant) -> bool {
        self.age(now) >= HOLD && self.none_until.is_none_or(|until| until <= now)
    }

    fn age(&self, now: Instant) -> Duration {
        self.since
            .map_or(Duration::MAX, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
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
