//! A sleep that is accurate to about a tenth of a millisecond.
//!
//! The runtime's own timer rounds up to whole milliseconds, which would hide an overhead of one. So one thread waits
//! for the next deadline with the kernel's precision and wakes its sleeper.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{LazyLock, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// A sleeping task. The greatest is the one to wake first, as a heap requires.
struct Sleeper {
    until: Instant,
    wake: oneshot::Sender<()>,
}

impl Ord for Sleeper {
    fn cmp(&self, other: &Self) -> Ordering {
        other.until.cmp(&self.until)
    }
}

impl PartialOrd for Sleeper {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Sleeper {
    fn eq(&self, other: &Self) -> bool {
        self.until == other.until
    }
}

impl Eq for Sleeper {}

static CLOCK: LazyLock<mpsc::Sender<Sleeper>> = LazyLock::new(|| {
    let (sender, bedtime) = mpsc::channel();
    std::thread::spawn(move || watch(&bedtime));
    sender
});

/// Sleeps for `duration`; zero returns at once.
///
/// # Errors
///
/// The waking thread could not be started.
pub(crate) async fn sleep(duration: Duration) -> std::io::Result<()> {
    if duration.is_zero() {
        return Ok(());
    }
    let (wake, woken) = oneshot::channel();
    let until = Instant::now() + duration;
    CLOCK.send(Sleeper { until, wake }).map_err(std::io::Error::other)?;
    woken.await.map_err(std::io::Error::other)
}

fn watch(bedtime: &mpsc::Receiver<Sleeper>) {
    let mut sleeping = BinaryHeap::<Sleeper>::new();
    loop {
        let arrived = match sleeping.peek() {
            None => bedtime.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
            Some(next) => bedtime.recv_timeout(next.until.saturating_duration_since(Instant::now())),
        };
        match arrived {
            Ok(sleeper) => sleeping.push(sleeper),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        while sleeping.peek().is_some_and(|next| next.until <= now) {
            if let Some(sleeper) = sleeping.pop() {
                // The sleeper may have been dropped.
                let _ = sleeper.wake.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleep_is_never_short() {
        for micros in [0, 1, 300, 2_500] {
            let wanted = Duration::from_micros(micros);
            let start = Instant::now();
            sleep(wanted).await.unwrap();
            assert!(start.elapsed() >= wanted, "{wanted:?}");
        }
    }

    #[tokio::test]
    async fn a_short_sleep_does_not_wait_for_a_long_one() {
        let (long, short) = (Duration::from_secs(600), Duration::from_millis(1));
        tokio::select! {
            _ = sleep(long) => panic!("the long one came first"),
            woken = sleep(short) => woken.unwrap(),
        }
    }
}
