//! HTTP misuse: a clear 4xx, never a 500, and nothing recorded.

use reqwest::Method;
use serde_json::Value;

use crate::harness::{Answer, HI, Setup, serve};

fn pointers(problem: &Value) -> Vec<&str> {
    problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["pointer"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn an_invalid_body_is_reported_with_every_location_at_once() {
    let edge = serve(Setup::default()).await;
    let answer = edge.post(r#"{"message":7,"user_id":[],"colour":1}"#).await;
    let problem = answer.problem(400, "invalid_request");
    assert_eq!(pointers(&problem).len(), 3, "{problem}");
    for body in [
        "",
        "{",
        "[]",
        "null",
        "\u{feff}{}",
        "{\"message\":\"a\u{0}b\",\"user_id\":\"u\"}",
    ] {
        edge.post(body).await.problem(400, "invalid_request");
    }
    edge.post(b"{\"message\":\"\xff\",\"user_id\":\"u\"}".to_vec())
        .await
        .problem(400, "invalid_request");
    edge.post("[".repeat(100_000)).await.problem(400, "invalid_request");
    assert!(edge.record.closed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn only_json_without_content_coding_is_accepted() {
    let edge = serve(Setup::default()).await;
    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin1",
        "",
    ] {
        let request = edge
            .request(Method::POST, "/v1/chat")
            .header("content-type", content_type)
            .body(HI);
        let answer = Answer::of(request.send().await.unwrap()).await;
        answer.problem(415, "unsupported_media_type");
        assert_eq!(answer.header("accept"), "application/json");
    }
    let none = Answer::of(edge.request(Method::POST, "/v1/chat").body(HI).send().await.unwrap()).await;
    none.problem(415, "unsupported_media_type");
    let gzip = edge.post_with(&[("content-encoding", "gzip")], HI).await;
    gzip.problem(415, "unsupported_media_type");
    assert_eq!(gzip.header("accept-encoding"), "identity");
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_for_every_transfer_encoding() {
    let edge = serve(Setup::default()).await;
    let body = format!(r#"{{"message":"{}","user_id":"u"}}"#, "x".repeat(1 << 20));
    let sized = edge.post(body.clone()).await;
    let problem = sized.problem(413, "body_too_large");
    assert!(problem["detail"].as_str().unwrap().contains("1048576"), "{problem}");
    let pieces: Vec<_> = body
        .into_bytes()
        .chunks(4096)
        .map(|piece| Ok::<_, std::io::Error>(piece.to_vec()))
        .collect();
    let chunked = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    edge.post(chunked).await.problem(413, "body_too_large");
    let exact = format!(r#"{{"message":"{}","user_id":"u"}}"#, "x".repeat((1 << 20) - 28));
    assert_eq!(exact.len(), 1 << 20);
    assert_eq!(
        edge.post(exact).await.json()["outcome_category"],
        "ERROR:USER_INPUT",
        "at the limit it is read"
    );
}

#[tokio::test]
async fn a_chunked_body_is_read_like_any_other() {
    let edge = serve(Setup::default()).await;
    let pieces = HI
        .as_bytes()
        .chunks(5)
        .map(|piece| Ok::<_, std::io::Error>(piece.to_vec()));
    let chunked = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces.collect::<Vec<_>>()));
    assert_eq!(edge.post(chunked).await.status, 200);
}

#[tokio::test]
async fn an_unknown_route_is_404_and_a_disallowed_method_405_with_allow() {
    let edge = serve(Setup::default()).await;
    for path in [
        "/v1/nothing",
        "/v1/chat/",
        "/v1/decisions/",
        "/v1/decisions/a/b",
        "/%ff",
        "/%00",
        "/..%2f..%2fetc/passwd",
        "//",
    ] {
        edge.get(path).await.problem(404, "not_found");
    }
    let table = [
        ("/v1/chat", "POST"),
        ("/v1/chat/stream", "POST"),
        ("/v1/decisions", "GET, HEAD"),
        ("/v1/decisions/018f0000-0000-7000-8000-000000000000", "GET, HEAD"),
        ("/v1/tool-invocations", "GET, HEAD"),
        ("/api/projects/p/agents", "GET, HEAD"),
        ("/api/projects/p/agents/a", "GET, HEAD, PUT"),
        ("/api/projects/p/agents/a/versions", "GET, HEAD"),
        ("/api/projects/p/agents/a/versions/1", "GET, HEAD"),
        ("/api/projects/p/agents/a/versions/1/restore", "POST"),
        ("/api/projects/p/agents/a/trigger", "POST"),
        ("/api/projects/p/runs", "GET, HEAD"),
        ("/api/runs/018f0000-0000-7000-8000-000000000000", "GET, HEAD"),
        ("/api/runs/018f0000-0000-7000-8000-000000000000/events", "GET, HEAD"),
        ("/api/runs/018f0000-0000-7000-8000-000000000000/cancel", "POST"),
        ("/api/runs/018f0000-0000-7000-8000-000000000000/resume", "POST"),
        ("/schemas/agent.schema.json", "GET, HEAD"),
        ("/livez", "GET, HEAD"),
        ("/readyz", "GET, HEAD"),
        ("/metrics", "GET, HEAD"),
        ("/openapi.json", "GET, HEAD"),
        ("/docs", "GET, HEAD"),
        ("/", "GET, HEAD"),
    ];
    for (path, allow) in table {
        for method in [
            Method::GET,
            Method::POST,
            Method::PUT,
            Method::DELETE,
            Method::PATCH,
            Method::OPTIONS,
            Method::TRACE,
        ] {
            if allow.split(", ").any(|allowed| allowed == method.as_str()) {
                continue;
            }
            let answer = Answer::of(edge.request(method.clone(), path).send().await.unwrap()).await;
            answer.problem(405, "method_not_allowed");
            assert_eq!(answer.header("allow"), allow, "{method} {path}");
        }
    }
}

/// An outdated or mistyped link shows a page with the navigation.
#[tokio::test]
async fn an_unknown_console_path_gets_a_page_with_the_navigation() {
    let edge = serve(Setup::default()).await;
    let is_page = |answer: &Answer, status: u16, what: &str| {
        assert_eq!(answer.status, status, "{what}");
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8", "{what}");
        assert!(
            answer.text.contains("<nav aria-label=\"Pages\">"),
            "{what}: {}",
            answer.text
        );
        assert!(
            answer.text.contains("href=\"/console/approvals\""),
            "{what}: {}",
            answer.text
        );
    };
    for path in [
        "/console/",
        "/console/nothing",
        "/console/approvals/",
        "/console/approvals/a/b",
        "/console/threads/%ff",
        "/console/style.css/x",
        "/console/approvals/no-id",
    ] {
        is_page(&edge.get(path).await, 404, path);
    }
    for (method, path, allow) in [
        (Method::DELETE, "/console/approvals", "GET, HEAD"),
        (Method::GET, "/console/logout", "POST"),
        (
            Method::GET,
            "/console/grants/018f0000-0000-7000-8000-000000000000",
            "POST",
        ),
        (Method::PUT, "/console", "GET, HEAD"),
    ] {
        let answer = Answer::of(edge.request(method.clone(), path).send().await.unwrap()).await;
        is_page(&answer, 405, path);
        assert_eq!(answer.header("allow"), allow, "{method} {path}");
    }
    edge.get("/consoles").await.problem(404, "not_found");
}

#[tokio::test]
async fn an_invalid_id_finds_no_decision() {
    let edge = serve(Setup::default()).await;
    let ids = [
        "not-an-id",
        "018f0000-0000-7000-8000-000000000000",
        "%ff%fe",
        "%00",
        &"x".repeat(5000),
        "018f0000%2D0000-7000-8000-000000000000",
    ];
    for id in ids {
        edge.get(&format!("/v1/decisions/{id}")).await.problem(404, "not_found");
        edge.get(&format!("/api/runs/{id}")).await.problem(404, "not_found");
        edge.get(&format!("/api/projects/{id}/runs"))
            .await
            .problem(404, "not_found");
    }
}

/// The parser's own errors come without a body; only their status counts.
#[tokio::test]
async fn broken_heads_are_refused_and_the_connection_is_closed() {
    let edge = serve(Setup::default()).await;
    let head = |extra: &str| {
        format!("POST /v1/chat HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{extra}\r\n{HI}")
    };
    let length = HI.len();
    let table = [
        (
            head(&format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n")),
            "400",
        ),
        (
            head(&format!("content-length: {length}\r\ncontent-length: {length}\r\n")),
            "400",
        ),
        (head("content-length: +5\r\n"), "400"),
        (head("content-length: -5\r\n"), "400"),
        (head("transfer-encoding: gzip, chunked\r\n"), "400"),
        (head("transfer-encoding: chunked\r\n"), "400"),
        (head("x\0y: z\r\n"), "400"),
        ("GET /livez HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("GET /livez HTTP/9.9\r\nhost: x\r\n\r\n".to_owned(), "400"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n".to_owned(), "400"),
        (
            format!(
                "GET /livez HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n",
                "y".repeat(200_000)
            ),
            "431",
        ),
        (
            format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "y".repeat(200_000)),
            "431",
        ),
        (
            format!("GET /livez HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(200)),
            "431",
        ),
    ];
    for (bytes, status) in table {
        let answer = edge.raw(bytes.as_bytes()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{bytes:.120?}: {answer:.200?}"
        );
    }
    assert!(edge.record.closed.lock().unwrap().is_empty());
    assert_eq!(edge.get("/livez").await.status, 200, "the server continues to serve");
}

#[tokio::test]
async fn a_truncated_body_is_not_a_request() {
    let edge = serve(Setup::default()).await;
    let mut stream = edge.connect().await;
    let head =
        "POST /v1/chat HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    tokio::io::AsyncWriteExt::write_all(&mut stream, head.as_bytes())
        .await
        .unwrap();
    drop(stream);
    assert_eq!(edge.get("/livez").await.status, 200);
    assert!(edge.record.closed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn expect_100_continue_is_answered() {
    let edge = serve(Setup::default()).await;
    let request = format!(
        "POST /v1/chat HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n\
         content-length: {}\r\n\r\n{HI}",
        HI.len()
    );
    let answer = edge.raw(request.as_bytes()).await;
    assert!(
        answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn an_invalid_request_id_is_replaced() {
    let edge = serve(Setup::default()).await;
    for id in ["a b", "a;b", &"x".repeat(129)] {
        let request = edge.request(Method::GET, "/livez").header("x-request-id", id);
        let answer = Answer::of(request.send().await.unwrap()).await;
        assert_eq!(answer.header("x-request-id").len(), 36, "{id:?}");
    }
}
