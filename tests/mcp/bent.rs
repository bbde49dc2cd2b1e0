//! Servers over HTTP that deviate from the protocol. They are accepted if the meaning is certain; otherwise they are
//! down with one sentence that names the member, the type, the encoding or the address.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use gavel::adapters::mcp::ServerState;
use gavel::domain::tool::FailureCode;
use serde_json::{Value, json};

use super::raw::{Answer, RawServer, Request, tools};
use super::support::{bridge, call, data, failed, http, unknown, until, up};

const JSON: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json";

/// The answers of a server that follows the protocol, for requests with a result.
fn usual(request: &Request) -> Option<Value> {
    let result = match request.method() {
        "initialize" => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"}}),
        "tools/list" => tools(),
        "tools/call" => json!({"content": [{"type": "text", "text": "hello"}]}),
        _ => return None,
    };
    Some(json!({"jsonrpc": "2.0", "id": request.message["id"], "result": result}))
}

/// How each answer deviates.
type Bend = fn(Value) -> Answer;

fn bends() -> Vec<(&'static str, Bend)> {
    fn labelled(head: &'static str, answer: &Value) -> Answer {
        Answer::Http(head, answer.to_string())
    }
    macro_rules! json_as {
        ($label:literal) => {
            |answer| labelled(concat!("HTTP/1.1 200 OK\r\n", $label), &answer)
        };
    }
    macro_rules! events {
        ($before:literal) => {
            |answer| {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: Text/Event-Stream; charset=utf-8";
                Answer::Http(head, format!(concat!($before, "data: {}\n\n"), answer))
            }
        };
    }
    macro_rules! with {
        ($($name:literal: $value:tt),+) => {
            |mut answer| {
                $(answer[$name] = json!($value);)+
                labelled(JSON, &answer)
            }
        };
    }
    vec![
        (
            "another case",
            json_as!("content-type: Application/JSON; Charset=UTF-8"),
        ),
        ("a kind of JSON", json_as!("content-type: application/vnd.api+json")),
        ("an old kind of JSON", json_as!("content-type: text/json")),
        ("plain text", json_as!("content-type: text/plain")),
        ("a page", json_as!("content-type: text/html")),
        ("no label", json_as!("x-none: 1")),
        ("JSON as events", json_as!("content-type: text/event-stream")),
        ("events as JSON", |answer| {
            Answer::Http(JSON, format!("event: message\ndata: {answer}\n\n"))
        }),
        ("a ping", events!("event: ping\ndata: {{}}\n\n")),
        ("a heartbeat", events!("event: heartbeat\ndata: pong\n\n")),
        ("an end of another protocol", events!("data: [DONE]\n\n")),
        ("an endpoint", events!("event: endpoint\ndata: /messages?session=1\n\n")),
        (
            "comments and empty events",
            events!(": hi\n\ndata:\n\nid: 1\nretry: 5\n\n"),
        ),
        (
            "a notification",
            events!("data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{{}}}}\n\n"),
        ),
        ("another name of the event", |answer| {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream";
            Answer::Http(head, format!("event: response\ndata: {answer}\n\n"))
        }),
        ("a byte order mark", |answer| {
            Answer::Http(JSON, format!("\u{feff}{answer}"))
        }),
        ("white space before it", |answer| {
            Answer::Http(JSON, format!("\r\n \t\n{answer}"))
        }),
        ("a list of one message", |answer| labelled(JSON, &json!([answer]))),
        ("a list with a notification", |answer| {
            labelled(
                JSON,
                &json!([{"jsonrpc": "2.0", "method": "notifications/message"}, answer]),
            )
        }),
        ("no version", |mut answer| {
            answer.as_object_mut().unwrap().remove("jsonrpc");
            labelled(JSON, &answer)
        }),
        ("another version", with!("jsonrpc": 2.0)),
        ("the id as text", |mut answer| {
            answer["id"] = json!(answer["id"].to_string());
            labelled(JSON, &answer)
        }),
        ("the id as a fraction", |mut answer| {
            answer["id"] = json!(answer["id"].as_f64());
            labelled(JSON, &answer)
        }),
        ("no id", with!("id": null)),
        ("its method", with!("method": "tools/call")),
        ("no error", with!("error": null)),
        ("an error that is false", with!("error": false)),
        ("an empty error of PHP", with!("error": [])),
        ("gzip", |answer| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(answer.to_string().as_bytes()).unwrap();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: GZip";
            Answer::Bytes(head, encoder.finish().unwrap())
        }),
        ("gzip of events", |answer| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder
                .write_all(format!("event: ping\ndata: {{}}\n\ndata: {answer}\n\n").as_bytes())
                .unwrap();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip";
            Answer::Bytes(head, encoder.finish().unwrap())
        }),
        ("deflate", |answer| {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(answer.to_string().as_bytes()).unwrap();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: deflate";
            Answer::Bytes(head, encoder.finish().unwrap())
        }),
    ]
}

/// Every answer of the server deviates in the same way, including those of the handshake.
#[tokio::test]
async fn an_answer_whose_meaning_is_certain_is_understood() {
    for (what, bend) in bends() {
        let mut server = RawServer::start(move |request| usual(request).map(bend)).await;
        let mcp = bridge(&http(&server.url));
        until(&mcp, |mcp| mcp.status()[0].state != ServerState::Connecting).await;
        let status = mcp.status().remove(0);
        assert_eq!((status.state, status.reason), (ServerState::Up, None), "{what}");
        assert_eq!(data(call(&mcp, "act", json!({})).await), json!("hello"), "{what}");
        assert_eq!(server.count("tools/call"), 1, "{what}");
    }
}

/// C-FR-002: members that a handshake or a list omits, or writes as PHP does.
#[tokio::test]
async fn a_handshake_and_a_list_without_members_that_mean_nothing_are_understood() {
    let tool = json!({"name": "act", "inputSchema": {"type": "object", "properties": [], "required": []},
        "annotations": [], "_meta": []});
    for (initialized, listed) in [
        (json!({"protocolVersion": "2025-06-18"}), tools()),
        (json!({"capabilities": {}}), tools()),
        (
            json!({"protocolVersion": "2025-06-18", "capabilities": [], "serverInfo": []}),
            tools(),
        ),
        (
            json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": []}, "serverInfo": {"name": "x"}}),
            json!({"tools": [tool], "nextCursor": "", "_meta": []}),
        ),
        (
            json!({"protocolVersion": "2025-06-18", "serverInfo": {"version": 2}}),
            json!({"tools": [{"name": "act", "inputSchema": []}], "nextCursor": null}),
        ),
    ] {
        let what = format!("{initialized} {listed}");
        let server = RawServer::start(move |request| match request.method() {
            "initialize" => Some(Answer::Result(initialized.clone())),
            "tools/list" => Some(Answer::Result(listed.clone())),
            _ => usual(request).map(|answer| Answer::Http(JSON, answer.to_string())),
        })
        .await;
        let mcp = bridge(&http(&server.url));
        until(&mcp, |mcp| mcp.status()[0].state != ServerState::Connecting).await;
        let status = mcp.status().remove(0);
        assert_eq!((status.state, status.reason), (ServerState::Up, None), "{what}");
        assert_eq!(data(call(&mcp, "act", json!({})).await), json!("hello"), "{what}");
    }
}

fn odd() -> Vec<(Bend, &'static [&'static str])> {
    vec![
        (
            |mut answer| {
                answer["error"] = json!({"code": -32603, "message": "it broke"});
                Answer::Http(JSON, answer.to_string())
            },
            &["both a `result` and an `error`", "it broke"],
        ),
        (
            |mut answer| {
                answer.as_object_mut().unwrap().remove("result");
                Answer::Http(JSON, answer.to_string())
            },
            &["neither a `result` nor an `error`"],
        ),
        (
            |mut answer| {
                answer["id"] = json!(999_999);
                Answer::Http(JSON, answer.to_string())
            },
            &["`id`"],
        ),
        (
            |answer| Answer::Http(JSON, answer.to_string().trim_end_matches('}').to_owned()),
            &["cut off"],
        ),
        (|_| Answer::Http(JSON, "nope".to_owned()), &["not JSON"]),
        (|_| Answer::Http(JSON, String::new()), &["without a body"]),
        (
            |_| Answer::Http("HTTP/1.1 200 OK\r\ncontent-type: text/html", "<html>".to_owned()),
            &["`text/html`"],
        ),
        (
            |answer| {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: br";
                Answer::Http(head, answer.to_string())
            },
            &["`content-encoding` `br`"],
        ),
        (
            |answer| {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip";
                Answer::Http(head, answer.to_string())
            },
            &["`gzip`"],
        ),
        (
            |_| {
                let head = "HTTP/1.1 307 Temporary Redirect\r\nlocation: https://elsewhere.example/mcp?token=canary";
                Answer::Http(head, String::new())
            },
            &["`https://elsewhere.example/mcp`", "another origin"],
        ),
        (
            |_| {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream";
                Answer::Http(head, "event: ping\ndata: {}\n\n".to_owned())
            },
            &["stream ended before the answer"],
        ),
    ]
}

/// Promise: bounded faults. The server is down with one sentence, without text of a parser or debug output, and is not
/// contacted for a while.
#[tokio::test]
async fn a_handshake_that_is_not_understood_is_reported_in_one_sentence() {
    for (bend, words) in odd() {
        let tries = Arc::new(AtomicUsize::new(0));
        let tried = tries.clone();
        let server = RawServer::start(move |request| {
            let first = request.method() == "initialize";
            tried.fetch_add(usize::from(first), Ordering::SeqCst);
            usual(request).map(bend)
        })
        .await;
        let mcp = bridge(&http(&server.url));
        until(&mcp, |mcp| mcp.status()[0].state == ServerState::Down).await;
        let reason = mcp.status()[0].reason.clone().unwrap();
        for word in words {
            assert!(reason.contains(word), "{word}: {reason}");
        }
        for dump in ["Some(", "Err(", " { ", "Syntax", "canary", "unexpected server response"] {
            assert!(!reason.contains(dump), "{dump}: {reason}");
        }
        if words[0] != "stream ended before the answer" {
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(tries.load(Ordering::SeqCst), 1, "{reason}");
        }
    }
}

/// Promise: at most once. An answer to a call that cannot be understood leaves its effect in doubt, with the reason.
#[tokio::test]
async fn an_answer_to_a_call_that_is_not_understood_is_reported_in_one_sentence() {
    for (bend, words) in odd() {
        let mut server = RawServer::start(move |request| {
            let bend = if request.method() == "tools/call" {
                bend
            } else {
                |answer: Value| Answer::Http(JSON, answer.to_string())
            };
            usual(request).map(bend)
        })
        .await;
        let mcp = bridge(&http(&server.url));
        up(&mcp).await;
        let reply = call(&mcp, "act", json!({})).await;
        let failure = match words[0].contains("https://") {
            true => failed(reply),
            false => unknown(reply),
        };
        for word in words {
            assert!(failure.message.contains(word), "{word}: {}", failure.message);
        }
        assert_eq!(server.count("tools/call"), 1, "{}", failure.message);
    }
}

/// If the redirect only occurs at the call, a new handshake learns the new address, and the call is sent once.
#[tokio::test]
async fn a_redirect_on_the_same_origin_is_followed() {
    for status in [
        "307 Temporary Redirect",
        "308 Permanent Redirect",
        "301 Moved",
        "302 Found",
    ] {
        for moves_later in [false, true] {
            if moves_later && status.starts_with("30") && !status.contains("Redirect") {
                continue;
            }
            let head: &'static str = format!("HTTP/1.1 {status}\r\nlocation: /mcp/").leak();
            let moved = Arc::new(AtomicUsize::new(usize::from(!moves_later)));
            let executed = Arc::new(AtomicUsize::new(0));
            let (has_moved, done) = (moved.clone(), executed.clone());
            let server = RawServer::start(move |request| {
                if has_moved.load(Ordering::SeqCst) == 1 && request.head.starts_with("post /mcp http") {
                    return Some(Answer::Http(head, String::new()));
                }
                done.fetch_add(usize::from(request.method() == "tools/call"), Ordering::SeqCst);
                usual(request).map(|answer| Answer::Http(JSON, answer.to_string()))
            })
            .await;
            let mcp = bridge(&http(&server.url));
            up(&mcp).await;
            moved.store(1, Ordering::SeqCst);
            assert_eq!(data(call(&mcp, "act", json!({})).await), json!("hello"), "{status}");
            assert_eq!(executed.load(Ordering::SeqCst), 1, "{status}");
        }
    }
}

/// Promise: at most once. Servers also use redirects to point to the result of a POST, so only 307 and 308 mean that
/// nothing was executed.
#[tokio::test]
async fn a_call_that_is_answered_with_another_redirect_is_not_sent_again() {
    for status in ["301 Moved Permanently", "302 Found", "303 See Other"] {
        let head: &'static str = format!("HTTP/1.1 {status}\r\nlocation: /results/7").leak();
        let called = Arc::new(AtomicUsize::new(0));
        let calls = called.clone();
        let server = RawServer::start(move |request| {
            if request.method() == "tools/call" {
                calls.fetch_add(1, Ordering::SeqCst);
                return Some(Answer::Http(head, String::new()));
            }
            usual(request).map(|answer| Answer::Http(JSON, answer.to_string()))
        })
        .await;
        let mut entry = http(&server.url);
        entry["gavel"] = json!({"tools": {"act": {"sideEffect": true}}});
        let mcp = bridge(&entry);
        up(&mcp).await;
        let failure = unknown(call(&mcp, "act", json!({})).await);
        assert_eq!(failure.code, FailureCode::InDoubt, "{status}");
        assert_eq!(called.load(Ordering::SeqCst), 1, "{status}");
    }
}

/// Promise: bounded faults. A cursor that repeats, or moves without new tools, costs a few requests and hides no tool.
#[tokio::test]
async fn a_list_with_a_repeating_cursor_is_read_once() {
    type Page = fn(&Value, usize) -> Value;
    let same: Page = |_, _| json!({"tools": tools()["tools"], "nextCursor": "next"});
    let moving: Page = |_, n| json!({"tools": tools()["tools"], "nextCursor": format!("page {n}")});
    let number: Page = |cursor, _| match cursor.as_str() {
        Some("2") => json!({"tools": [{"name": "more", "inputSchema": {"type": "object"}}]}),
        _ => json!({"tools": tools()["tools"], "nextCursor": 2}),
    };
    let none: Page = |_, _| json!({"tools": [], "nextCursor": "next"});
    let null: Page = |_, _| json!({"tools": null});
    let endless: Page = |_, n| json!({"tools": [{"name": format!("t{n}"), "inputSchema": {}}], "nextCursor": "next"});
    for (page, names, most) in [
        (same, Ok(1), 2),
        (moving, Ok(1), 2),
        (number, Ok(2), 2),
        (null, Ok(0), 1),
        (none, Err("`nextCursor`"), 3),
        (endless, Err("`nextCursor`"), 3),
    ] {
        let lists = Arc::new(AtomicUsize::new(0));
        let listed = lists.clone();
        let server = RawServer::start(move |request| {
            (request.method() == "tools/list").then(|| {
                let n = listed.fetch_add(1, Ordering::SeqCst);
                Answer::Result(page(&request.message["params"]["cursor"], n))
            })
        })
        .await;
        let mcp = bridge(&http(&server.url));
        until(&mcp, |mcp| mcp.status()[0].state != ServerState::Connecting).await;
        let status = mcp.status().remove(0);
        match names {
            Ok(tools) => assert_eq!((status.state, status.tools), (ServerState::Up, tools)),
            Err(word) => assert!(status.reason.unwrap().contains(word)),
        }
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert!(
            lists.load(Ordering::SeqCst) <= most,
            "{most}: {}",
            lists.load(Ordering::SeqCst)
        );
    }
}

/// Promise: bounded faults. A server that announces a change whenever its list is read.
#[tokio::test]
async fn a_list_that_changes_on_every_read_is_read_with_growing_intervals() {
    let lists = Arc::new(AtomicUsize::new(0));
    let listed = lists.clone();
    let server = RawServer::start(move |request| {
        (request.method() == "tools/list").then(|| {
            listed.fetch_add(1, Ordering::SeqCst);
            let answer = usual(request).unwrap();
            let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            Answer::Http(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream",
                format!("data: {changed}\n\ndata: {answer}\n\n"),
            )
        })
    })
    .await;
    let mcp = bridge(&http(&server.url));
    up(&mcp).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let lists = lists.load(Ordering::SeqCst);
    assert!((2..=7).contains(&lists), "{lists}");
}
