//! A circuit breaker for one connection: after a run of faults of the transport, calls are refused at
//! once for a while instead of each waiting for its own time to run out.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use metrics::Gauge;

/// Faults in a row that open it.
const FAULTS: u32 = 5;
/// First and longest time it stays open.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// Closed while all is well, open after faults, and half open (one call tries) when its time is over. It closes when a
/// call got through.
pub(super) struct Breaker {
    state: Mutex<State>,
    /// Of all breakers of a server: how many are open or try.
    gauge: Gauge,
}

#[derive(Debug, Default)]
struct State {
    faults: u32,
    open: Option<Open>,
    /// Why the server refused the last call, where a refusal opened it.
    refused: Option<String>,
    /// Was it closed by a connection alone, and no call has got through since?
    doubted: bool,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    pause: Duration,
    /// Is a call under way that tries?
    trying: bool,
}

/// Leave to make a call; it must be told how the call ended.
#[must_use]
pub(super) struct Permit<'a> {
    breaker: &'a Breaker,
    trial: bool,
}

impl Breaker {
    pub(super) fn new(gauge: Gauge) -> Self {
        // It is there from the beginning.
        gauge.increment(0.0);
        Self {
            state: Mutex::default(),
            gauge,
        }
    }

    /// Asks for leave at `now`.
    ///
    /// # Errors
    /// How long it stays open.
    pub(super) fn admit(&self, now: Instant) -> Result<Permit<'_>, Duration> {
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

    /// Has no call got through since it opened?
    pub(super) fn is_open(&self) -> bool {
        self.lock().open.is_some()
    }

    /// Is it open as the server refuses all calls? Why, in its words.
    pub(super) fn refuses(&self) -> Option<String> {
        let state = self.lock();
        state.open.as_ref().and(state.refused.clone())
    }

    /// Closes it, on trust: the server was connected to. One that fails at the next call all the same has it open again, and
    /// is trusted no more until a call gets through.
    pub(super) fn reset(&self) {
        let mut state = self.lock();
        if state.open.is_some() && !state.doubted {
            self.close(&mut state);
            *state = State {
                faults: FAULTS - 1,
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

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Breaker {
    fn drop(&mut self) {
        self.close(&mut self.lock());
    }
}

impl Permit<'_> {
    /// The server answered, whatever it said. The answer to a call from before it opened does not close it.
    pub(super) fn answered(self) {
        let mut state = self.breaker.lock();
        if self.trial || state.open.is_none() {
            self.breaker.close(&mut state);
        }
    }

    /// The server refused the call without a look at its arguments, for this reason.
    pub(super) fn refused(self, now: Instant, why: &str) {
        let breaker = self.breaker;
        if self.fault(now) {
            breaker.lock().refused = Some(why.to_owned());
        }
    }

    /// The transport failed, or no answer came in time; did that open it, once more or for the first time?
    ///
    /// Of calls that fail together one opens it: those from before it opened are no news.
    pub(super) fn fault(self, now: Instant) -> bool {
        let mut state = self.breaker.lock();
        state.faults += 1;
        let pause = match &state.open {
            Some(open) if self.trial => (open.pause * 2).min(LONGEST),
            None if state.faults >= FAULTS => FIRST,
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
    /// The trial is over, also when it ended without a word about the server (cancelled).
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

    fn breaker() -> Breaker {
        Breaker::new(Gauge::noop())
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
        let later = start + FIRST;
        let trial = breaker.admit(later).unwrap();
        assert!(breaker.admit(later).is_err(), "a second trial beside the first");
        trial.fault(later);
        assert_eq!(breaker.admit(later).err().unwrap(), FIRST * 2);
        let later = later + FIRST * 2;
        drop(breaker.admit(later).unwrap());
        breaker.admit(later).unwrap().answered();
        assert!(!breaker.is_open());
        assert!(breaker.admit(later).is_ok());
    }

    /// Promise 5: one blip is one short pause, however many calls it took with it.
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

    /// Promise 5: a child that starts well and dies in every call is left alone for a while.
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
