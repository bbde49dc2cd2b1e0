//! Blocks a write to gavel's database, so that the process can be killed within it. The product has no hook for this: a
//! trigger in the database counts the written rows.

use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tokio::sync::Semaphore;

/// The blocked write first changes so many bytes that they do not fit in the writer's cache: the log grows before a commit,
/// which shows at once that it is blocked. Until its process dies, it needs a whole processor.
const GROWTH: u64 = 48 << 20;
/// The length of the log from which on the write is blocked. Other tests' rows need a few KiB.
const STOPPED: u64 = 20 << 20;

/// A lock number that is used nowhere else.
const LOCK: i64 = 4711;

/// Cases in which a process is killed that run in parallel, of all tests together: most of a case is waiting for a lease
/// to expire, but each starts two processes.
pub static DEATHS: Semaphore = Semaphore::const_new(16);

/// What becomes of the write in which the process dies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Write {
    /// It is rolled back.
    Lost,
    /// It is committed, and no client receives the answer.
    OutcomeUnknown,
}

/// The tables whose rows are counted, each with the column whose change counts.
pub type Writes = [(&'static str, &'static str)];

/// A query without end: only the death of its process ends it.
const SQLITE: &str = "CREATE TABLE brake (n INTEGER NOT NULL, at INTEGER NOT NULL, bytes BLOB);
    INSERT INTO brake (n, at) VALUES (0, -1);
    CREATE VIEW without_end AS WITH RECURSIVE count (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM count) SELECT x FROM count;";

/// Deferred, so it blocks at the commit. Once released, the commit succeeds although its client is dead.
const POSTGRES: &str = "CREATE TABLE brake (n BIGINT NOT NULL, at BIGINT NOT NULL);
    INSERT INTO brake VALUES (0, -1);
    CREATE FUNCTION brake() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE now BOOLEAN; BEGIN
        UPDATE brake SET n = n + 1 RETURNING n = at INTO now;
        IF now THEN PERFORM pg_advisory_xact_lock(4711); END IF;
        RETURN NULL;
    END $$;";

/// Gavel's database, in which one write can be blocked.
pub enum Brake {
    Sqlite(String),
    /// Its connection holds the lock.
    Postgres(PgConnection),
}

impl Brake {
    /// Installed in a database that already has its tables.
    pub async fn new(url: &str, writes: &Writes) -> Self {
        if url.starts_with("sqlite") {
            let mut database = SqliteConnection::connect(url).await.unwrap();
            let mut text = SQLITE.to_owned();
            for (table, column) in writes {
                for (name, event) in [("new", "INSERT".to_owned()), ("changed", format!("UPDATE OF {column}"))] {
                    text += &format!(
                        "CREATE TRIGGER {table}_{name} AFTER {event} ON {table} BEGIN UPDATE brake SET n = n + 1; \
                         UPDATE brake SET bytes = zeroblob({GROWTH}) WHERE n = at; \
                         UPDATE brake SET n = (SELECT sum(x) FROM without_end) WHERE n = at; END;"
                    );
                }
            }
            sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut database).await.unwrap();
            return Self::Sqlite(url.to_owned());
        }
        let mut database = PgConnection::connect(url).await.unwrap();
        let mut text = POSTGRES.to_owned();
        for (table, column) in writes {
            text += &format!(
                "CREATE CONSTRAINT TRIGGER brake AFTER INSERT OR UPDATE OF {column} ON {table} DEFERRABLE INITIALLY DEFERRED \
                 FOR EACH ROW EXECUTE FUNCTION brake();"
            );
        }
        text += &format!("SELECT pg_advisory_lock({LOCK});");
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut database).await.unwrap();
        Self::Postgres(database)
    }

    async fn execute(&mut self, text: String) {
        match self {
            Self::Sqlite(url) => {
                let mut database = SqliteConnection::connect(url).await.unwrap();
                sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut database).await.unwrap();
            }
            Self::Postgres(database) => {
                sqlx::raw_sql(AssertSqlSafe(text)).execute(database).await.unwrap();
            }
        }
    }

    pub async fn number(&mut self, text: &'static str) -> i64 {
        match self {
            Self::Sqlite(url) => {
                let mut database = SqliteConnection::connect(url).await.unwrap();
                sqlx::query_scalar(text).fetch_one(&mut database).await.unwrap()
            }
            Self::Postgres(database) => sqlx::query_scalar(text).fetch_one(database).await.unwrap(),
        }
    }

    /// The writes so far.
    pub async fn writes(&mut self) -> i64 {
        self.number("SELECT n FROM brake").await
    }

    /// Counts from here, and blocks the write of row `at`.
    pub async fn stop_at(&mut self, at: i64) {
        self.execute(format!("UPDATE brake SET n = 0, at = {at}")).await;
    }

    /// Whether a write is blocked.
    pub async fn has_stopped(&mut self) -> bool {
        let file = match self {
            Self::Postgres(_) => {
                let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
                return self.number(waiting).await > 0;
            }
            Self::Sqlite(url) => url.strip_prefix("sqlite://").unwrap(),
        };
        let log = std::fs::metadata(format!("{file}-wal"));
        log.is_ok_and(|log| log.len() > STOPPED)
    }

    /// Commits or rolls back the blocked write of the dead process, and blocks no further write.
    pub async fn release(&mut self, write: Write) {
        if let Self::Postgres(_) = self {
            match write {
                Write::Lost => {
                    self.number(
                        "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
                    )
                    .await;
                }
                Write::OutcomeUnknown => self.execute(format!("SELECT pg_advisory_unlock({LOCK})")).await,
            }
        }
        self.execute("UPDATE brake SET at = -1".to_owned()).await;
    }
}
