//! A request body that tells whether it was taken, and cannot be taken once it was given up.

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
/// Nobody may take it any more.
const GIVEN_UP: u8 = 2;

/// Has the HTTP client taken the body? Until then nothing of it, and nothing a server could act on,
/// has left the process.
///
/// A connection may be driven by another thread than the one that gives up. So taking and giving up
/// are one exchange each out of the same first state: whichever comes second learns of the other.
#[derive(Clone, Debug, Default)]
pub(in crate::adapters) struct Taken {
    state: Arc<AtomicU8>,
    /// Without this lease it is not taken.
    hold: Option<Hold>,
}

impl Taken {
    /// Of a body that is sent under this lease.
    pub(in crate::adapters) fn under(hold: Option<&Hold>) -> Self {
        Self {
            hold: hold.cloned(),
            ..Self::default()
        }
    }

    pub(in crate::adapters) fn get(&self) -> bool {
        self.state.load(Ordering::Acquire) == TAKEN
    }

    /// Makes sure that the body is not taken from now on; tells whether it was before.
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
    /// Nobody waits for the answer.
    #[error("given up before it was sent")]
    GivenUp,
    /// The run that it belongs to may be another process's by now.
    #[error("the lease of the run was over before it was sent")]
    LeaseLost,
    /// A body with the same [`Taken`] is already on its way.
    #[error("sent already")]
    Sent,
}

/// A request body in one piece.
pub(in crate::adapters) struct Watched {
    bytes: Option<Bytes>,
    taken: Taken,
}

impl Watched {
    pub(in crate::adapters) fn new(bytes: Bytes, taken: &Taken) -> Self {
        Self {
            bytes: Some(bytes),
            taken: taken.clone(),
        }
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = NotForSending;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(bytes) = self.bytes.take() else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(self.taken.take().map(|()| Frame::data(bytes))))
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

    /// What a client gets that asks for the body; `None` is its end.
    fn poll(body: &mut Watched) -> Option<Result<Bytes, NotForSending>> {
        match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(frame) => frame.map(|frame| frame.map(|data| data.into_data().unwrap())),
            Poll::Pending => panic!("a body in one piece is always there"),
        }
    }

    fn body(taken: &Taken) -> Watched {
        Watched::new(Bytes::from_static(b"x"), taken)
    }

    #[test]
    fn a_body_is_taken_once_and_what_was_given_up_not_at_all() {
        let taken = Taken::default();
        let (mut one, mut other) = (body(&taken), body(&taken));
        assert!(!taken.get());
        assert_eq!(poll(&mut one), Some(Ok(Bytes::from_static(b"x"))));
        assert_eq!(poll(&mut one), None);
        assert_eq!(poll(&mut other), Some(Err(NotForSending::Sent)));
        assert!(taken.get() && taken.give_up() && taken.get());

        let taken = Taken::default();
        let mut late = body(&taken);
        assert!(!taken.give_up() && !taken.give_up());
        assert_eq!(poll(&mut late), Some(Err(NotForSending::GivenUp)));
        assert!(!taken.get() && !taken.give_up());
    }

    /// Promise 3: a client that took long to connect sends nothing for a run that may be another process's by then.
    #[test]
    fn a_body_is_not_taken_once_the_lease_of_its_run_has_run_out() {
        let lease = Lease {
            run: RunId::new(),
            fence: 1,
        };
        for (length, ours) in [(Duration::from_secs(60), true), (Duration::ZERO, false)] {
            let hold = Hold::new(lease, length, Arc::new(SystemClock), Instant::now());
            let taken = Taken::under(Some(&hold));
            let got = poll(&mut body(&taken));
            assert_eq!(got.unwrap().is_ok(), ours);
            assert_eq!(taken.get(), ours);
        }
    }

    /// Promise 3: "not sent" is said only of what is not sent, also when both happen at once on two threads.
    #[test]
    fn giving_up_and_taking_at_the_same_moment_agree() {
        const ROUNDS: usize = 2000;
        let bodies: Vec<_> = (0..ROUNDS).map(|_| Taken::default()).collect();
        let start = Barrier::new(2);
        let (sent, given_up): (Vec<_>, Vec<_>) = std::thread::scope(|scope| {
            let driver = scope.spawn(|| {
                let each = bodies.iter().map(|taken| {
                    start.wait();
                    matches!(poll(&mut body(taken)), Some(Ok(_)))
                });
                each.collect()
            });
            let caller = bodies.iter().map(|taken| {
                start.wait();
                taken.give_up()
            });
            let caller = caller.collect();
            (driver.join().unwrap(), caller)
        });
        assert_eq!(sent, given_up);
    }
}
