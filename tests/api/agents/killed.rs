//! Killed with -9 within every single write of a run in the background (issue, Must show; promises 3 and 7). Nothing in the product
//! helps: a trigger in the record's database stops the n-th write where it stands, and then the process dies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::processes::{Place, adds_two, all_runs, is_whole, over};
use super::{id, is_over, path_of};
use crate::crash::Process;
use crate::gemini::Gemini;
use crate::harness::until;

/// Places worked at beside each other: most of a test is waiting for leases to run out.
const AT_ONCE: usize = 8;

/// How long no other writer gets in until the one that has the database counts as stopped: no write takes as long.
const STOPPED: Duration = Duration::from_millis(700);

/// A number that nobody else locks.
const LOCK: i64 = 4711;

/// What becomes of the write in which the process dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Write {
    /// It never was.
    Lost,
    /// It is there, and nobody heard of it.
    Unheard,
}

/// Every row that a run, its journal or its calls get is counted, in `brake`. At row `at` the write goes no further.
/// `UPDATE OF status` leaves out the leases, which are renewed all the time.
const WRITES: [(&str, &str); 3] = [
    ("agent_run", "status"),
    ("agent_run_entry", "body"),
    ("tool_invocation_log", "status"),
];

/// A query without end: only the death of its process ends it.
const SQLITE: &str = "CREATE TABLE brake (n INTEGER NOT NULL, at INTEGER NOT NULL);
    INSERT INTO brake VALUES (0, -1);
    CREATE VIEW without_end AS WITH RECURSIVE count (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM count) SELECT x FROM count;";

/// Deferred, so it stops at the commit: let go of, the commit goes through although its client is dead.
const POSTGRES: &str = "CREATE TABLE brake (n BIGINT NOT NULL, at BIGINT NOT NULL);
    INSERT INTO brake VALUES (0, -1);
    CREATE FUNCTION brake() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE now BOOLEAN; BEGIN
        UPDATE brake SET n = n + 1 RETURNING n = at INTO now;
        IF now THEN PERFORM pg_advisory_xact_lock(4711); END IF;
        RETURN NULL;
    END $$;";

/// The record's database, in which one write can be stopped.
enum Brake {
    Sqlite(String),
    /// Its connection holds the lock.
    Postgres(PgConnection),
}

impl Brake {
    /// Built into a database whose tables are there.
    async fn new(url: &str) -> Self {
        if url.starts_with("sqlite") {
            let mut database = SqliteConnection::connect(url).await.unwrap();
            let mut text = SQLITE.to_owned();
            for (table, column) in WRITES {
                for (name, event) in [("new", "INSERT".to_owned()), ("changed", format!("UPDATE OF {column}"))] {
                    text += &format!(
                        "CREATE TRIGGER {table}_{name} AFTER {event} ON {table} BEGIN UPDATE brake SET n = n + 1; \
                         UPDATE brake SET n = (SELECT sum(x) FROM without_end) WHERE n = at; END;"
                    );
                }
            }
            sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut database).await.unwrap();
            return Self::Sqlite(url.to_owned());
        }
        let mut database = PgConnection::connect(url).await.unwrap();
        let mut text = POSTGRES.to_owned();
        for (table, column) in WRITES {
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

    async fn number(&mut self, text: &'static str) -> i64 {
        match self {
            Self::Sqlite(url) => {
                let mut database = SqliteConnection::connect(url).await.unwrap();
                sqlx::query_scalar(text).fetch_one(&mut database).await.unwrap()
            }
            Self::Postgres(database) => sqlx::query_scalar(text).fetch_one(database).await.unwrap(),
        }
    }

    /// The writes so far.
    async fn writes(&mut self) -> i64 {
        self.number("SELECT n FROM brake").await
    }

    /// Counts from here, and stops the write of row `at`.
    async fn stop_at(&mut self, at: i64) {
        self.execute(format!("UPDATE brake SET n = 0, at = {at}")).await;
    }

    /// Does a write stand?
    async fn has_stopped(&mut self) -> bool {
        let url = match self {
            Self::Postgres(_) => {
                let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                               AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
                return self.number(waiting).await > 0;
            }
            Self::Sqlite(url) => url.clone(),
        };
        let mut database = SqliteConnection::connect(&url).await.unwrap();
        sqlx::raw_sql("PRAGMA busy_timeout = 0")
            .execute(&mut database)
            .await
            .unwrap();
        let begun = Instant::now();
        while begun.elapsed() < STOPPED {
            let entered = sqlx::raw_sql("BEGIN IMMEDIATE; ROLLBACK").execute(&mut database).await;
            if entered.is_ok() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        true
    }

    /// Its process is dead: what of the write that stands? Stops none any more.
    async fn release(&mut self, write: Write) {
        if let Self::Postgres(_) = self {
            match write {
                Write::Lost => {
                    self.number(
                        "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
                    )
                    .await;
                }
                Write::Unheard => self.execute(format!("SELECT pg_advisory_unlock({LOCK})")).await,
            }
        }
        self.execute("UPDATE brake SET at = -1".to_owned()).await;
    }
}

/// A run in the background, for whoever asks with the same key until somebody answers.
async fn queued(url: &str, agent: &str) -> Option<Value> {
    let answer = reqwest::Client::new()
        .post(format!("{url}{}", path_of(agent)))
        .header("prefer", "respond-async")
        .header("idempotency-key", "the-run")
        .json(&json!({"query": "x"}))
        .send()
        .await
        .ok()?;
    let status = answer.status();
    let body: Value = answer.json().await.ok()?;
    // The dead process may still count as at it.
    assert!(status.is_success() || status == 409, "{status}: {body}");
    status.is_success().then_some(body)
}

/// What a run came to whose process died within a write.
struct Outcome {
    /// Was there such a write?
    reached: bool,
    writes: i64,
    place: Place,
    process: Process,
    run: Value,
}

/// A run whose process dies within its write `at`, and that another one takes up.
async fn dies_at(at: i64, write: Write, postgres: bool, agent: &'static str, settings: Value) -> Outcome {
    let place = Place::on(postgres).await;
    let gemini = Gemini::scripted(vec![adds_two(Arc::default()).reply]).await;
    let mut one = place.start_with(&gemini, &settings).await;
    let mut brake = Brake::new(&place.record).await;
    brake.stop_at(at).await;
    let url = one.url.clone();
    let asked = tokio::spawn(async move { queued(&url, agent).await });
    let begun = Instant::now();
    let reached = loop {
        if brake.has_stopped().await {
            break true;
        }
        let over = "SELECT count(*) FROM agent_run WHERE parent_run_id IS NULL AND completed_at IS NOT NULL";
        if brake.number(over).await > 0 {
            break false;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{at}: it neither stands nor is over"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    one.child.0.kill().unwrap();
    one.child.0.wait().unwrap();
    asked.await.unwrap();
    if reached {
        brake.release(write).await;
    }
    let writes = brake.writes().await;
    let process = place.start_with(&gemini, &settings).await;
    until("the run to be told of", || async {
        queued(&process.url, agent).await.is_some()
    })
    .await;
    let run = queued(&process.url, agent).await.unwrap();
    let run = over(&process, &id(&run)).await;
    Outcome {
        reached,
        writes,
        place,
        process,
        run,
    }
}

/// Every write of the run of an agent, each with a death of its own; `check` says what must be true of what came of it, and
/// whether it shows that somebody died.
async fn at_every_write<F: Future<Output = bool> + Send + 'static>(
    (postgres, write): (bool, Write),
    agent: &'static str,
    settings: Value,
    check: impl Fn(i64, Outcome) -> F + Copy + Send + 'static,
) {
    let whole = dies_at(0, write, postgres, agent, settings.clone()).await;
    assert!(!whole.reached && whole.writes > 10, "{} writes", whole.writes);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut deaths = JoinSet::new();
    for at in 1..=whole.writes {
        let (places, settings) = (Arc::clone(&places), settings.clone());
        deaths.spawn(async move {
            let _place = places.acquire_owned().await.unwrap();
            let outcome = dies_at(at, write, postgres, agent, settings).await;
            assert!(outcome.reached, "{at} of {} was never written", whole.writes);
            check(at, outcome).await
        });
    }
    let shown = deaths.join_all().await.into_iter().filter(|shown| *shown).count();
    assert!(shown > 1, "of {} deaths {shown} show", whole.writes);
}

/// The tool takes a key: the same final state as without any death, and each effect once.
async fn ends_as_if_nothing_had_happened(at: i64, outcome: Outcome) -> bool {
    let Outcome {
        place, process, run, ..
    } = outcome;
    assert_eq!(
        (&run["status"], &run["summary"]),
        (&json!("completed"), &json!("Both are there.")),
        "killed at {at}: {run}"
    );
    assert_eq!(place.tasks().await, ["one", "two"], "killed at {at}");
    is_whole(&process, &format!("write {at}")).await;
    run["recovered_from"] == "crash"
}

/// The tool takes no key: what was sent and not heard of is in doubt, for a person to settle, and never sent again.
async fn ends_or_asks_a_person(at: i64, outcome: Outcome) -> bool {
    let Outcome {
        place,
        process,
        mut run,
        ..
    } = outcome;
    let in_doubt = run["status"] == "paused";
    if in_doubt {
        assert_eq!(run["stop_reason"], "in_doubt", "killed at {at}: {run}");
        let calls = run["in_doubt"].as_array().unwrap();
        assert_eq!(calls.len(), 1, "killed at {at}: {run}");
        // The server that was asked may still have been at it when gavel died; it goes when its input ends.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let there = place.tasks().await;
        let happened = there.iter().any(|task| calls[0]["arguments"]["description"] == **task);
        let body = json!({"settled": {calls[0]["action_id"].as_str().unwrap(): happened}});
        let answer = reqwest::Client::new()
            .post(format!("{}/api/runs/{}/resume", process.url, id(&run)))
            .json(&body);
        run = answer.send().await.unwrap().json().await.unwrap();
    }
    assert_eq!(
        (&run["status"], &run["summary"]),
        (&json!("completed"), &json!("Added.")),
        "killed at {at}: {run}"
    );
    let tasks = place.tasks().await;
    let times = |name: &str| tasks.iter().filter(|task| *task == name).count();
    assert!(times("one") <= 1 && times("two") <= 1, "killed at {at}: {tasks:?}");
    for run in all_runs(&process).await {
        assert!(is_over(&run), "killed at {at}: {run}");
    }
    in_doubt
}

macro_rules! killed_within_every_write {
    ($($name:ident: $postgres:literal, $write:ident;)*) => {$(
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_run_ends_as_if_nothing_had_happened() {
                let settings = json!({"trustHints": true});
                at_every_write(($postgres, Write::$write), "chief", settings, ends_as_if_nothing_had_happened).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_call_without_a_key_is_never_sent_twice() {
                let tool = json!({"sideEffect": true, "idempotency": "none"});
                let settings = json!({"trustHints": true, "tools": {"add_task": tool}});
                at_every_write(($postgres, Write::$write), "helper", settings, ends_or_asks_a_person).await;
            }
        }
    )*};
}

killed_within_every_write! {
    on_sqlite: false, Lost;
    on_postgres: true, Lost;
    on_postgres_unheard: true, Unheard;
}
