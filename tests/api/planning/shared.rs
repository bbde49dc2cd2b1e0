//! The database that replicas share, walked over HTTP: two of them confirm a plan at once, and it is lost in the middle of
//! the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use serde_json::json;
use sqlx::{Connection, SqliteConnection};
use tokio::sync::Notify;

use super::studio::{Studio, act, beside, done, path, plan, reason, task_with};
use crate::gemini::Reply;
use crate::github::Fault;
use crate::harness::{Setup, rows, spawn_app, until};
use crate::postgres;
use crate::task_model;

/// Two replicas that confirm a plan at once both answer 202, and its work begins once, confirmed once.
#[tokio::test]
async fn two_replicas_that_confirm_a_plan_at_once_begin_its_work_once() {
    const SESSIONS: usize = 4;
    let database = postgres::database().await;
    let setup = Setup::stdio_postgres()
        .mcp(json!({"mcpServers": {}}))
        .env("DATABASE_URL", &database)
        .script(vec![task_model::model()]);
    let (github, setup) = beside(setup).await;
    let setup = setup.toml("sessions_per_user = 9\n");
    let replica = async || Studio {
        app: spawn_app(setup.clone()).await,
        github: github.clone(),
    };
    let (one, two) = (replica().await, replica().await);
    let sessions = join_all((0..SESSIONS).map(|_| one.start())).await;
    for session in &sessions {
        let confirm = || json!({"planVersion": 1});
        let (first, second) = tokio::join!(one.execute(session, confirm()), two.execute(session, confirm()));
        let (first, second) = (first.expect(202), second.expect(202));
        assert_eq!(first["runId"], second["runId"]);
    }
    for session in &sessions {
        let ended = two
            .once(session, "the session to end", |session| {
                !session["completedAt"].is_null()
            })
            .await;
        assert_eq!(ended["status"], "COMPLETED", "{ended}");
        let id = session["sessionId"].as_str().unwrap();
        let confirmed = format!("SELECT COUNT(*) FROM audit WHERE kind = 'plan_confirmed' AND subject = '{id}'");
        assert_eq!(rows(&database, &confirmed).await, 1);
        let runs = format!("SELECT COUNT(*) FROM agent_run WHERE session_id = '{id}' AND agent_id = 'task_worker'");
        assert_eq!(rows(&database, &runs).await, 1);
    }
    assert_eq!(github.seen("POST").len(), SESSIONS, "each opens one issue");
    github.finish();
    one.app.stop().await;
    two.app.stop().await;
}

/// Two tasks: an issue, and a pull request. The first answer that calls `createIssue` waits until it is released.
fn model(released: Arc<Notify>) -> Reply {
    let holds = AtomicBool::new(true);
    Reply::from(move |request| {
        let config = &request["toolConfig"]["functionCallingConfig"];
        let is_first = request["contents"].to_string().contains("Your task is t1");
        match (
            config["mode"].as_str(),
            config["allowedFunctionNames"].to_string(),
            is_first,
        ) {
            (Some("NONE"), ..) => reason("I do it."),
            (Some("ANY"), allowed, first) if allowed.contains("reflect") => done(
                1,
                if first {
                    "https://github.com/acme/dates/issues/"
                } else {
                    "https://github.com/acme/dates/pull/"
                },
            ),
            (Some("ANY"), _, true) => {
                let issue = act("createIssue", json!({"title": "Weeks"}));
                match holds.swap(false, Ordering::SeqCst) {
                    true => Reply::Held(Arc::clone(&released), Box::new(issue)),
                    false => issue,
                }
            }
            (Some("ANY"), ..) => act(
                "createPullRequest",
                json!({"title": "Weeks", "head": "gavel/weeks", "base": "main"}),
            ),
            _ => plan(vec![
                task_with("Open an issue", &["createIssue"]),
                task_with("Open a pull request", &["createPullRequest"]),
            ]),
        }
    })
}

/// Works through a plan whose database is lost once before an effect, and once after one and before its answer.
async fn endure(database: &str, lose: impl AsyncFn(), restore: impl AsyncFn()) {
    let (asked, answered) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let setup = Setup::stdio_sqlite()
        .mcp(json!({"mcpServers": {}}))
        .env("DATABASE_URL", database)
        .env("GAVEL_RUNS_LEASE_SECONDS", "2")
        .script(vec![model(Arc::clone(&asked))]);
    let (github, setup) = beside(setup).await;
    let studio = Studio {
        app: spawn_app(setup).await,
        github,
    };
    let is_ready = async |status: u16| {
        until("the state of the database to be known", || async {
            studio.app.get("/readyz").await.0 == status
        })
        .await;
    };
    let pulls = "/repos/acme/dates/pulls";
    studio
        .github
        .fail("POST", pulls, [Fault::HeldAfter(Arc::clone(&answered))]);
    let session = studio.start().await;
    studio.execute(&session, json!({})).await.expect(202);
    until("the model to be asked for the call", || async {
        studio.app.gemini.sizes().len() == 3
    })
    .await;

    lose().await;
    asked.notify_one();
    is_ready(503).await;
    assert!(
        studio.github.seen("POST").is_empty(),
        "what cannot be recorded is not sent"
    );
    restore().await;
    let opened = || {
        studio
            .github
            .state(|state| state.repository("acme", "dates").pulls.len())
    };
    until("the pull request to be open", || async { opened() == 1 }).await;

    lose().await;
    answered.notify_one();
    is_ready(503).await;
    restore().await;
    let ended = studio
        .once(&session, "the session to end", |session| {
            !session["completedAt"].is_null()
        })
        .await;
    assert_eq!(ended["status"], "COMPLETED", "{ended}");
    let posts: Vec<_> = studio.github.seen("POST").into_iter().map(|seen| seen.path).collect();
    assert_eq!(posts, ["/repos/acme/dates/issues", pulls]);
    for task in ["t1", "t2"] {
        let task = studio.get(&format!("{}/tasks/{task}", path(&session))).await;
        assert_eq!(task["reactHistory"].as_array().unwrap().len(), 1, "{task}");
    }
    studio.github.finish();
    studio.app.stop().await;
}

#[tokio::test]
async fn a_session_endures_the_loss_of_postgres_before_an_effect_and_after_one() {
    let server = Arc::new(tokio::task::spawn_blocking(postgres::Server::start_new).await.unwrap());
    let aside = async |work: fn(&postgres::Server)| {
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || work(&server)).await.unwrap();
    };
    let database = server.database().await;
    endure(
        &database,
        async || aside(|server| server.stop()).await,
        async || aside(|server| server.start()).await,
    )
    .await;
}

#[tokio::test]
async fn a_session_endures_that_sqlite_is_locked_before_an_effect_and_after_one() {
    let directory = tempfile::tempdir().unwrap();
    let database = format!("sqlite://{}", directory.path().join("gavel.db").display());
    let other = tokio::sync::Mutex::new(None);
    let lose = async || {
        let mut locking = SqliteConnection::connect(&database).await.unwrap();
        sqlx::raw_sql("PRAGMA busy_timeout = 20000; BEGIN EXCLUSIVE")
            .execute(&mut locking)
            .await
            .unwrap();
        *other.lock().await = Some(locking);
    };
    let restore = async || {
        let mut locking = other.lock().await.take().unwrap();
        sqlx::raw_sql("ROLLBACK").execute(&mut locking).await.unwrap();
    };
    endure(&database, lose, restore).await;
}
