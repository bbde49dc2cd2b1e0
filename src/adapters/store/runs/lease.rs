//! The leases of runs: taken, held, renewed, returned.

use std::collections::BTreeSet;

use uuid::Uuid;

use super::super::batch::Batch;
use super::super::db::{Conn, Value};
use super::super::error::Fault;
use super::values::{each, id, int, many, parse};
use crate::domain::ids::RunId;
use crate::ports::runs::{Lease, Renewed};

impl Batch<'_> {
    /// The last position in the event log of the lease's run, and whether processes count as lost there; `None` if the
    /// lease is not held, or the run under it is not running anymore.
    pub(in super::super) async fn holds(
        &self,
        conn: &mut Conn,
        lease: Lease,
        run: RunId,
    ) -> Result<Option<(u64, bool)>, Fault> {
        let values = vec![id(lease.run), int(lease.fence), self.writing.owner.clone(), id(run)];
        let Some(held) = conn.first(&self.texts().holds, values).await? else {
            return Ok(None);
        };
        Ok(Some((held.int(1)?.unsigned_abs(), held.int(2)? > 0)))
    }

    pub(in super::super) async fn take(
        &self,
        conn: &mut Conn,
        run: RunId,
        lease: Uuid,
    ) -> Result<Option<Lease>, Fault> {
        let lease_id = id(lease);
        let values = vec![
            id(run),
            self.writing.owner.clone(),
            lease_id.clone(),
            self.lease_length(),
        ];
        let mut taken = conn.first(&self.texts().take, values).await?;
        if taken.is_none() {
            // This process may have taken it, in a commit that was not acknowledged.
            taken = conn.first(&self.texts().taken, vec![id(run), lease_id]).await?;
        }
        let fence = taken.map(|row| row.int(0)).transpose()?;
        Ok(fence.map(|fence| Lease { run, fence }))
    }

    pub(in super::super) async fn renew(&self, conn: &mut Conn, leases: &[Lease]) -> Result<Renewed, Fault> {
        let runs: BTreeSet<_> = leases.iter().map(|lease| lease.run).collect();
        let runs: Vec<_> = runs.into_iter().collect();
        let mut held = BTreeSet::new();
        let mut renewed = Renewed::default();
        for runs in many(&runs) {
            let mut values = vec![self.lease_length(); 4];
            values.push(self.writing.owner.clone());
            values.extend(runs.clone());
            each(conn, &self.texts().renew, values, |row| {
                held.insert((row.text(0)?, row.int(1)?));
                Ok(())
            })
            .await?;
            let mut cancelled = Vec::new();
            each(conn, &self.texts().cancelled, runs, |row| {
                cancelled.push(row.text(0)?);
                Ok(())
            })
            .await?;
            for run in cancelled {
                renewed.cancelled.push(parse(&run, RunId::parse)?);
            }
        }
        let lost = leases
            .iter()
            .filter(|lease| !held.contains(&(lease.run.to_string(), lease.fence)));
        renewed.lost = lost.copied().collect();
        Ok(renewed)
    }

    pub(in super::super) fn lease_length(&self) -> Value {
        int(i64::try_from(self.run_lease.as_micros()).unwrap_or(i64::MAX / 2))
    }
}
