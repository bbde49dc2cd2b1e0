//! A sleep that is right to tens of microseconds.
//!
//! The runtime's own timer rounds up to whole milliseconds, which would blur an overhead of one.

use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Sleeps for `duration`; zero returns at once.
///
/// # Errors
/// The kernel gives no timer, as when file descriptors have run out.
pub(crate) async fn sleep(duration: Duration) -> std::io::Result<()> {
    // All zeros would disarm the timer instead of firing it.
    if duration.is_zero() {
        return Ok(());
    }
    let timer = timerfd_create(
        TimerfdClockId::Monotonic,
        TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
    )?;
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let once = Itimerspec {
        it_interval: never,
        it_value: Timespec::try_from(duration).map_err(std::io::Error::other)?,
    };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
    AsyncFd::with_interest(timer, Interest::READABLE)?.readable().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[tokio::test]
    async fn a_sleep_is_never_short() {
        for micros in [0, 1, 300, 2_500] {
            let wanted = Duration::from_micros(micros);
            let start = Instant::now();
            sleep(wanted).await.unwrap();
            assert!(start.elapsed() >= wanted, "{wanted:?}");
        }
    }
}
