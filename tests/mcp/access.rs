//! A server that lost its session or rejects its credential, in every form in which servers report it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use gavel::adapters::mcp::ServerState;
use gavel::domain::tool::FailureCode;
use serde_json::{Value, json};

use super::raw::{Answer, RawServer, Request};
use super::support::{Call, bridge, call, data, failed, http, not_sent, tool, unknown, until, up};
use gavel::ports::tools::{CallReply, Tools};

/// A form of rejecting a request: status, content type, and the body for the request's id.
#[derive(Clone, Copy)]
struct Way {
    head: &'static str,
    body: fn(&Value) -> String,
}

impl Way {
    fn answer(self, request: &Request) -> Answer {
        Answer::Http(self.head, (self.body)(&request.message["id"]))
    }
}

macro_rules! head {
    ($status:literal) => {
        concat!("HTTP/1.1 ", $status, "\r\ncontent-type: application/json")
    };
}

fn error(id: &Value, code: i64, message: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}).to_string()
}

/// All forms of reporting an unknown session.
fn forgotten() -> Vec<Way> {
    let ours: fn(&Value) -> String = |id| error(id, -32001, "Session not found");
    let null: fn(&Value) -> String = |_| error(&Value::Null, -32000, "Bad Request: No valid session ID provided");
    let other: fn(&Value) -> String = |_| error(&json!("server-error"), -32600, "Session terminated");
    let words: fn(&Value) -> String = |_| r#"{"detail":"unknown session"}"#.to_owned();
    let odd: fn(&Value) -> String = |id| error(id, -32602, "Invalid request parameters");
    // The id of the call as servers return it: as text, as a fraction, or not at all.
    let text: fn(&Value) -> String = |id| error(&json!(id.to_string()), -32001, "Session not found");
    let fraction: fn(&Value) -> String = |id| error(&json!(id.as_f64()), -32001, "Session not found");
    let no_id: fn(&Value) -> String =
        |_| json!({"jsonrpc": "2.0", "error": {"code": -32001, "message": "Session not found"}}).to_string();
    let heads = [
        head!("404 Not Found"),
        head!("400 Bad Request"),
        head!("401 Unauthorized"),
        head!("403 Forbidden"),
        head!("410 Gone"),
        head!("422 Unprocessable Content"),
        head!("500 Internal Server Error"),
        head!("200 OK"),
    ];
    let mut ways = Vec::new();
    for head in heads {
        for body in [ours, null, other, odd, text, fraction, no_id] {
            ways.push(Way { head, body });
        }
        if !head.contains("200") {
            ways.push(Way { head, body: words });
        }
    }
    let none: fn(&Value) -> String = |_| String::new();
    let who: fn(&Value) -> String = |_| "who are you?".to_owned();
    for body in [none, who] {
        ways.push(Way {
            head: head!("404 Not Found"),
            body,
        });
        ways.push(Way {
            head: "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain",
            body,
        });
    }
    ways
}

/// A server whose sessions can be lost, with a count of executed calls.
async fn forgetful(way: Way) -> (RawServer, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let forgets = Arc::new(AtomicBool::new(false));
    let (sessions, executed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (gone, done) = (forgets.clone(), executed.clone());
    let server = RawServer::start(move |request| {
        if request.method() == "initialize" {
            gone.store(false, Ordering::SeqCst);
            let head = match sessions.fetch_add(1, Ordering::SeqCst) {
                0 => "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: s0",
                _ => "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: s1",
            };
            let result = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                "serverInfo": {"name": "raw", "version": "1"}});
            let body = json!({"jsonrpc": "2.0", "id": request.message["id"], "result": result});
            return Some(Answer::Http(head, body.to_string()));
        }
        let with_session = request.head.contains("mcp-session-id");
        if with_session && gone.load(Ordering::SeqCst) && !request.method().is_empty() {
            return Some(way.answer(request));
        }
        (request.method() == "tools/call").then(|| {
            done.fetch_add(1, Ordering::SeqCst);
            Answer::Result(json!({"content": []}))
        })
    })
    .await;
    (server, forgets, executed)
}

/// Promise: at most once. A server that rejects every request has started nothing of a call. Over a new session the
/// call is executed once.
#[tokio::test]
async fn a_lost_session_is_reopened_and_the_call_executed_once_for_every_error_form() {
    for way in forgotten() {
        let what = format!("{} {}", way.head, (way.body)(&json!(7)));
        let (mut server, forgets, executed) = forgetful(way).await;
        let mcp = bridge(&http(&server.url));
        up(&mcp).await;
        data(call(&mcp, "act", json!({})).await);
        forgets.store(true, Ordering::SeqCst);
        match call(&mcp, "act", json!({})).await {
            CallReply::Data(_) => {}
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!(executed.load(Ordering::SeqCst), 2, "{what}");
        let status = mcp.status().remove(0);
        assert_eq!((status.state, status.connections), (ServerState::Up, 2), "{what}");
        assert!(server.count("initialize") <= 2, "{what}");
    }
}

/// MCP, transports: after a 404 for a session a new one is always opened, even if the session was valid. The call's
/// outcome is then unknown: the 404 may come from a gateway or a tool.
#[tokio::test]
async fn a_404_for_a_valid_session_opens_a_new_one_and_sends_nothing_again() {
    let ours: fn(&Value) -> String = |id| error(id, -32000, "Session not found");
    let page: fn(&Value) -> String = |_| "<html>".to_owned();
    for body in [ours, page] {
        let mut server = RawServer::start(move |request| match request.method() {
            "initialize" => {
                let result = json!({"protocolVersion": "2025-06-18"});
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: one";
                let body = json!({"jsonrpc": "2.0", "id": request.message["id"], "result": result});
                Some(Answer::Http(head, body.to_string()))
            }
            "tools/call" => Some(Answer::Http(head!("404 Not Found"), body(&request.message["id"]))),
            _ => None,
        })
        .await;
        let mcp = bridge(&http(&server.url));
        up(&mcp).await;
        assert_eq!(unknown(call(&mcp, "act", json!({})).await).code, FailureCode::InDoubt);
        until(&mcp, |mcp| {
            let status = mcp.status().remove(0);
            (status.state, status.connections) == (ServerState::Up, 2)
        })
        .await;
        assert_eq!(server.count("tools/call"), 1);
    }
}

/// Promises: at most once, bounded faults. The server is listed as down with its reason, retried, and used again once
/// it accepts the credential.
#[tokio::test]
async fn a_server_that_rejects_the_credential_is_down_until_it_accepts_it() {
    let unauthorized: fn(&Value) -> String = |id| error(id, -32001, "Unauthorized: token expired");
    let null: fn(&Value) -> String = |_| error(&Value::Null, -32000, "invalid token");
    let plain: fn(&Value) -> String = |_| "token expired".to_owned();
    for head in [
        head!("401 Unauthorized"),
        head!("403 Forbidden"),
        head!("400 Bad Request"),
        head!("404 Not Found"),
        head!("410 Gone"),
        head!("422 Unprocessable Content"),
        head!("500 Internal Server Error"),
        head!("200 OK"),
    ] {
        for body in [unauthorized, null, plain] {
            let way = Way { head, body };
            let what = format!("{head} {}", body(&json!(7)));
            if head.contains("200") && body(&Value::Null) == "token expired" {
                continue;
            }
            let ended = Arc::new(AtomicBool::new(false));
            let has_ended = ended.clone();
            let executed = Arc::new(AtomicUsize::new(0));
            let done = executed.clone();
            let server = RawServer::start(move |request| {
                if has_ended.load(Ordering::SeqCst) && !request.method().is_empty() {
                    return Some(way.answer(request));
                }
                (request.method() == "tools/call").then(|| {
                    done.fetch_add(1, Ordering::SeqCst);
                    Answer::Result(json!({"content": []}))
                })
            })
            .await;
            let mcp = bridge(&http(&server.url));
            let act = tool(&*up(&mcp).await, "act");
            ended.store(true, Ordering::SeqCst);
            let reply = Call::with(json!({})).of(&mcp, &act).await;
            assert!(
                matches!(reply, CallReply::NotSent(_) | CallReply::Failed(_)),
                "{what}: {reply:?}"
            );
            until(&mcp, |mcp| mcp.status()[0].state == ServerState::Down).await;
            let reason = mcp.catalog().down["s"].clone();
            assert!(reason.contains("token"), "{what}: {reason}");
            not_sent(Call::with(json!({})).of(&mcp, &act).await);
            ended.store(false, Ordering::SeqCst);
            up(&mcp).await;
            data(call(&mcp, "act", json!({})).await);
            assert_eq!(executed.load(Ordering::SeqCst), 1, "{what}");
        }
    }
}

/// Promise: bounded faults. A server that lists its tools and rejects every call is down too. One call at a time probes
/// it.
#[tokio::test]
async fn a_server_that_rejects_only_calls_is_down_with_its_reason_and_recovers() {
    let ended = Arc::new(AtomicBool::new(true));
    let has_ended = ended.clone();
    let mut server = RawServer::start(move |request| {
        (request.method() == "tools/call").then(|| match has_ended.load(Ordering::SeqCst) {
            true => Answer::Http(head!("401 Unauthorized"), String::new()),
            false => Answer::Result(json!({"content": []})),
        })
    })
    .await;
    let mcp = bridge(&http(&server.url));
    up(&mcp).await;
    for _ in 0..5 {
        failed(call(&mcp, "act", json!({})).await);
    }
    let status = mcp.status().remove(0);
    assert_eq!(status.state, ServerState::Down);
    assert!(status.reason.unwrap().contains("401"));
    server.count("");
    let failure = not_sent(call(&mcp, "act", json!({})).await);
    assert!(failure.message.contains("refuses all calls"), "{}", failure.message);
    assert_eq!(server.count("tools/call"), 0);
    ended.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    data(call(&mcp, "act", json!({})).await);
    assert_eq!(mcp.status()[0].state, ServerState::Up);
}

/// Promise: at most once. The same error for a call and for a list proves nothing if it may occur after the call has
/// started.
#[tokio::test]
async fn a_server_that_fails_within_a_call_leaves_its_effect_in_doubt() {
    for (head, body) in [
        (head!("500 Internal Server Error"), "Internal Server Error"),
        (head!("502 Bad Gateway"), "<html>"),
    ] {
        let broken = Arc::new(AtomicBool::new(false));
        let breaks = broken.clone();
        let mut server = RawServer::start(move |request| {
            if request.method() == "tools/call" {
                breaks.store(true, Ordering::SeqCst);
            }
            let is_broken = breaks.load(Ordering::SeqCst) && !request.method().is_empty();
            is_broken.then(|| Answer::Http(head, body.to_owned()))
        })
        .await;
        let mcp = bridge(&http(&server.url));
        up(&mcp).await;
        assert_eq!(unknown(call(&mcp, "act", json!({})).await).code, FailureCode::InDoubt);
        assert_eq!(server.count("tools/call"), 1);
    }
}

/// Promise: bounded faults. The server gets neither calls nor connections before the time that it names has passed.
#[tokio::test]
async fn a_servers_retry_after_is_respected() {
    let busy = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 2";
    let mut server =
        RawServer::start(move |request| (request.method() == "tools/call").then(|| Answer::Http(busy, String::new())))
            .await;
    let mcp = bridge(&http(&server.url));
    up(&mcp).await;
    let failure = failed(call(&mcp, "act", json!({})).await);
    assert!(failure.message.contains("wait 2 s"), "{}", failure.message);
    server.count("");
    for _ in 0..3 {
        let failure = not_sent(call(&mcp, "act", json!({})).await);
        assert!(failure.message.contains("asked clients to wait"), "{}", failure.message);
    }
    assert_eq!(server.count("tools/call"), 0);
    tokio::time::sleep(Duration::from_millis(2100)).await;
    failed(call(&mcp, "act", json!({})).await);

    let tries = Arc::new(AtomicUsize::new(0));
    let tried = tries.clone();
    let server = RawServer::start(move |request| {
        (!request.method().is_empty() && tried.fetch_add(1, Ordering::SeqCst) == 0).then(|| {
            let busy = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 2";
            Answer::Http(busy, String::new())
        })
    })
    .await;
    let begun = std::time::Instant::now();
    let mcp = bridge(&http(&server.url));
    until(&mcp, |mcp| mcp.status()[0].state == ServerState::Down).await;
    let reason = mcp.catalog().down["s"].clone();
    assert!(reason.contains("wait 2 s"), "{reason}");
    mcp.refresh("s").await.unwrap_err();
    assert_eq!(tries.load(Ordering::SeqCst), 1);
    up(&mcp).await;
    assert!(begun.elapsed() >= Duration::from_millis(1900), "{:?}", begun.elapsed());
}
