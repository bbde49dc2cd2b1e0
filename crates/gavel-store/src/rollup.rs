//! Counts the quarters of an hour that changed, once they have ended. Triggers leave a mark for each change of a row. A
//! count takes the marks of a quarter, reads the log, and writes what it counted, unless another count has taken them since. A
//! change that comes in between leaves a further mark, so that nothing counts twice or never: statistics read a quarter
//! with a mark from the log.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::db::{Conn, Dialect, Value, values};
use super::error::{Fault, unavailable};
use super::op::Op;
use super::queue::{Batch, Queue};
use super::read::{COUNTED, Counted, ReadOnly};
use super::table::Insert;
use crate::domain::ids::TenantId;
use crate::ports::records::RecordError;
use crate::ports::stats::Tally;

/// Time between two looks for quarters that changed, which is also how long a quarter must have ended.
const PERIOD: Duration = Duration::from_secs(60);
/// Quarters of one look.
const AT_ONCE: usize = 32;

/// A quarter of a tenant.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Taken {
    tenant: TenantId,
    quarter: i64,
}

/// What was counted of a quarter, for each of [`COUNTED`].
#[derive(Debug)]
pub(super) struct Quarter {
    of: Taken,
    tallies: Vec<Vec<Tally>>,
}

/// Counts until `stop`.
pub(super) async fn keep(queue: Queue, reading: Arc<ReadOnly>, stop: CancellationToken) {
    let counting = async {
        loop {
            match count(&queue, &reading).await {
                Ok(AT_ONCE..) => continue,
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "quarters were not counted; statistics read them from the log");
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    };
    stop.run_until_cancelled(counting).await;
}

/// Counts some quarters that changed; returns how many.
async fn count(queue: &Queue, reading: &ReadOnly) -> Result<usize, RecordError> {
    let taker = Uuid::now_v7();
    let taken = queue.ask::<Vec<Taken>>(Op::TakeQuarters(taker)).await?;
    let found = taken.len();
    for of in taken {
        let mut tallies = Vec::new();
        for counted in COUNTED {
            let counted = reading.count_quarter(counted, &of.tenant, of.quarter).await;
            tallies.push(counted.map_err(unavailable)?);
        }
        let quarter = Box::new(Quarter { of, tallies });
        queue.ask::<()>(Op::PutQuarter(taker, quarter)).await?;
    }
    Ok(found)
}

/// The statements that write the rows of [`COUNTED`].
static INSERTS: LazyLock<Vec<Insert>> = LazyLock::new(|| COUNTED.iter().map(|counted| insert(counted)).collect());

fn insert(counted: &Counted) -> Insert {
    let sums = counted.sums.iter().map(|(name, _)| *name);
    let hists = counted.lengths.iter().map(|(_, name, _)| *name);
    let columns = ["tenant", "quarter"].into_iter().chain(counted.by.iter().copied());
    let columns: Vec<_> = columns.chain(["n"]).chain(sums).chain(hists).collect();
    let row = vec!["?"; columns.len()].join(", ");
    Insert::new(
        &format!("INSERT INTO {} ({})", counted.rollup, columns.join(", ")),
        &format!("({row})"),
        "",
    )
}

impl Batch<'_> {
    /// Takes the marks of quarters that have ended, oldest first.
    pub(super) async fn take_quarters(&self, conn: &mut Conn, taker: Uuid) -> Result<Vec<Taken>, Fault> {
        if conn.dialect() == Dialect::Postgres {
            let lock = "SELECT pg_advisory_xact_lock(hashtextextended('stats', 0))";
            conn.execute(lock, vec![]).await?;
        }
        let counted_for_good = "DELETE FROM stats_dirty WHERE quarter < (SELECT quarter FROM stats_final)";
        conn.execute(counted_for_good, vec![]).await?;
        let ended = "SELECT DISTINCT tenant, quarter FROM stats_dirty WHERE quarter < (@now - $1) / 900000000 \
                     ORDER BY quarter, tenant LIMIT $2";
        let taken: Vec<Taken> = conn.all(ended, values![PERIOD, AT_ONCE as u64]).await?;
        for of in &taken {
            let take = "UPDATE stats_dirty SET taken = $3 WHERE tenant = $1 AND quarter = $2";
            conn.execute(take, values![&of.tenant, of.quarter, taker]).await?;
        }
        Ok(taken)
    }

    /// Writes a count, unless another one has taken the marks.
    pub(super) async fn put_quarter(&self, conn: &mut Conn, taker: Uuid, quarter: &Quarter) -> Result<(), Fault> {
        let Quarter { of, tallies } = quarter;
        let settle = "DELETE FROM stats_dirty WHERE tenant = $1 AND quarter = $2 AND taken = $3";
        if conn.execute(settle, values![&of.tenant, of.quarter, taker]).await? == 0 {
            return Ok(());
        }
        for ((counted, insert), tallies) in COUNTED.iter().zip(INSERTS.iter()).zip(tallies) {
            let before = format!("DELETE FROM {} WHERE tenant = $1 AND quarter = $2", counted.rollup);
            conn.execute(before, values![&of.tenant, of.quarter]).await?;
            let mut rows = Vec::new();
            for tally in tallies {
                rows.extend(values![&of.tenant, of.quarter]);
                rows.extend(tally.by.iter().map(|value| Value::from(value.as_ref())));
                rows.push(tally.count.into());
                rows.extend(tally.sums.iter().map(|sum| Value::from(*sum)));
                rows.extend(tally.lengths.iter().map(|lengths| Value::from(lengths.to_string())));
            }
            insert.run(conn, rows).await?;
        }
        Ok(())
    }
}
