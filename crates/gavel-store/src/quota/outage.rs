//! Whether the shared buckets are available, judged by the results of the last requests. No I/O.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long buckets that did not answer are not contacted. Then one request tries them.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// When the buckets may be contacted again; `None` while they are available.
pub(super) struct Outage(Mutex<Option<Instant>>);

/// Whether a request may contact the buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// They are available.
    Yes,
    /// They failed recently; this one request checks whether they are available again.
    Probe,
    No,
}

impl Outage {
    pub(super) fn none() -> Self {
        metrics::gauge!("gavel_quota_shared").set(1.0);
        Self(Mutex::new(None))
    }

    pub(super) fn permission(&self, now: Instant) -> Permission {
        let mut until = self.lock();
        match *until {
            None => Permission::Yes,
            Some(time) if now < time => Permission::No,
            Some(_) => {
                *until = Some(now + PAUSE);
                Permission::Probe
            }
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.lock().is_some()
    }

    /// The buckets did not answer, or not in time. Logs only the first failure in a row.
    pub(super) fn failed(&self, reason: &str, now: Instant) {
        if self.lock().replace(now + PAUSE).is_none() {
            metrics::gauge!("gavel_quota_shared").set(0.0);
            tracing::warn!(
                reason,
                "the rate limit is not shared with other replicas; this one counts by itself until the database answers"
            );
        }
    }

    /// The buckets answered in time.
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

    /// A writer that records a subscriber's lines.
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
        assert_eq!(outage.permission(now), Permission::Yes);
        outage.failed("away", now);
        let later = now + PAUSE;
        let asked: Vec<_> = [now, later, later].map(|time| outage.permission(time)).into();
        assert_eq!(asked, [Permission::No, Permission::Probe, Permission::No]);
        assert_eq!(outage.permission(later + PAUSE), Permission::Probe);
        outage.answered();
        assert_eq!(outage.permission(later), Permission::Yes);
    }
}
