//! The circuit breaker of one endpoint: closed → open → half-open → closed.
//!
//! It opens after a number of consecutive failures. While open, it rejects all requests for a fixed time. Then it lets
//! single requests through until one succeeds.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// State of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Requests pass.
    Closed,
    /// Requests are rejected.
    Open,
    /// One request at a time passes as a probe.
    HalfOpen,
}

/// When a breaker opens and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Consecutive failures that open it.
    pub failures: u32,
    /// How long it stays open before a probe.
    pub open_for: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self {
            failures: 10,
            open_for: Duration::from_secs(5),
        }
    }
}

/// What an attempt shows about the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// It answered, even if it rejected the request.
    Well,
    /// It did not answer, or reported that it cannot.
    Sick,
    /// Unknown: the attempt ended too early to tell.
    Unknown,
}

#[derive(Debug, Default)]
struct Inner {
    failures: u32,
    opened_at: Option<Instant>,
    probing: bool,
}

#[derive(Debug)]
pub(super) struct Breaker {
    settings: BreakerSettings,
    inner: Mutex<Inner>,
}

impl Breaker {
    pub(super) fn new(settings: BreakerSettings) -> Self {
        Self {
            settings,
            inner: Mutex::default(),
        }
    }

    pub(super) fn state(&self, now: Instant) -> BreakerState {
        match self.lock().opened_at {
            None => BreakerState::Closed,
            Some(at) if now.duration_since(at) < self.settings.open_for => BreakerState::Open,
            Some(_) => BreakerState::HalfOpen,
        }
    }

    /// Requests permission to send one request.
    ///
    /// # Errors
    /// The breaker is open, or a probe is in progress.
    pub(super) fn admit(&self, now: Instant) -> Result<Permit<'_>, BreakerState> {
        let mut inner = self.lock();
        let probe = match inner.opened_at {
            None => false,
            Some(at) if now.duration_since(at) < self.settings.open_for => return Err(BreakerState::Open),
            Some(_) if inner.probing => return Err(BreakerState::HalfOpen),
            Some(_) => {
                inner.probing = true;
                true
            }
        };
        drop(inner);
        Ok(Permit { breaker: self, probe })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Permission to send one request. If it is dropped without `settle` (the caller disconnected), it does not affect the
/// breaker.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    breaker: &'a Breaker,
    probe: bool,
}

impl Permit<'_> {
    /// Reports the outcome.
    pub(super) fn settle(self, health: Health, now: Instant) {
        let mut inner = self.breaker.lock();
        match health {
            // An answer to an old request does not close a breaker that has opened since. Only a probe closes it.
            Health::Well if self.probe || inner.opened_at.is_none() => {
                inner.failures = 0;
                inner.opened_at = None;
            }
            Health::Sick => {
                inner.failures = inner.failures.saturating_add(1);
                if self.probe || (inner.opened_at.is_none() && inner.failures >= self.breaker.settings.failures) {
                    inner.opened_at = Some(now);
                }
            }
            Health::Well | Health::Unknown => {}
        }
        // `Drop` ends the probe.
        drop(inner);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.probe {
            self.breaker.lock().probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn breaker() -> Breaker {
        Breaker::new(BreakerSettings {
            failures: 3,
            open_for: Duration::from_secs(5),
        })
    }

    fn fail(breaker: &Breaker, times: u32, now: Instant) {
        for _ in 0..times {
            breaker.admit(now).unwrap().settle(Health::Sick, now);
        }
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_a_success_between_them_counts() {
        let (breaker, now) = (breaker(), Instant::now());
        fail(&breaker, 2, now);
        breaker.admit(now).unwrap().settle(Health::Well, now);
        fail(&breaker, 2, now);
        assert_eq!(breaker.state(now), BreakerState::Closed);
        fail(&breaker, 1, now);
        assert_eq!(breaker.state(now), BreakerState::Open);
        assert_eq!(breaker.admit(now).unwrap_err(), BreakerState::Open);
    }

    #[test]
    fn half_open_lets_one_probe_through_and_its_success_closes() {
        let (breaker, now) = (breaker(), Instant::now());
        fail(&breaker, 3, now);
        let later = now + Duration::from_secs(5);
        assert_eq!(breaker.state(later), BreakerState::HalfOpen);
        let probe = breaker.admit(later).unwrap();
        assert_eq!(breaker.admit(later).unwrap_err(), BreakerState::HalfOpen);
        probe.settle(Health::Well, later);
        assert_eq!(breaker.state(later), BreakerState::Closed);
        assert!(breaker.admit(later).is_ok());
    }

    #[test]
    fn a_failed_probe_opens_again_and_an_abandoned_one_makes_room_for_the_next() {
        let (breaker, now) = (breaker(), Instant::now());
        fail(&breaker, 3, now);
        let later = now + Duration::from_secs(5);
        drop(breaker.admit(later).unwrap());
        breaker.admit(later).unwrap().settle(Health::Sick, later);
        assert_eq!(breaker.state(later + Duration::from_secs(4)), BreakerState::Open);
        assert_eq!(breaker.state(later + Duration::from_secs(5)), BreakerState::HalfOpen);
    }

    #[test]
    fn an_answer_to_an_old_request_does_not_close_an_open_breaker() {
        let (breaker, now) = (breaker(), Instant::now());
        let old = breaker.admit(now).unwrap();
        fail(&breaker, 3, now);
        old.settle(Health::Well, now);
        assert_eq!(breaker.state(now), BreakerState::Open);
    }
}
