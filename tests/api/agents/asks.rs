//! Approval requests of runs without a thread (REQUIREMENTS R; DESIGN.md section 9): they wait in the same list and are
//! resolved by the same route.

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

/// DESIGN.md sections 4, 6 and 9, R-5: an approval request of a triggered run waits with `threadId` null. It is
/// resolved like that of a thread, and the run continues.
#[tokio::test]
async fn an_approval_request_of_a_triggered_run_waits_in_the_same_list_without_a_thread() {
    let (add, list) = (json!({"description": "milk"}), json!({}));
    for (approval, tool, arguments) in [
        ("side_effects", "add_task", &add),
        ("always", "add_task", &add),
        ("always", "list_tasks", &list),
    ] {
        for decision in ["approve_once", "reject"] {
            for setup in both() {
                let called = arguments.clone();
                let model = Reply::from(move |request| match said(request) {
                    1 => Reply::call(tool, called.clone()),
                    _ => Reply::Text("I have tried."),
                });
                let app = spawn_app(careful(setup, approval).script(vec![model])).await;
                let what = format!("{approval} {tool} {decision}");
                let waiting = triggered_by_ann(&app).await;
                assert_eq!(waiting["status"], "awaiting_confirmation", "{what}: {waiting}");
                let pending = app.pending("ann").await;
                let [question] = &pending[..] else {
                    panic!("{what}: {pending:?}")
                };
                assert_eq!(question.get("threadId"), Some(&Value::Null), "{what}: {question}");
                assert_eq!(
                    (&question["runId"], &question["tool"], &question["arguments"]),
                    (&waiting["id"], &json!(tool), arguments),
                    "{what}: {question}"
                );
                assert_eq!(
                    (&question["agentId"], &question["userId"]),
                    (&json!("careful"), &json!("ann")),
                    "{what}: {question}"
                );
                assert!(app.pending("eve").await.is_empty(), "{what}");
                assert_eq!(app.tasks().await.len(), 0, "{what}: nothing runs without approval");

                let answer = json!({"approvalId": question["approvalId"], "decision": decision});
                app.resolve_as("eve", answer.clone()).await.problem(404, "not_found");
                let headers = [("x-gavel-user", "ann"), ("prefer", "wait=20")];
                let resolve = app.request("POST", "/api/agent/approvals/resolve", &headers);
                let run = Answer::of(resolve.json(&answer)).await.expect(200);
                assert_eq!(
                    (&run["runId"], run.get("threadId"), &run["status"]),
                    (&waiting["id"], Some(&Value::Null), &json!("completed")),
                    "{what}: {run}"
                );
                let done = decision == "approve_once";
                let state = if done { "completed" } else { "rejected" };
                assert_eq!(run["actions"][0]["state"], state, "{what}: {run}");
                assert!(app.pending("ann").await.is_empty(), "{what}");
                let tasks = usize::from(done && tool == "add_task");
                assert_eq!(app.tasks().await.len(), tasks, "{what}");
                assert_eq!(run["summary"], "I have tried.", "{what}: {run}");
                app.stop().await;
            }
        }
    }
}

/// DESIGN.md sections 6 and 12, `approvals.expire_hours`: an approval request expires after a day, or after the
/// configured time. The run shows the same expiry as the list.
#[tokio::test]
async fn an_approval_request_expires_after_a_day_or_as_configured() {
    let configured = |setup: Setup| setup.env("GAVEL_APPROVALS_EXPIRE_HOURS", "36");
    let by_default = |setup: Setup| setup;
    for (hours, setups) in [(24, both().map(by_default)), (36, both().map(configured))] {
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
