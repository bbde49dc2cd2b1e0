//! What writers of one store share: the database and the audit log's guard.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::audit::{self, AuditSecrets, Signer, Trail};
use super::super::batch::Batch;
use super::super::connect::{Target, timed_out};
use super::super::db::Conn;
use super::super::error::StoreError;
use super::super::fit;
use super::super::op::{Op, Ticket};
use super::super::pending_cleanup::PendingCleanup;
use super::super::rows::Writing;
use super::super::state::State;
use super::super::transaction::Attempt;
use super::ATTEMPT_TIMEOUT;
use crate::domain::budget::SessionLimits;

/// State shared by all writers of a store.
pub(crate) struct Shared {
    pub(crate) target: Target,
    pub(crate) writing: Writing,
    /// The configured audit keys …
    pub(crate) secrets: AuditSecrets,
    /// … and the key in use, set by the first connection.
    pub(crate) signer: OnceLock<Signer>,
    pub(crate) lease: Duration,
    pub(crate) run_lease: Duration,
    pub(crate) runs_kept: Option<Duration>,
    pub(crate) sessions: SessionLimits,
    /// How long to wait for a process that is migrating.
    pub(crate) migrating: Duration,
    pub(crate) state: State,
    pub(crate) pending_cleanup: PendingCleanup,
    pub(crate) migrated: AtomicBool,
    /// Whether the audit triggers were checked.
    pub(crate) audit_guarded: AtomicBool,
    /// Set before the lease is ended, so that a late connection does not take it again.
    pub(crate) leaving: AtomicBool,
}

impl Shared {
    /// A connection to a migrated database on which this process holds its lease.
    pub(crate) async fn connect(&self) -> Result<Conn, StoreError> {
        let migrating = (!self.migrated.load(Ordering::Acquire)).then_some(self.migrating);
        let (mut conn, _) = fit::connect(&self.target, migrating).await?;
        self.migrated.store(true, Ordering::Release);
        if self.signer.get().is_none() {
            let signer = audit::signer(&self.target, &mut conn, &self.secrets).await?;
            // Another writer may have set it first, to the same key.
            let _ = self.signer.set(signer);
        }
        self.guard_audit(&mut conn).await;
        if self.leaving.load(Ordering::Acquire) {
            return Ok(conn);
        }
        // Before any row of this process: an owner without a lease counts as dead.
        let beat = [Ticket::silent(Op::RenewLease)];
        match tokio::time::timeout(ATTEMPT_TIMEOUT, self.batch().run(&mut conn, &beat)).await {
            Ok(Attempt::Committed(_)) => Ok(conn),
            Ok(Attempt::Failed(fault) | Attempt::Uncertain(fault)) => {
                conn.close().await;
                Err(StoreError::Unavailable(fault.reason().clone()))
            }
            Err(_) => Err(timed_out("taking the lease").into()),
        }
    }

    /// Restores missing or changed audit triggers, once per process. gavel continues if that fails: a record of future
    /// events is worth more than a service that does not start.
    async fn guard_audit(&self, conn: &mut Conn) {
        if self.audit_guarded.load(Ordering::Acquire) {
            return;
        }
        match audit::restore_triggers(conn, &self.batch(), self.migrating).await {
            Ok(found) => {
                self.audit_guarded.store(true, Ordering::Release);
                for damage in found {
                    tracing::error!(
                        trigger = damage.trigger,
                        table = damage.table,
                        was = %damage.state,
                        "audit: gavel restored a trigger that keeps the audit log append-only; find out who changed the \
                         database and run `gavel audit verify`"
                    );
                }
            }
            Err(error) => tracing::error!(
                %error,
                "audit: triggers that keep the audit log append-only are missing or changed, and gavel could not restore \
                 them; until it can, the database does not reject changes of entries"
            ),
        }
    }

    pub(super) fn batch(&self) -> Batch<'_> {
        Batch {
            writing: &self.writing,
            lease: self.lease,
            run_lease: self.run_lease,
            runs_kept: self.runs_kept,
            sessions: self.sessions,
            signer: self.signer.get(),
            trail: Trail::default(),
        }
    }
}
