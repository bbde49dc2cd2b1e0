//! Approval requests of runs without a thread: they wait in the same list and are resolved by the same route.

use chrono::{DateTime, TimeDelta};
use serde_json::{Value, json};

use super::{HELPER, both, path_of, said};
use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, spawn_app};

/// Requires approval as `approval` says.
fn careful(setup: Setup, approval: &str) -> Setup {
    let agent = HELPER.replace("approval: never", &format!("approval: {approval}"));
    setup.agent("careful.md", &agent.replace("helper", "careful"))
}

async fn triggered_by_ann(app: &App) -> Value {
    let trigger = app.request("POST", &path_of("careful"), &[("x-gavel-user", "ann")]);
    Answer::of(trigger.json(&json!({"query": "milk"}))).await.body
}

/// an approval request of a triggered run waits with `threadId` null. It is resolved like that of a thread, and
/// the run continues.
#[tokio::test]
async fn an_approval_request_of_a_triggered_run_waits_in_the_same_list_without_a_thread() {
    let arguments = json!({"description": "milk"});
    for decision in ["approve_once", "reject"] {
        for setup in both() {
            let called = arguments.clone();
            let model = Reply::from(move |request| match said(request) {
                1 => Reply::call("add_task", called.clone()),
                _ => Reply::Text("I have tried."),
            });
            let app = spawn_app(careful(setup, "side_effects").script(vec![model])).await;
            let waiting = triggered_by_ann(&app).await;
            assert_eq!(waiting["status"], "awaiting_confirmation", "{decision}: {waiting}");
            let pending = app.pending("ann").await;
            let [question] = &pending[..] else {
                panic!("{decision}: {pending:?}")
            };
            assert_eq!(question.get("threadId"), Some(&Value::Null), "{decision}: {question}");
            assert_eq!(
                (&question["runId"], &question["tool"], &question["arguments"]),
                (&waiting["id"], &json!("add_task"), &arguments),
                "{decision}: {question}"
            );
            assert_eq!(
                (&question["agentId"], &question["userId"]),
                (&json!("careful"), &json!("ann")),
                "{decision}: {question}"
            );
            assert!(app.pending("eve").await.is_empty(), "{decision}");
            assert_eq!(app.tasks().await.len(), 0, "{decision}: nothing runs without approval");

            let answer = json!({"approvalId": question["approvalId"], "decision": decision});
            app.resolve_as("eve", answer.clone()).await.problem(404, "not_found");
            let headers = [("x-gavel-user", "ann"), ("prefer", "wait=20")];
            let resolve = app.request("POST", "/api/agent/approvals/resolve", &headers);
            let run = Answer::of(resolve.json(&answer)).await.expect(200);
            assert_eq!(
                (&run["runId"], run.get("threadId"), &run["status"]),
                (&waiting["id"], Some(&Value::Null), &json!("completed")),
                "{decision}: {run}"
            );
            let done = decision == "approve_once";
            let state = if done { "completed" } else { "rejected" };
            assert_eq!(run["actions"][0]["state"], state, "{decision}: {run}");
            assert!(app.pending("ann").await.is_empty(), "{decision}");
            assert_eq!(app.tasks().await.len(), usize::from(done), "{decision}");
            assert_eq!(run["summary"], "I have tried.", "{decision}: {run}");
            app.stop().await;
        }
    }
}

/// `approvals.expire_hours`: an approval request expires after a day, or after the configured time. The run shows the
/// same expiry as the list.
#[tokio::test]
async fn an_approval_request_expires_after_a_day_or_as_configured() {
    let configured = |setup: Setup| setup.env("GAVEL_APPROVALS_EXPIRE_HOURS", "36");
    // The setting is read in the same way for each database.
    let [on_sqlite, _] = both().map(configured);
    for (hours, setups) in [(24, Vec::from(both())), (36, vec![on_sqlite])] {
        for setup in setups {
            let script = vec![Reply::call("add_task", json!({"description": "milk"}))];
            let setup = careful(setup, "side_effects").env("GAVEL_RUNS_AGENT", "helper");
            let app = spawn_app(setup.script(script)).await;
            let before = chrono::Utc::now();
            let run = app.say("Milk, please.").await;
            triggered_by_ann(&app).await;
            let after = chrono::Utc::now();
            let pending = app.pending("ann").await;
            assert_eq!(pending.len(), 2, "one with a thread and one without: {pending:?}");
            assert_eq!(pending[0]["expiresAt"], run["actions"][0]["expiresAt"], "{run}");
            for question in &pending {
                let time = |field: &str| DateTime::parse_from_rfc3339(question[field].as_str().unwrap()).unwrap();
                let (asked, until) = (time("createdAt"), time("expiresAt"));
                assert_eq!(until - asked, TimeDelta::hours(hours), "{question}");
                let clocks = TimeDelta::seconds(1);
                assert!(before - clocks <= asked && asked <= after + clocks, "{question}");
            }
            app.stop().await;
        }
    }
}
