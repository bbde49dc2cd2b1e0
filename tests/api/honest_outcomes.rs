//! Outcomes that do not mislead: a server that is down is not a denial, a valid output is a success, and a cancellation
//! is a refusal.

use serde_json::{Value, json};

use crate::agents::path_of;
use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, free_port, spawn_app};
use crate::raw::{Answer as Raw, RawServer};
use crate::server::{Era, HttpServer};
use crate::threads::{WORKSPACE, said};

const AGENT: &str = "---\nname: helper\ndescription: Works.\napproval: never\ntools: [echo]\n---\n\nYou work.\n";

fn calls_echo() -> Reply {
    Reply::from(|request| match said(request) {
        1 => Reply::call("echo", json!({})),
        _ => Reply::Text("I could not."),
    })
}

async fn triggered(app: &App, agent: &str) -> Value {
    let request = app.request("POST", &path_of(agent), &[("x-gavel-user", "ann")]);
    Answer::of(request.json(&json!({"query": "Go."}))).await.expect(200)
}

/// C-FR-004, C-FR-009: the model calls a granted tool whose real server is not running, or no longer.
#[tokio::test]
async fn a_granted_tool_whose_server_is_down_is_unavailable_and_not_denied() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        for was_there in [false, true] {
            let port = free_port();
            let server = if was_there {
                Some(HttpServer::start_on(Era::Sessions, port).await)
            } else {
                None
            };
            let entry = json!({"mcpServers": {"far": {"url": format!("http://127.0.0.1:{port}/mcp")}}});
            let setup = setup.clone().mcp(entry).grant(&["echo"], 30).agent("helper.md", AGENT);
            let app = spawn_app(setup.script(vec![calls_echo()])).await;
            if was_there {
                assert_eq!(app.chat("echo").await["outcome_category"], "SUCCESS:TASK_COMPLETED");
            }
            drop(server);
            let decision = app.chat("echo").await;
            let what = format!("was there: {was_there}: {decision}");
            assert_eq!(decision["outcome_category"], "ERROR:TOOL_INVOCATION", "{what}");
            assert_ne!(decision["decision_type"], "REFUSE", "{what}");
            assert_eq!(
                decision["tool_calls"][0]["result"]["error"]["code"], "unavailable",
                "{what}"
            );
            if !was_there {
                let record = app.decision(&decision["decision_id"]).await;
                let detail = record["error_detail"].as_str().unwrap_or_else(|| panic!("{record}"));
                assert!(detail.contains("echo") && detail.contains("far"), "{detail}");
                // An agent with missing tools does not start, and names them.
                let run = triggered(&app, "helper").await;
                assert_eq!(run["outcome_category"], "ERROR:TOOL_INVOCATION", "{run}");
                let record = app.decision(&run["id"]).await;
                let detail = record["error_detail"].as_str().unwrap_or_else(|| panic!("{record}"));
                assert!(detail.contains("echo") && detail.contains("far"), "{detail}");
            }
            app.stop().await;
        }
    }
}

/// X-6, D-5: the required output exists; tool failures before it do not count.
#[tokio::test]
async fn a_run_with_a_valid_output_is_a_success_despite_earlier_failures() {
    const COUNTER: &str = "---\nname: helper\ndescription: Counts.\napproval: never\ntools: [look]\noutputConfig: \
                           {outputName: n, description: A count., schema: {type: integer}}\n---\n\nYou count.\n";
    let server = RawServer::start(|request| match request.method() {
        "tools/list" => {
            let tool =
                json!({"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}});
            Some(Raw::Result(json!({"tools": [tool]})))
        }
        "tools/call" => Some(Raw::Result(
            json!({"isError": true, "content": [{"type": "text", "text": "no"}]}),
        )),
        _ => None,
    })
    .await;
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        for failing in ["look", "drop_all"] {
            let model = Reply::from(move |request| match said(request) {
                1 => Reply::call(failing, json!({})),
                _ => Reply::call("complete_task", json!({"n": 3})),
            });
            let entry = json!({"url": server.url, "gavel": {"trustHints": true}});
            let setup = setup.clone().agent("helper.md", COUNTER).beside("s", entry);
            let app = spawn_app(setup.script(vec![model])).await;
            let run = triggered(&app, "helper").await;
            assert_eq!(
                (&run["status"], &run["output"]),
                (&json!("completed"), &json!(3)),
                "{run}"
            );
            let outcome = run["outcome_category"].as_str().unwrap();
            assert!(outcome.starts_with("SUCCESS:"), "{failing}: {outcome}");
            assert_eq!(app.decision(&run["id"]).await["outcome_category"], outcome);
            app.stop().await;
        }
    }
}

/// X-4, R, P: a run that a user cancels has the outcome of a refusal, in any state.
#[tokio::test]
async fn a_run_that_a_user_cancels_has_its_own_refusal_outcome() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let model = Reply::from(|request| match said(request) {
            1 if request["contents"].to_string().contains("wait") => Reply::Hang,
            1 => Reply::call("add_task", json!({"description": "milk"})),
            _ => Reply::Text("Done."),
        });
        let app = spawn_app(setup.agent("workspace.md", WORKSPACE).script(vec![model])).await;
        // A run that waits for an approval.
        let asked = app.say("Add milk.").await;
        assert_eq!(asked["status"], "awaiting_confirmation", "{asked}");
        // A run that waits for its model.
        let headers = [("x-gavel-user", "ann"), ("prefer", "respond-async")];
        let request = app.request("POST", &path_of("workspace"), &headers);
        let begun = Answer::of(request.json(&json!({"query": "wait"}))).await.expect(202);
        app.asked(2).await;
        for (path, id) in [("/api/agent/runs", &asked["runId"]), ("/api/runs", &begun["id"])] {
            let path = format!("{path}/{}/cancel", id.as_str().unwrap());
            let answer = Answer::of(app.request("POST", &path, &[("x-gavel-user", "ann")])).await;
            assert!([200, 202].contains(&answer.status), "{}", answer.body);
            crate::harness::until("its decision", || async {
                app.decision(id).await["status"] == "closed"
            })
            .await;
            let record = app.decision(id).await;
            assert_eq!(
                (&record["outcome_category"], &record["decision_type"]),
                (&json!("REFUSAL:CANCELLED"), &json!("REFUSE")),
                "{record}"
            );
        }
        app.stop().await;
    }
}
