use std::time::Duration;

use rmcp::ClientLifecycleMode;
use rmcp::model::ServerResult;
use rmcp::service::ServiceError;
use serde_json::{Value, json};

use crate::harness::{Caller, Credentials, Database, Wire, World, stdio_client};

everywhere! {
    /// C-FR-002
    async fn a_restart_keeps_every_task(world: World) {
        let mut world = world;
        let anna = world.caller("anna").await;
        anna.call(
            "add_task",
            json!({ "description": "ÖL wechseln", "due": "2026-12-01", "notes": "5W-30" }),
        )
        .await
        .ok();
        anna.add("call mom").await;
        anna.call("complete_task", json!({ "title": "call mom" })).await.ok();
        let before = anna.call("list_tasks", json!({ "status": "all" })).await.ok();
        anna.leave().await;
        world.restart().await;
        let anna = world.caller("anna").await;
        assert_eq!(anna.call("list_tasks", json!({ "status": "all" })).await.ok(), before);
    }

    /// C-FR-010
    async fn a_broken_database_is_answered_without_a_word_of_sql(world: World) {
        let anna = world.caller("anna").await;
        anna.add("call mom").await;
        world.sql("ALTER TABLE tasks RENAME TO elsewhere").await;
        for (tool, arguments) in [
            ("list_tasks", json!({})),
            ("add_task", json!({ "description": "x" })),
            ("delete_task", json!({ "title": "mom" })),
        ] {
            let reply = anna.call(tool, arguments).await;
            assert_eq!(reply.code(), "store_unavailable");
            assert_eq!(reply.error()["retryable"], true);
            let reported = reply.body.to_string().to_lowercase();
            assert!(!reported.contains("sql") && !reported.contains("relation"), "{reported}");
        }
        world.sql("ALTER TABLE elsewhere RENAME TO tasks").await;
        assert_eq!(anna.descriptions(json!({})).await, ["call mom"]);
    }

    /// Promise: bounded faults. One user cannot fill the database.
    async fn a_user_has_at_most_ten_thousand_tasks(world: World) {
        let (anna, ben) = (world.caller("anna").await, world.caller("ben").await);
        anna.add("call mom").await;
        world
            .sql(
                "INSERT INTO tasks (id, user_id, description, title_key, priority, notes_key, done, created_at, updated_at)
                 WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 9998)
                 SELECT 'id-' || n, 'anna', 'task', 'task', 'normal', '', FALSE, n, n FROM numbers",
            )
            .await;
        anna.add("the last one").await;
        let reply = anna.call("add_task", json!({ "description": "one more" })).await;
        assert_eq!(reply.code(), "too_many_tasks");
        assert_eq!(reply.error()["limit"], 10_000);
        ben.add("call dad").await;
        anna.call("delete_task", json!({ "title": "call mom" })).await.ok();
        anna.add("one more").await;
    }

    /// Promise: at most once.
    async fn a_cancelled_call_that_waits_for_the_database_has_no_effect(world: World) {
        let anna = world.caller("anna").await;
        let lock = Lock::take(&world).await;
        let call = anna
            .begin("add_task", json!({ "description": "never" }), json!({}))
            .await
            .expect("sent");
        tokio::time::sleep(Duration::from_millis(300)).await;
        call.cancel(None).await.expect("cancelled");
        tokio::time::sleep(Duration::from_millis(300)).await;
        lock.release().await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        anna.add("after").await;
        assert_eq!(anna.descriptions(json!({})).await, ["after"]);
    }

    /// Promise: at most once.
    async fn writers_of_two_processes_wait_for_each_other(world: World) {
        let callers = [world.caller("anna").await, world.caller("anna").await];
        let work = callers.iter().enumerate().map(|(writer, anna)| async move {
            for number in 0..25 {
                anna.add(&format!("{writer} {number}")).await;
            }
        });
        let [first, second]: [_; 2] = work.collect::<Vec<_>>().try_into().ok().expect("two");
        tokio::join!(first, second);
        for anna in &callers {
            assert_eq!(anna.descriptions(json!({ "limit": 200 })).await.len(), 50);
        }
    }
}

/// Prevents other writes, as a long transaction of another program would.
enum Lock {
    Sqlite(sqlx::Transaction<'static, sqlx::Sqlite>),
    Postgres(sqlx::Transaction<'static, sqlx::Postgres>),
}

impl Lock {
    async fn take(world: &World) -> Self {
        match world.database {
            Database::Sqlite => {
                let pool = sqlx::SqlitePool::connect(&world.url).await.expect("connected");
                Self::Sqlite(pool.begin_with("BEGIN IMMEDIATE").await.expect("locked"))
            }
            Database::Postgres => {
                let pool = sqlx::PgPool::connect(&world.url).await.expect("connected");
                let mut transaction = pool.begin().await.expect("begun");
                sqlx::raw_sql("LOCK TABLE tasks IN EXCLUSIVE MODE")
                    .execute(&mut *transaction)
                    .await
                    .expect("locked");
                Self::Postgres(transaction)
            }
        }
    }

    async fn release(self) {
        match self {
            Self::Sqlite(transaction) => transaction.rollback().await.expect("released"),
            Self::Postgres(transaction) => transaction.rollback().await.expect("released"),
        }
    }
}

async fn first_start(database: Database) {
    for _ in 0..3 {
        let world = World::new(Wire::Stdio, database).await;
        let starts = (0..6).map(|number| {
            let url = world.url.clone();
            tokio::spawn(async move {
                let client = stdio_client(&url, &[], ClientLifecycleMode::Initialize).await;
                let anna = Caller::new(client, Credentials::Plain("anna".to_owned())).await;
                anna.add(&format!("task {number}")).await;
            })
        });
        for start in starts.collect::<Vec<_>>() {
            start.await.expect("the server started and answered");
        }
        let anna = world.caller("anna").await;
        assert_eq!(anna.descriptions(json!({})).await.len(), 6);
    }
}

/// C-FR-002
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_processes_can_start_at_once_on_a_new_sqlite_file() {
    first_start(Database::Sqlite).await;
}

/// C-FR-002
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_processes_can_start_at_once_on_a_new_postgres_database() {
    first_start(Database::Postgres).await;
}

/// C-FR-002
#[tokio::test]
async fn both_databases_have_the_same_columns() {
    let sqlite = World::new(Wire::Stdio, Database::Sqlite).await;
    let postgres = World::new(Wire::Stdio, Database::Postgres).await;
    sqlite.caller("anna").await.leave().await;
    postgres.caller("anna").await.leave().await;
    let in_sqlite: Vec<(String, String)> = sqlx::query_as(
        "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c
         WHERE m.type = 'table' ORDER BY 1, 2",
    )
    .fetch_all(&sqlx::SqlitePool::connect(&sqlite.url).await.expect("connected"))
    .await
    .expect("columns");
    let in_postgres: Vec<(String, String)> = sqlx::query_as(
        "SELECT table_name::text, column_name::text FROM information_schema.columns
         WHERE table_schema = 'public' ORDER BY 1, 2",
    )
    .fetch_all(&sqlx::PgPool::connect(&postgres.url).await.expect("connected"))
    .await
    .expect("columns");
    assert_eq!(in_sqlite, in_postgres);
    assert!(in_sqlite.len() > 20);
}

/// Promise: at most once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_survives_a_kill() {
    for database in [Database::Sqlite, Database::Postgres] {
        let world = World::new(Wire::Stdio, database).await;
        let mut command = crate::harness::program(&world.url);
        command.stderr(std::process::Stdio::null());
        let child = rmcp::transport::TokioChildProcess::new(command).expect("the program starts");
        let id = child.id().expect("a process id").to_string();
        let client = rmcp::ServiceExt::serve((), child).await.expect("a client");
        let anna = Caller::new(client, Credentials::Plain("anna".to_owned())).await;
        let mut running = Vec::new();
        for number in 0..100 {
            let arguments = json!({ "description": format!("task {number}") });
            let call = anna.begin("add_task", arguments, json!({})).await;
            running.push(call.expect("sent"));
        }
        let mut answered: Vec<Value> = Vec::new();
        for (number, call) in running.into_iter().enumerate() {
            if number == 30 {
                let killed = tokio::process::Command::new("kill").args(["-9", &id]).status().await;
                assert!(killed.is_ok_and(|status| status.success()));
            }
            if let Ok(ServerResult::CallToolResult(result)) = call.await_response().await {
                let body = result.structured_content.expect("an answer");
                answered.push(body["task"]["description"].clone());
            }
        }
        assert!(answered.len() >= 30);
        let kept = world.caller("anna").await;
        let kept = kept.descriptions(json!({ "limit": 200 })).await;
        assert!(answered.iter().all(|task| kept.iter().any(|kept| task == kept)));
    }
}

/// Promise: at most once. An in-band error would mean that nothing was done.
#[tokio::test]
async fn a_commit_whose_end_is_not_known_is_an_error_of_the_protocol() {
    let world = World::new(Wire::Http, Database::Postgres).await;
    let anna = world.caller("anna").await;
    anna.add("call mom").await;
    world
        .sql(
            "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
             CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON tasks DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION cut()",
        )
        .await;
    let meta = json!({ "gavel/idempotency_key": "once" });
    let arguments = json!({ "description": "milk" });
    match anna.try_call("add_task", arguments.clone(), meta.clone()).await {
        Err(ServiceError::McpError(error)) => assert_eq!(error.code.0, -32603, "{error:?}"),
        other => panic!("{:?}", other.map(|reply| reply.body)),
    }
    world.sql("DROP TRIGGER cut ON tasks").await;
    anna.call_with("add_task", arguments, meta).await.ok();
    assert_eq!(anna.descriptions(json!({})).await, ["call mom", "milk"]);
}
