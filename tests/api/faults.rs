//! Faults around a request: no tools, no database; and the data that callers may see.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::gemini::Reply;
use crate::harness::{Setup, binary, spawn_app, tasks_database, until};

/// A request continues without an unavailable server, and the model receives that.
#[tokio::test]
async fn without_its_tool_server_gavel_still_answers_and_informs_the_model() {
    let mcp = json!({"mcpServers": {"tasks": {"command": "/no/such/program"}}});
    let script = vec![
        Reply::call("add_task", json!({"description": "milk"})),
        Reply::Text("I cannot reach your tasks."),
    ];
    let app = spawn_app(Setup::stdio_sqlite().mcp(mcp).script(script)).await;
    let decision = app.chat("add milk").await;
    assert_eq!(decision["response"], "I cannot reach your tasks.", "{decision}");
    assert_ne!(decision["decision_type"], "INVOKE_TOOL", "nothing ran");
    let message = app.gemini.requests()[0]["contents"][0]["parts"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(message.contains("Unavailable right now: add_task"), "{message}");
    let (status, ready) = app.get("/readyz").await;
    assert_eq!(
        status, 200,
        "a server that is down does not make gavel unready: {ready}"
    );
    app.stop().await;
}

/// Promise: recorded. An effect that cannot be recorded does not run, and the caller receives an error.
#[tokio::test]
async fn while_the_database_is_locked_no_side_effect_runs_and_later_requests_succeed() {
    let add = || Reply::call("add_task", json!({"description": "milk"}));
    let list = Reply::call("list_tasks", json!({}));
    let last_is_call = |request: &Value| request["contents"].as_array().unwrap().len() > 1;
    let script = vec![Reply::from(move |request| {
        let text = request["contents"][0]["parts"][0]["text"].as_str().unwrap();
        match (last_is_call(request), text.contains("add")) {
            (true, _) => Reply::Text("Done."),
            (false, true) => add(),
            (false, false) => list.clone(),
        }
    })];
    let app = spawn_app(Setup::stdio_sqlite().script(script)).await;
    assert_eq!(app.chat("hello").await["outcome_category"], "SUCCESS:TASK_COMPLETED");

    let path = app.directory.path().join("gavel.db");
    let mut other = SqliteConnection::connect(&format!("sqlite://{}", path.display()))
        .await
        .unwrap();
    sqlx::raw_sql("BEGIN EXCLUSIVE").execute(&mut other).await.unwrap();
    let start = Instant::now();
    let (status, headers, problem) = app.post(&json!({"message": "add milk", "user_id": "ann"})).await;
    assert_eq!(
        (status, &problem["code"]),
        (503, &json!("record_unavailable")),
        "{problem}"
    );
    assert!(headers.contains_key("retry-after"));
    // The write of the intent is waited for, 2 s, and nothing else.
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();

    until("the store to be available again", || async {
        app.post(&json!({"message": "hello", "user_id": "ann"})).await.0 == 200
    })
    .await;
    let listed = app.chat("hello").await;
    assert_eq!(
        listed["tool_calls"][0]["result"]["data"]["tasks"],
        json!([]),
        "nothing was added: {listed}"
    );
}

/// Tenants are separate, and a request without a key is rejected.
#[tokio::test]
async fn keys_are_required_and_tenants_are_separate() {
    let entry = |name: &str, key: &str, tenant: &str| {
        let hash = Sha256::digest(key)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>();
        format!("[[auth.keys]]\nname = \"{name}\"\nsha256 = \"{hash}\"\ntenant = \"{tenant}\"\n")
    };
    let toml = format!(
        "[auth]\nmode = \"api_key\"\n{}{}",
        entry("a", "key-a", "acme"),
        entry("b", "key-b", "other")
    );
    let app = spawn_app(Setup::stdio_postgres().toml(&toml)).await;
    let body = json!({"message": "hi", "user_id": "ann"}).to_string();
    let (status, headers, problem) = app.post_with(&[], body.clone()).await;
    assert_eq!(
        (status, &problem["code"]),
        (401, &json!("unauthenticated")),
        "{problem}"
    );
    assert!(headers.contains_key("www-authenticate"));
    assert_eq!(
        app.post_with(&[("authorization", "Bearer key-x")], body.clone())
            .await
            .0,
        401
    );
    let (status, _, decision) = app.post_with(&[("authorization", "Bearer key-a")], body).await;
    assert_eq!(status, 200, "{decision}");
    let path = format!("/v1/decisions/{}", decision["decision_id"].as_str().unwrap());
    assert_eq!(app.get_as("key-a", &path).await.0, 200);
    assert_eq!(
        app.get_as("key-b", &path).await.0,
        404,
        "another tenant's decision answers as a missing one"
    );
    let (_, page) = app.get_as("key-b", "/v1/decisions").await;
    assert_eq!(page["decisions"], json!([]));
}

/// A stream has the events of the journal as they happen, and ends with the decision.
#[tokio::test]
async fn a_stream_has_the_events_and_ends_with_the_decision() {
    let script = vec![
        Reply::call("add_task", json!({"description": "milk"})),
        Reply::Text("Added milk."),
    ];
    let app = spawn_app(Setup::stdio_sqlite().script(script)).await;
    let text = app.stream(&json!({"message": "add milk", "user_id": "ann"})).await;
    let lines: Vec<Value> = text
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<_> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.first(), Some(&"started"), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"decision"), "{kinds:?}");
    for kind in ["turn", "tool_call", "tool_result", "delta"] {
        assert!(kinds.contains(&kind), "{kind} in {kinds:?}");
    }
    let decision = lines.last().unwrap();
    assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED", "{decision}");
    assert_eq!(lines[0]["decision_id"], decision["decision_id"]);
    app.decision(&decision["decision_id"]).await;
}

/// With `records.content = none` the database holds no text of a message, and no secret.
#[tokio::test]
async fn with_content_none_the_database_holds_no_message_text() {
    let script = vec![
        Reply::call("add_task", json!({"description": "canary-argument"})),
        Reply::Text("canary-response"),
    ];
    let setup = Setup::stdio_postgres()
        .toml("[records]\ncontent = \"none\"\n")
        .script(script);
    let app = spawn_app(setup).await;
    let decision = app.chat("canary-message").await;
    assert_eq!(decision["response"], "canary-response");
    let mut database = sqlx::PgConnection::connect(&app.database_url).await.unwrap();
    for table in ["decision_log", "tool_invocation_log"] {
        let dump: String = sqlx::query_scalar(AssertSqlSafe(format!(
            "SELECT coalesce(string_agg(t::text, ' '), '') FROM {table} t"
        )))
        .fetch_one(&mut database)
        .await
        .unwrap();
        assert!(!dump.is_empty() && !dump.contains("canary"), "{table}: {dump}");
    }
}

/// What happens to the next COMMIT of a PostgreSQL client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Nothing,
    /// The connection is cut before the COMMIT arrives.
    Before,
    /// The connection is cut after the COMMIT, before the client receives the answer.
    After,
    /// As `After`, and from then on the database is unavailable.
    AfterForGood,
    /// Every connection is cut as soon as it is used, and no new one succeeds.
    Away,
}

/// The database `url` behind a proxy that applies `cut`.
async fn cutting(url: &str, cut: Arc<Mutex<Cut>>) -> String {
    let (before, rest) = url.split_once("127.0.0.1:").unwrap();
    let (port, database) = rest.split_once('/').unwrap();
    let port: u16 = port.parse().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            if *cut.lock().unwrap() != Cut::Away {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                tokio::spawn(between(client, server, Arc::clone(&cut)));
            }
        }
    });
    format!("{before}{address}/{database}")
}

async fn between(mut client: TcpStream, mut server: TcpStream, cut: Arc<Mutex<Cut>>) {
    let (mut said, mut answered) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        tokio::select! {
            read = client.read(&mut said) => {
                let Ok(1..) = read else { return };
                let said = &said[..read.unwrap()];
                let mut now = Cut::Nothing;
                if said.windows(6).any(|window| window == b"COMMIT") {
                    let mut cut = cut.lock().unwrap();
                    now = *cut;
                    *cut = match now {
                        Cut::AfterForGood | Cut::Away => Cut::Away,
                        Cut::Nothing | Cut::Before | Cut::After => Cut::Nothing,
                    };
                }
                // The client may have more than one connection.
                let is_away = now != Cut::AfterForGood && *cut.lock().unwrap() == Cut::Away;
                if is_away || now == Cut::Before || server.write_all(said).await.is_err() {
                    return;
                }
                if now != Cut::Nothing {
                    let _ = server.read(&mut answered).await;
                    return;
                }
            }
            read = server.read(&mut answered) => match read {
                Ok(count @ 1..) if client.write_all(&answered[..count]).await.is_ok() => {}
                _ => return,
            }
        }
    }
}

/// Promises: at most once, truthful states. A commit with an unknown result is not a failure. The call is sent again
/// under its key, which settles it. If that is not possible, it is in doubt. Exactly one task exists in the end.
#[tokio::test]
async fn a_task_whose_commit_was_cut_off_exists_once_and_is_not_reported_as_failed() {
    for (mode, outcome) in [
        (Cut::Before, None),
        (Cut::After, None),
        (Cut::AfterForGood, Some("in_doubt")),
    ] {
        let url = tasks_database().await;
        let cut = Arc::new(Mutex::new(Cut::Nothing));
        let by_proxy = cutting(&url, Arc::clone(&cut)).await;
        let tasks = json!({
            "command": binary(),
            "args": ["mcp-server", "tasks", "--database", by_proxy],
            "gavel": {"trustHints": true},
        });
        let script = vec![
            Reply::Text("Hello."),
            Reply::call("add_task", json!({"description": "milk"})),
            Reply::Text("Done."),
        ];
        let setup = Setup::stdio_sqlite().mcp(json!({"mcpServers": {"tasks": tasks}}));
        let app = spawn_app(setup.script(script)).await;
        until("the task server to be up", || async {
            app.get("/readyz").await.1["status"] == "ready"
        })
        .await;
        app.chat("hello").await;
        *cut.lock().unwrap() = mode;
        let decision = app.chat("add milk").await;
        let result = &decision["tool_calls"][0]["result"];
        assert_eq!(result["error"]["code"].as_str(), outcome, "{mode:?}: {decision}");
        assert_eq!(result["success"], outcome.is_none(), "{mode:?}: {decision}");
        assert_ne!(*cut.lock().unwrap(), mode, "nothing was cut");
        let mut database = PgConnection::connect(&url).await.unwrap();
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM tasks WHERE description = 'milk'")
            .fetch_one(&mut database)
            .await
            .unwrap();
        assert_eq!(count, 1, "{mode:?}");
        app.stop().await;
    }
}

/// A history line without text is not a part that Gemini accepts. The other lines are sent unchanged.
#[tokio::test]
async fn an_empty_line_of_the_history_is_left_out() {
    let app = spawn_app(Setup::stdio_sqlite()).await;
    let history = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": " \n"},
        {"role": "assistant", "content": "Hello."},
    ]);
    let (status, _, decision) = app
        .post(&json!({"message": "and now?", "user_id": "ann", "history": history}))
        .await;
    assert_eq!(status, 200, "{decision}");
    let contents = app.gemini.requests()[0]["contents"].clone();
    let texts: Vec<_> = contents
        .as_array()
        .unwrap()
        .iter()
        .map(|content| {
            (
                content["role"].as_str().unwrap(),
                content["parts"][0]["text"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert_eq!(texts[..2], [("user", "hi"), ("model", "Hello.")]);
    assert!(texts[2].1.ends_with("and now?"), "{texts:?}");
    app.stop().await;
}
