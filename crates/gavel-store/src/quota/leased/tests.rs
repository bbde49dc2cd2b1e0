//! Leased tokens, with a database that is slow, silent or too generous.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::HOLD;
use super::PAUSE;
use super::*;
use crate::ports::quota::{Ask, BucketsUnavailable, Lease};

/// Grants the waiting tokens, panics, or never answers the first lease.
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

/// Promise: bounded faults.
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

/// One request waits 50 ms; later requests do not wait until one per second tries again. A lease that never ends
/// blocks only its own user.
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

/// The buckets may return too many tokens (the database holds them). One process still admits no more than the
/// limit.
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
