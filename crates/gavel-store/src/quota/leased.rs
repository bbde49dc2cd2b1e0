//! Quota across replicas. Each user has a bucket in the database, and a process leases tokens from it: as many as
//! requests wait, or as the user will probably need soon. Using a leased token needs no database access. Neither does a
//! rejection while the bucket is known to be empty.
//!
//! The local limit also counts every admitted request, so one process never admits more than the limit, even if the
//! database fails.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Key;
use super::LocalQuota;
use super::{Allowance, Block, ROUND, Rate};
use crate::domain::ids::{TenantId, UserId};
use crate::ports::BoxFuture;
use crate::ports::quota::{Buckets, Quota, QuotaState};

/// How long a request waits for the buckets. After that only the local limit counts it.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often full buckets are deleted. This also keeps the connections in use.
const PRUNE: Duration = Duration::from_secs(30);

/// A user's limit across all replicas that share a database.
pub struct LeasedQuota {
    local: Arc<LocalQuota>,
    shared: Arc<Shared>,
    /// An entry is cloned only under the lock, and an entry with clones is not removed.
    users: Lock<HashMap<Key, Arc<Mutex<Block>>>>,
    tasks: TaskTracker,
}

/// What a lease needs.
struct Shared {
    buckets: Arc<dyn Buckets>,
    rate: Rate,
    outage: Outage,
    patience: Duration,
}

impl LeasedQuota {
    /// The limit of `local`, shared through `buckets`. Leases run on `tasks`.
    #[must_use]
    pub fn new(local: Arc<LocalQuota>, buckets: Arc<dyn Buckets>, tasks: TaskTracker) -> Self {
        Self::with_patience(local, buckets, tasks, PATIENCE)
    }

    /// As [`LeasedQuota::new`], with a different maximum wait for the buckets.
    #[must_use]
    pub fn with_patience(
        local: Arc<LocalQuota>,
        buckets: Arc<dyn Buckets>,
        tasks: TaskTracker,
        patience: Duration,
    ) -> Self {
        let rate = Rate::new(local.per_minute(), local.burst());
        Self {
            local,
            shared: Arc::new(Shared {
                buckets,
                rate,
                outage: Outage::none(),
                patience,
            }),
            users: Lock::default(),
            tasks,
        }
    }

    /// Puts unused tokens back and drops expired blocks, until `stop`.
    pub async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let rounds = async {
            let mut sweeps = tokio::time::interval(ROUND);
            let mut prunes = tokio::time::interval(PRUNE);
            loop {
                tokio::select! {
                    _ = sweeps.tick() => self.sweep().await,
                    _ = prunes.tick() => self.prune().await,
                }
            }
        };
        tokio::select! {
            () = rounds => {}
            () = stop.cancelled() => {}
        }
    }

    async fn prune(&self) {
        match self.shared.buckets.prune().await {
            Ok(0) => {}
            Ok(buckets) => tracing::debug!(buckets, "deleted full buckets"),
            // The next round retries.
            Err(error) => tracing::debug!(%error, "full buckets could not be deleted"),
        }
    }

    /// One round of putting unused tokens back.
    async fn sweep(&self) {
        let now = Instant::now();
        let over: Vec<_> = {
            let mut over = Vec::new();
            let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
            users.retain(|key, user| {
                // The lock is held by a running lease.
                let Ok(mut block) = user.try_lock() else { return true };
                if !block.has_ended(now) {
                    return true;
                }
                match block.give_back(now) {
                    0 => {}
                    tokens => over.push((key.clone(), tokens)),
                }
                Arc::strong_count(user) > 1
            });
            over
        };
        for ((tenant, user), tokens) in over {
            // The remaining tokens are lost; the buckets refill over time.
            if self.shared.outage.is_on() || now.elapsed() >= ROUND {
                return;
            }
            let ask = self.shared.rate.ask(tokens, 0, 0);
            if let Err(error) = self.shared.buckets.lease(&tenant, &user, ask).await {
                self.shared.outage.failed(&error.to_string(), Instant::now());
            }
        }
    }

    fn user(&self, key: &Key) -> Arc<Mutex<Block>> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        match users.get(key) {
            Some(user) => Arc::clone(user),
            None => Arc::clone(users.entry(key.clone()).or_default()),
        }
    }

    /// The answer of the shared bucket; `None` when it is unavailable.
    async fn ask_store(&self, key: &Key, user: Arc<Mutex<Block>>, permission: Permission) -> Option<Allowance> {
        let rate = self.shared.rate;
        // One lease at a time: other requests wait here, and usually that lease has brought a token for them.
        let mut block = user.lock_owned().await;
        if let Some(reported) = block.spend(Instant::now(), rate) {
            return Some(reported);
        }
        if permission == Permission::Yes && self.shared.outage.is_on() {
            return None;
        }
        // The lease continues when this request no longer waits, so that its tokens are not lost.
        let lease = Arc::clone(&self.shared).lease(key.clone(), block);
        match self.tasks.spawn(lease).await {
            Ok(filled) => {
                let (mut block, now) = filled?;
                block.spend(now, rate)
            }
            Err(error) => {
                self.shared.outage.failed(&error.to_string(), Instant::now());
                None
            }
        }
    }

    /// The stricter of the shared bucket's answer and the local limit.
    fn agreed(&self, key: &Key, reported: Allowance) -> QuotaState {
        if !reported.allowed {
            return self.local.state(false, 0, reported.reset);
        }
        let local = self.local.count(key);
        if !local.allowed || local.remaining < reported.remaining {
            return local;
        }
        self.local.state(true, reported.remaining, reported.reset)
    }
}

impl Shared {
    /// Fills the block of a waiting user and returns it with the time; `None` when the bucket is unavailable.
    async fn lease(
        self: Arc<Self>,
        key: Key,
        mut block: OwnedMutexGuard<Block>,
    ) -> Option<(OwnedMutexGuard<Block>, Instant)> {
        // Each waiting request holds a reference, and the map holds one.
        let waiting = Arc::strong_count(OwnedMutexGuard::mutex(&block)) - 1;
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        let asked = Instant::now();
        let ask = block.ask(asked, waiting, self.rate);
        let answer = self.buckets.lease(&key.0, &key.1, ask).await;
        let now = Instant::now();
        metrics::histogram!("gavel_quota_lease_seconds").record((now - asked).as_secs_f64());
        match answer {
            Ok(lease) => {
                if now - asked <= self.patience {
                    self.outage.answered();
                }
                block.fill(asked, now, lease, self.rate);
                Some((block, now))
            }
            Err(error) => {
                self.outage.failed(&error.to_string(), now);
                None
            }
        }
    }
}

impl Quota for LeasedQuota {
    fn take<'a>(&'a self, tenant: &'a TenantId, user: &'a UserId) -> BoxFuture<'a, QuotaState> {
        let now = Instant::now();
        let key = (tenant.clone(), user.clone());
        let permission = self.shared.outage.permission(now);
        if permission == Permission::No {
            return Box::pin(std::future::ready(self.local.count(&key)));
        }
        let user = self.user(&key);
        // Usually a token is at hand, or the bucket is known to be empty.
        let at_hand = user
            .try_lock()
            .ok()
            .and_then(|mut block| block.spend(now, self.shared.rate));
        if let Some(reported) = at_hand {
            return Box::pin(std::future::ready(self.agreed(&key, reported)));
        }
        Box::pin(async move {
            match tokio::time::timeout(self.shared.patience, self.ask_store(&key, user, permission)).await {
                Ok(Some(reported)) => self.agreed(&key, reported),
                Ok(None) => self.local.count(&key),
                Err(_) => {
                    let reason = format!("no answer within {} ms", self.shared.patience.as_millis());
                    self.shared.outage.failed(&reason, Instant::now());
                    self.local.count(&key)
                }
            }
        })
    }
}

// Whether the shared buckets are available, judged by the results of the last requests. No I/O.

/// How long buckets that did not answer are not contacted. Then one request tries them.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// When the buckets may be contacted again; `None` while they are available.
pub(super) struct Outage(Lock<Option<Instant>>);

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
        Self(Lock::new(None))
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
mod tests;

#[cfg(test)]
mod outage_tests {
    use std::sync::Arc;

    use super::*;

    /// A writer that records a subscriber's lines.
    #[derive(Clone, Default)]
    struct Lines(Arc<Lock<Vec<u8>>>);

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
