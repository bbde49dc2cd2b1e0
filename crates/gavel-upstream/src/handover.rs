//! Has something been handed over, so that its outcome is unknown if no answer arrives? A request to the network, and an
//! op to a COMMIT.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::ports::runs::Hold;

/// Nothing has happened yet.
const WAITING: u8 = 0;
/// It may have arrived.
const HANDED_OVER: u8 = 1;
/// The caller gave up, and relies on it that it does not happen.
const GIVEN_UP: u8 = 2;

/// Whether something was handed over or given up.
///
/// The one who hands over and the one who gives up may be different threads. Both are atomic exchanges from the same
/// initial state, so the second one sees the first: what was reported as not handed over never is.
#[derive(Debug, Default)]
pub struct Handover(AtomicU8);

impl Handover {
    /// Prevents that it is handed over from now on. Returns whether it already was.
    pub fn give_up(&self) -> bool {
        self.exchange(WAITING, GIVEN_UP) == Err(HANDED_OVER)
    }

    /// Must be called before the first byte leaves.
    ///
    /// # Errors
    /// It was given up, or handed over before.
    pub fn hand_over(&self) -> Result<(), NotHandedOver> {
        match self.exchange(WAITING, HANDED_OVER) {
            Ok(_) => Ok(()),
            Err(GIVEN_UP) => Err(NotHandedOver::GivenUp),
            Err(_) => Err(NotHandedOver::Already),
        }
    }

    /// It is known that what was handed over did not happen. It can be handed over again, or given up.
    pub fn take_back(&self) {
        // Fails if it was not handed over; the state then remains.
        let _ = self.exchange(HANDED_OVER, WAITING);
    }

    pub fn is_handed_over(&self) -> bool {
        self.0.load(Ordering::Acquire) == HANDED_OVER
    }

    fn exchange(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }
}

/// Why something was not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotHandedOver {
    /// The caller no longer waits for the answer.
    #[error("given up before it was sent")]
    GivenUp,
    /// Another process may own the run by now.
    #[error("the lease of the run expired before the request was sent")]
    LeaseLost,
    /// It was handed over before.
    #[error("sent already")]
    Already,
}

/// The gate of one request. A transport passes it before the first byte of the request that a server could act on.
#[derive(Clone, Debug, Default)]
pub struct SendGate {
    handover: Arc<Handover>,
    /// If set, the request is sent only while this lease is held.
    hold: Option<Hold>,
}

impl SendGate {
    /// For a request that is sent under this lease.
    pub fn under(hold: Option<&Hold>) -> Self {
        Self {
            hold: hold.cloned(),
            ..Self::default()
        }
    }

    /// Passes the gate; the request must be written without further delay.
    ///
    /// # Errors
    /// The request must not be sent.
    pub fn pass(&self) -> Result<(), NotHandedOver> {
        if self.hold.as_ref().is_some_and(|hold| !hold.is_ours()) {
            return Err(NotHandedOver::LeaseLost);
        }
        self.handover.hand_over()
    }

    /// Has the request been handed to the network? Until then neither the request nor anything else that a server could
    /// act on has left the process.
    pub fn is_sent(&self) -> bool {
        self.handover.is_handed_over()
    }

    /// Prevents the request from being sent from now on. Returns whether it had already been sent.
    pub fn give_up(&self) -> bool {
        self.handover.give_up()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Barrier;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::ports::clock::SystemClock;
    use crate::ports::runs::Lease;
    use gavel_core::domain::ids::RunId;

    #[test]
    fn a_request_is_sent_once_and_what_was_given_up_not_at_all() {
        let gate = SendGate::default();
        assert!(!gate.is_sent());
        assert_eq!(gate.pass(), Ok(()));
        assert_eq!(gate.clone().pass(), Err(NotHandedOver::Already));
        assert!(gate.is_sent() && gate.give_up() && gate.is_sent());

        let gate = SendGate::default();
        assert!(!gate.give_up() && !gate.give_up());
        assert_eq!(gate.pass(), Err(NotHandedOver::GivenUp));
        assert!(!gate.is_sent() && !gate.give_up());
    }

    #[test]
    fn what_did_not_happen_can_be_handed_over_again_unless_it_was_given_up() {
        let handover = Handover::default();
        handover.take_back();
        assert_eq!(handover.hand_over(), Ok(()));
        handover.take_back();
        assert!(!handover.is_handed_over());
        assert_eq!(handover.hand_over(), Ok(()));
        handover.take_back();
        assert!(!handover.give_up());
        handover.take_back();
        assert_eq!(handover.hand_over(), Err(NotHandedOver::GivenUp));
    }

    /// Promise: at most once. A client that was slow to connect sends nothing for a run whose lease has expired.
    #[test]
    fn a_request_is_not_sent_once_the_lease_of_its_run_has_run_out() {
        let lease = Lease {
            run: RunId::new(),
            fence: 1,
        };
        for (length, ours) in [(Duration::from_secs(60), true), (Duration::ZERO, false)] {
            let hold = Hold::new(lease, length, Arc::new(SystemClock), Instant::now());
            let gate = SendGate::under(Some(&hold));
            assert_eq!(gate.pass().is_ok(), ours);
            assert_eq!(gate.is_sent(), ours);
        }
    }

    /// Promise: at most once. "not sent" is reported only for a request that is not sent, even if both happen at once
    /// on two threads.
    #[test]
    fn giving_up_and_sending_at_the_same_moment_agree() {
        const ROUNDS: usize = 2000;
        let gates: Vec<_> = (0..ROUNDS).map(|_| SendGate::default()).collect();
        let start = Barrier::new(2);
        let (sent, given_up): (Vec<_>, Vec<_>) = std::thread::scope(|scope| {
            let driver = scope.spawn(|| {
                let each = gates.iter().map(|gate| {
                    start.wait();
                    gate.pass().is_ok()
                });
                each.collect()
            });
            let caller = gates.iter().map(|gate| {
                start.wait();
                gate.give_up()
            });
            let caller = caller.collect();
            (driver.join().unwrap(), caller)
        });
        assert_eq!(sent, given_up);
    }
}
