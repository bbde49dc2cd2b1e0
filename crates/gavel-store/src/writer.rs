//! The group-commit writer: everything that is queued goes into one transaction immediately; there is no timer. At low
//! load that is one decision per commit, under load as many as arrived during the last commit.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use super::audit::{self, Signer, Trail};
use super::config::StoreConfig;
use super::connect::{self, Target, timed_out};
use super::db::{Conn, Dialect};
use super::error::{Fault, StoreError};
use super::metrics::Failure;
use super::op::{Done, Op, Ticket};
use super::queue::{Batch, PendingCleanup};
use super::table::Writing;
use super::texts::Known;
use super::transaction::Attempt;
use crate::ports::claims::Claimed;
use crate::ports::metrics::{STORE_COMMIT, STORE_OPS, STORE_QUEUE, STORE_REDONE, STORE_UP};
use crate::ports::records::RecordError;

/// Maximum ops of one transaction.
const MAX_BATCH: usize = 256;
/// Maximum number of unwritten ops that are kept for a retry after their callers gave up. Beyond it, ops are left to
/// recovery.
const MAX_KEPT: usize = 2048;
/// Shortest and longest pause between two attempts while the database is unavailable.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));
/// Timeout of a transaction on PostgreSQL; after it the connection is dropped.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// SQLite's log is moved into the database after this many ops (about twelve pages each), once the queue has been empty
/// for this long. A commit during the move waits for two disk syncs. Without such a pause, SQLite does it within a
/// commit when the log is long (`connect`).
const TIDY: (usize, Duration) = (64, Duration::from_millis(20));
/// How long a stopping writer retries ops that must be written.
const LAST_TRIES: Duration = Duration::from_secs(5);

/// One of the tasks that take tickets from the queue.
pub(super) struct Writer {
    shared: Arc<Shared>,
    queue: Arc<Mutex<mpsc::Receiver<Ticket>>>,
    conn: Option<Conn>,
    pending: VecDeque<Ticket>,
    stop: CancellationToken,
    /// SQLite: ops committed since its log was last moved into the database.
    in_the_log: usize,
}

impl Writer {
    /// `conn` comes from [`Shared::connect`]; without one the writer connects on demand.
    pub(super) fn new(
        shared: Arc<Shared>,
        queue: Arc<Mutex<mpsc::Receiver<Ticket>>>,
        conn: Option<Conn>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            stop,
            shared,
            queue,
            conn,
            pending: VecDeque::new(),
            in_the_log: 0,
        }
    }

    /// Runs until it is stopped and the queue is empty.
    pub(super) async fn run(mut self) {
        let mut pause = RETRY.0;
        let mut last_tries: Option<Instant> = None;
        loop {
            if self.pending.is_empty() {
                if !self.take().await {
                    break;
                }
            } else {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY.1);
                if !self.top_up() && last_tries.get_or_insert_with(Instant::now).elapsed() > LAST_TRIES {
                    tracing::error!(
                        count = self.pending.len(),
                        "the writer ended with unwritten records; recovery will close open records"
                    );
                    break;
                }
            }
            self.forget_unwanted();
            if self.write().await.is_ok() {
                pause = RETRY.0;
            }
        }
        if let Some(conn) = self.conn.take() {
            conn.close().await;
        }
    }

    /// Waits for tickets; false when there will be none.
    async fn take(&mut self) -> bool {
        let mut batch = Vec::new();
        let mut queue = self.queue.lock().await;
        let received = tokio::select! {
            biased;
            received = queue.recv_many(&mut batch, MAX_BATCH) => received,
            () = self.stop.cancelled() => {
                // Queued tickets are still written; later ones are rejected.
                queue.close();
                queue.recv_many(&mut batch, MAX_BATCH).await
            }
            () = tokio::time::sleep(TIDY.1), if self.in_the_log >= TIDY.0 => {
                drop(queue);
                self.tidy().await;
                return true;
            }
        };
        if received == 0 {
            return false;
        }
        // Lets other tasks that are ready send before the transaction begins.
        tokio::task::yield_now().await;
        while batch.len() < MAX_BATCH {
            match queue.try_recv() {
                Ok(ticket) => batch.push(ticket),
                Err(_) => break,
            }
        }
        STORE_QUEUE.get().set(depth(queue.len()));
        drop(queue);
        self.pending.extend(batch);
        true
    }

    /// Moves SQLite's log into the database.
    async fn tidy(&mut self) {
        self.in_the_log = 0;
        let Some(conn) = &mut self.conn else { return };
        let moved = conn.first("PRAGMA wal_checkpoint(PASSIVE)", vec![]).await;
        if let Err(error) = moved {
            tracing::debug!(%error, "SQLite's log could not be moved into the database; SQLite will do it within a commit");
        }
    }

    /// Makes room in the queue while the database is unavailable. False when the queue is closed.
    fn top_up(&mut self) -> bool {
        let stopping = self.stop.is_cancelled();
        let Ok(mut queue) = self.queue.try_lock() else {
            return !stopping;
        };
        if stopping {
            queue.close();
        }
        loop {
            match queue.try_recv() {
                Ok(ticket) => self.pending.push_back(ticket),
                Err(mpsc::error::TryRecvError::Empty) => return true,
                Err(mpsc::error::TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Drops ops whose callers gave up and that need not be written; limits the number of the others.
    fn forget_unwanted(&mut self) {
        let mut followups = Vec::new();
        self.pending.retain(|ticket| {
            let wanted = ticket.wanted();
            if !wanted && ticket.uncertain {
                followups.extend(ticket.op.outcome_unknown());
            }
            wanted
        });
        self.pending.extend(
            followups
                .into_iter()
                .map(|cleanup| Ticket::silent(Op::Cleanup(cleanup))),
        );
        while self.pending.len() > MAX_KEPT {
            if let Some(ticket) = self.pending.pop_front() {
                self.give_up(ticket, &"too many records wait for the database".into());
            }
        }
    }

    /// Writes pending ops in batches. After an error the rest remains pending. Of a batch that was rejected because of one
    /// row, each op gets its own transaction.
    async fn write(&mut self) -> Result<(), ()> {
        let mut alone = 0;
        while !self.pending.is_empty() {
            let together = self.pending.iter().take(MAX_BATCH);
            let size = match together.take_while(|ticket| !ticket.op.is_alone()).count() {
                _ if alone > 0 => 1,
                size => size.max(1),
            };
            alone -= size.min(alone);
            let mut batch: Vec<Ticket> = self.pending.drain(..size).collect();
            let (fault, uncertain) = match self.attempt(&batch).await {
                Attempt::Committed(done) => {
                    self.answer(batch, done);
                    continue;
                }
                Attempt::Failed(fault) => (fault, false),
                Attempt::Uncertain(fault) => (fault, true),
            };
            match fault {
                Fault::Unavailable(reason) => return self.keep(batch, &reason, uncertain),
                Fault::Refused(_) if size > 1 => {
                    STORE_REDONE.get().increment(1);
                    alone = size;
                    batch
                        .into_iter()
                        .rev()
                        .for_each(|ticket| self.pending.push_front(ticket));
                }
                Fault::Refused(reason) => batch.drain(..).for_each(|ticket| self.refuse(ticket, &reason)),
            }
        }
        Ok(())
    }

    /// Runs one transaction. Connects if there is no connection, and drops a connection that is in an unknown state.
    async fn attempt(&mut self, batch: &[Ticket]) -> Attempt {
        let start = Instant::now();
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => match self.shared.connect().await {
                Ok(conn) => conn,
                Err(error) => {
                    let reason: Arc<str> = error.to_string().into();
                    self.shared.state.faulted(&reason);
                    Failure::Connect.count();
                    return Attempt::Failed(Fault::Unavailable(reason));
                }
            },
        };
        let attempt = match conn.dialect() {
            // Its only unbounded wait is for the disk; callers have their own deadlines.
            Dialect::Sqlite => self.shared.batch().run(&mut conn, batch).await,
            Dialect::Postgres => {
                match tokio::time::timeout(ATTEMPT_TIMEOUT, self.shared.batch().run(&mut conn, batch)).await {
                    Ok(attempt) => attempt,
                    Err(_) => {
                        // The state of the transaction is unknown, so the connection is dropped, not reused.
                        drop(conn);
                        let fault = timed_out("a transaction").into();
                        // Without a COMMIT, the transaction ends with its connection.
                        return match batch.iter().any(Ticket::is_committing) {
                            true => Attempt::Uncertain(fault),
                            false => Attempt::Failed(fault),
                        };
                    }
                }
            }
        };
        let fault = match &attempt {
            Attempt::Committed(_) => {
                if conn.dialect() == Dialect::Sqlite {
                    self.in_the_log += batch.len();
                }
                self.conn = Some(conn);
                self.shared.state.committed();
                STORE_COMMIT.get().record(start.elapsed().as_secs_f64());
                STORE_OPS.get().record(depth(batch.len()));
                return attempt;
            }
            Attempt::Failed(fault) | Attempt::Uncertain(fault) => fault,
        };
        self.shared.state.faulted(fault.reason());
        let kind = match fault {
            Fault::Unavailable(_) => Failure::Unavailable,
            Fault::Refused(_) => Failure::Refused,
        };
        kind.count();
        let Some((conn, was_open)) = Self::roll_back(conn).await else {
            return attempt;
        };
        // SQLite had an open transaction, so the COMMIT had not succeeded.
        let is_undone = was_open && conn.dialect() == Dialect::Sqlite;
        self.conn = Some(conn);
        match attempt {
            Attempt::Uncertain(fault) if is_undone => Attempt::Failed(fault),
            attempt => attempt,
        }
    }

    /// The connection after a fault, if it can be used again, and whether there may have been an open transaction.
    async fn roll_back(mut conn: Conn) -> Option<(Conn, bool)> {
        // On SQLite none is open if BEGIN itself failed, or the fault already rolled back.
        let was_open = match &conn {
            Conn::Sqlite(sqlite) => sqlite.in_transaction(),
            Conn::Postgres(_) => true,
        };
        if was_open {
            let rollback = conn.execute("ROLLBACK", vec![]);
            tokio::time::timeout(Duration::from_secs(1), rollback)
                .await
                .ok()?
                .ok()?;
        }
        Some((conn, was_open))
    }

    fn answer(&mut self, batch: Vec<Ticket>, done: Vec<Done>) {
        for (ticket, done) in batch.into_iter().zip(done) {
            let claimed = (&*done as &dyn Any).downcast_ref::<Claimed>();
            let met = claimed.is_none_or(|claimed| *claimed == Claimed::New);
            if ticket.answer.send(Ok(done)).is_err()
                && met
                && let Some(cleanup) = ticket.op.outcome_unknown()
            {
                self.pending.push_back(Ticket::silent(Op::Cleanup(cleanup)));
            }
        }
    }

    fn keep(&mut self, batch: impl IntoIterator<Item = Ticket>, reason: &Arc<str>, uncertain: bool) -> Result<(), ()> {
        tracing::debug!(%reason, "a transaction failed and will be retried");
        let mut batch: VecDeque<Ticket> = batch.into_iter().collect();
        for ticket in &mut batch {
            ticket.uncertain |= uncertain;
            ticket.not_committed();
        }
        batch.append(&mut self.pending);
        self.pending = batch;
        Err(())
    }

    /// The database rejects the op; retries would not help.
    fn refuse(&self, ticket: Ticket, reason: &Arc<str>) {
        tracing::error!(%reason, "the database rejected a record");
        self.give_up(ticket, reason);
    }

    fn give_up(&self, ticket: Ticket, reason: &Arc<str>) {
        self.shared.pending_cleanup.note(&ticket.op);
        // It may have been written nevertheless.
        if let Some(cleanup) = ticket.uncertain.then(|| ticket.op.outcome_unknown()).flatten() {
            self.shared.pending_cleanup.note(&Op::Cleanup(cleanup));
        }
        // If the caller has given up, the log line above is the only report.
        let error = match ticket.uncertain {
            true => RecordError::Uncertain(Arc::clone(reason)),
            false => RecordError::Unavailable(Arc::clone(reason)),
        };
        let _ = ticket.answer.send(Err(error));
    }
}

#[allow(clippy::cast_precision_loss)] // Counts far below 2^52.
fn depth(count: usize) -> f64 {
    count as f64
}

// What writers of one store share: the database and the audit log's guard.

/// State shared by all writers of a store.
pub(super) struct Shared {
    pub(crate) target: Target,
    pub(crate) writing: Writing,
    pub(crate) config: StoreConfig,
    /// The audit key in use, set by the first connection.
    pub(crate) signer: OnceLock<Signer>,
    pub(crate) state: State,
    pub(crate) pending_cleanup: PendingCleanup,
    pub(crate) known: Known,
    pub(crate) migrated: AtomicBool,
    /// Whether the audit triggers were checked.
    pub(crate) audit_guarded: AtomicBool,
    /// Set before the lease is ended, so that a late connection does not take it again.
    pub(crate) leaving: AtomicBool,
}

impl Shared {
    /// A connection to a migrated database on which this process holds its lease.
    pub(crate) async fn connect(&self) -> Result<Conn, StoreError> {
        let migrating = (!self.migrated.load(Ordering::Acquire)).then_some(self.config.migrating());
        let (mut conn, _) = connect::connect(&self.target, migrating).await?;
        self.migrated.store(true, Ordering::Release);
        if self.signer.get().is_none() {
            let signer = audit::signer(&self.target, &mut conn, &self.config.audit).await?;
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
        match audit::restore_triggers(conn, &self.batch(), self.config.migrating()).await {
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

    fn batch(&self) -> Batch<'_> {
        Batch {
            writing: &self.writing,
            config: &self.config,
            signer: self.signer.get(),
            trail: Trail::default(),
            known: &self.known,
        }
    }
}

/// Shared by all writers. Down: a caller's deadline passed without a commit. Up: a commit succeeded.
pub(super) struct State {
    /// Why the store is down.
    down: ArcSwapOption<Arc<str>>,
    /// The error of the last failed transaction, used as the reason.
    last_fault: ArcSwapOption<Arc<str>>,
}

impl State {
    pub(super) fn up() -> Self {
        STORE_UP.get().set(1.0);
        Self {
            down: ArcSwapOption::empty(),
            last_fault: ArcSwapOption::empty(),
        }
    }

    pub(super) fn reason(&self) -> Option<Arc<str>> {
        self.down.load().as_deref().map(Arc::clone)
    }

    /// A commit succeeded.
    pub(super) fn committed(&self) {
        if self.last_fault.load().is_some() {
            self.last_fault.store(None);
        }
        // Loads first, since it is nearly always up.
        if self.down.load().is_some() && self.down.swap(None).is_some() {
            tracing::info!("the record store is available again");
            STORE_UP.get().set(1.0);
        }
    }

    /// A transaction failed; a retry may still succeed before any caller's deadline.
    pub(super) fn faulted(&self, reason: &Arc<str>) {
        self.last_fault.store(Some(Arc::new(Arc::clone(reason))));
    }

    /// A caller's deadline passed. Returns the reason.
    pub(super) fn gave_up(&self) -> Arc<str> {
        let reason: Arc<str> = match self.last_fault.load().as_deref() {
            Some(fault) => Arc::clone(fault),
            None => "no commit in time".into(),
        };
        self.take_down(&reason);
        reason
    }

    pub(super) fn take_down(&self, reason: &Arc<str>) {
        let before = self.down.swap(Some(Arc::new(Arc::clone(reason))));
        if before.is_none() {
            tracing::error!(%reason, "the record store is unavailable");
            STORE_UP.get().set(0.0);
        }
    }
}
