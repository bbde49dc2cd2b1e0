//! A circuit breaker for one connection or endpoint: after consecutive transport faults, calls are rejected immediately
//! for a while, instead of each waiting for its own timeout.

use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::ports::metrics::Gauge;

/// State of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls pass.
    Closed,
    /// Calls are rejected.
    Open,
    /// One call at a time passes as a trial.
    HalfOpen,
}

/// Closed normally, open after faults, and half open (one trial call at a time) when that time has passed. A successful
/// call closes it.
pub struct Breaker {
    /// Consecutive faults that open it.
    faults: u32,
    /// How long it stays open: at first, and at most after trials that failed; each doubles the time.
    pause: RangeInclusive<Duration>,
    state: Mutex<State>,
    /// How many breakers are open or half open; several may share it.
    gauge: Gauge,
}

#[derive(Debug, Default)]
struct State {
    faults: u32,
    open: Option<Open>,
    /// Why the server refused the last call, if a refusal opened it.
    refused: Option<String>,
    /// Was it closed by a new connection only, with no successful call since?
    doubted: bool,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    pause: Duration,
    /// Is a trial call in progress?
    trying: bool,
}

/// Permission to make a call. It must learn how the call ended.
#[must_use]
pub struct Permit<'a> {
    breaker: &'a Breaker,
    trial: bool,
}

impl Breaker {
    pub fn new(faults: u32, pause: RangeInclusive<Duration>, gauge: Gauge) -> Self {
        // Registers the gauge from the start.
        gauge.increment(0.0);
        Self {
            faults,
            pause,
            state: Mutex::default(),
            gauge,
        }
    }

    /// Requests permission to make a call at `now`.
    ///
    /// # Errors
    /// How long it stays open.
    pub fn admit(&self, now: Instant) -> Result<Permit<'_>, Duration> {
        let mut state = self.lock();
        if let Some(open) = &mut state.open {
            if now < open.until {
                return Err(open.until - now);
            }
            if open.trying {
                return Err(open.pause);
            }
            open.trying = true;
        }
        Ok(Permit {
            breaker: self,
            trial: state.open.is_some(),
        })
    }

    pub fn state(&self, now: Instant) -> BreakerState {
        match &self.lock().open {
            None => BreakerState::Closed,
            Some(open) if now < open.until => BreakerState::Open,
            Some(_) => BreakerState::HalfOpen,
        }
    }

    /// Has no call succeeded since it opened?
    pub fn is_open(&self) -> bool {
        self.lock().open.is_some()
    }

    /// If it is open because the server refuses all calls: the server's reason.
    pub fn refuses(&self) -> Option<String> {
        let state = self.lock();
        state.open.as_ref().and(state.refused.clone())
    }

    /// Closes it provisionally, because the server was connected. If the next call fails, it opens again and is not
    /// closed provisionally again until a call succeeds.
    pub fn reset(&self) {
        let mut state = self.lock();
        if state.open.is_some() && !state.doubted {
            self.close(&mut state);
            *state = State {
                faults: self.faults - 1,
                doubted: true,
                ..State::default()
            };
        }
    }

    fn close(&self, state: &mut State) {
        if state.open.is_some() {
            self.gauge.decrement(1.0);
        }
        *state = State::default();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Breaker {
    fn drop(&mut self) {
        self.close(&mut self.lock());
    }
}

impl Permit<'_> {
    /// The server answered, with success or an error. The answer to a call from before the breaker opened does not
    /// close it.
    pub fn answered(self) {
        let mut state = self.breaker.lock();
        if self.trial || state.open.is_none() {
            self.breaker.close(&mut state);
        }
    }

    /// The server refused the call without looking at its arguments, for this reason.
    pub fn refused(self, now: Instant, why: &str) {
        let breaker = self.breaker;
        if self.fault(now) {
            breaker.lock().refused = Some(why.to_owned());
        }
    }

    /// The transport failed, or no answer arrived in time. Returns whether this opened the breaker, for the first time
    /// or again.
    ///
    /// When calls fail together, only one of them opens it: calls from before it opened are ignored.
    pub fn fault(self, now: Instant) -> bool {
        let mut state = self.breaker.lock();
        state.faults += 1;
        let pause = match &state.open {
            Some(open) if self.trial => (open.pause * 2).min(*self.breaker.pause.end()),
            None if state.faults >= self.breaker.faults => *self.breaker.pause.start(),
            Some(_) | None => return false,
        };
        if state.open.is_none() {
            self.breaker.gauge.increment(1.0);
        }
        state.refused = None;
        state.open = Some(Open {
            until: now + pause,
            pause,
            trying: false,
        });
        true
    }
}

impl Drop for Permit<'_> {
    /// Ends the trial, even if it ended without an answer or a fault (cancelled).
    fn drop(&mut self) {
        if self.trial
            && let Some(open) = &mut self.breaker.lock().open
        {
            open.trying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const FAULTS: u32 = 5;
    const FIRST: Duration = Duration::from_secs(1);

    fn breaker() -> Breaker {
        Breaker::new(FAULTS, FIRST..=Duration::from_secs(30), Gauge::noop())
    }

    #[test]
    fn five_faults_in_a_row_open_it_and_one_trial_at_a_time_closes_it() {
        let breaker = breaker();
        let start = Instant::now();
        for _ in 0..4 {
            breaker.admit(start).unwrap().fault(start);
        }
        breaker.admit(start).unwrap().answered();
        for _ in 0..5 {
            breaker.admit(start).unwrap().fault(start);
        }
        assert!(breaker.is_open());
        assert_eq!(breaker.admit(start).err().unwrap(), FIRST);
        assert_eq!(breaker.state(start), BreakerState::Open);
        let later = start + FIRST;
        assert_eq!(breaker.state(later), BreakerState::HalfOpen);
        let trial = breaker.admit(later).unwrap();
        assert!(breaker.admit(later).is_err(), "a second trial during the first");
        trial.fault(later);
        assert_eq!(breaker.admit(later).err().unwrap(), FIRST * 2);
        let later = later + FIRST * 2;
        drop(breaker.admit(later).unwrap());
        breaker.admit(later).unwrap().answered();
        assert!(!breaker.is_open());
        assert!(breaker.admit(later).is_ok());
    }

    /// Promise: bounded faults. One short outage causes one short pause, no matter how many calls it breaks.
    #[test]
    fn calls_that_fail_together_open_it_once_and_let_no_second_trial_in() {
        let breaker = breaker();
        let start = Instant::now();
        let permits: Vec<_> = (0..10).map(|_| breaker.admit(start).unwrap()).collect();
        let late = breaker.admit(start).unwrap();
        let opened: Vec<_> = permits.into_iter().map(|permit| permit.fault(start)).collect();
        assert_eq!(opened.iter().filter(|opened| **opened).count(), 1);
        assert_eq!(breaker.admit(start).err().unwrap(), FIRST);
        let later = start + FIRST;
        let trial = breaker.admit(later).unwrap();
        assert!(!late.fault(later), "a call from before is no news");
        assert!(breaker.admit(later).is_err(), "nor does it end the trial");
        assert!(trial.fault(later));
        assert_eq!(breaker.admit(later).err().unwrap(), FIRST * 2);
    }

    /// Promise: bounded faults. A child that starts correctly but dies in every call is not called for a while.
    #[test]
    fn a_connection_closes_it_once_until_a_call_gets_through() {
        let breaker = breaker();
        let start = Instant::now();
        for _ in 0..2 {
            for _ in 0..FAULTS {
                breaker.reset();
                breaker.admit(start).unwrap().fault(start);
            }
            breaker.reset();
            breaker.admit(start).unwrap().fault(start);
            breaker.reset();
            assert!(breaker.admit(start).is_err(), "it was connected to, and failed again");
            breaker.admit(start + FIRST).unwrap().answered();
            assert!(!breaker.is_open());
        }
    }

    #[test]
    fn the_time_it_stays_open_is_bounded() {
        let breaker = Breaker::new(1, FIRST..=FIRST, Gauge::noop());
        let start = Instant::now();
        breaker.admit(start).unwrap().fault(start);
        for failed in 1..4 {
            let now = start + FIRST * failed;
            assert!(breaker.admit(now).unwrap().fault(now));
            assert_eq!(breaker.admit(now).err().unwrap(), FIRST);
        }
        assert_eq!(breaker.state(start + FIRST * 4), BreakerState::HalfOpen);
    }

    #[test]
    fn an_answer_to_a_call_from_before_does_not_close_it() {
        let breaker = breaker();
        let start = Instant::now();
        let early = breaker.admit(start).unwrap();
        for _ in 0..FAULTS {
            breaker.admit(start).unwrap().fault(start);
        }
        early.answered();
        assert!(breaker.is_open());
    }
}
