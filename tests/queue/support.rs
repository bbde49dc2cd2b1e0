//! Databases to test on, and workers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gavel::adapters::queue::{Queue, QueueOptions};
use gavel::domain::ids::{InstanceId, RunId};
use gavel::ports::BoxFuture;
use gavel::ports::run_queue::RunWorker;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, SqliteConnection};
use tokio::sync::Semaphore;

use crate::postgres;

/// The location of a test's queue. The SQLite file is deleted with it.
pub(crate) struct TestQueue {
    pub(crate) url: String,
    folder: Option<tempfile::TempDir>,
}

impl TestQueue {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // A missing directory is created.
        let url = format!("sqlite:{}", folder.path().join("data/gavel.db").display());
        Self {
            url,
            folder: Some(folder),
        }
    }

    pub(crate) async fn postgres() -> Self {
        Self {
            url: postgres::database().await,
            folder: None,
        }
    }

    /// A database of a server that the test stops.
    pub(crate) fn at(url: String) -> Self {
        Self { url, folder: None }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        self.folder.is_some()
    }

    pub(crate) fn open(&self) -> Arc<Queue> {
        self.open_with(QueueOptions::default())
    }

    pub(crate) fn open_with(&self, options: QueueOptions) -> Arc<Queue> {
        Queue::open(&self.url, InstanceId::new(), options).unwrap()
    }

    /// Polling is so rare that nothing in a test is due to it.
    pub(crate) fn open_without_polling(&self) -> Arc<Queue> {
        self.open_with(QueueOptions {
            heartbeat: Duration::from_secs(3600),
            ..QueueOptions::default()
        })
    }

    fn jobs_url(&self) -> String {
        self.url.replace("gavel.db", "gavel-jobs.db")
    }

    /// Runs a statement directly on the database, and returns the first column of the first row as a number. Tables and
    /// columns have the same names on both databases, except for the schema.
    pub(crate) async fn sql(&self, sql: &str) -> Option<i64> {
        if self.is_sqlite() {
            let sql = AssertSqlSafe(sql.replace("apalis.", ""));
            let mut connection = SqliteConnection::connect(&self.jobs_url()).await.unwrap();
            let rows = sqlx::raw_sql(sql).fetch_all(&mut connection).await.unwrap();
            connection.close().await.unwrap();
            rows.first().map(|row| row.get(0))
        } else {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            let rows = sqlx::query(AssertSqlSafe(sql.to_owned()))
                .fetch_all(&mut connection)
                .await;
            connection.close().await.unwrap();
            rows.unwrap().first().map(|row| row.get(0))
        }
    }

    pub(crate) async fn jobs(&self) -> i64 {
        self.sql("SELECT COUNT(*) FROM apalis.jobs").await.unwrap()
    }

    pub(crate) async fn workers(&self) -> i64 {
        self.sql("SELECT COUNT(*) FROM apalis.workers").await.unwrap()
    }

    /// Blocks all writes of jobs, as another process can.
    pub(crate) async fn lock(&self) -> Lock {
        if self.is_sqlite() {
            let mut connection = SqliteConnection::connect(&self.jobs_url()).await.unwrap();
            sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
            Lock::Sqlite(connection)
        } else {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            let sql = "BEGIN; LOCK TABLE apalis.jobs, apalis.workers IN EXCLUSIVE MODE";
            sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
            Lock::Postgres(connection)
        }
    }
}

/// A lock on all jobs; gone when released.
pub(crate) enum Lock {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Lock {
    pub(crate) async fn release(self) {
        match self {
            Self::Sqlite(connection) => connection.close().await.unwrap(),
            Self::Postgres(connection) => connection.close().await.unwrap(),
        }
    }
}

/// Records which runs it was given, and when. Each waits until it may end.
pub(crate) struct Hand {
    begun: Mutex<HashMap<RunId, Vec<Instant>>>,
    may_end: Semaphore,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Hand {
    /// Ends each run at once.
    pub(crate) fn quick() -> Arc<Self> {
        Self::with(Semaphore::MAX_PERMITS)
    }

    /// Ends none until [`Hand::let_end`].
    pub(crate) fn slow() -> Arc<Self> {
        Self::with(0)
    }

    fn with(permits: usize) -> Arc<Self> {
        Arc::new(Self {
            begun: Mutex::default(),
            may_end: Semaphore::new(permits),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        })
    }

    pub(crate) fn let_end(&self, runs: usize) {
        self.may_end.add_permits(runs);
    }

    /// How often the run was started.
    pub(crate) fn times(&self, run: RunId) -> usize {
        self.begun.lock().unwrap().get(&run).map_or(0, Vec::len)
    }

    /// When the run was first started.
    pub(crate) fn first(&self, run: RunId) -> Option<Instant> {
        self.begun.lock().unwrap().get(&run).map(|times| times[0])
    }

    /// How many different runs were started.
    pub(crate) fn runs(&self) -> usize {
        self.begun.lock().unwrap().len()
    }

    /// The maximum of concurrent runs so far.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

impl RunWorker for Hand {
    fn work(&self, run: RunId) -> BoxFuture<'_, ()> {
        self.begun.lock().unwrap().entry(run).or_default().push(Instant::now());
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Box::pin(async {
            self.may_end.acquire().await.unwrap().forget();
            self.now.fetch_sub(1, Ordering::SeqCst);
        })
    }
}

/// Waits until `what` holds; panics after 30 s, which no machine needs.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
