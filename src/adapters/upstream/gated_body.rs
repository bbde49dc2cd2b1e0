//! A request body that records whether the HTTP client has taken it, and that cannot be taken after it was given up.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::ports::runs::Hold;

/// Nothing has happened yet.
const WAITING: u8 = 0;
/// The HTTP client has the body.
const TAKEN: u8 = 1;
/// The caller gave up: the body can no longer be taken.
const GIVEN_UP: u8 = 2;

/// Has the HTTP client taken the body? Until then neither the body nor anything else that a server could act on has
/// left the process.
///
/// A connection may be driven by a different thread than the one that gives up. Taking and giving up are therefore
/// atomic exchanges from the same initial state: the second one sees the first.
#[derive(Clone, Debug, Default)]
pub(in crate::adapters) struct SendGate {
    state: Arc<AtomicU8>,
    /// If set, the body is taken only while this lease is held.
    hold: Option<Hold>,
}

impl SendGate {
    /// For a body that is sent under this lease.
    pub(in crate::adapters) fn under(hold: Option<&Hold>) -> Self {
        Self {
            hold: hold.cloned(),
            ..Self::default()
        }
    }

    pub(in crate::adapters) fn get(&self) -> bool {
        self.state.load(Ordering::Acquire) == TAKEN
    }

    /// Prevents the body from being taken from now on. Returns whether it had already been taken.
    pub(in crate::adapters) fn give_up(&self) -> bool {
        self.leave_waiting(GIVEN_UP) == Err(TAKEN)
    }

    fn take(&self) -> Result<(), NotForSending> {
        if self.hold.as_ref().is_some_and(|hold| !hold.is_ours()) {
            return Err(NotForSending::LeaseLost);
        }
        match self.leave_waiting(TAKEN) {
            Ok(_) => Ok(()),
            Err(GIVEN_UP) => Err(NotForSending::GivenUp),
            Err(_) => Err(NotForSending::Sent),
        }
    }

    fn leave_waiting(&self, next: u8) -> Result<u8, u8> {
        self.state
            .compare_exchange(WAITING, next, Ordering::AcqRel, Ordering::Acquire)
    }
}

/// Why a body was not handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::adapters) enum NotForSending {
    /// The caller no longer waits for the answer.
    #[error("given up before it was sent")]
    GivenUp,
    /// Another process may own the run by now.
    #[error("the lease of the run expired before the request was sent")]
    LeaseLost,
    /// A body with the same [`SendGate`] has already been sent.
    #[error("sent already")]
    Sent,
}

/// A request body in one piece.
pub(in crate::adapters) struct GatedBody {
    bytes: Option<Bytes>,
    gate: SendGate,
}

impl GatedBody {
    pub(in crate::adapters) fn new(bytes: Bytes, gate: &SendGate) -> Self {
        Self {
            bytes: Some(bytes),
            gate: gate.clone(),
        }
    }
}

impl Body for GatedBody {
    type Data = Bytes;
    type Error = NotForSending;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(bytes) = self.bytes.take() else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(self.gate.take().map(|()| Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, Bytes::len) as u64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Barrier;
    use std::task::Waker;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::domain::ids::RunId;
    use crate::ports::clock::SystemClock;
    use crate::ports::runs::Lease;

    /// Polls the body as an HTTP client does; `None` is its end.
    fn poll(body: &mut GatedBody) -> Option<Result<Bytes, NotForSending>> {
        match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(frame) => frame.map(|frame| frame.map(|data| data.into_data().unwrap())),
            Poll::Pending => panic!("a body in one piece is always there"),
        }
    }

    fn body(gate: &SendGate) -> GatedBody {
        GatedBody::new(Bytes::from_static(b"x"), gate)
    }

    #[test]
    fn a_body_is_taken_once_and_what_was_given_up_not_at_all() {
        let gate = SendGate::default();
        let (mut one, mut other) = (body(&gate), body(&gate));
        assert!(!gate.get());
        assert_eq!(poll(&mut one), Some(Ok(Bytes::from_static(b"x"))));
        assert_eq!(poll(&mut one), None);
        assert_eq!(poll(&mut other), Some(Err(NotForSending::Sent)));
        assert!(gate.get() && gate.give_up() && gate.get());

        let gate = SendGate::default();
        let mut late = body(&gate);
        assert!(!gate.give_up() && !gate.give_up());
        assert_eq!(poll(&mut late), Some(Err(NotForSending::GivenUp)));
        assert!(!gate.get() && !gate.give_up());
    }

    /// Promise 3: a client that was slow to connect sends nothing for a run whose lease has expired.
    #[test]
    fn a_body_is_not_taken_once_the_lease_of_its_run_has_run_out() {
        let lease = Lease {
            run: RunId::new(),
            fence: 1,
        };
        for (length, ours) in [(Duration::from_secs(60), true), (Duration::ZERO, false)] {
            let hold = Hold::new(lease, length, Arc::new(SystemClock), Instant::now());
            let gate = SendGate::under(Some(&hold));
            let got = poll(&mut body(&gate));
            assert_eq!(got.unwrap().is_ok(), ours);
            assert_eq!(gate.get(), ours);
        }
    }

    /// Promise 3: "not sent" is reported only for a body that is not sent, even if both happen at once on two threads.
    #[test]
    fn giving_up_and_taking_at_the_same_moment_agree() {
        const ROUNDS: usize = 2000;
        let bodies: Vec<_> = (0..ROUNDS).map(|_| SendGate::default()).collect();
        let start = Barrier::new(2);
        let (sent, given_up): (Vec<_>, Vec<_>) = std::thread::scope(|scope| {
            let driver = scope.spawn(|| {
                let each = bodies.iter().map(|gate| {
                    start.wait();
                    matches!(poll(&mut body(gate)), Some(Ok(_)))
                });
                each.collect()
            });
            let caller = bodies.iter().map(|gate| {
                start.wait();
                gate.give_up()
            });
            let caller = caller.collect();
            (driver.join().unwrap(), caller)
        });
        assert_eq!(sent, given_up);
    }
}
