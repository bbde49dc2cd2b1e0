//! Quota for replicas: each user has a bucket in the database, and a process leases tokens from it, as many as wait or
//! as the user is likely to spend in a moment. A token is spent here without the database, and so is the answer that
//! there is none until a certain time.
//!
//! Every admitted request is counted by the local limit too, so one process alone never admits more than the limit,
//! whatever becomes of the database.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as Lock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Key;
use super::block::{Block, ROUND, Rate, Told};
use super::local::LocalQuota;
use super::outage::{Leave, Outage};
use crate::domain::ids::{TenantId, UserId};
use crate::ports::BoxFuture;
use crate::ports::quota::{Buckets, Quota, QuotaState};

/// How long a request waits for the buckets. Then it is counted by the local limit alone.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often buckets that are whole are forgotten; also keeps the connections in use.
const PRUNE: Duration = Duration::from_secs(30);

/// The limit of a user over all replicas of one database.
pub struct LeasedQuota {
    local: Arc<LocalQuota>,
    shared: Arc<Shared>,
    /// Clones are made under the lock only, and an entry that has one is not removed.
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
    /// The limit of `local`, shared by means of `buckets`. Leases run on `tasks`.
    #[must_use]
    pub fn new(local: Arc<LocalQuota>, buckets: Arc<dyn Buckets>, tasks: TaskTracker) -> Self {
        Self::with_patience(local, buckets, tasks, PATIENCE)
    }

    /// As [`LeasedQuota::new`], with another longest wait of a request for the buckets.
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

    /// Puts unspent tokens back and forgets what is over, until `stop`.
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
            Ok(buckets) => tracing::debug!(buckets, "forgot buckets that are whole"),
            // The next round finds them still there.
            Err(error) => tracing::debug!(%error, "no bucket was forgotten"),
        }
    }

    /// One round of putting unspent tokens back.
    async fn sweep(&self) {
        let now = Instant::now();
        let over: Vec<_> = {
            let mut over = Vec::new();
            let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
            users.retain(|key, user| {
                // A lease is under way.
                let Ok(mut block) = user.try_lock() else { return true };
                if !block.is_over(now) {
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
            // The others are lost; they come again by themselves.
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

    /// What the shared bucket says; `None` when it does not answer.
    async fn told(&self, key: &Key, user: Arc<Mutex<Block>>, leave: Leave) -> Option<Told> {
        let rate = self.shared.rate;
        // One lease at a time: the others wait here, and mostly it has brought what they need.
        let mut block = user.lock_owned().await;
        if let Some(told) = block.spend(Instant::now(), rate) {
            return Some(told);
        }
        if leave == Leave::Yes && self.shared.outage.is_on() {
            return None;
        }
        // It goes on when this request no longer waits, so that what it brings is not lost.
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

    /// The local limit's word on a request that the shared bucket admits.
    fn agreed(&self, key: &Key, told: Told) -> QuotaState {
        if !told.allowed {
            return self.local.state(false, 0, told.reset);
        }
        let local = self.local.count(key);
        if !local.allowed || local.remaining < told.remaining {
            return local;
        }
        self.local.state(true, told.remaining, told.reset)
    }
}

impl Shared {
    /// Fills the block of a user who waits for it, and tells when; `None` when the bucket cannot be reached.
    async fn lease(
        self: Arc<Self>,
        key: Key,
        mut block: OwnedMutexGuard<Block>,
    ) -> Option<(OwnedMutexGuard<Block>, Instant)> {
        // Each request that waits has a handle, and the table one.
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
        let leave = self.shared.outage.leave(now);
        if leave == Leave::No {
            return Box::pin(std::future::ready(self.local.count(&key)));
        }
        let user = self.user(&key);
        // Mostly there is a token at hand, or it is known that there is none.
        let at_hand = user
            .try_lock()
            .ok()
            .and_then(|mut block| block.spend(now, self.shared.rate));
        if let Some(told) = at_hand {
            return Box::pin(std::future::ready(self.agreed(&key, told)));
        }
        Box::pin(async move {
            match tokio::time::timeout(self.shared.patience, self.told(&key, user, leave)).await {
                Ok(Some(told)) => self.agreed(&key, told),
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::super::block::HOLD;
    use super::super::outage::PAUSE;
    use super::*;
    use crate::ports::quota::{Ask, BucketsUnavailable, Lease};

    /// Gives what is asked for, or panics, or does not answer the first lease.
    #[derive(Default)]
    struct Fake {
        broken: bool,
        silent: bool,
        leases: AtomicU32,
    }

    impl Buckets for Fake {
        fn lease<'a>(
            &'a self,
            _: &'a TenantId,
            _: &'a UserId,
            ask: Ask,
        ) -> BoxFuture<'a, Result<Lease, BucketsUnavailable>> {
            assert!(!self.broken, "the buckets broke down");
            let first = self.leases.fetch_add(1, Ordering::Relaxed) == 0;
            Box::pin(async move {
                if first && self.silent {
                    std::future::pending::<()>().await;
                }
                Ok(Lease {
                    tokens: ask.waiting,
                    missing: Duration::ZERO,
                })
            })
        }

        fn prune(&self) -> BoxFuture<'_, Result<u64, BucketsUnavailable>> {
            Box::pin(async { Ok(0) })
        }
    }

    fn quota(fake: Arc<Fake>, burst: u32) -> LeasedQuota {
        let local = LocalQuota::new(NonZeroU32::MIN, NonZeroU32::new(burst).unwrap());
        LeasedQuota::new(Arc::new(local), fake, TaskTracker::new())
    }

    async fn take(quota: &LeasedQuota, user: &str) -> QuotaState {
        let (tenant, user) = (TenantId::parse("t").unwrap(), UserId::parse(user).unwrap());
        quota.take(&tenant, &user).await
    }

    /// Promise 5, bounded memory.
    #[tokio::test]
    async fn users_who_are_quiet_take_no_room() {
        let quota = quota(Arc::default(), 20);
        for n in 0..10_000 {
            assert!(take(&quota, &n.to_string()).await.allowed);
        }
        tokio::time::sleep(HOLD).await;
        quota.sweep().await;
        assert!(quota.users.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_lease_that_breaks_down_leaves_the_local_limit() {
        let fake = Fake {
            broken: true,
            ..Fake::default()
        };
        let quota = quota(Arc::new(fake), 2);
        let mut allowed = Vec::new();
        for _ in 0..3 {
            allowed.push(take(&quota, "ann").await.allowed);
        }
        assert_eq!(allowed, [true, true, false]);
    }

    /// One request waits 50 ms; those after it do not, until one in a second tries. A lease that never ends holds up
    /// nobody but its user.
    #[tokio::test]
    async fn buckets_that_are_silent_cost_one_request_a_little_and_are_tried_again() {
        let fake = Arc::new(Fake {
            silent: true,
            ..Fake::default()
        });
        let quota = quota(fake.clone(), 20);
        let begun = Instant::now();
        for _ in 0..10 {
            assert!(take(&quota, "ann").await.allowed);
        }
        assert!(
            (50..250).contains(&begun.elapsed().as_millis()),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(fake.leases.load(Ordering::Relaxed), 1);
        tokio::time::sleep(PAUSE).await;
        for user in ["bob", "cleo"] {
            assert!(take(&quota, user).await.allowed);
        }
        assert_eq!(fake.leases.load(Ordering::Relaxed), 3);
    }

    /// The buckets may be wrong (they are of a database); one process alone still admits no more than the limit.
    #[tokio::test]
    async fn buckets_that_give_too_much_do_not_lift_the_limit_of_a_process() {
        let fake = Arc::new(Fake::default());
        let quota = quota(fake.clone(), 3);
        let mut remaining = Vec::new();
        for _ in 0..3 {
            remaining.push(take(&quota, "ann").await.remaining);
        }
        assert_eq!(remaining, [2, 1, 0]);
        assert!(!take(&quota, "ann").await.allowed);
        assert!(fake.leases.load(Ordering::Relaxed) > 0);
    }
}
