//! The texts of a user are erased over HTTP and by command, on both databases.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::audit::audit_is_whole;
use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, binary, spawn_app};
use crate::others::{SECRET, token};
use crate::threads::{add, both};

async fn erase(app: &App, headers: &[(&str, &str)]) -> Answer {
    let request = app.request("POST", "/v1/erasures", headers);
    Answer::of(request.json(&json!({"user_id": "ann"}))).await
}

/// a service erases what a user said and was answered; no user may, nor a service in the name of one. The rows, their
/// counts and the audit chain remain, and so do the texts of others.
#[tokio::test]
async fn a_service_erases_the_texts_of_a_user() {
    for setup in both() {
        let script = ["call mom", "buy milk", "pay rent"].map(|task| vec![add(task), Reply::Text("Noted.")]);
        let script = script.into_iter().flatten().collect();
        let app = spawn_app(setup.script(script)).await;
        let mut ids = Vec::new();
        for (user, message) in [("ann", "Call mom."), ("ann", "Buy milk."), ("bob", "Pay rent.")] {
            ids.push(app.chat_as(user, message).await["decision_id"].clone());
        }
        let of_ann = app.decision(&ids[0]).await;
        assert_eq!(of_ann["message"], "Call mom.", "{of_ann}");
        let before = app.get("/v1/stats/outcomes").await.1["rows"].clone();

        erase(&app, &[("x-gavel-user", "ann")]).await.problem(403, "forbidden");
        assert_eq!(app.decision(&ids[0]).await, of_ann);

        let erased = erase(&app, &[]).await.expect(200);
        assert_eq!(
            (&erased["decisions"], &erased["tool_invocations"], &erased["left"]),
            (&json!(2), &json!(2), &json!(0)),
            "{erased}"
        );
        for id in &ids[..2] {
            let decision = app.decision(id).await;
            assert_eq!(
                (&decision["message"], &decision["response"]),
                (&Value::Null, &Value::Null)
            );
            assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED", "{decision}");
            for call in app.tool_invocations(id).await {
                let texts = (&call["parameters"], &call["result"]["data"]);
                assert_eq!(texts, (&Value::Null, &Value::Null), "{call}");
                assert_eq!(call["tool"], "add_task", "{call}");
            }
        }
        assert_eq!(app.decision(&ids[2]).await["message"], "Pay rent.");
        assert_eq!(app.get("/v1/stats/outcomes").await.1["rows"], before);
        audit_is_whole(&app.database_url, "erased").await;

        let mut gavel = Command::new(binary());
        gavel.env("DATABASE_URL", &app.database_url).stdin(Stdio::null());
        let ran = gavel.args(["decisions", "erase", "bob", "--yes"]).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert_eq!(said, "erased the texts of 1 decision and 1 tool call\n", "{ran:?}");
        assert_eq!(app.decision(&ids[2]).await["message"], Value::Null);
        audit_is_whole(&app.database_url, "erased").await;
    }
}

/// No role of a user is enough, not even for the user's own texts.
#[tokio::test]
async fn no_user_erases_texts() {
    let setup = Setup::stdio_sqlite()
        .env("GAVEL_AUTH_MODE", "jwt")
        .env("GAVEL_AUTH_JWT_ISSUER", "https://issuer.example")
        .env("GAVEL_AUTH_JWT_AUDIENCE", "gavel")
        .env("GAVEL_AUTH_JWT_SECRET", SECRET);
    let app = spawn_app(setup).await;
    for user in ["ann", "root"] {
        let of_user = format!("Bearer {}", token(user, "default", &["analyst", "approver", "editor"]));
        erase(&app, &[("authorization", &of_user)])
            .await
            .problem(403, "forbidden");
    }
}
