//! MCP servers that send requests without end, over each transport: gavel answers, other servers are called, memory
//! stays bounded, and the server is listed as down with the reason.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::crash::start_beside;
use crate::gemini::{Gemini, Reply};
use crate::harness::{binary, client, until};
use crate::raw::{Answer, RawServer, Request};
use crate::slow::resident;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream";
/// The memory that all floods may cost together.
const MOST: u64 = 100 << 20;

/// A server in a few lines of shell that floods once the file `go` exists.
const CHILD: &str = r#"
say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"method":"initialize"'*)
      say '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}' ;;
    *'"method":"tools/list"'*)
      say '{"tools":[{"name":"none","inputSchema":{"type":"object"}}]}'
      while [ ! -e go ]; do sleep 0.02; done
      yes '{"jsonrpc":"2.0","id":1,"method":"ping"}' ;;
  esac
done
"#;

/// A server over HTTP with the tool `name`; `answer` handles everything but handshake and list.
async fn server(name: &'static str, answer: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static) -> RawServer {
    RawServer::start(move |request| match request.method() {
        "initialize" => {
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "raw", "version": "1"}});
            let message = json!({"jsonrpc": "2.0", "id": request.message["id"], "result": result});
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: one";
            Some(Answer::Http(head, message.to_string()))
        }
        "tools/list" => Some(Answer::Result(
            json!({"tools": [{"name": name, "inputSchema": {"type": "object"}}]}),
        )),
        _ => answer(request),
    })
    .await
}

/// Promise: bounded faults. Servers that flood gavel with requests do not delay other servers.
#[tokio::test]
async fn servers_that_flood_gavel_with_requests_do_not_delay_others() {
    let flood = format!("data: {PING}\n\n").repeat(20_000);
    let go: Arc<AtomicBool> = Arc::default();
    let begun = go.clone();
    let in_stream = flood.clone();
    let stream = server("stream", move |request| {
        let body = match begun.load(Ordering::SeqCst) {
            true => in_stream.clone(),
            false => "retry: 50\ndata:\n\n".to_owned(),
        };
        request.head.starts_with("get ").then_some(Answer::Http(EVENTS, body))
    })
    .await;
    let answers = server("flood", move |request| {
        (request.method() == "tools/call").then(|| Answer::Http(EVENTS, flood.clone()))
    })
    .await;
    let well = server("work", |request| {
        (request.method() == "tools/call").then(|| Answer::Result(json!({"content": [], "structuredContent": 1})))
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let mcp = json!({"mcpServers": {
        "answers": {"url": answers.url, "gavel": {"tools": {"flood": {"sideEffect": false}}}},
        "child": {"command": "sh", "args": ["-c", CHILD], "cwd": directory.path()},
        "stream": {"url": stream.url},
        "well": {"url": well.url},
    }});
    let constitution = directory.path().join("constitution.md");
    let text =
        "---\nname: tester\ndescription: Calls tools.\ntools: [work, flood]\napproval: never\n---\n\nCall the tools.\n";
    std::fs::write(&constitution, text).unwrap();
    let gemini = Gemini::scripted(vec![Reply::from(|request| {
        let contents = request["contents"].as_array().unwrap();
        let message = contents[0]["parts"][0]["text"].as_str().unwrap();
        match (
            contents.len(),
            ["work", "flood"].into_iter().find(|name| message.ends_with(name)),
        ) {
            (1, Some(name)) => Reply::call(name, json!({})),
            _ => Reply::Text("Done."),
        }
    })])
    .await;
    let mut command = Command::new(binary());
    command.env("GAVEL_CONSTITUTION", &constitution);
    let database = format!("sqlite://{}", directory.path().join("gavel.db").display());
    let process = start_beside(command, &gemini.url, &database, directory.path(), &mcp).await;
    let (client, url) = (client(), &process.url);
    let chat = async |message: &str| -> Value {
        let body = json!({"message": message, "user_id": "ann"});
        let answer = client.post(format!("{url}/v1/chat")).json(&body).send().await.unwrap();
        answer.json().await.unwrap()
    };
    let servers = async || -> Value {
        let ready = client.get(format!("{url}/readyz")).send().await.unwrap();
        ready.json::<Value>().await.unwrap()["mcp"].clone()
    };
    until("all servers to be connected", || async {
        let servers = servers().await;
        servers.as_array().unwrap().iter().all(|server| server["state"] == "up")
    })
    .await;
    assert_eq!(chat("work").await["outcome_category"], "SUCCESS:TASK_COMPLETED");
    let before = resident(process.child.0.id());

    go.store(true, Ordering::SeqCst);
    std::fs::write(directory.path().join("go"), "").unwrap();
    let flooded = chat("flood").await;
    let error = &flooded["tool_calls"][0]["result"]["error"];
    assert_eq!(error["code"], "protocol_error", "{flooded}");
    let mut most = 0;
    for server in ["answers", "child", "stream"] {
        until("the flood to be cut off", || async {
            let servers = servers().await;
            let mut servers = servers.as_array().unwrap().iter();
            let found = servers.find(|status| status["server"] == server).unwrap();
            found["state"] == "down" && found["detail"].to_string().contains("sends more requests")
        })
        .await;
        let asked = Instant::now();
        assert!(
            client
                .get(format!("{url}/livez"))
                .send()
                .await
                .unwrap()
                .status()
                .is_success()
        );
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        let decision = chat("work").await;
        assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED", "{decision}");
        most = most.max(resident(process.child.0.id()));
    }
    assert!(most < before + MOST, "{before} and then {most}");
}
