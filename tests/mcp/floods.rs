//! Servers that send without end, in notifications or answers: other servers continue to work, and memory stays
//! bounded.

use std::sync::Arc;
use std::time::Duration;

use gavel::adapters::mcp::{Mcp, McpOptions, ServerState, ServerStatus};
use gavel::domain::tool::FailureCode;
use gavel::ports::tools::{CallReply, Tools};
use serde_json::{Value, json};

use super::raw::{Answer, RawServer, Request};
use super::stdio::{ACT, by_hand};
use super::support::{Call, data, read, tool, unknown, until, up};

const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream";

/// A bridge with `s`, and with a server `well` that works.
async fn beside(entry: &Value) -> (Arc<Mcp>, RawServer) {
    let well = RawServer::start(|request| {
        (request.method() == "tools/call").then(|| Answer::Result(json!({"content": [], "structuredContent": 1})))
    })
    .await;
    let text = json!({"mcpServers": {"s": entry, "well": {"url": well.url}}}).to_string();
    (Mcp::start(read(&text), McpOptions::default()).unwrap(), well)
}

fn status(mcp: &Arc<Mcp>, name: &str) -> ServerStatus {
    mcp.status().into_iter().find(|server| *server.name == *name).unwrap()
}

/// The flooding server is down with the reason, and the other one works.
async fn is_cut_off(mcp: &Arc<Mcp>, what: &str) {
    until(mcp, |mcp| {
        let server = status(mcp, "s");
        let reason = server.reason.unwrap_or_default();
        server.state == ServerState::Down && reason.contains("requests, notifications or other lines of its own")
    })
    .await;
    until(mcp, |mcp| status(mcp, "well").state == ServerState::Up).await;
    let catalog = mcp.catalog();
    let act = catalog.tools.iter().find(|tool| *tool.server == *"well").unwrap();
    assert_eq!(data(Call::with(json!({})).of(mcp, act).await), json!(1), "{what}");
}

/// Messages that a server may send unasked, each as one line.
fn messages() -> Vec<(&'static str, String)> {
    let long = "x".repeat(20_000);
    // Padding, so that the test is fast.
    let pad = "x".repeat(4_000);
    let notification = |method: &str, text: &str| {
        json!({"jsonrpc": "2.0", "method": format!("notifications/{method}"), "params": {"data": text}}).to_string()
    };
    vec![
        ("pings", r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.to_owned()),
        (
            "long ids",
            format!(r#"{{"jsonrpc":"2.0","id":"{long}","method":"ping"}}"#),
        ),
        (
            "sampling",
            r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#.to_owned(),
        ),
        ("unknown", r#"{"jsonrpc":"2.0","id":1,"method":"x/y"}"#.to_owned()),
        ("log", notification("message", &pad)),
        ("changes", notification("tools/list_changed", &pad)),
        ("large notifications", notification("progress", &long)),
        (
            "unrequested answers",
            format!(r#"{{"jsonrpc":"2.0","id":987654,"result":{{"tools":"{long}"}}}}"#),
        ),
    ]
}

/// Promise: bounded faults. A child process that floods is disconnected, and other servers work.
#[tokio::test]
async fn a_child_that_floods_is_disconnected_and_other_servers_work() {
    let mut kinds = messages();
    kinds.push(("no messages", "working…".to_owned()));
    for (what, line) in kinds {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("line"), line).unwrap();
        let mut entry = by_hand(directory.path(), ACT);
        // It floods once it has listed its tools.
        let script = entry["args"][1].as_str().unwrap().replace(
            r#"say "$(cat list)" ;;"#,
            r#"say "$(cat list)"; yes "$(cat line)" & ;;"#,
        );
        entry["args"][1] = json!(script);
        let (mcp, _well) = beside(&entry).await;
        is_cut_off(&mcp, what).await;
        mcp.shutdown().await;
    }
}

/// Enough events with this message to exhaust the allowance, even on a machine that needs twenty seconds for it.
fn events(line: &str) -> String {
    let is_request = line.contains("\"id\":") && line.contains("\"method\":");
    let cost = line.len() / 1024 + if is_request { 50 } else { 1 };
    format!("data: {line}\n\n").repeat(150_000 / cost)
}

/// Promise: bounded faults. A server whose stream floods is disconnected, and other servers work.
#[tokio::test]
async fn a_server_stream_that_floods_is_disconnected_and_other_servers_work() {
    for (what, line) in messages() {
        let flood = events(&line);
        let server = RawServer::start(move |request: &Request| {
            if request.method() == "initialize" {
                let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "raw", "version": "1"}});
                let message = json!({"jsonrpc": "2.0", "id": request.message["id"], "result": result});
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: one";
                return Some(Answer::Http(head, message.to_string()));
            }
            let stream = request.head.starts_with("get ");
            stream.then(|| Answer::Http(EVENTS, flood.clone()))
        })
        .await;
        let (mcp, _well) = beside(&json!({"url": server.url})).await;
        is_cut_off(&mcp, what).await;
        mcp.shutdown().await;
    }
}

/// Promise: bounded faults. A call whose answer floods ends with the reason, and other servers work.
#[tokio::test]
async fn an_answer_that_floods_ends_with_the_reason_and_the_others_work() {
    for (what, line) in messages() {
        let flood = events(&line);
        let server = RawServer::start(move |request: &Request| {
            (request.method() == "tools/call").then(|| Answer::Http(EVENTS, flood.clone()))
        })
        .await;
        let (mcp, _well) = beside(&json!({"url": server.url})).await;
        until(&mcp, |mcp| status(mcp, "s").state == ServerState::Up).await;
        let catalog = mcp.catalog();
        let act = catalog.tools.iter().find(|tool| *tool.server == *"s").unwrap();
        let failure = unknown(Call::with(json!({})).of(&mcp, act).await);
        assert_eq!(failure.code, FailureCode::InDoubt, "{what}");
        assert!(
            failure.message.contains("lines of its own"),
            "{what}: {}",
            failure.message
        );
        is_cut_off(&mcp, what).await;
        mcp.shutdown().await;
    }
}

/// A server whose stream ends at once does not make gavel reconnect without pause.
#[tokio::test]
async fn a_stream_that_ends_at_once_is_not_requested_without_pause() {
    let mut server = RawServer::start(|request: &Request| {
        if request.method() == "initialize" {
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "raw", "version": "1"}});
            let message = json!({"jsonrpc": "2.0", "id": request.message["id"], "result": result});
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: one";
            return Some(Answer::Http(head, message.to_string()));
        }
        let stream = request.head.starts_with("get ");
        stream.then(|| Answer::Http(EVENTS, "retry: 0\ndata:\n\n".to_owned()))
    })
    .await;
    let mcp = super::support::bridge(&json!({"url": server.url}));
    up(&mcp).await;
    for _ in 0..2 {
        server.saw("").await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(server.count("") <= 3);
    assert_eq!(status(&mcp, "s").connections, 1);
    mcp.shutdown().await;
}

/// A call of `tenant` to `act`, declared as a read.
async fn call_of(mcp: &Arc<Mcp>, tenant: &str, how: &str) -> CallReply {
    let act = tool(&mcp.catalog(), "act");
    let call = Call {
        tenant,
        timeout: Duration::from_secs(20),
        ..Call::with(json!({"how": how}))
    };
    call.of(mcp, &act).await
}

/// Promise: bounded faults. Many answers that are each within the limit do not exhaust the memory for all.
#[tokio::test]
async fn large_answers_over_the_budget_are_not_read_and_other_tenants_get_theirs() {
    for (head, start) in [
        ("content-type: application/json", "{\"jsonrpc\":\"2.0\",\"x\":\""),
        ("content-type: text/event-stream", "data: "),
    ] {
        let stalled = format!(
            "HTTP/1.1 200 OK\r\n{head}\r\ncontent-length: 16000000\r\n\r\n{start}{}",
            "x".repeat(15_000_000)
        );
        let server = RawServer::start(move |request: &Request| {
            match request.message["params"]["arguments"]["how"].as_str()? {
                "stall" => Some(Answer::Stall(stalled.clone())),
                _ => {
                    let result = json!({"content": [], "structuredContent": "x".repeat(6_000_000)});
                    Some(Answer::Result(result))
                }
            }
        })
        .await;
        let entry = json!({"url": server.url, "gavel": {"tools": {"act": {"sideEffect": false}}}});
        let mcp = super::support::bridge(&entry);
        up(&mcp).await;
        let under_way: Vec<_> = (0..3)
            .map(|_| {
                let mcp = mcp.clone();
                tokio::spawn(async move { call_of(&mcp, "default", "stall").await })
            })
            .collect();
        let deadline = std::time::Instant::now() + Duration::from_secs(15);
        let failure = loop {
            match call_of(&mcp, "default", "large").await {
                CallReply::Unknown(failure) => break failure,
                CallReply::Data(_) => assert!(std::time::Instant::now() < deadline, "always room: {head}"),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(failure.code, FailureCode::Overloaded, "{}", failure.message);
        assert!(
            failure.message.contains("too many large answers"),
            "{}",
            failure.message
        );
        assert!(matches!(call_of(&mcp, "other", "large").await, CallReply::Data(_)));
        assert!(!mcp.status()[0].breaker_open, "it says nothing about the server");
        for call in under_way {
            call.abort();
            let _ = call.await;
        }
        assert!(
            matches!(call_of(&mcp, "default", "large").await, CallReply::Data(_)),
            "the memory is released"
        );
        mcp.shutdown().await;
    }
}

/// Promise: bounded faults. A list of small values would take twenty times its length as a tree.
#[tokio::test]
async fn a_list_of_millions_of_values_is_not_read() {
    let server = RawServer::start(|request: &Request| {
        (request.method() == "tools/list").then(|| {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{},"result":{{"tools":[{}0]}}}}"#,
                request.message["id"],
                "[],".repeat(1_000_000)
            );
            Answer::Http("HTTP/1.1 200 OK\r\ncontent-type: application/json", body)
        })
    })
    .await;
    let mcp = super::support::bridge(&json!({"url": server.url}));
    until(&mcp, |mcp| {
        let reason = mcp.status()[0].reason.clone().unwrap_or_default();
        reason.contains("more than 300000 values")
    })
    .await;
    mcp.shutdown().await;
}
