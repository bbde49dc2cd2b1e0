//! Error texts of an MCP server: the model and the tool-call log get them, callers never do (R-16, C-FR-004).

use serde_json::{Value, json};
use tokio::process::Command;

use crate::agents::{id, path_of};
use crate::gemini::Reply;
use crate::harness::{App, Setup, binary, spawn_app};
use crate::raw::{Answer as Raw, RawServer};
use crate::threads::said;

/// The first line, which callers may see if the operator allows it, and the part that they never may.
const FIRST: &str = "canary-first: the database does not answer";
const SECRETS: [&str; 3] = ["Traceback", "canary-password", "postgres://"];
const WORDS: &str = "canary-first: the database does not answer\nTraceback (most recent call last):\n  \
                     File \"server.py\", line 7, in act\nOperationalError: postgres://app:canary-password@db.internal/app";

/// How a server reports an error to this request.
type Says = fn(&Value) -> Raw;

const JSON: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json";

fn rpc(head: &'static str, request: &Value, error: Value) -> Raw {
    Raw::Http(
        head,
        json!({"jsonrpc": "2.0", "id": request["id"], "error": error}).to_string(),
    )
}

/// Errors whose text is not used: a page may come from a gateway as well as from the server, and a server's request to
/// the user is not answered.
const UNSEEN: [&str; 4] = [
    "a question of the server",
    "a page of a fault",
    "a page of a refusal",
    "a problem of a refusal",
];

fn ways() -> Vec<(&'static str, Says)> {
    vec![
        ("the text of a result", |_| {
            Raw::Result(json!({"isError": true, "content": [{"type": "text", "text": WORDS}]}))
        }),
        ("the structure of a result", |_| {
            Raw::Result(json!({"isError": true, "content": [], "structuredContent": {"why": WORDS}}))
        }),
        ("text and structure of a result", |_| {
            let content = json!([{"type": "text", "text": WORDS}]);
            Raw::Result(json!({"isError": true, "content": content, "structuredContent": {"why": WORDS}}))
        }),
        ("a result of a class", |_| {
            let content = json!([{"type": "text", "text": WORDS}]);
            Raw::Result(json!({"isError": true, "content": content, "_meta": {"gavel/error_class": "auth"}}))
        }),
        ("a question of the server", |_| {
            let elicit = json!({"method": "elicitation/create", "params": {"message": WORDS}});
            Raw::Result(json!({"resultType": "input_required", "inputRequests": {"x": elicit}}))
        }),
        ("an error of the protocol before it began", |request| {
            rpc(
                JSON,
                request,
                json!({"code": -32602, "message": WORDS, "data": {"why": WORDS}}),
            )
        }),
        ("an error of the protocol from within", |request| {
            rpc(JSON, request, json!({"code": -32603, "message": WORDS}))
        }),
        ("an error of the protocol with a status", |request| {
            let head = "HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/json";
            rpc(head, request, json!({"code": -32000, "message": WORDS}))
        }),
        ("an error and a result", |request| {
            let error = json!({"code": -32603, "message": WORDS});
            Raw::Http(
                JSON,
                json!({"jsonrpc": "2.0", "id": request["id"], "result": {}, "error": error}).to_string(),
            )
        }),
        ("a page of a fault", |_| {
            Raw::Http(
                "HTTP/1.1 500 Internal Server Error\r\ncontent-type: text/plain",
                WORDS.to_owned(),
            )
        }),
        ("a page of a refusal", |_| {
            Raw::Http(
                "HTTP/1.1 422 Unprocessable Entity\r\ncontent-type: text/plain",
                WORDS.to_owned(),
            )
        }),
        ("a problem of a refusal", |_| {
            let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json";
            Raw::Http(head, json!({"detail": WORDS, "error": WORDS}).to_string())
        }),
    ]
}

/// A server of a tool that reads, one that acts and one without hints; each call ends as `says` defines.
async fn server(says: Says) -> RawServer {
    let tool = |name: &str, reads: bool| {
        json!({"name": name, "description": "Does.", "annotations": {"readOnlyHint": reads},
               "inputSchema": {"type": "object", "properties": {}}})
    };
    let list = json!({"tools": [tool("look", true), tool("act", false)]});
    RawServer::start(move |request| match request.method() {
        "tools/list" => Some(Raw::Result(list.clone())),
        "tools/call" => Some(says(&request.message)),
        _ => None,
    })
    .await
}

/// The model calls the tool that the last message names, then reports the result. A calling agent delegates to its
/// sub-agent.
fn model() -> Reply {
    Reply::from(|request| {
        let text = request["contents"].to_string();
        let declared = request["tools"].to_string();
        match said(request) {
            1 if declared.contains("\"helper\"") => Reply::call("helper", json!({"query": "look"})),
            1 if text.contains("act") => Reply::call("act", json!({})),
            1 => Reply::call("look", json!({})),
            _ => Reply::Text("That did not work."),
        }
    })
}

fn agents(setup: Setup) -> Setup {
    let agent = |name: &str, rest: &str| format!("---\nname: {name}\ndescription: Works.\n{rest}\n---\n\nYou work.\n");
    setup
        .agent("helper.md", &agent("helper", "approval: never\ntools: [look, act]"))
        .agent("workspace.md", &agent("workspace", "tools: [look, act]"))
        .agent("chief.md", &agent("chief", "sub_agents: [helper]"))
        .agent(
            "line.yaml",
            "name: line\ndescription: A line.\nflow_type: sequential\nsteps: [helper]\n",
        )
}

async fn text(app: &App, method: &str, path: &str, body: Option<Value>) -> String {
    let request = app.request(method, path, &[("x-gavel-user", "ann")]);
    let request = match body {
        Some(body) => request.json(&body),
        None => request,
    };
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    assert!(status.is_success(), "{method} {path}: {status} {text}");
    text
}

/// Everything that a caller can read of a failed call, by the place it was read at.
async fn all_that_callers_get(app: &App) -> Vec<(String, String)> {
    let mut got = Vec::new();
    for message in ["look", "act"] {
        let decision = app.chat_as("ann", message).await;
        let path = format!("/v1/decisions/{}", decision["decision_id"].as_str().unwrap());
        got.push((format!("chat {message}"), decision.to_string()));
        got.push((format!("{path} of {message}"), text(app, "GET", &path, None).await));
        let body = json!({"message": message, "user_id": "ann"});
        got.push((format!("chat stream {message}"), app.stream(&body).await));

        // A thread: a read runs at once, an effect after approval.
        let mut run = app.say(message).await;
        if message == "act" {
            run = app.resolve(&run["actions"][0]["approvalId"], "approve_once").await;
        }
        got.push((format!("thread run {message}"), run.to_string()));
        let (run, thread) = (run["runId"].as_str().unwrap(), run["threadId"].as_str().unwrap());
        for path in [
            format!("/api/agent/runs/{run}"),
            format!("/api/agent/runs/{run}/events"),
            format!("/api/agent/threads/{thread}"),
            format!("/api/runs/{run}"),
        ] {
            got.push((path.clone(), text(app, "GET", &path, None).await));
        }
        let streamed = text(app, "POST", "/api/agent/run/stream", Some(json!({"prompt": message}))).await;
        got.push((format!("thread stream {message}"), streamed));
    }
    for (agent, query) in [
        ("helper", "look"),
        ("helper", "act"),
        ("chief", "look"),
        ("line", "look"),
    ] {
        let run = text(app, "POST", &path_of(agent), Some(json!({"query": query}))).await;
        let run_id = id(&serde_json::from_str(&run).unwrap());
        got.push((format!("run of {agent}, {query}"), run));
        for path in [format!("/api/runs/{run_id}"), format!("/api/runs/{run_id}/events")] {
            got.push((
                format!("{path} of {agent}, {query}"),
                text(app, "GET", &path, None).await,
            ));
        }
    }
    let command = Command::new(binary())
        .args(["agents", "run", "--server", &app.url, "helper", "look"])
        .output()
        .await
        .unwrap();
    let shown = [command.stdout, command.stderr].concat();
    got.push(("gavel agents run".to_owned(), String::from_utf8(shown).unwrap()));
    for path in [
        "/v1/decisions",
        "/api/projects/default/runs",
        "/api/agent/threads",
        "/api/agent/approvals/pending",
        "/api/agent/actions/in-doubt",
    ] {
        got.push((path.to_owned(), text(app, "GET", path, None).await));
    }
    got
}

/// however a third-party server reports an error, callers of every surface get a fixed text. The model and the
/// tool-call log have the server's text.
#[tokio::test]
async fn error_texts_of_a_third_party_server_reach_the_model_and_the_log_but_no_caller() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        for (how, says) in ways() {
            let server = server(says).await;
            let entry = json!({"mcpServers": {"s": {"url": server.url, "gavel": {"trustHints": true}}}});
            let setup = agents(setup.clone()).mcp(entry).grant(&["look", "act"], 30);
            let app = spawn_app(setup.script(vec![model()])).await;
            for (place, text) in all_that_callers_get(&app).await {
                assert!(!text.trim().is_empty(), "{how}: {place}");
                for secret in SECRETS.into_iter().chain(["canary-first"]) {
                    assert!(!text.contains(secret), "{how}: {secret} in {place}: {text}");
                }
            }
            let calls = app.get("/v1/tool-invocations?page_size=1000").await.1.to_string();
            let asked = json!(app.gemini.requests()).to_string();
            let received = [("the tool-call log", calls), ("the model", asked)];
            for (place, text) in received.iter().filter(|_| !UNSEEN.contains(&how)) {
                assert!(text.contains("canary-first"), "{how}: {place}: {text}");
            }
            app.stop().await;
        }
    }
}

/// with `exposeErrors` callers get the first line of the text, and no more.
#[tokio::test]
async fn callers_get_only_the_first_line_of_an_exposed_error() {
    for (how, says) in ways() {
        let server = server(says).await;
        let settings = json!({"trustHints": true, "exposeErrors": true});
        let entry = json!({"mcpServers": {"s": {"url": server.url, "gavel": settings}}});
        let setup = agents(Setup::stdio_sqlite()).mcp(entry).grant(&["look", "act"], 30);
        let app = spawn_app(setup.script(vec![model()])).await;
        let got = all_that_callers_get(&app).await;
        for (place, text) in &got {
            // A single line, such as JSON, has no rest to omit.
            let is_json = how == "the structure of a result";
            for secret in SECRETS.iter().filter(|_| !is_json) {
                assert!(!text.contains(secret), "{how}: {secret} in {place}: {text}");
            }
        }
        if how == "the text of a result" {
            for which in ["chat look", "chat stream look", "thread run act", "thread stream look"] {
                let (_, text) = got.iter().find(|(place, _)| place == which).unwrap();
                assert!(text.contains(FIRST), "{which}: {text}");
            }
        }
        app.stop().await;
    }
}
