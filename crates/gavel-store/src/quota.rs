//! Quota. [`LocalQuota`] counts in this process only. [`SharedQuota`] also takes each request from the user's bucket in
//! the database, which all replicas share, and behaves as the local one while the buckets are unavailable.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use governor::RateLimiter;
use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::DashMapStateStore;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use gavel_upstream::breaker::Breaker;

use super::connect::{Target, timed_out};
use super::db::{Conn, Dialect, Value, sql, values};
use super::error::describe;
use crate::domain::ids::{TenantId, UserId};
use crate::ports::metrics::{Gauge, QUOTA_SECONDS, QUOTA_SHARED};
use crate::ports::quota::{Buckets, BucketsUnavailable, Quota, QuotaState, Rate};

type Limiter =
    RateLimiter<(TenantId, UserId), DashMapStateStore<(TenantId, UserId)>, DefaultClock, StateInformationMiddleware>;

/// Limits each user to a number of requests per minute, and a number at once.
pub struct LocalQuota {
    limiter: Limiter,
    clock: DefaultClock,
    per_minute: NonZeroU32,
    burst: NonZeroU32,
}

impl LocalQuota {
    /// How often inactive users are dropped.
    pub const SWEEP: Duration = Duration::from_secs(30);

    /// `per_minute` requests on average, `burst` at once.
    pub fn new(per_minute: NonZeroU32, burst: NonZeroU32) -> Self {
        let rate = governor::Quota::per_minute(per_minute).allow_burst(burst);
        let limiter = RateLimiter::dashmap(rate).with_middleware::<StateInformationMiddleware>();
        Self {
            limiter,
            clock: DefaultClock::default(),
            per_minute,
            burst,
        }
    }

    /// Drops users whose quota is full again. Without it the map would grow with every user.
    pub fn sweep(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
    }

    fn state(&self, allowed: bool, remaining: u32, reset: Duration) -> QuotaState {
        let reset_s = u32::try_from(reset.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
        QuotaState {
            allowed,
            limit: self.per_minute.get(),
            window_s: 60,
            remaining,
            reset_s,
        }
    }

    fn count(&self, tenant: &TenantId, user: &UserId) -> QuotaState {
        match self.limiter.check_key(&(tenant.clone(), user.clone())) {
            Ok(state) => {
                let remaining = state.remaining_burst_capacity();
                let missing = self.burst.get().saturating_sub(remaining);
                let reset = Duration::from_secs(60) * missing / self.per_minute.get();
                self.state(true, remaining, reset)
            }
            Err(until) => self.state(false, 0, until.wait_time_from(self.clock.now())),
        }
    }
}

#[async_trait]
impl Quota for LocalQuota {
    async fn take(&self, tenant: &TenantId, user: &UserId) -> QuotaState {
        self.count(tenant, user)
    }
}

/// How long a request waits for the buckets. After that only the local limit counts it.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often full buckets are deleted. This also keeps the connections in use.
const PRUNE: Duration = Duration::from_secs(30);
/// How long buckets that did not answer are not contacted. Then one request tries them.
const PAUSE: Duration = Duration::from_secs(1);

/// A user's limit across all replicas that share a database. The local limit counts first. So one process never admits
/// more than the limit, even if the database fails, and a user over the limit costs it no query.
pub struct SharedQuota {
    local: Arc<LocalQuota>,
    buckets: Arc<dyn Buckets>,
    rate: Rate,
    patience: Duration,
    breaker: Breaker,
    /// Queries, also those that no request waits for any more.
    queries: TaskTracker,
}

impl SharedQuota {
    /// The limit of `local`, shared through `buckets`.
    pub fn new(local: Arc<LocalQuota>, buckets: Arc<dyn Buckets>) -> Self {
        Self::with_patience(local, buckets, PATIENCE)
    }

    /// As [`SharedQuota::new`], with a different maximum wait for the buckets.
    pub fn with_patience(local: Arc<LocalQuota>, buckets: Arc<dyn Buckets>, patience: Duration) -> Self {
        QUOTA_SHARED.get().set(1.0);
        let rate = Rate {
            // Rounded up, so that the rate never exceeds the configured one.
            interval_us: 60_000_000_u32.div_ceil(local.per_minute.get()),
            burst: local.burst.get(),
        };
        Self {
            local,
            buckets,
            rate,
            patience,
            breaker: Breaker::new(1, PAUSE..=PAUSE, Gauge::noop()),
            queries: TaskTracker::new(),
        }
    }

    /// Deletes full buckets, until `stop`.
    pub async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(PRUNE);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = stop.cancelled() => break,
            }
            match self.buckets.prune().await {
                Ok(0) => {}
                Ok(buckets) => tracing::debug!(buckets, "deleted full buckets"),
                // The next round retries.
                Err(error) => tracing::debug!(%error, "full buckets could not be deleted"),
            }
        }
        self.queries.close();
        // What is still asked then has no one who waits for it.
        let _ = tokio::time::timeout(PAUSE, self.queries.wait()).await;
    }
}

#[async_trait]
impl Quota for SharedQuota {
    async fn take(&self, tenant: &TenantId, user: &UserId) -> QuotaState {
        let local = self.local.count(tenant, user);
        if !local.allowed {
            return local;
        }
        let Ok(permit) = self.breaker.admit(Instant::now()) else {
            return local;
        };
        let was_away = self.breaker.is_open();
        let asked = Instant::now();
        // The query ends even if this request no longer waits for it, so that its connection remains.
        let (buckets, rate) = (Arc::clone(&self.buckets), self.rate);
        let (tenant, user) = (tenant.clone(), user.clone());
        let taking = self
            .queries
            .spawn(async move { buckets.take(&tenant, &user, rate).await });
        let taken = tokio::time::timeout(self.patience, taking).await;
        QUOTA_SECONDS.get().record(asked.elapsed().as_secs_f64());
        let reason = match taken {
            Ok(Ok(Ok(missing))) => {
                permit.answered();
                if was_away && !self.breaker.is_open() {
                    QUOTA_SHARED.get().set(1.0);
                    tracing::info!("the rate limit is shared with other replicas again");
                }
                let shared = match missing {
                    Some(missing) => self.local.state(true, self.rate.left(missing), missing),
                    None => self.local.state(false, 0, self.rate.time(1)),
                };
                // The stricter of both.
                return match shared.allowed && local.remaining < shared.remaining {
                    true => local,
                    false => shared,
                };
            }
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} ms", self.patience.as_millis()),
        };
        // Logs only the first failure in a row.
        if permit.fault(Instant::now()) && !was_away {
            QUOTA_SHARED.get().set(0.0);
            tracing::warn!(
                reason,
                "the rate limit is not shared with other replicas; this one counts by itself until the database answers"
            );
        }
        local
    }
}

const CONNECTIONS: usize = 2;
/// Timeout of a statement, including its connection. The caller has stopped waiting long before.
const LIMIT: Duration = Duration::from_secs(2);
const PRUNED_AT_ONCE: usize = 1000;

/// The buckets of PostgreSQL, on a few separate connections that are opened on demand.
///
/// A bucket is one number: the time at which it will be full, by the database's clock. The number of tokens follows
/// from it, and taking a token moves it by the refill time of one token. A missing row is a full bucket.
pub struct SharedBuckets {
    target: Target,
    places: Semaphore,
    /// Used in rotation, so that none is idle for long.
    idle: Mutex<VecDeque<Conn>>,
}

impl SharedBuckets {
    /// `None` on SQLite, where each process counts by itself.
    pub(super) fn of(target: &Target) -> Option<Self> {
        match target.dialect() {
            Dialect::Sqlite => None,
            Dialect::Postgres => Some(Self {
                target: target.clone(),
                places: Semaphore::new(CONNECTIONS),
                idle: Mutex::default(),
            }),
        }
    }

    /// Runs a statement and returns its rows.
    async fn run<T: DeserializeOwned + Send>(
        &self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<Vec<T>, BucketsUnavailable> {
        let run = async {
            let _place = self.places.acquire().await;
            let idle = self.idle().pop_front();
            let mut conn = match idle {
                Some(conn) => conn,
                None => self.target.counter(LIMIT).await?,
            };
            let rows = conn.all(sql, values).await?;
            self.idle().push_back(conn);
            Ok(rows)
        };
        let ran = tokio::time::timeout(LIMIT, run).await;
        ran.unwrap_or_else(|_| Err(timed_out("counting a request in the database")))
            .map_err(|error| {
                // The database may have been restarted, and then all idle connections are broken.
                self.idle().clear();
                BucketsUnavailable(describe(&error).into())
            })
    }

    /// Closes the idle connections.
    pub(super) async fn close(&self) {
        let idle = std::mem::take(&mut *self.idle());
        for conn in idle {
            conn.close().await;
        }
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Conn>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Buckets for SharedBuckets {
    async fn take(&self, tenant: &TenantId, user: &UserId, rate: Rate) -> Result<Option<Duration>, BucketsUnavailable> {
        // No bucket has less than nothing. If one seems to, a clock was set back or the limit was lowered: it has a
        // token, so that the user is not locked out.
        const FULL_AT: &str = "CASE WHEN quota_bucket.full_at > @now + $4 THEN @now + $4 - $3 \
             ELSE GREATEST(quota_bucket.full_at, @now) END";
        let take = sql!(
            "INSERT INTO quota_bucket (tenant, user_id, full_at) VALUES ($1, $2, @now + $3) \
             ON CONFLICT (tenant, user_id) DO UPDATE SET full_at = {FULL_AT} + $3 WHERE {FULL_AT} + $3 <= @now + $4 \
             RETURNING full_at - @now"
        );
        let values = values![tenant, user, rate.time(1), rate.time(rate.burst)];
        let missing: Vec<i64> = self.run(take, values).await?;
        let missing = missing.first().copied();
        Ok(missing.map(|us| Duration::from_micros(u64::try_from(us).unwrap_or_default())))
    }

    async fn prune(&self) -> Result<u64, BucketsUnavailable> {
        // Skips buckets that another transaction has locked.
        let prune = sql!(
            "DELETE FROM quota_bucket WHERE (tenant, user_id) IN (SELECT tenant, user_id FROM quota_bucket \
             WHERE full_at <= @now LIMIT {PRUNED_AT_ONCE} FOR UPDATE SKIP LOCKED) RETURNING full_at"
        );
        let mut pruned = 0;
        loop {
            let round = self.run::<i64>(prune, vec![]).await?.len();
            pruned += round as u64;
            if round < PRUNED_AT_ONCE {
                return Ok(pruned);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    fn local(per_minute: u32, burst: u32) -> LocalQuota {
        LocalQuota::new(NonZeroU32::new(per_minute).unwrap(), NonZeroU32::new(burst).unwrap())
    }

    async fn take(quota: &dyn Quota, tenant: &str, user: &str) -> QuotaState {
        quota
            .take(&TenantId::parse(tenant).unwrap(), &UserId::parse(user).unwrap())
            .await
    }

    /// C-US5-3
    #[tokio::test]
    async fn a_burst_is_allowed_then_the_caller_learns_when_to_come_back() {
        let quota = local(60, 3);
        let mut left = Vec::new();
        for _ in 0..3 {
            left.push(take(&quota, "t", "u").await.remaining);
        }
        assert_eq!(left, [2, 1, 0]);
        let over = take(&quota, "t", "u").await;
        assert!(!over.allowed);
        assert_eq!((over.limit, over.window_s, over.reset_s), (60, 60, 1));
    }

    #[tokio::test]
    async fn users_and_tenants_do_not_share_a_quota() {
        let quota = local(60, 1);
        assert!(take(&quota, "t", "ann").await.allowed);
        assert!(take(&quota, "t", "bob").await.allowed);
        assert!(take(&quota, "other", "ann").await.allowed);
        assert!(!take(&quota, "t", "ann").await.allowed);
    }

    #[test]
    fn what_is_missing_tells_what_is_left() {
        let rate = Rate {
            interval_us: 1_000_000,
            burst: 20,
        };
        for (missing_ms, left) in [(0, 20), (1, 19), (19_000, 1), (19_400, 0), (20_000, 0), (99_000, 0)] {
            assert_eq!(rate.left(Duration::from_millis(missing_ms)), left, "{missing_ms}");
        }
    }

    /// Buckets that are always full, or never answer.
    #[derive(Default)]
    struct Fake {
        silent: AtomicBool,
        asked: AtomicU32,
    }

    #[async_trait]
    impl Buckets for Fake {
        async fn take(&self, _: &TenantId, _: &UserId, _: Rate) -> Result<Option<Duration>, BucketsUnavailable> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if self.silent.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            Ok(Some(Duration::ZERO))
        }

        async fn prune(&self) -> Result<u64, BucketsUnavailable> {
            Ok(0)
        }
    }

    fn shared(fake: &Arc<Fake>, burst: u32) -> SharedQuota {
        SharedQuota::new(Arc::new(local(1, burst)), Arc::clone(fake) as Arc<dyn Buckets>)
    }

    /// One request waits 50 ms; later requests do not wait until one per second tries again.
    #[tokio::test]
    async fn buckets_that_are_silent_cost_one_request_a_little_and_are_tried_again() {
        let fake = Arc::new(Fake {
            silent: true.into(),
            ..Fake::default()
        });
        let quota = shared(&fake, 20);
        let begun = Instant::now();
        for _ in 0..10 {
            assert!(take(&quota, "t", "ann").await.allowed);
        }
        assert!(
            (50..250).contains(&begun.elapsed().as_millis()),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(fake.asked.load(Ordering::Relaxed), 1);
        tokio::time::sleep(PAUSE).await;
        for user in ["bob", "cleo"] {
            assert!(take(&quota, "t", user).await.allowed);
        }
        assert_eq!(fake.asked.load(Ordering::Relaxed), 2);
    }

    /// The database holds the buckets, and may be wrong about them. One process still admits no more than the limit.
    #[tokio::test]
    async fn buckets_that_give_too_much_do_not_lift_the_limit_of_a_process() {
        let fake = Arc::new(Fake::default());
        let quota = shared(&fake, 3);
        let mut remaining = Vec::new();
        for _ in 0..3 {
            remaining.push(take(&quota, "t", "ann").await.remaining);
        }
        assert_eq!(remaining, [2, 1, 0]);
        assert!(!take(&quota, "t", "ann").await.allowed);
        assert_eq!(fake.asked.load(Ordering::Relaxed), 3);
    }

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

    #[tokio::test]
    async fn an_outage_is_one_warning_and_its_end_one_line() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let fake = Arc::new(Fake::default());
        let quota = shared(&fake, 20);
        for silent in [false, true, true, false, false] {
            fake.silent.store(silent, Ordering::Relaxed);
            // Another test, which has no subscriber, may have reached a line first and turned it off.
            tracing::callsite::rebuild_interest_cache();
            take(&quota, "t", "ann").await;
            tokio::time::sleep(PAUSE).await;
        }
        assert_eq!(fake.asked.load(Ordering::Relaxed), 5);
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("WARN") && text.contains("reason=\"no answer"), "{text}");
    }
}
