//! The time limit and cancellation of a call.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// The end of a call: its deadline, or its cancellation. Code that reads or traverses checks it often.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    deadline: Instant,
    cancelled: CancellationToken,
}

impl Budget {
    pub(crate) fn new(time: Duration, cancelled: CancellationToken) -> Self {
        Self {
            deadline: Instant::now() + time,
            cancelled,
        }
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.cancelled.is_cancelled() || Instant::now() >= self.deadline
    }
}

/// A reader that fails once the budget is exhausted.
#[derive(Debug)]
pub(crate) struct Bounded<'a, R> {
    pub(crate) inner: R,
    pub(crate) budget: &'a Budget,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.budget.is_exhausted() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.inner.read(buffer)
    }
}
