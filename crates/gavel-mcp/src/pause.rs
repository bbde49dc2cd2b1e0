//! How long a link waits before it reconnects.

use std::time::{Duration, Instant};

/// Pauses between attempts: doubled each time, with jitter.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// The same after a fault that another attempt does not change.
const FIRST_LASTING: Duration = Duration::from_secs(10);
const LONGEST_LASTING: Duration = Duration::from_secs(300);

/// Growing pauses.
#[derive(Default)]
pub(super) struct Pause {
    faults: u32,
    lasting: u32,
}

impl Pause {
    /// The pause after a fault. `lasting` means that the server's program or the configuration is at fault, so that
    /// another attempt changes nothing.
    pub(super) fn after(&mut self, lasting: bool) -> Duration {
        let longest = match lasting {
            true => doubled(FIRST_LASTING, &mut self.lasting, LONGEST_LASTING),
            false => {
                self.lasting = 0;
                doubled(FIRST, &mut self.faults, LONGEST)
            }
        };
        // Between half and the full pause, so that replicas that lost a server together do not reconnect together.
        longest.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

fn doubled(first: Duration, times: &mut u32, longest: Duration) -> Duration {
    let pause = first.saturating_mul(1 << (*times).min(10)).min(longest);
    *times += 1;
    pause
}

/// How long a list of tools must remain unchanged before it is read, because changes come in bursts. A server that
/// reports a change after every read is asked less and less often.
#[derive(Debug)]
pub(super) struct Settle {
    pause: Duration,
    read: Option<Instant>,
}

impl Settle {
    pub(super) const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(60);
    /// A list without changes for this long is settled.
    const QUIET: Duration = Duration::from_secs(1);

    pub(super) fn new() -> Self {
        Self {
            pause: Self::FIRST,
            read: None,
        }
    }

    /// The pause after a change that was reported at `now`.
    pub(super) fn after(&mut self, now: Instant) -> Duration {
        let is_at_once = self.read.is_some_and(|read| now.duration_since(read) < Self::QUIET);
        self.pause = match is_at_once {
            true => (self.pause * 2).min(Self::LONGEST),
            false => Self::FIRST,
        };
        self.pause
    }

    /// Records that the list was read.
    pub(super) fn is_read(&mut self, now: Instant) {
        self.read = Some(now);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        for (lasting, first, longest) in [(false, FIRST, LONGEST), (true, FIRST_LASTING, LONGEST_LASTING)] {
            let mut pause = Pause::default();
            let pauses: Vec<_> = (0..12).map(|_| pause.after(lasting)).collect();
            assert!(pauses[0] >= first / 2 && pauses[0] <= first);
            assert!(pauses[3] >= first * 4 && pauses[3] <= first * 8);
            assert!(pauses[11] <= longest && pauses[11] >= longest / 2);
        }
    }

    #[test]
    fn a_list_that_changes_on_every_read_is_read_with_growing_intervals() {
        let mut settle = Settle::new();
        let mut now = Instant::now();
        assert_eq!(settle.after(now), Settle::FIRST);
        settle.is_read(now);
        let pauses: Vec<_> = (0..12)
            .map(|_| {
                let pause = settle.after(now);
                now += pause;
                settle.is_read(now);
                pause
            })
            .collect();
        assert_eq!(pauses[0], Settle::FIRST * 2);
        assert_eq!(pauses[11], Settle::LONGEST);
        assert_eq!(settle.after(now + Settle::QUIET), Settle::FIRST, "it was quiet");
    }
}
