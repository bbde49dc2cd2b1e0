//! A server's unreadable output is reported with the malformed member, without text of a parser (R-16).

use gavel::adapters::mcp::{Mcp, ServerState};
use gavel::ports::tools::{CallReply, Tools};
use serde_json::{Value, json};

use super::raw::{Answer, RawServer, tools};
use super::support::{bridge, call, http, until, up};

const JSON: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream";

/// Phrases of serde and similar parsers, and Rust's debug output.
const PARSERS: [&str; 21] = [
    "invalid type",
    "invalid value",
    "invalid length",
    "missing field `",
    "unknown field `",
    "unknown variant `",
    "duplicate field `",
    "expected struct",
    "expected value",
    "expected ident",
    "expected `",
    "trailing characters",
    "EOF while",
    "did not match any variant",
    " at line ",
    "recursion limit",
    "Some(",
    "None",
    "Error(",
    "Syntax",
    "{ ",
];

#[track_caller]
fn says_nothing_of_a_parser(what: &str, text: &str) {
    for words in PARSERS {
        assert!(!text.contains(words), "{what}: {words:?} in {text}");
    }
}

/// Values of `result` in an answer, or complete answers if they are text.
fn malformed_results() -> Vec<Value> {
    let mut results = vec![
        json!(7),
        json!("x"),
        json!([]),
        json!([[]]),
        json!(null),
        json!(true),
        json!({}),
    ];
    for content in [
        json!(7),
        json!("x"),
        json!({}),
        json!([7]),
        json!(["x"]),
        json!([[]]),
        json!([{}]),
        json!([{"type": 7}]),
        json!([{"type": "text"}]),
        json!([{"type": "text", "text": 7}]),
        json!([{"type": "text", "text": null}]),
        json!([{"type": "image"}]),
        json!([{"type": "image", "data": 7, "mimeType": []}]),
        json!([{"type": "resource", "resource": 7}]),
        json!([{"type": "resource_link", "uri": 7}]),
        json!([null]),
    ] {
        results.push(json!({"content": content}));
        results.push(json!({"content": content, "isError": true}));
    }
    for (name, value) in [
        ("isError", json!("yes")),
        ("isError", json!(7)),
        ("isError", json!([])),
        ("_meta", json!(7)),
        ("structuredContent", json!("x")),
        ("resultType", json!(7)),
        ("resultType", json!("odd")),
        ("task", json!(7)),
    ] {
        results.push(json!({"content": [{"type": "text", "text": "a"}], name: value}));
    }
    results
}

/// The answers from `{id}` and a result.
fn malformed_answers() -> Vec<&'static str> {
    vec![
        "",
        "nope",
        "{",
        "[",
        "7",
        "null",
        "\"x\"",
        "[]",
        "{}",
        "[7]",
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":["#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]}} x"#,
        r#"{"jsonrpc":"2.0","id":ID}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\x"}]}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"a",}]}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"error":7}"#,
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":"x","message":7}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"error":{}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"error":[7]}"#,
        r#"{"jsonrpc":"2.0","id":{},"result":{"content":[]}}"#,
        r#"{"jsonrpc":7,"id":ID,"result":{},"result":{}}"#,
    ]
}

/// All texts of the bridge: about its server, the omitted tools, and a call.
fn reported(mcp: &Mcp, reply: &Option<CallReply>) -> String {
    let status = mcp.status().remove(0);
    let mut reported = format!("{} ", status.reason.unwrap_or_default());
    for left in &mcp.catalog().left_out {
        reported.push_str(&format!("{} {} ", left.tool, left.reason));
    }
    if let Some(CallReply::Failed(failure) | CallReply::Unknown(failure) | CallReply::NotSent(failure)) = reply {
        reported.push_str(&failure.message);
        assert!(!failure.message.trim().is_empty());
    }
    reported
}

/// Malformed results and answers of a call, as JSON and as events.
#[tokio::test]
async fn a_malformed_answer_to_a_call_is_reported_in_gavels_own_words() {
    let whole = |result: Value| json!({"jsonrpc": "2.0", "id": "ID", "result": result}).to_string();
    let results = malformed_results()
        .into_iter()
        .map(whole)
        .map(|text| text.replace("\"ID\"", "ID"));
    let answers: Vec<String> = results
        .chain(malformed_answers().into_iter().map(str::to_owned))
        .collect();
    let count = answers.len();
    for head in [JSON, EVENTS] {
        let answers = answers.clone();
        let server = RawServer::start(move |request| {
            (request.method() == "tools/call").then(|| {
                let n = usize::try_from(request.message["params"]["arguments"]["n"].as_u64().unwrap()).unwrap();
                let text = answers[n].replace("ID", &request.message["id"].to_string());
                let events = head == EVENTS;
                Answer::Http(head, if events { format!("data: {text}\n\n") } else { text })
            })
        })
        .await;
        let mcp = bridge(&http(&server.url));
        up(&mcp).await;
        for n in 0..count {
            until(&mcp, |mcp| mcp.status()[0].state == ServerState::Up).await;
            let reply = call(&mcp, "act", json!({"n": n})).await;
            says_nothing_of_a_parser(&format!("answer {n} with {head}"), &reported(&mcp, &Some(reply)));
        }
    }
}

/// Malformed handshakes and tool lists.
#[tokio::test]
async fn a_malformed_handshake_or_list_is_reported_in_gavels_own_words() {
    let info = json!({"name": "raw", "version": "1"});
    let version = "2025-06-18";
    let mut cases: Vec<(&'static str, Value)> = vec![];
    for result in [
        json!(7),
        json!("x"),
        json!([7]),
        json!(null),
        json!({"protocolVersion": 7, "capabilities": {"tools": {}}, "serverInfo": info}),
        json!({"protocolVersion": "x", "capabilities": {"tools": {}}, "serverInfo": info}),
        json!({"protocolVersion": version, "capabilities": 7, "serverInfo": info}),
        json!({"protocolVersion": version, "capabilities": {"tools": 7}, "serverInfo": info}),
        json!({"protocolVersion": version, "capabilities": {"tools": {"listChanged": "x"}}, "serverInfo": 7}),
        json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": 7, "version": []}}),
        json!({"supportedVersions": 7, "capabilities": {}}),
        json!({"supportedVersions": ["x"], "capabilities": []}),
    ] {
        cases.push(("initialize", result));
    }
    let schema = json!({"type": "object"});
    for result in [
        json!(7),
        json!("x"),
        json!([7]),
        json!(null),
        json!({}),
        json!({"tools": 7}),
        json!({"tools": "x"}),
        json!({"tools": [7]}),
        json!({"tools": ["x"]}),
        json!({"tools": [{}]}),
        json!({"tools": [null]}),
        json!({"tools": [{"name": 7, "inputSchema": schema}]}),
        json!({"tools": [{"name": "a"}]}),
        json!({"tools": [{"name": "a", "inputSchema": 7}]}),
        json!({"tools": [{"name": "a", "inputSchema": "x"}]}),
        json!({"tools": [{"name": "a", "inputSchema": [7]}]}),
        json!({"tools": [{"name": "", "inputSchema": schema}]}),
        json!({"tools": [{"name": "a", "inputSchema": {"type": 7}}]}),
        json!({"tools": [{"name": "a", "inputSchema": {"type": "odd"}}]}),
        json!({"tools": [{"name": "a", "inputSchema": {"$ref": "#/nope"}}]}),
        json!({"tools": [{"name": "a", "inputSchema": {"properties": 7}}]}),
        json!({"tools": [{"name": "a", "inputSchema": schema, "description": [7]}]}),
        json!({"tools": [{"name": "a", "inputSchema": schema, "annotations": 7}]}),
        json!({"tools": [{"name": "a", "inputSchema": schema, "annotations": {"readOnlyHint": "x"}}]}),
        json!({"tools": [{"name": "a", "inputSchema": schema, "outputSchema": 7}]}),
        json!({"tools": [{"name": "a", "inputSchema": schema, "outputSchema": {"type": 7}}]}),
        json!({"tools": [], "nextCursor": []}),
    ] {
        cases.push(("tools/list", result));
    }
    for (method, result) in cases {
        let what = format!("{method}: {result}");
        let server = RawServer::start(move |request| match request.method() {
            asked if asked == method => Some(Answer::Result(result.clone())),
            "initialize" => None,
            "tools/list" => Some(Answer::Result(tools())),
            _ => None,
        })
        .await;
        let mcp = bridge(&http(&server.url));
        until(&mcp, |mcp| mcp.status()[0].state != ServerState::Connecting).await;
        says_nothing_of_a_parser(&what, &reported(&mcp, &None));
    }
}
