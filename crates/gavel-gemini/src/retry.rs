//! When a failed attempt is retried, and how long to wait before the retry.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How attempts are retried. This is the only layer that retries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetrySettings {
    /// Maximum requests for one answer (for each hop of a continued one).
    pub max_attempts: u32,
    /// The longest wait before the first retry. It doubles with each further retry.
    pub base_delay: Duration,
    /// Upper limit of every wait.
    pub max_delay: Duration,
    /// Retries allowed per request, over time: 0.2 lets load grow by at most a fifth while Gemini is failing.
    pub budget_ratio: f32,
    /// Retries allowed before the ratio applies.
    pub budget_reserve: u32,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            base_delay: Duration::from_millis(250),
            max_delay: Duration::from_secs(8),
            budget_ratio: 0.2,
            budget_reserve: 10,
        }
    }
}

/// How to react to a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// It would fail again.
    No,
    /// It may succeed after a while.
    Backoff,
    /// The provider said when to retry.
    After(Duration),
    /// The model's output was garbled: retry once, immediately.
    Once,
    /// A signature may be refused: repaired once, without signatures.
    Unsigned,
    /// The model's thoughts left no tokens for an answer: repaired once, with the least thinking.
    ThinkLess,
    /// The access token was rejected: retry once with a new one.
    Reauthenticate,
}

/// Full jitter: a uniform random wait between zero and `base · 2^(attempt − 1)`, capped.
pub(super) fn backoff(settings: &RetrySettings, attempt: u32) -> Duration {
    let doublings = attempt.saturating_sub(1).min(16);
    let ceiling = settings
        .base_delay
        .saturating_mul(1 << doublings)
        .min(settings.max_delay);
    ceiling.mul_f64(fastrand::f64())
}

const WHOLE: u32 = 1000;

/// A token bucket in thousandths. Every request adds a fraction; every retry takes a whole token.
#[derive(Debug)]
pub(super) struct Budget {
    level: AtomicU32,
    deposit: u32,
    capacity: u32,
}

impl Budget {
    pub(super) fn new(settings: &RetrySettings) -> Self {
        let capacity = settings.budget_reserve.saturating_mul(WHOLE);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let deposit = (settings.budget_ratio.clamp(0.0, 1.0) * WHOLE as f32) as u32;
        Self {
            level: AtomicU32::new(capacity),
            deposit,
            capacity,
        }
    }

    /// Records a first attempt.
    pub(super) fn deposit(&self) {
        self.change(|level| Some(level.saturating_add(self.deposit).min(self.capacity)));
    }

    /// Takes one retry; false if the budget is exhausted.
    pub(super) fn withdraw(&self) -> bool {
        self.change(|level| level.checked_sub(WHOLE))
    }

    fn change(&self, to: impl Fn(u32) -> Option<u32>) -> bool {
        self.level.try_update(Ordering::Relaxed, Ordering::Relaxed, to).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_allows_the_reserve_and_then_a_fifth_of_the_requests() {
        let budget = Budget::new(&RetrySettings::default());
        let reserve = std::iter::repeat_with(|| budget.withdraw())
            .take_while(|gate| *gate)
            .count();
        assert_eq!(reserve, 10);
        let mut repeated = 0;
        for _ in 0..1000 {
            budget.deposit();
            repeated += u32::from(budget.withdraw());
        }
        assert_eq!(repeated, 200);
    }

    #[test]
    fn a_quiet_time_does_not_save_up_more_than_the_reserve() {
        let budget = Budget::new(&RetrySettings::default());
        (0..1000).for_each(|_| budget.deposit());
        assert_eq!((0..100).filter(|_| budget.withdraw()).count(), 10);
    }

    #[test]
    fn waits_are_drawn_from_the_whole_range_which_doubles_up_to_the_cap() {
        let settings = RetrySettings::default();
        for (attempt, ceiling_ms) in [(1, 250), (2, 500), (3, 1000), (9, 8000), (u32::MAX, 8000)] {
            let draws: Vec<_> = (0..2000).map(|_| backoff(&settings, attempt)).collect();
            let ceiling = Duration::from_millis(ceiling_ms);
            assert!(draws.iter().all(|wait| *wait <= ceiling));
            assert!(draws.iter().any(|wait| *wait < ceiling / 4), "no low draw in 2000");
            assert!(draws.iter().any(|wait| *wait > ceiling / 4 * 3), "no high draw in 2000");
        }
    }
}
