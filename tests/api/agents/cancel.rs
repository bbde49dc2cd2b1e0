//! `POST /api/runs/{id}/cancel`: in every state of a run (promise: at most once; X-4).

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Connection;

use super::{HELPER, asks, both, has_ended, id, path_of, said, words_and_call};
use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, spawn_app, until};
use crate::raw::{Answer as ToolAnswer, RawServer};

/// X-4: a cancelled run keeps its text so far and a waiting client receives it. A second cancel changes nothing.
#[tokio::test]
async fn a_run_cancelled_while_the_model_answers_keeps_its_text() {
    for setup in both() {
        let script = vec![words_and_call("Looking first.", "list_tasks", json!({})), Reply::Hang];
        let app = spawn_app(setup.script(script)).await;
        let waiting = app
            .request("POST", &path_of("helper"), &[])
            .json(&json!({"query": "x"}));
        let waiting = tokio::spawn(waiting.send());
        app.asked(2).await;
        let run = id(&app.runs("").await[0]);
        let answer = app.cancel(&run).await;
        assert!([200, 202].contains(&answer.status), "{}", answer.body);
        assert_eq!(answer.header("location"), format!("/api/runs/{run}"));
        let reported: Value = waiting.await.unwrap().unwrap().json().await.unwrap();
        assert_eq!(
            (&reported["status"], &reported["summary"]),
            (&json!("cancelled"), &json!("Looking first.")),
            "{reported}"
        );
        assert_eq!(app.run(&run).await, reported);
        assert_eq!(app.cancel(&run).await.expect(200), reported);
        let decision = app.decision(&reported["id"]).await;
        assert_eq!(decision["status"], "closed", "{decision}");
        let problem = app.resume(&run, json!({})).await.problem(409, "not_paused");
        assert!(problem["detail"].as_str().unwrap().contains("cancelled"), "{problem}");
    }
}

/// A server whose tool `act` never answers.
async fn never_answers() -> RawServer {
    RawServer::start(|request| match request.method() {
        "tools/list" => Some(ToolAnswer::Result(json!({"tools": [
            {"name": "act", "inputSchema": {"type": "object", "properties": {"what": {"type": "string"}}}},
        ]}))),
        "tools/call" => Some(ToolAnswer::Hang),
        _ => None,
    })
    .await
}

const ACTOR: &str = "---\nname: actor\ndescription: Acts.\napproval: never\ntools: [act]\n---\n\nAct.\n";

/// Promise: at most once. A call in flight has an unknown outcome, and the run reports it as in doubt.
#[tokio::test]
async fn a_run_cancelled_within_a_call_reports_the_call_as_in_doubt() {
    for setup in both() {
        let mut server = never_answers().await;
        let setup = setup
            .agent("actor.md", ACTOR)
            .mcp(json!({"mcpServers": {"s": {"url": server.url}}}))
            .script(vec![Reply::call("act", json!({"what": "all"}))]);
        let app = spawn_app(setup).await;
        let run = app.queued("actor", "x").await;
        server.saw("tools/call").await;
        app.cancel(&run).await;
        let run = app.over(&run).await;
        assert_eq!(run["status"], "cancelled", "{run}");
        let in_doubt = run["in_doubt"].as_array().unwrap();
        assert_eq!(in_doubt.len(), 1, "{run}");
        assert_eq!(
            (&in_doubt[0]["tool"], &in_doubt[0]["parameters"]),
            (&json!("act"), &json!({"what": "all"})),
            "{run}"
        );
        let calls = app.tool_invocations(&run["id"]).await;
        assert_eq!((calls.len(), &calls[0]["status"]), (1, &json!("in_doubt")), "{calls:?}");
        // The server received a cancellation, not only a closed connection.
        server.saw("gone").await;
    }
}

/// X-4: a queued run that is cancelled never starts.
#[tokio::test]
async fn a_queued_run_that_is_cancelled_never_starts() {
    for setup in both() {
        let script = vec![Reply::Hang];
        let app = spawn_app(setup.env("GAVEL_RUNS_BACKGROUND", "1").script(script)).await;
        let first = app.queued("helper", "x").await;
        app.asked(1).await;
        let second = app.queued("helper", "y").await;
        let cancelled = app.cancel(&second).await.expect(200);
        assert_eq!(
            (
                &cancelled["status"],
                &cancelled["error_message"],
                &cancelled["started_at"]
            ),
            (&json!("cancelled"), &json!("cancelled before it began"), &Value::Null),
            "{cancelled}"
        );
        let decision = app.decision(&cancelled["id"]).await;
        assert_eq!(decision["status"], "closed", "{decision}");
        let events = app.events(&second).await;
        assert_eq!(super::types(&events), ["end"], "{events:?}");
        app.cancel(&first).await;
        app.over(&first).await;
        // Its slot is free for the next run.
        let third = app.queued("helper", "z").await;
        app.asked(2).await;
        assert_eq!(app.run(&second).await, cancelled);
        app.cancel(&third).await;
        app.over(&third).await;
    }
}

/// X-4, R-13: a run that waits for approval ends at once, and so does its request, also for waiting clients. A later
/// approval is rejected.
#[tokio::test]
async fn a_run_that_waits_for_approval_is_cancelled_with_its_request() {
    let careful = HELPER.replace("approval: never", "approval: side_effects");
    for setup in both() {
        let script = vec![Reply::call("add_task", json!({"description": "milk"}))];
        let app = spawn_app(
            setup
                .agent("careful.md", &careful.replace("helper", "careful"))
                .script(script),
        )
        .await;
        let by_ann = [("x-gavel-user", "ann")];
        let waiting = app
            .request("POST", &path_of("careful"), &by_ann)
            .json(&json!({"query": "x"}));
        let waiting = tokio::spawn(waiting.send());
        let pending = async || {
            let request = app.request("GET", "/api/agent/approvals/pending", &by_ann);
            let page = Answer::of(request).await.expect(200);
            page["approvals"].as_array().unwrap().clone()
        };
        until("the approval request", || async { pending().await.len() == 1 }).await;
        let question = pending().await.remove(0);
        let run = question["runId"].as_str().unwrap();
        let by_ann_at = async |method: &str, path: String| Answer::of(app.request(method, &path, &by_ann)).await;
        let now = async || by_ann_at("GET", format!("/api/runs/{run}")).await.expect(200);
        assert_eq!(now().await["status"], "awaiting_confirmation");

        let answer = by_ann_at("POST", format!("/api/runs/{run}/cancel")).await;
        assert!([200, 202].contains(&answer.status), "{}", answer.body);
        until("the run to end", async || has_ended(&now().await)).await;
        let over = now().await;
        assert_eq!(
            (&over["status"], &over["in_doubt"]),
            (&json!("cancelled"), &json!([])),
            "{over}"
        );
        // A waiting client was answered at the latest when approval was requested, so it does not hang.
        let reported: Value = waiting.await.unwrap().unwrap().json().await.unwrap();
        assert_eq!(reported["id"], over["id"], "{reported}");
        assert_eq!(pending().await.len(), 0);
        let yes = json!({"approvalId": question["approvalId"], "decision": "approve_once"});
        let late = app.request("POST", "/api/agent/approvals/resolve", &by_ann).json(&yes);
        Answer::of(late).await.problem(409, "already_resolved");
        assert_eq!(app.tasks().await.len(), 0);
        assert_eq!(
            by_ann_at("POST", format!("/api/runs/{run}/cancel")).await.expect(200),
            over
        );
    }
}

/// The run that another one called.
async fn called_by(app: &App, run: &str) -> String {
    let filter = format!("parent_run_id = \"{run}\"");
    until("the call", || async { !app.runs(&filter).await.is_empty() }).await;
    id(&app.runs(&filter).await[0])
}

fn helper_hangs() -> Reply {
    Reply::from(|request| match (asks(request, "chief"), said(request)) {
        (true, 1) => Reply::call("helper", json!({"query": "add milk"})),
        (true, _) => Reply::Text("Then not."),
        (false, _) => Reply::Hang,
    })
}

/// X-15: a cancelled called run is a tool error to its caller, which continues.
#[tokio::test]
async fn a_called_run_that_is_cancelled_is_an_error_to_its_caller() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![helper_hangs()])).await;
        let chief = app.queued("chief", "x").await;
        app.asked(2).await;
        let helper = called_by(&app, &chief).await;
        app.cancel(&helper).await;
        let chief = app.over(&chief).await;
        assert_eq!(
            (&chief["status"], &chief["summary"]),
            (&json!("completed"), &json!("Then not.")),
            "{chief}"
        );
        assert_eq!(app.run(&helper).await["status"], "cancelled");
        let events = app.events(&id(&chief)).await;
        let result = events.iter().find(|event| event["type"] == "tool_result").unwrap();
        assert_eq!(result["error"]["code"], "cancelled", "{result}");
    }
}

/// X-15: cancelling a run cancels the runs it called.
#[tokio::test]
async fn cancelling_a_run_cancels_the_runs_it_called() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![helper_hangs()])).await;
        let chief = app.queued("chief", "x").await;
        app.asked(2).await;
        let helper = called_by(&app, &chief).await;
        app.cancel(&chief).await;
        assert_eq!(app.over(&chief).await["status"], "cancelled");
        let helper = app.over(&helper).await;
        assert_eq!(helper["status"], "cancelled", "{helper}");
        let decisions = app.decisions().await;
        assert!(
            decisions.iter().all(|decision| decision["status"] == "closed"),
            "{decisions:?}"
        );
        // No run continues in the background.
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(app.gemini.requests().len(), 2);
    }
}

/// X-4: a run that has ended cannot be cancelled.
#[tokio::test]
async fn a_run_that_has_ended_is_not_cancelled() {
    let app = spawn_app(Setup::stdio_sqlite().agent("helper.md", HELPER)).await;
    let run = app.triggered("helper", "x").await;
    assert_eq!(app.cancel(&id(&run)).await.expect(200), run);
}

/// Promise: recorded. A cancellation that was written is confirmed, even if the store can no longer be read.
#[tokio::test]
async fn a_written_cancellation_is_confirmed_even_if_the_store_cannot_be_read() {
    let [setup, _] = both();
    let app = spawn_app(setup.script(vec![Reply::Hang])).await;
    let run = app.queued("helper", "x").await;
    app.asked(1).await;
    let mut database = sqlx::SqliteConnection::connect(&app.database_url).await.unwrap();
    // The row exists but cannot be read until its end is written.
    let trigger = "CREATE TRIGGER unreadable AFTER UPDATE OF cancel_requested ON agent_run BEGIN \
                   UPDATE agent_run SET created_at = 'x' WHERE id = new.id; END";
    sqlx::query(trigger).execute(&mut database).await.unwrap();
    let answer = app.cancel(&run).await;
    assert_eq!(answer.header("location"), format!("/api/runs/{run}"));
    assert_eq!(answer.expect(202)["status"], "running");
    sqlx::query("UPDATE agent_run SET created_at = 1")
        .execute(&mut database)
        .await
        .unwrap();
    assert_eq!(app.over(&run).await["status"], "cancelled");
}

/// X-4: the text of an interrupted turn is kept too. A reader that joins within a turn receives the rest of it.
#[tokio::test]
async fn a_run_cancelled_within_a_turn_keeps_its_text() {
    for setup in both() {
        let words = Reply::Words(
            Duration::from_millis(500),
            &["I count: ", "one, ", "two, ", "three, ", "four, ", "five."],
        );
        let script = vec![words_and_call("Looking first.", "list_tasks", json!({})), words];
        let app = spawn_app(setup.script(script)).await;
        let run = app.queued("helper", "x").await;
        app.asked(2).await;
        let mut events = app
            .request("GET", &format!("/api/runs/{run}/events"), &[])
            .send()
            .await
            .unwrap();
        let mut reported = String::new();
        while !reported.contains(r#""type":"delta""#) {
            let chunk = events
                .chunk()
                .await
                .unwrap()
                .unwrap_or_else(|| panic!("no words: {reported}"));
            reported.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        app.cancel(&run).await;
        let run = app.over(&run).await;
        assert_eq!(run["status"], "cancelled", "{run}");
        let summary = run["summary"].as_str().unwrap();
        assert!(summary.starts_with("Looking first.\n\nI count: "), "{run}");
        assert!(!summary.contains("five."), "{run}");
    }
}
