//! The quota that replicas share, on a real PostgreSQL.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gavel::adapters::quota::{LocalQuota, SharedQuota};
use gavel::adapters::store::Store;
use gavel::domain::ids::{TenantId, UserId};
use gavel::ports::quota::{Buckets, BucketsUnavailable, Quota, QuotaState, Rate};
use sqlx::{Connection, PgConnection};
use tokio_util::sync::CancellationToken;

use crate::postgres::Server;
use crate::support::{TestDb, eventually, tenant};

/// Longer than a busy machine takes to answer, so that no test uses the local limit by accident.
const PATIENT: Duration = Duration::from_millis(900);

/// The real buckets, with a count of their queries.
struct Counted {
    buckets: Arc<dyn Buckets>,
    asked: AtomicU32,
    answered: AtomicU32,
}

#[async_trait]
impl Buckets for Counted {
    async fn take(&self, tenant: &TenantId, user: &UserId, rate: Rate) -> Result<Option<Duration>, BucketsUnavailable> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let taken = self.buckets.take(tenant, user, rate).await?;
        self.answered.fetch_add(1, Ordering::Relaxed);
        Ok(taken)
    }

    async fn prune(&self) -> Result<u64, BucketsUnavailable> {
        self.buckets.prune().await
    }
}

/// One of the processes on a database.
struct Replica {
    quota: Arc<SharedQuota>,
    counted: Arc<Counted>,
    stop: CancellationToken,
    _store: Arc<Store>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Replica {
    async fn new(db: &TestDb, per_minute: u32, burst: u32) -> Self {
        Self::with_patience(db, per_minute, burst, PATIENT).await
    }

    async fn with_patience(db: &TestDb, per_minute: u32, burst: u32, patience: Duration) -> Self {
        let store = db.open().await;
        let counted = Arc::new(Counted {
            buckets: store.buckets().unwrap(),
            asked: AtomicU32::new(0),
            answered: AtomicU32::new(0),
        });
        // Opens the first connection, as at the start of the service.
        counted.prune().await.unwrap();
        let number = |n| NonZeroU32::new(n).unwrap();
        let local = Arc::new(LocalQuota::new(number(per_minute), number(burst)));
        let quota = SharedQuota::with_patience(local, counted.clone(), patience);
        let (quota, stop) = (Arc::new(quota), CancellationToken::new());
        tokio::spawn(quota.clone().keep(stop.clone()));
        Self {
            quota,
            counted,
            stop,
            _store: store,
        }
    }

    async fn take(&self, user: &str) -> QuotaState {
        self.quota.take(&tenant(), &UserId::parse(user).unwrap()).await
    }

    /// How many of this number of sequential requests are admitted.
    async fn admitted(&self, user: &str, requests: u32) -> u32 {
        let mut admitted = 0;
        for _ in 0..requests {
            admitted += u32::from(self.take(user).await.allowed);
        }
        admitted
    }

    /// The number of queries to the database.
    fn asked(&self) -> u32 {
        self.counted.asked.load(Ordering::Relaxed)
    }

    fn answered(&self) -> u32 {
        self.counted.answered.load(Ordering::Relaxed)
    }

    /// Waits until the database is asked again, and answers. Each request is of another user, whom the process itself
    /// does not limit.
    async fn shares_again(&self) {
        let (before, users) = (self.answered(), AtomicU32::new(0));
        eventually("shared again", async || {
            let user = users.fetch_add(1, Ordering::Relaxed);
            self.take(&format!("bob-{user}")).await;
            self.answered() > before
        })
        .await;
    }
}

/// Exactly the limit over all replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_200_requests_at_once_two_replicas_admit_the_burst() {
    let db = TestDb::postgres().await;
    // No new token arrives during the test.
    let replicas = [Replica::new(&db, 1, 40).await, Replica::new(&db, 1, 40).await];
    let requests: FuturesUnordered<_> = (0..200).map(|n| replicas[n % 2].take("ann")).collect();
    let states: Vec<_> = requests.collect().await;
    assert_eq!(states.iter().filter(|state| state.allowed).count(), 40);
    for state in states.iter().filter(|state| !state.allowed) {
        assert_eq!((state.limit, state.remaining), (1, 0));
        assert!((55..=60).contains(&state.reset_s), "{state:?}");
    }
    let asked = replicas[0].asked() + replicas[1].asked();
    assert!(asked <= 80, "{asked} queries for 200 requests");
    // Another user's bucket.
    let other = replicas[0].take("bob").await;
    assert!(other.allowed);
    assert_eq!(other.remaining, 39);
}

/// The same with refills. At any time, admissions are limited to the burst and the refill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_replicas_admit_the_configured_rate_over_time() {
    let db = TestDb::postgres().await;
    let mut replicas = Vec::new();
    for _ in 0..3 {
        replicas.push(Replica::new(&db, 600, 20).await);
    }
    let begun = Instant::now();
    let mut admitted = 0;
    // One or two consecutive requests go to the same replica, so that each counts another part.
    for n in 0_usize.. {
        if begun.elapsed() > Duration::from_secs(5) {
            break;
        }
        admitted += replicas[(n * n) % 3].admitted("ann", 1).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let came = begun.elapsed().as_secs_f64() * 10.0;
    let admitted = f64::from(admitted);
    assert!(admitted <= 20.0 + came + 1.0, "{admitted} of 20 and {came}");
    assert!(admitted >= 20.0 + came * 0.8, "{admitted} of 20 and {came}");
}

/// `RateLimit` and `Retry-After` show what is left over all replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_remaining_quota_is_that_of_all_replicas() {
    let db = TestDb::postgres().await;
    let (one, two) = (Replica::new(&db, 30, 3).await, Replica::new(&db, 30, 3).await);
    let first = one.take("ann").await;
    assert_eq!((first.allowed, first.remaining, first.reset_s), (true, 2, 2));
    let second = two.take("ann").await;
    assert_eq!((second.allowed, second.remaining, second.reset_s), (true, 1, 4));
    assert!(two.take("ann").await.allowed);
    let refused = one.take("ann").await;
    assert_eq!((refused.allowed, refused.remaining), (false, 0));
    assert!((1..=2).contains(&refused.reset_s), "{refused:?}");
}

/// A request over the limit must not cost a query.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_user_costs_no_query_until_the_next_token() {
    let db = TestDb::postgres().await;
    let (one, two) = (Replica::new(&db, 20, 1).await, Replica::new(&db, 20, 1).await);
    let begun = Instant::now();
    assert!(one.take("ann").await.allowed);
    for replica in [&one, &two] {
        for _ in 0..10 {
            assert_eq!(replica.admitted("ann", 50).await, 0);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "the machine is too slow for this test"
    );
    assert_eq!((one.asked(), two.asked()), (1, 1));
    tokio::time::sleep(Duration::from_millis(3_100)).await;
    assert_eq!(two.admitted("ann", 1).await, 1);
    assert_eq!(two.asked(), 2);
}

/// A database that does not answer costs a request 50 ms once in a second, and each replica then applies its own limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_table_is_locked_each_replica_counts_by_itself() {
    let db = TestDb::postgres().await;
    let patience = Duration::from_millis(50);
    let replica = Replica::with_patience(&db, 1, 6, patience).await;
    replica.take("ann").await;
    let mut lock = PgConnection::connect(&db.url).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE quota_bucket IN ACCESS EXCLUSIVE MODE")
        .execute(&mut lock)
        .await
        .unwrap();
    let (begun, asked) = (Instant::now(), replica.asked());
    // One was counted before: a process alone admits the whole limit and not more.
    assert_eq!(replica.admitted("ann", 200).await, 5);
    assert!(begun.elapsed() < Duration::from_millis(600), "{:?}", begun.elapsed());
    assert!(replica.asked() - asked <= 2, "{} queries", replica.asked() - asked);
    lock.close().await.unwrap();
    replica.shares_again().await;
}

/// Down, and up again with an empty table, which is not logged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_database_is_unavailable_each_replica_counts_by_itself() {
    let server = tokio::task::spawn_blocking(Server::start_new).await.unwrap();
    let db = TestDb::postgres_at(server.database().await);
    let replica = Replica::new(&db, 1, 6).await;
    assert_eq!(replica.admitted("ann", 2).await, 2);
    server.stop();
    let begun = Instant::now();
    assert_eq!(replica.admitted("ann", 200).await, 4);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    server.start();
    replica.shares_again().await;
    assert_eq!(db.count("SELECT COUNT(*) FROM quota_bucket").await, 1);
    assert_eq!(replica.admitted("ann", 1).await, 0, "its own limit still counts");
}

/// An operator's error does not stop the service, and can be repaired while it runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_table_each_replica_counts_by_itself() {
    let db = TestDb::postgres().await;
    let replica = Replica::new(&db, 1, 3).await;
    db.run("ALTER TABLE quota_bucket RENAME TO mislaid").await;
    assert_eq!(replica.admitted("ann", 100).await, 3);
    assert!(replica.asked() <= 3, "{} queries", replica.asked());
    db.run("ALTER TABLE mislaid RENAME TO quota_bucket").await;
    replica.shares_again().await;
}

/// A jump of the database's clock blocks no user longer than an empty bucket does, and gives no user more than a burst.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_costs_or_gives_no_more_than_a_burst() {
    let db = TestDb::postgres().await;
    let replica = Replica::new(&db, 60, 5).await;
    replica.take("ann").await;
    // Set back by an hour: the bucket seems to be full in an hour, and counts as one with a single token.
    db.run("UPDATE quota_bucket SET full_at = full_at + 3600000000").await;
    assert!(replica.take("ann").await.allowed);
    let refused = replica.take("ann").await;
    assert_eq!((refused.allowed, refused.reset_s), (false, 1));
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    assert!(replica.take("ann").await.allowed);
    // Set forward, as another process sees it, whose own limit is unused.
    let other = Replica::new(&db, 60, 5).await;
    db.run("UPDATE quota_bucket SET full_at = full_at - 3600000000").await;
    let begun = Instant::now();
    let admitted = other.admitted("ann", 50).await;
    let came = u32::try_from(begun.elapsed().as_secs()).unwrap() + 1;
    assert!((5..=5 + came).contains(&admitted), "{admitted}");
}

/// A lowered limit applies to buckets that were created under the higher one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_with_different_limits_share_a_bucket() {
    let db = TestDb::postgres().await;
    let (wide, narrow) = (Replica::new(&db, 1, 100).await, Replica::new(&db, 60, 2).await);
    assert_eq!(wide.admitted("ann", 50).await, 50);
    assert!(narrow.take("ann").await.allowed);
    let refused = narrow.take("ann").await;
    assert_eq!((refused.allowed, refused.reset_s), (false, 1));
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    assert!(narrow.take("ann").await.allowed);
}

/// Promise: bounded faults. Many users take tokens, and a full bucket leaves no row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_users_are_counted_and_forgotten() {
    let db = TestDb::postgres().await;
    let replica = Arc::new(Replica::new(&db, 6000, 5).await);
    let admitted = futures_util::stream::iter(0..10_000)
        .map(|n| {
            let replica = replica.clone();
            async move { replica.take(&format!("user-{n}")).await.allowed }
        })
        .buffer_unordered(50)
        .filter(|allowed| std::future::ready(*allowed))
        .count()
        .await;
    assert_eq!(admitted, 10_000);
    assert_eq!(replica.answered(), 10_000);
    // A bucket that is not full yet stays, and so does one that is in use.
    replica.take("empty").await;
    replica.take("busy").await;
    db.run("UPDATE quota_bucket SET full_at = full_at + 3600000000 WHERE user_id = 'empty'")
        .await;
    let mut taking = PgConnection::connect(&db.url).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT * FROM quota_bucket WHERE user_id = 'busy' FOR UPDATE")
        .execute(&mut taking)
        .await
        .unwrap();
    replica.counted.prune().await.unwrap();
    let left = "SELECT string_agg(user_id, ' ' ORDER BY user_id) FROM quota_bucket";
    assert_eq!(db.line(left).await, "busy empty");
    // Closing alone would release the row only some time later.
    sqlx::raw_sql("ROLLBACK").execute(&mut taking).await.unwrap();
    assert_eq!(replica.counted.prune().await.unwrap(), 1);
    assert_eq!(db.line(left).await, "empty");
}
