//! External schemas: of a server's tools, and of an agent's output.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Map, Value, json};

use super::{others_are_served, tool};
use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, spawn_app, until};
use crate::raw::{Answer as Raw, RawServer};

/// A schema of 4 KB in which each part uses the next one twice.
fn doubling() -> Value {
    let mut defs = Map::new();
    for n in 0..40 {
        let next = json!({"$ref": format!("#/$defs/a{}", n + 1)});
        defs.insert(format!("a{n}"), json!({"anyOf": [next, next]}));
    }
    defs.insert("a40".to_owned(), json!({"type": "string"}));
    json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": defs})
}

/// A schema that is small when resolved but takes minutes to check: patterns with lookahead, applied to every text of a
/// list.
fn patient() -> Value {
    let patterns: Vec<_> = (0..300)
        .map(|n| json!({"pattern": format!("^(?=.*[a-z])[a-z]*{n}$")}))
        .collect();
    json!({"type": "object", "properties": {"x": {"items": {"not": {"anyOf": patterns}}}}})
}

/// The value that is slow to check.
fn texts() -> Value {
    Value::Array((0..500).map(|n| json!(format!("{}-{n}-", "ab".repeat(100)))).collect())
}

struct Server {
    raw: RawServer,
    calls: Arc<AtomicUsize>,
}

async fn server(tools: Vec<Value>) -> Server {
    let calls = Arc::new(AtomicUsize::new(0));
    let (list, counted) = (json!({"tools": tools}), Arc::clone(&calls));
    let raw = RawServer::start(move |request| match request.method() {
        "tools/list" => Some(Raw::Result(list.clone())),
        "tools/call" => {
            counted.fetch_add(1, Ordering::SeqCst);
            Some(Raw::Result(json!({"content": [{"type": "text", "text": "done"}]})))
        }
        _ => None,
    })
    .await;
    Server { raw, calls }
}

const AGENT: &str = "---\nname: workspace\ndescription: Works.\napproval: never\ntools: [patient]\n---\n\nWork.\n";

/// Calls the tool with the slow value, and then ends.
fn script() -> Vec<Reply> {
    vec![
        Reply::call("patient", json!({"x": texts()})),
        Reply::Text("It could not be done."),
    ]
}

async fn app_with(server: &Server, script: Vec<Reply>) -> App {
    let setup = Setup::stdio_sqlite()
        .script(script)
        .beside(
            "other",
            json!({"url": server.raw.url, "gavel": {"tools": {"patient": {"sideEffect": false}}}}),
        )
        .grant(&["patient", "doubling", "fine"], 15)
        .agent("workspace.md", AGENT);
    let app = spawn_app(setup).await;
    until("the server to be available", || async {
        let catalog = gavel::ports::tools::Tools::catalog(&*app.service().mcp);
        catalog.tools.iter().any(|tool| &*tool.server == "other")
    })
    .await;
    app
}

/// Promise: bounded faults. A check that takes too long fails the call, on each surface. Nothing is sent, and others
/// are served meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_takes_too_long_fails_the_call_and_others_are_served() {
    let server = server(vec![tool("patient", &patient())]).await;
    for surface in ["chat", "thread", "run"] {
        let app = app_with(&server, script()).await;
        others_are_served(&app, async {
            match surface {
                "chat" => {
                    let decision = app.chat("Go.").await;
                    assert_eq!(decision["outcome_category"], "ERROR:TOOL_INVOCATION", "{decision}");
                    let error = &decision["tool_calls"][0]["result"]["error"];
                    assert_eq!(error["code"], "invalid_arguments", "{decision}");
                    assert!(
                        error["message"]
                            .as_str()
                            .unwrap()
                            .contains("more steps than are allowed"),
                        "{decision}"
                    );
                }
                "thread" => {
                    let run = app.say("Go.").await;
                    assert_eq!(run["status"], "completed", "{run}");
                    assert_eq!(run["actions"][0]["status"], "failed", "{run}");
                }
                _ => {
                    let path = "/api/projects/default/agents/workspace/trigger";
                    let run = Answer::of(app.request("POST", path, &[]).json(&json!({"query": "Go."})))
                        .await
                        .expect(200);
                    assert_eq!(run["status"], "completed", "{run}");
                }
            }
        })
        .await;
        app.stop().await;
    }
    assert_eq!(server.calls.load(Ordering::SeqCst), 0, "nothing was sent");
}

/// Promise: bounded faults. Many such checks at once all end within the deadline, and others are served.
#[tokio::test(flavor = "multi_thread")]
async fn many_slow_checks_at_once_delay_no_other_user() {
    let server = server(vec![tool("patient", &patient())]).await;
    // The last answer repeats, so every request makes the call until its iterations are exhausted.
    let app = app_with(&server, vec![Reply::call("patient", json!({"x": texts()}))]).await;
    let chats = (0..6).map(|n| {
        let app = &app;
        async move { app.chat_as(&format!("user{n}"), "Go.").await }
    });
    let decisions = others_are_served(&app, futures_util::future::join_all(chats)).await;
    for decision in decisions {
        let outcome = decision["outcome_category"].as_str().unwrap();
        assert!(
            ["ERROR:LOOP_LIMIT", "ERROR:DEADLINE", "ERROR:TOOL_INVOCATION"].contains(&outcome),
            "{decision}"
        );
    }
    assert_eq!(server.calls.load(Ordering::SeqCst), 0, "nothing was sent");
}

/// A schema that is too expensive is rejected when it is listed, with the tool's name and the location. Its neighbors
/// are listed.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_with_a_too_expensive_schema_is_omitted_with_its_name_and_location() {
    let plain = json!({"type": "object"});
    let server = server(vec![tool("doubling", &doubling()), tool("fine", &plain)]).await;
    let app = app_with(&server, vec![Reply::Text("Hello.")]).await;
    let catalog = gavel::ports::tools::Tools::catalog(&*app.service().mcp);
    let why = |name: &str| {
        let left = catalog.left_out.iter().find(|left| left.tool == name);
        left.map(|left| left.reason.clone()).unwrap_or_default()
    };
    assert!(catalog.tools.iter().any(|tool| &*tool.name == "fine"));
    assert!(why("doubling").contains("/$defs/a"), "{}", why("doubling"));
    app.stop().await;
}

fn output_agent(schema: &Value) -> String {
    json!({
        "name": "reporter", "description": "Reports.", "toolConfig": {"tools": []},
        "inputConfig": {"inputs": {"query": {"description": "What.", "type": "string", "required": true}}},
        "promptConfig": {"query": "${query}", "systemPrompt": "Report."},
        "outputConfig": {"outputName": "report", "description": "It.", "schema": schema},
    })
    .to_string()
}

/// D-5: the same limits apply to an output schema when it is put and when it is checked.
#[tokio::test(flavor = "multi_thread")]
async fn an_output_schema_is_bounded_when_put_and_when_checked() {
    let done = Reply::call("complete_task", json!({"report": {"x": texts()}}));
    let setup = Setup::stdio_sqlite().script(vec![
        done.clone(),
        done,
        Reply::call("complete_task", json!({"report": {"x": ["7"]}})),
    ]);
    let app = spawn_app(setup).await;
    let put = |schema: Value| {
        let request = app.request("PUT", "/api/projects/default/agents/reporter", &[]);
        Answer::of(
            request
                .header("content-type", "application/json")
                .body(output_agent(&schema)),
        )
    };
    let refused = put(doubling()).await.problem(422, "invalid_definition");
    let detail = refused["errors"][0].to_string();
    assert!(
        detail.contains("schemas for one value") && detail.contains("at most 10000"),
        "{refused}"
    );
    put(patient()).await.expect(201);
    let run = others_are_served(&app, async {
        let request = app.request("POST", "/api/projects/default/agents/reporter/trigger", &[]);
        Answer::of(request.json(&json!({"query": "Go."}))).await.expect(200)
    })
    .await;
    assert_eq!(
        (&run["status"], &run["output"]),
        (&json!("completed"), &json!({"x": ["7"]})),
        "{run}"
    );
    assert!(run["steps"].as_u64() >= Some(3), "the first output was rejected: {run}");
    app.stop().await;
}
