//! Job storage: the only module that knows both databases.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use apalis_core::backend::ext::BackendExt;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::event::Event;
use apalis_core::worker::ext::event_listener::EventListenerExt;
use apalis_postgres::PostgresStorage;
use apalis_sqlite::SqliteStorage;
use futures_util::{SinkExt, Stream, StreamExt, stream};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection, PgConnection};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::job_service::JobContext;
use super::{QueueOptions, Shared};
use crate::adapters::store::{Target, create_file};
use crate::domain::ids::{InstanceId, RunId};

/// The name of gavel's queue in the database.
const QUEUE: &str = "gavel-runs";
/// Timeout for opening a connection, or for getting a free one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for SQLite's lock, and for a statement on PostgreSQL.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(4);
/// Timeout for creating the tables.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(30);
/// One each for the worker, for removing and for pushing. The listener has its own.
const POSTGRES_CONNECTIONS: u32 = 3;
/// How long after a wake-up the worker polls again: the first time and the second time.
const AGAIN: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];
/// The channel on which apalis's PostgreSQL trigger announces a new job.
const CHANNEL: &str = "apalis::job::insert";
/// PostgreSQL releases a job when its time has come by PostgreSQL's clock. This process's clock may be ahead of it.
const CLOCKS_DIFFER: Duration = Duration::from_secs(60);

pub(super) enum Jobs {
    Sqlite {
        storage: SqliteStorage<Vec<u8>>,
        options: Box<SqliteConnectOptions>,
    },
    Postgres {
        storage: PostgresStorage<Vec<u8>>,
        options: Box<PgConnectOptions>,
    },
}

/// The configuration types of the two crates have the same methods, but no common trait.
macro_rules! config {
    ($library:ident, $options:ident) => {
        $library::Config::default()
            .queue(QUEUE)
            // With more than one, jobs would wait in the worker's memory for a slot while other workers are idle, and
            // the worker would send no heartbeat meanwhile.
            .batch_size(1)
            .heartbeat_interval($options.heartbeat)
            .missed_heartbeats($options.missed_heartbeats as usize)
            // A job is deleted when it has ended, so its states are never read.
            .lock_tasks(false)
            .persist_results(false)
    };
}

impl Jobs {
    /// Does no I/O.
    pub(super) fn of(target: &Target, options: &QueueOptions) -> Self {
        match target {
            Target::Sqlite { options: database, .. } => {
                let file = jobs_file(database.get_filename());
                // A lost job is found again by the run's row, so a commit need not wait for the disk.
                let database = SqliteConnectOptions::new()
                    .filename(file)
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Normal)
                    .busy_timeout(STATEMENT_TIMEOUT);
                // One connection, so this process's writers queue in order instead of contending for a lock.
                let pool = SqlitePoolOptions::new()
                    .max_connections(1)
                    .acquire_timeout(STATEMENT_TIMEOUT)
                    .idle_timeout(None)
                    .max_lifetime(None);
                let storage = SqliteStorage::new(&pool.connect_lazy_with(database.clone()));
                Self::Sqlite {
                    storage: storage.with_config(config!(apalis_sqlite, options)),
                    options: Box::new(database),
                }
            }
            Target::Postgres(database) => {
                let limit = format!("{}ms", STATEMENT_TIMEOUT.as_millis());
                let database = database.as_ref().clone().options([
                    ("lock_timeout", limit.as_str()),
                    ("statement_timeout", limit.as_str()),
                    ("idle_in_transaction_session_timeout", "10s"),
                    // Its migrations use IF NOT EXISTS, and PostgreSQL would log a notice for each.
                    ("client_min_messages", "warning"),
                ]);
                let pool = PgPoolOptions::new()
                    .min_connections(0)
                    .max_connections(POSTGRES_CONNECTIONS)
                    .acquire_timeout(CONNECT_TIMEOUT)
                    .idle_timeout(Duration::from_secs(60))
                    .after_release(|connection, _| Box::pin(still_answers(connection)));
                let storage = PostgresStorage::new(&pool.connect_lazy_with(database.clone()));
                Self::Postgres {
                    storage: storage.with_config(config!(apalis_postgres, options)),
                    options: Box::new(database),
                }
            }
        }
    }

    /// Creates the tables, on a separate connection: on PostgreSQL the migrator's lock stays with the connection when a
    /// migration fails. Tables of a later version are left unchanged, since replicas are upgraded one by one.
    pub(super) async fn migrate(&self) -> Result<(), String> {
        let migrating = async {
            match self {
                Self::Sqlite { options, .. } => {
                    let file = options.get_filename();
                    if !file.exists() {
                        create_file(file).map_err(|error| format!("{}: {error}", file.display()))?;
                    }
                    let pool = SqlitePoolOptions::new()
                        .max_connections(1)
                        .acquire_timeout(CONNECT_TIMEOUT);
                    let pool = pool.connect_lazy_with(options.as_ref().clone());
                    let done = SqliteStorage::migrations().set_ignore_missing(true).run(&pool).await;
                    pool.close().await;
                    done.map_err(words)
                }
                Self::Postgres { options, .. } => {
                    let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(CONNECT_TIMEOUT);
                    let pool = pool.connect_lazy_with(options.as_ref().clone());
                    let done = PostgresStorage::migrations().set_ignore_missing(true).run(&pool).await;
                    pool.close().await;
                    done.map_err(words)
                }
            }
        };
        timeout(MIGRATION_TIMEOUT, migrating).await.map_err(words)?
    }

    /// Returns when the job is committed.
    pub(super) async fn push(&self, run: RunId) -> Result<(), String> {
        let job = TaskBuilder::new(run.to_string().into_bytes())
            .max_attempts(1)
            .run_at_time(SystemTime::now() - CLOCKS_DIFFER)
            .build();
        match self {
            Self::Sqlite { storage, .. } => storage.clone().send(job).await.map_err(words),
            Self::Postgres { storage, .. } => storage.clone().send(job).await.map_err(words),
        }
    }

    /// Runs a worker under this name until it ends, and returns the reason. Dropping the future ends the worker.
    pub(super) async fn run(
        &self,
        name: &str,
        shared: Arc<Shared>,
        work: &JobContext,
        on_event: impl Fn(&Event) + Send + Sync + 'static,
    ) -> String {
        let wakes = wakes(shared);
        let worker = WorkerBuilder::new(name);
        let ended = match self {
            Self::Sqlite { storage, .. } => {
                let worker = worker.backend(storage.clone().poll_with_stream(wakes));
                worker
                    .on_event(move |_, event| on_event(event))
                    .build(work.clone())
                    .run()
                    .await
            }
            Self::Postgres { storage, .. } => {
                let worker = worker.backend(storage.clone().poll_with_stream(wakes));
                worker
                    .on_event(move |_, event| on_event(event))
                    .build(work.clone())
                    .run()
                    .await
            }
        };
        ended.map_or_else(words, |()| "the worker ended".into())
    }

    /// Wakes the worker for each job that another process pushes. Ends when that fails, and returns the reason. SQLite
    /// sends no notification: there the next heartbeat finds the job.
    pub(super) async fn listen(&self, woken: &Notify) -> String {
        let Self::Postgres { options, .. } = self else {
            return std::future::pending().await;
        };
        let listening = async {
            // A dropped listener first says goodbye to the server. In the workers' pool, a listener whose server is
            // silent would occupy a connection.
            let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(CONNECT_TIMEOUT);
            let pool = pool.idle_timeout(None).max_lifetime(None);
            let mut listener = PgListener::connect_with(&pool.connect_lazy_with(options.as_ref().clone())).await?;
            listener.listen(CHANNEL).await?;
            // For jobs pushed before the listener was connected.
            woken.notify_one();
            loop {
                listener.recv().await?;
                woken.notify_one();
            }
        };
        let Err(error): Result<std::convert::Infallible, sqlx::Error> = listening.await;
        words(error)
    }

    /// Deletes jobs that have ended.
    pub(super) async fn remove(&self, ended: &[String]) -> Result<(), String> {
        match self {
            Self::Sqlite { storage, .. } => {
                let ids = serde_json::json!(ended).to_string();
                let sql = "DELETE FROM Jobs WHERE id IN (SELECT value FROM json_each($1))";
                sqlx::query(sql)
                    .bind(ids)
                    .execute(storage.pool())
                    .await
                    .map_err(words)?;
            }
            Self::Postgres { storage, .. } => {
                let sql = "DELETE FROM apalis.jobs WHERE id = ANY($1)";
                sqlx::query(sql)
                    .bind(ended)
                    .execute(storage.pool())
                    .await
                    .map_err(words)?;
            }
        }
        Ok(())
    }

    /// Deletes workers that ended long ago and hold no job from the list.
    pub(super) async fn prune(&self) -> Result<(), String> {
        match self {
            Self::Sqlite { storage, .. } => {
                let sql = "DELETE FROM Workers WHERE worker_type = $1 AND last_seen < unixepoch() - 600 \
                           AND NOT EXISTS (SELECT 1 FROM Jobs WHERE lock_by = Workers.id)";
                sqlx::query(sql)
                    .bind(QUEUE)
                    .execute(storage.pool())
                    .await
                    .map_err(words)?;
            }
            Self::Postgres { storage, .. } => {
                let sql = "DELETE FROM apalis.workers w WHERE w.worker_type = $1 \
                           AND w.last_seen < now() - interval '10 minutes' \
                           AND NOT EXISTS (SELECT 1 FROM apalis.jobs WHERE lock_by = w.id)";
                sqlx::query(sql)
                    .bind(QUEUE)
                    .execute(storage.pool())
                    .await
                    .map_err(words)?;
            }
        }
        Ok(())
    }

    /// Returns the jobs that this process's workers hold to the queue, and deletes the workers from the list.
    pub(super) async fn release(&self, instance: InstanceId) -> Result<(), String> {
        const STATEMENTS: [(&str, &str); 2] = [
            (
                "UPDATE Jobs SET status = 'Pending', lock_by = NULL, lock_at = NULL WHERE lock_by LIKE $1",
                "UPDATE apalis.jobs SET status = 'Pending', lock_by = NULL, lock_at = NULL WHERE lock_by LIKE $1",
            ),
            (
                "DELETE FROM Workers WHERE id LIKE $1",
                "DELETE FROM apalis.workers WHERE id LIKE $1",
            ),
        ];
        let names = format!("{instance}-%");
        for (sqlite, postgres) in STATEMENTS {
            match self {
                Self::Sqlite { storage, .. } => {
                    sqlx::query(sqlite)
                        .bind(&names)
                        .execute(storage.pool())
                        .await
                        .map_err(words)?;
                }
                Self::Postgres { storage, .. } => {
                    sqlx::query(postgres)
                        .bind(&names)
                        .execute(storage.pool())
                        .await
                        .map_err(words)?;
                }
            }
        }
        Ok(())
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite { storage, .. } => storage.pool().close().await,
            Self::Postgres { storage, .. } => storage.pool().close().await,
        }
    }
}

/// When the worker polls for jobs, besides its heartbeats: when it is woken, and twice shortly afterwards. apalis loses
/// a wake-up that arrives during a poll, and the poll may see an older state. Then only the next heartbeat would find
/// the job.
fn wakes(shared: Arc<Shared>) -> impl Stream<Item = ()> + Unpin + Send + 'static {
    let mut times = Box::pin(stream::unfold((shared, AGAIN.len()), |(shared, looked)| async move {
        let again = async {
            match AGAIN.get(looked) {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => std::future::pending().await,
            }
        };
        let looked = tokio::select! {
            () = shared.woken.notified() => 0,
            () = again => looked + 1,
        };
        Some(((), (shared, looked)))
    }));
    stream::poll_fn(move |context| {
        let time = times.poll_next_unpin(context);
        if time.is_ready() {
            // Otherwise the stream would not be polled again, and polling is what starts the next timer.
            context.waker().wake_by_ref();
        }
        time
    })
}

/// A connection that was dropped in the middle of a statement returns to the pool only if it still answers. The pool
/// itself would wait indefinitely and lose one connection.
async fn still_answers(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    match timeout(CONNECT_TIMEOUT, connection.ping()).await {
        Ok(answer) => answer.map(|()| true),
        Err(_) => Err(sqlx::Error::PoolTimedOut),
    }
}

/// `gavel.db` → `gavel-jobs.db`: apalis keeps its migration numbers in a table that gavel cannot share.
fn jobs_file(database: &Path) -> PathBuf {
    let mut name = database.file_stem().unwrap_or_default().to_owned();
    name.push("-jobs");
    if let Some(extension) = database.extension() {
        name.push(".");
        name.push(extension);
    }
    database.with_file_name(name)
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_a_file_beside_the_database() {
        for (database, jobs) in [
            ("gavel.db", "gavel-jobs.db"),
            ("/var/lib/gavel/data.v2.sqlite", "/var/lib/gavel/data.v2-jobs.sqlite"),
            ("data/gavel", "data/gavel-jobs"),
            ("./.db", "./.db-jobs"),
        ] {
            assert_eq!(jobs_file(Path::new(database)), Path::new(jobs));
        }
    }
}
