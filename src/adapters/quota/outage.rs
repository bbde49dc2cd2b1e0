//! Do the shared buckets answer? Told by what the last requests met; no I/O.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long buckets that did not answer are left alone. Then one request tries them.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// When the buckets may be asked again; `None` while they answer.
pub(super) struct Outage(Mutex<Option<Instant>>);

/// Leave to ask the buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// They answer.
    Yes,
    /// They did not answer lately, and this one request finds out whether they do now.
    Probe,
    No,
}

impl Outage {
    pub(super) fn none() -> Self {
        metrics::gauge!("gavel_quota_shared").set(1.0);
        Self(Mutex::new(None))
    }

    pub(super) fn leave(&self, now: Instant) -> Leave {
        let mut until = self.lock();
        match *until {
            None => Leave::Yes,
            Some(time) if now < time => Leave::No,
            Some(_) => {
                *until = Some(now + PAUSE);
                Leave::Probe
            }
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.lock().is_some()
    }

    /// They did not answer, or not in time. Only the first of a row is worth a line.
    pub(super) fn failed(&self, reason: &str, now: Instant) {
        if self.lock().replace(now + PAUSE).is_none() {
            metrics::gauge!("gavel_quota_shared").set(0.0);
            tracing::warn!(
                reason,
                "the rate limit is not shared with other replicas; this one counts by itself until the database answers"
            );
        }
    }

    /// They answered in time.
    pub(super) fn answered(&self) {
        if self.lock().take().is_some() {
            metrics::gauge!("gavel_quota_shared").set(1.0);
            tracing::info!("the rate limit is shared with other replicas again");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Where a subscriber writes.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_outage_is_one_warning_and_its_end_one_line() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let (outage, now) = (Outage::none(), Instant::now());
            outage.answered();
            (0..10).for_each(|_| outage.failed("away", now));
            (0..10).for_each(|_| outage.answered());
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("WARN") && text.contains("reason=\"away\""), "{text}");
    }

    #[test]
    fn after_a_pause_one_request_tries_and_the_others_go_on_without() {
        let (outage, now) = (Outage::none(), Instant::now());
        assert_eq!(outage.leave(now), Leave::Yes);
        outage.failed("away", now);
        let later = now + PAUSE;
        let asked: Vec<_> = [now, later, later].map(|time| outage.leave(time)).into();
        assert_eq!(asked, [Leave::No, Leave::Probe, Leave::No]);
        assert_eq!(outage.leave(later + PAUSE), Leave::Probe);
        outage.answered();
        assert_eq!(outage.leave(later), Leave::Yes);
    }
}
