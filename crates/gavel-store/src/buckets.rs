//! The users' quotas on PostgreSQL: port [`Buckets`].
//!
//! A bucket is one number: the time at which it will be full, by the database's clock. The number of tokens follows
//! from it, and taking a token moves it by the refill time of one token. A missing row is a full bucket.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::connect::{Target, timed_out};
use super::db::{Conn, Dialect, Value, sql, values};
use super::error::describe;
use crate::domain::ids::{TenantId, UserId};
use crate::ports::BoxFuture;
use crate::ports::quota::{Ask, Buckets, BucketsUnavailable, Lease};

const CONNECTIONS: usize = 2;
/// Timeout of a statement, including its connection. The caller has stopped waiting long before.
const LIMIT: Duration = Duration::from_secs(2);
const PRUNED_AT_ONCE: usize = 1000;

/// Buckets in the database, on a few separate connections that are opened on demand.
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

impl Buckets for SharedBuckets {
    fn lease<'a>(
        &'a self,
        tenant: &'a TenantId,
        user: &'a UserId,
        ask: Ask,
    ) -> BoxFuture<'a, Result<Lease, BucketsUnavailable>> {
        #[derive(Deserialize)]
        struct Leased {
            leased: i64,
            missing_us: i64,
        }
        let interval = i64::from(ask.interval_us);
        let full = interval * i64::from(ask.burst);
        let values = values![tenant, user, interval, full, ask.returned, ask.waiting, ask.block];
        Box::pin(async move {
            let leased: Vec<Leased> = self.run(lease(), values).await?;
            let leased = leased
                .first()
                .ok_or_else(|| BucketsUnavailable("the lease returned no row".into()))?;
            Ok(Lease {
                tokens: u32::try_from(leased.leased).unwrap_or_default(),
                missing: Duration::from_micros(u64::try_from(leased.missing_us).unwrap_or_default()),
            })
        })
    }

    fn prune(&self) -> BoxFuture<'_, Result<u64, BucketsUnavailable>> {
        // Skips buckets that another transaction has locked.
        let prune = sql!(
            "DELETE FROM quota_bucket WHERE (tenant, user_id) IN (SELECT tenant, user_id FROM quota_bucket \
             WHERE full_at <= @now LIMIT {PRUNED_AT_ONCE} FOR UPDATE SKIP LOCKED) RETURNING leased"
        );
        Box::pin(async move {
            let mut pruned = 0;
            loop {
                let round = self.run::<i64>(prune, vec![]).await?.len();
                pruned += round as u64;
                if round < PRUNED_AT_ONCE {
                    return Ok(pruned);
                }
            }
        })
    }
}

/// $1 tenant, $2 user, $3 refill time of a token, $4 refill time of a full bucket, $5 tokens to put back, $6 tokens for
/// waiting requests, $7 tokens for later requests. Returns the leased tokens, and how long until the bucket is full.
fn lease() -> &'static str {
    // At most as far away as for an empty bucket, so that a clock set back, or a lower limit, does not lock a user out.
    const FULL_AT: &str = "LEAST(GREATEST(quota_bucket.full_at - $5 * $3, @now), @now + $4)";
    fn leased(there: &str) -> String {
        format!("LEAST({there}, GREATEST($6, LEAST($7, {there} / 4)))")
    }
    sql!(
        "INSERT INTO quota_bucket (tenant, user_id, leased, full_at) VALUES ($1, $2, {fresh}, @now + {fresh} * $3) \
         ON CONFLICT (tenant, user_id) DO UPDATE SET leased = {taken}, full_at = {FULL_AT} + {taken} * $3 \
         RETURNING leased, full_at - @now AS missing_us",
        fresh = leased("$4 / $3"),
        taken = leased(&format!("((@now + $4 - {FULL_AT}) / $3)"))
    )
}
