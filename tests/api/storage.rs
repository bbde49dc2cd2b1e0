//! A database that is locked, full, or down and up again, seen from outside. An effect that cannot be recorded does not
//! run, the caller gets an error, and afterwards everything works without a restart (promise: recorded).

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use crate::crash::start_by;
use crate::gemini::{Gemini, Reply};
use crate::harness::{App, Setup, binary, client, spawn_app, until};
use crate::postgres::Server;

/// A model that adds the task in a message that starts with `add`, and else lists tasks. With `late` in the message it
/// delays the call, with `slow` the final text.
fn model() -> Vec<Reply> {
    let wait = |reply| Reply::After(Duration::from_millis(1500), Box::new(reply));
    vec![Reply::from(move |request| {
        let contents = request["contents"].as_array().unwrap();
        let text = contents[0]["parts"][0]["text"].as_str().unwrap();
        let words = text.split_once("\n\n").unwrap().1;
        let reply = match (contents.len() > 1, words.starts_with("add")) {
            (true, _) => Reply::Text("Done."),
            (false, true) => Reply::call("add_task", json!({"description": words})),
            (false, false) => Reply::call("list_tasks", json!({})),
        };
        let waits = if contents.len() > 1 { "slow" } else { "late" };
        if words.contains(waits) { wait(reply) } else { reply }
    })]
}

async fn post(url: &str, message: &str) -> (u16, bool, Value) {
    send(client().post(format!("{url}/v1/chat")), message).await
}

/// With an `Idempotency-Key` that is the message itself.
async fn post_with_key(url: &str, message: &str) -> (u16, bool, Value) {
    let request = client().post(format!("{url}/v1/chat"));
    send(request.header("idempotency-key", message.replace(' ', "-")), message).await
}

async fn send(request: reqwest::RequestBuilder, message: &str) -> (u16, bool, Value) {
    let body = json!({"message": message, "user_id": "ann"});
    let answer = request.json(&body).send().await.unwrap();
    let retry = answer.headers().contains_key("retry-after");
    (answer.status().as_u16(), retry, answer.json().await.unwrap())
}

async fn get(url: &str, path: &str) -> (u16, Value) {
    let answer = client().get(format!("{url}{path}")).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// The descriptions of the user's tasks.
async fn tasks(url: &str) -> Vec<String> {
    let (status, _, listed) = post(url, "list").await;
    assert_eq!(status, 200, "{listed}");
    let tasks = listed["tool_calls"][0]["result"]["data"]["tasks"].as_array();
    let description = |task: &Value| task["description"].as_str().unwrap().to_owned();
    tasks
        .unwrap_or_else(|| panic!("{listed}"))
        .iter()
        .map(description)
        .collect()
}

/// Nothing can be recorded: the caller gets a retryable error in bounded time, and readiness reports it. Once that is
/// known, the model is not asked.
async fn refuses(url: &str, gemini: &Gemini) {
    let begun = Instant::now();
    let (status, retry, problem) = post(url, "add milk").await;
    assert_eq!(
        (status, &problem["code"]),
        (503, &json!("record_unavailable")),
        "{problem}"
    );
    assert!(retry, "{problem}");
    let asked = gemini.requests().len();
    let (status, _, problem) = post(url, "add milk").await;
    assert_eq!(
        (status, &problem["code"]),
        (503, &json!("record_unavailable")),
        "{problem}"
    );
    let stream = client().post(format!("{url}/v1/chat/stream"));
    let (status, _, problem) = send(stream, "add milk").await;
    assert_eq!(
        (status, &problem["code"]),
        (503, &json!("record_unavailable")),
        "{problem}"
    );
    assert_eq!(gemini.requests().len(), asked, "the model is not asked");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let (status, ready) = get(url, "/readyz").await;
    assert_eq!(
        (status, &ready["status"], &ready["checks"]["store"]["ok"]),
        (503, &json!("unready"), &json!(false)),
        "{ready}"
    );
    assert_eq!(client().get(format!("{url}/livez")).send().await.unwrap().status(), 200);
}

/// The service works again without a restart, and the refused requests had no effect.
async fn recovers(url: &str, expected: &[&str]) {
    until("readiness", || async { get(url, "/readyz").await.0 == 200 }).await;
    until("requests to be accepted", || async { post(url, "list").await.0 == 200 }).await;
    assert_eq!(tasks(url).await, expected);
    let open = "/v1/decisions?filter=status%20%3D%20%22open%22";
    until("nothing to be open", || async {
        get(url, open).await.1["decisions"] == json!([])
    })
    .await;
    let added = post(url, "add bread").await.2;
    assert_eq!(added["outcome_category"], "SUCCESS:TASK_COMPLETED", "{added}");
}

/// A PostgreSQL server of the test's own, which can be stopped.
async fn own_postgres() -> Arc<Server> {
    Arc::new(tokio::task::spawn_blocking(Server::start_new).await.unwrap())
}

async fn stop(server: &Arc<Server>) {
    let server = Arc::clone(server);
    tokio::task::spawn_blocking(move || server.stop()).await.unwrap();
}

async fn start(server: &Arc<Server>) {
    let server = Arc::clone(server);
    tokio::task::spawn_blocking(move || server.start()).await.unwrap();
}

async fn app_on(database: &str) -> App {
    spawn_app(Setup::stdio_sqlite().env("DATABASE_URL", database).script(model())).await
}

/// C-FR-006, C-FR-007: PostgreSQL crashes while requests are in every stage, and restarts.
#[tokio::test]
async fn a_restart_of_postgres_hides_no_effect_and_lets_nothing_run_unrecorded() {
    let server = own_postgres().await;
    let app = app_on(&server.database().await).await;
    assert_eq!(tasks(&app.url).await, [""; 0]);
    let asked = app.gemini.requests().len();
    // One request has had its effect and waits for its final text; the call of the other is not proposed yet.
    let acted = post_with_key(&app.url, "add this slow");
    let not_yet = post_with_key(&app.url, "add that late");
    let crash = async {
        until("the first to have acted", || async {
            app.gemini.requests().len() == asked + 3
        })
        .await;
        stop(&server).await;
    };
    let (acted, not_yet, ()) = tokio::join!(acted, not_yet, crash);
    let (status, _, problem) = acted;
    assert_eq!(
        (status, &problem["code"]),
        (500, &json!("outcome_unrecorded")),
        "{problem}"
    );
    let decision = problem["decision_id"].clone();
    let (status, _, problem) = not_yet;
    assert_eq!(
        (status, &problem["code"]),
        (503, &json!("record_unavailable")),
        "{problem}"
    );

    refuses(&app.url, &app.gemini).await;
    let (status, problem) = get(&app.url, "/v1/decisions").await;
    assert_eq!(
        (status, &problem["code"]),
        (503, &json!("record_unavailable")),
        "{problem}"
    );

    start(&server).await;
    recovers(&app.url, &["add this slow"]).await;
    let record = app.decision(&decision).await;
    assert_eq!(
        (&record["status"], &record["outcome_category"]),
        (&json!("closed"), &json!("SUCCESS:TASK_COMPLETED")),
        "{record}"
    );
    assert_eq!(app.tool_invocations(&decision).await[0]["status"], "completed");

    // Repeated with their keys: a completed effect is reported and not repeated, a missing one is made.
    let (status, _, again) = post_with_key(&app.url, "add this slow").await;
    assert_eq!((status, &again["decision_id"]), (200, &decision), "{again}");
    let (status, _, again) = post_with_key(&app.url, "add that late").await;
    assert_eq!(
        (status, &again["outcome_category"]),
        (200, &json!("SUCCESS:TASK_COMPLETED")),
        "{again}"
    );
    let mut tasks = tasks(&app.url).await;
    tasks.sort();
    assert_eq!(tasks, ["add bread", "add that late", "add this slow"]);
    app.stop().await;
}

#[tokio::test]
async fn gavel_started_before_its_postgres_refuses_and_then_works() {
    let server = own_postgres().await;
    let database = server.database().await;
    stop(&server).await;
    let app = app_on(&database).await;
    refuses(&app.url, &app.gemini).await;
    assert_eq!(app.gemini.requests().len(), 0, "the model was never asked");
    start(&server).await;
    recovers(&app.url, &[]).await;
    app.stop().await;
}

/// A restart of the database between two requests, or an administrator, costs connections, not requests.
#[tokio::test]
async fn connections_cut_by_postgres_are_replaced_transparently() {
    let server = own_postgres().await;
    let database = server.database().await;
    let app = app_on(&database).await;
    let mut admin = PgConnection::connect(&database).await.unwrap();
    for n in 0..5 {
        let cut: i64 = sqlx::query_scalar(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'gavel'",
        )
        .fetch_one(&mut admin)
        .await
        .unwrap();
        assert!(cut > 0, "no connection was cut");
        let (status, _, decision) = post(&app.url, &format!("add {n}")).await;
        assert_eq!(status, 200, "{decision}");
        app.decision(&decision["decision_id"]).await;
    }
    assert_eq!(tasks(&app.url).await.len(), 5, "each was done once");
}

#[tokio::test]
async fn while_postgres_is_locked_no_side_effect_runs_and_later_requests_succeed() {
    let server = own_postgres().await;
    let database = server.database().await;
    let app = app_on(&database).await;
    assert_eq!(post(&app.url, "add first").await.0, 200);
    let mut other = PgConnection::connect(&database).await.unwrap();
    let lock = "BEGIN; LOCK TABLE instance, decision_log, tool_invocation_log IN EXCLUSIVE MODE";
    sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
    refuses(&app.url, &app.gemini).await;
    other.close().await.unwrap();
    recovers(&app.url, &["add first"]).await;
}

/// A trigger that raises PostgreSQL's error for a full disk.
#[tokio::test]
async fn while_postgres_is_full_no_side_effect_runs_and_later_requests_succeed() {
    let server = own_postgres().await;
    let database = server.database().await;
    let app = app_on(&database).await;
    assert_eq!(post(&app.url, "add first").await.0, 200);
    let mut admin = PgConnection::connect(&database).await.unwrap();
    let full = "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
                END $$;
                CREATE TRIGGER no_room BEFORE INSERT OR UPDATE ON decision_log EXECUTE FUNCTION no_room();
                CREATE TRIGGER no_room BEFORE INSERT OR UPDATE ON instance EXECUTE FUNCTION no_room();";
    sqlx::raw_sql(full).execute(&mut admin).await.unwrap();
    refuses(&app.url, &app.gemini).await;
    sqlx::raw_sql("DROP FUNCTION no_room CASCADE")
        .execute(&mut admin)
        .await
        .unwrap();
    recovers(&app.url, &["add first"]).await;
}

/// A full disk: the operating system refuses every write of the process for a while.
#[tokio::test]
async fn while_the_disk_is_full_sqlite_refuses_and_later_requests_succeed() {
    let directory = tempfile::tempdir().unwrap();
    let gemini = Gemini::scripted(model()).await;
    // A write over the limit is then an error instead of a signal that ends the process.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", binary()]);
    let database = format!("sqlite://{}", directory.path().join("gavel.db").display());
    let process = start_by(command, &gemini.url, &database, directory.path()).await;
    assert_eq!(post(&process.url, "add first").await.0, 200);
    let limit = |bytes: &str| {
        let pid = process.child.0.id().to_string();
        let set = Command::new("prlimit")
            .args(["--pid", &pid, &format!("--fsize={bytes}")])
            .status();
        assert!(set.unwrap().success());
    };
    limit("0:unlimited");
    refuses(&process.url, &gemini).await;
    let (status, page) = get(&process.url, "/v1/decisions").await;
    assert_eq!(
        (status, page["decisions"].as_array().map(Vec::len)),
        (200, Some(1)),
        "existing data can be read: {page}"
    );
    limit("unlimited:unlimited");
    recovers(&process.url, &["add first"]).await;
}
