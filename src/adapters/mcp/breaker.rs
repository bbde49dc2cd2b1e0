//! A circuit breaker for one server: after a run of faults of the transport, calls are refused at
//! once for a while instead of each waiting for its own time to run out.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Faults in a row that open it.
const FAULTS: u32 = 5;
/// First and longest time it stays open.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// Closed while all is well, open after faults, and half open (one call tries) when its time is over.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    faults: u32,
    open_until: Option<Instant>,
    pause: Option<Duration>,
    trying: bool,
}

/// Leave to make a call; it must be told how the call ended.
#[derive(Debug)]
#[must_use]
pub(super) struct Permit<'a> {
    breaker: &'a Breaker,
    told: bool,
}

impl Breaker {
    /// Asks for leave at `now`.
    ///
    /// # Errors
    /// How long it stays open.
    pub(super) fn admit(&self, now: Instant) -> Result<Permit<'_>, Duration> {
        let mut state = self.lock();
        if let Some(until) = state.open_until {
            if now < until {
                return Err(until - now);
            }
            if state.trying {
                return Err(state.pause.unwrap_or(FIRST));
            }
            state.trying = true;
        }
        Ok(Permit {
            breaker: self,
            told: false,
        })
    }

    /// Is it open at `now`?
    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.lock().open_until.is_some_and(|until| now < until)
    }

    /// Closes it: the server was reached in another way.
    pub(super) fn reset(&self) {
        *self.lock() = State::default();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Permit<'_> {
    /// The server answered, whatever it said.
    pub(super) fn answered(mut self) {
        self.told = true;
        let mut state = self.breaker.lock();
        if state.faults > 0 || state.open_until.is_some() {
            *state = State::default();
        }
    }

    /// The transport failed, or no answer came in time.
    pub(super) fn fault(mut self, now: Instant) {
        self.told = true;
        let mut state = self.breaker.lock();
        state.faults += 1;
        state.trying = false;
        if state.faults >= FAULTS {
            let pause = state.pause.map_or(FIRST, |pause| (pause * 2).min(LONGEST));
            state.pause = Some(pause);
            state.open_until = Some(now + pause);
        }
    }
}

impl Drop for Permit<'_> {
    /// A call that ended without a word about the server (cancelled) frees the trial.
    fn drop(&mut self) {
        if !self.told {
            self.breaker.lock().trying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn five_faults_in_a_row_open_it_and_one_trial_at_a_time_closes_it() {
        let breaker = Breaker::default();
        let start = Instant::now();
        for _ in 0..4 {
            breaker.admit(start).unwrap().fault(start);
        }
        breaker.admit(start).unwrap().answered();
        for _ in 0..5 {
            breaker.admit(start).unwrap().fault(start);
        }
        assert!(breaker.is_open(start));
        assert_eq!(breaker.admit(start).unwrap_err(), FIRST);
        let later = start + FIRST;
        let trial = breaker.admit(later).unwrap();
        assert!(breaker.admit(later).is_err(), "a second trial beside the first");
        trial.fault(later);
        assert_eq!(breaker.admit(later).unwrap_err(), FIRST * 2);
        let later = later + FIRST * 2;
        drop(breaker.admit(later).unwrap());
        breaker.admit(later).unwrap().answered();
        assert!(!breaker.is_open(later));
        assert!(breaker.admit(later).is_ok());
    }
}
