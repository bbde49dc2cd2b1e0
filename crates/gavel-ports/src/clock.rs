//! Time, as a port, so that tests do not have to wait.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync {
    /// Wall clock, microseconds since the epoch, UTC.
    fn now_us(&self) -> i64;
    /// Monotonic clock, for deadlines and durations.
    fn instant(&self) -> Instant;
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_us(&self) -> i64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
    fn instant(&self) -> Instant {
        Instant::now()
    }
}
