//! Storage on SQLite or PostgreSQL. Decisions: ports [`Recorder`](crate::ports::commit::Recorder) and [`Decisions`].
//! Agents' runs with their journals, and definitions: ports [`Runs`](crate::ports::runs::Runs) and
//! [`Definitions`](crate::ports::definitions::Definitions). Planning sessions with the history of their plans:
//! `planning`. Console logins: `sessions`.
//!
//! The path of a write: port (`recorder`) → [`queue`](self) with a deadline → `writer`. The writer puts everything that
//! is queued into one `transaction` of multi-row statements on its connection; a `Batch` is what its ops write with. A
//! `table` is a list of columns, from which its statements follow. `db` is the only module that knows both databases. Side effects are added to the
//! `audit` log in the same transaction. A `commit` about a run, and other writes about runs, definitions and planning
//! sessions, take the same path, but one op after another, since each returns a result.
//!
//! `maintenance` renews the lease, closes rows of dead processes and deletes old ones. Reads (`read`) and the users' quotas (`quota`) have their own connections and never wait for
//! the writer.
//!
//! Durability: an acknowledged decision survives the death of the process. An acknowledged intent survives a power loss
//! (SQLite `synchronous = FULL` for its commit; PostgreSQL always), and so do the creation and the end of a run. If a
//! power loss removes other journal entries, the model is asked again, or the call is in doubt.

mod actions;
mod audit;
mod claims;
mod commit;
mod config;
mod connect;
mod db;
mod decisions;
mod definitions;
mod error;
mod maintenance;
mod metrics;
mod migrate;
mod op;
mod planning;
mod queue;
pub mod quota;
mod read;
mod recorder;
mod retention;
mod rollup;
mod runs;
mod sessions;
mod table;
mod texts;
mod transaction;
mod transition;
mod views;
mod writer;

use async_trait::async_trait;
use gavel_api as api;
use gavel_core::domain;
use gavel_ports as ports;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub use audit::{
    AuditFilter, AuditKeys, AuditKind, AuditLog, AuditRow, AuditSecrets, Finding, Head, KEY_IN_DATABASE, KeyPlace,
    TriggerDamage, TriggerState, Verifier,
};
pub use config::{AtStart, ContentKey, ContentMode, StoreConfig};
pub use error::StoreError;
pub use migrate::MigrationStatus;
pub use quota::SharedBuckets;
#[cfg(fuzzing)]
pub use read::filter_of_decisions;
pub use read::{PastCall, Process, ReadOnly};
pub use views::{Analyst, reference as reference_of_views};

use connect::Target;
use db::{Conn, Dialect, sql, values};
use decisions::{CALL, DECISION};
use op::{Op, Ticket};
use queue::{PendingCleanup, Queue};
use read::{ACTIONS, DECISIONS, RUNS, TOOL_INVOCATIONS};
use table::Writing;
use texts::Known;
use writer::{Shared, State, Writer};

use crate::api::decisions::{DecisionDetail, DecisionRecord, ToolInvocation};
use crate::api::filter::FilterFields;
use crate::domain::ids::{ActionId, DecisionId, TenantId};
use crate::ports::records::{Decisions, Erasure, Evidence, ListQuery, Page, QueryError, RecordError};
use crate::ports::stats::{Stats, StatsQuestion, Tallies};

/// Number of writers on PostgreSQL: while one waits for its commit, another writes.
const POSTGRES_WRITERS: usize = 3;

/// The store. Dropping the last handle ends its tasks after they have written what is queued; [`Store::shutdown`] waits
/// for that.
pub struct Store {
    shared: Arc<Shared>,
    queue: Queue,
    reading: ReadOnly,
    /// For workers, so that analysts' reads do not delay them.
    working: Arc<ReadOnly>,
    buckets: Option<Arc<SharedBuckets>>,
    keeping: TaskTracker,
    writing: TaskTracker,
    stop_keeping: CancellationToken,
    stop_writing: CancellationToken,
    _stop: [DropGuard; 2],
}

impl Store {
    /// Opens the database, creates a missing SQLite file, applies migrations, takes the lease and recovers open records
    /// of dead processes. Its tasks run on the current tokio runtime, except SQLite's writer.
    ///
    /// # Errors
    /// [`StoreError`]; with [`AtStart::Background`] only for an invalid URL.
    pub async fn open(config: StoreConfig) -> Result<Arc<Self>, StoreError> {
        let target = Target::parse(config.url(), config.max_bytes)?;
        let (sender, receiver) = mpsc::channel(config.queue.max(1));
        let at_start = config.at_start;
        let store = Self::of(config, target, sender);
        let mut conn = first_connection(&store.shared, at_start).await?;
        let connected = conn.is_some();

        let receiver = Arc::new(Mutex::new(receiver));
        let dialect = store.shared.target.dialect();
        let writers = match dialect {
            Dialect::Sqlite => 1,
            Dialect::Postgres => POSTGRES_WRITERS,
        };
        for _ in 0..writers {
            let (shared, receiver) = (Arc::clone(&store.shared), Arc::clone(&receiver));
            let writer = Writer::new(shared, receiver, conn.take(), store.stop_writing.clone());
            match dialect {
                Dialect::Sqlite => on_its_own_thread(store.writing.track_future(writer.run()))?,
                Dialect::Postgres => drop(store.writing.spawn(writer.run())),
            }
        }
        if connected {
            maintenance::recover(&store.queue).await;
        }
        store.keeping.spawn(maintenance::keep(
            Arc::clone(&store.shared),
            store.queue.clone(),
            store.stop_keeping.clone(),
        ));
        let (working, stop) = (Arc::clone(&store.working), store.stop_keeping.clone());
        store.keeping.spawn(metrics::keep(working, stop));
        let counting = rollup::keep(
            store.queue.clone(),
            Arc::clone(&store.working),
            store.stop_keeping.clone(),
        );
        store.keeping.spawn(counting);
        Ok(Arc::new(store))
    }

    /// Opens an existing database that has every migration of this binary, for reads alone: no migration, no lease, no
    /// recovery. Every write is `Unavailable`.
    ///
    /// # Errors
    /// As [`ReadOnly::open`].
    pub async fn open_for_reading(config: StoreConfig) -> Result<Arc<Self>, StoreError> {
        let target = Target::parse(config.url(), config.max_bytes)?;
        ReadOnly::check(&target).await?;
        // The receiver is gone, so the queue takes no write.
        let (sender, _) = mpsc::channel(1);
        Ok(Arc::new(Self::of(config, target, sender)))
    }

    /// A store without writers, tasks and connections; those that read are opened on demand.
    fn of(config: StoreConfig, target: Target, sender: mpsc::Sender<Ticket>) -> Self {
        metrics::register();
        let reading = ReadOnly::of(&target, config.read_limit);
        let working = Arc::new(ReadOnly::of(&target, config.read_limit));
        let buckets = SharedBuckets::of(&target).map(Arc::new);
        let shared = Arc::new(Shared {
            target,
            writing: Writing::new(&config),
            config,
            signer: OnceLock::new(),
            state: State::up(),
            pending_cleanup: PendingCleanup::default(),
            known: Known::default(),
            migrated: AtomicBool::new(false),
            audit_guarded: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
        });
        let queue = Queue::new(Arc::clone(&shared), sender);
        let (keeping, writing) = (TaskTracker::new(), TaskTracker::new());
        // Those that are spawned later are waited for as well.
        keeping.close();
        writing.close();
        let (stop_keeping, stop_writing) = (CancellationToken::new(), CancellationToken::new());
        Self {
            shared,
            queue,
            reading,
            working,
            buckets,
            keeping,
            writing,
            _stop: [stop_keeping.clone().drop_guard(), stop_writing.clone().drop_guard()],
            stop_keeping,
            stop_writing,
        }
    }

    /// Applies pending migrations and returns the resulting status: `gavel migrate`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn migrate(url: &str) -> Result<MigrationStatus, StoreError> {
        let (mut conn, mut status) = connect::connect(&Target::parse(url, None)?, Some(migrate::PATIENCE)).await?;
        let viewed = match status.has_views {
            true => Ok(()),
            false => migrate::views(&mut conn, migrate::PATIENCE).await,
        };
        conn.close().await;
        status.has_views = viewed.map(|()| true)?;
        Ok(status)
    }

    /// Lets a role of PostgreSQL read the analysts' views. Migrates before.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn allow(url: &str, analyst: &Analyst) -> Result<(), StoreError> {
        let (mut conn, _) = connect::connect(&Target::parse(url, None)?, Some(migrate::PATIENCE)).await?;
        let allowed = analyst.allow(&mut conn).await;
        conn.close().await;
        allowed
    }

    /// The applied and the pending migrations. Changes nothing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn status(url: &str) -> Result<MigrationStatus, StoreError> {
        migrate::status_target(&Target::parse(url, None)?).await
    }

    /// Checks that the database can hold what gavel records. Creates no file.
    ///
    /// # Errors
    /// [`StoreError`] with the reason.
    pub async fn try_write(url: &str) -> Result<(), StoreError> {
        let target = Target::parse(url, None)?;
        if target.missing().is_some() {
            return Ok(());
        }
        let (conn, _) = connect::connect(&target, None).await?;
        conn.close().await;
        Ok(())
    }

    /// As [`ReadOnly::running_process`]: a store that writes counts itself.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn running_process(&self) -> Result<Option<Process>, QueryError> {
        self.reading.running_process().await
    }

    /// The users' quotas that all replicas share; `None` on SQLite, where each process counts by itself.
    pub fn buckets(&self) -> Option<Arc<SharedBuckets>> {
        self.buckets.clone()
    }

    /// Writes what is queued, ends the lease and the tasks, and closes the connections. Later writes are `Unavailable`.
    /// Waits at most 5 s for an unavailable database.
    pub async fn shutdown(&self) {
        self.stop_keeping.cancel();
        self.keeping.wait().await;
        self.shared.leaving.store(true, Ordering::Release);
        // A store without a writer holds no lease.
        if !self.writing.is_empty()
            && let Err(error) = self.queue.ask::<()>(Op::EndLease).await
        {
            tracing::warn!(%error, "the lease was not ended; it will expire");
        }
        self.stop_writing.cancel();
        self.writing.wait().await;
        self.reading.close().await;
        self.working.close().await;
        if let Some(buckets) = &self.buckets {
            buckets.close().await;
        }
    }
}

#[async_trait]
impl Decisions for Store {
    async fn list(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<DecisionRecord>, QueryError> {
        self.reading.page(&DECISIONS, tenant, vec![], query).await
    }

    async fn get(&self, tenant: &TenantId, id: DecisionId) -> Result<Option<DecisionDetail>, QueryError> {
        let decision = sql!(
            "SELECT {} FROM decision_log WHERE id = $1 AND tenant = $2",
            DECISION.selected()
        );
        let Some(decision) = self.reading.one(decision, values![id, tenant]).await? else {
            return Ok(None);
        };
        let calls = sql!(
            "SELECT {} FROM tool_invocation_log WHERE decision_id = $1 AND tenant = $2 ORDER BY sequence",
            CALL.selected()
        );
        let tool_calls = self.reading.all(calls, values![id, tenant]).await?;
        Ok(Some(DecisionDetail { decision, tool_calls }))
    }

    async fn texts(
        &self,
        tenant: &TenantId,
        user: &str,
        hashes: &[&str],
    ) -> Result<Vec<(String, Option<String>)>, QueryError> {
        #[derive(serde::Deserialize)]
        struct Text {
            hash: String,
            body: Option<String>,
        }
        let find = "SELECT hash, body FROM content_blob WHERE tenant = $1 AND user_id IN ('', $2) AND hash @in($3)";
        let found: Vec<Text> = self
            .reading
            .all(find, values![tenant, user, db::Value::list(hashes)])
            .await?;
        Ok(found.into_iter().map(|text| (text.hash, text.body)).collect())
    }

    async fn evidence(
        &self,
        tenant: &TenantId,
        decision: DecisionId,
        action: Option<ActionId>,
    ) -> Result<Evidence, QueryError> {
        let approvals = "SELECT id AS action_id, approval_id, created_at AS requested_at, resolution, resolved_by, \
                         resolved_at, grant_id FROM agent_action WHERE run_id = $1 AND tenant = $2 \
                         AND (approval_id IS NOT NULL OR grant_id IS NOT NULL) ORDER BY sequence";
        let project = "SELECT project_id FROM agent_run WHERE id = $1 AND tenant = $2";
        Ok(Evidence {
            project: self.reading.one(project, values![decision, tenant]).await?,
            approvals: self.reading.all(approvals, values![decision, tenant]).await?,
            audit: audit::proof(&self.reading, &self.shared, tenant, decision, action).await?,
        })
    }

    async fn tool_invocations(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<ToolInvocation>, QueryError> {
        self.reading.page(&TOOL_INVOCATIONS, tenant, vec![], query).await
    }

    async fn erase(&self, erasure: Erasure) -> Result<Erasure, RecordError> {
        self.write(Op::Erase(Box::new(erasure))).await
    }

    fn filter_fields(&self) -> FilterFields {
        FilterFields {
            decisions: DECISIONS.described(),
            tool_invocations: TOOL_INVOCATIONS.described(),
            runs: RUNS.described(),
            actions: ACTIONS.described(),
        }
    }

    /// The writer's last result counts as well.
    async fn ping(&self) -> Result<(), QueryError> {
        match self.shared.state.reason() {
            Some(reason) => Err(QueryError::Unavailable(reason)),
            // Analysts may use all connections for reading.
            None => self.working.ping().await,
        }
    }
}

#[async_trait]
impl Stats for Store {
    async fn tally(&self, tenant: &TenantId, question: &StatsQuestion) -> Result<Tallies, QueryError> {
        self.reading.tally(tenant, question).await
    }
}

/// Runs SQLite's writer on a separate thread, since SQLite blocks its thread: a slow disk delays nothing else. The
/// thread needs no reactor; a request wakes it by one futex.
fn on_its_own_thread(writer: impl Future<Output = ()> + Send + 'static) -> Result<(), StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let spawned = runtime.and_then(|runtime| {
        std::thread::Builder::new()
            .name("gavel-writer".into())
            .spawn(move || runtime.block_on(writer))
    });
    spawned.map(drop).map_err(|cause| StoreError::Thread { cause })
}

/// The first writer's connection. `None` if the store starts in the background; its state then has the reason.
async fn first_connection(shared: &Shared, at_start: AtStart) -> Result<Option<Conn>, StoreError> {
    match (shared.connect().await, at_start) {
        (Ok(conn), _) => Ok(Some(conn)),
        (Err(StoreError::Unavailable(reason)), AtStart::Background) => {
            shared.state.take_down(&reason);
            Ok(None)
        }
        (Err(error), _) => Err(error),
    }
}

// What tests of all heights share names the store as the test programs do.
#[cfg(test)]
extern crate self as gavel;
#[cfg(test)]
pub mod adapters {
    pub use crate as store;
}
