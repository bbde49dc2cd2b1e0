//! Client errors: each gets a clear error that names the field, and nothing is lost.

use serde_json::{Value, json};

use crate::gemini::Reply;
use crate::harness::{App, Setup, client, spawn_app};

async fn app() -> App {
    spawn_app(Setup::stdio_sqlite()).await
}

async fn problem(app: &App, body: impl Into<reqwest::Body>) -> (u16, Value) {
    let (status, headers, body) = app.post_with(&[], body).await;
    assert_eq!(headers["content-type"], "application/problem+json", "{body}");
    assert!(body["request_id"].is_string() && body["title"].is_string(), "{body}");
    assert_eq!(body["status"], status, "{body}");
    (status, body)
}

fn pointers(problem: &Value) -> Vec<&str> {
    problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["pointer"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn each_invalid_body_is_a_problem_that_names_the_location() {
    let app = app().await;
    let long = "x".repeat(10_000);
    let table: Vec<(String, &str)> = vec![
        ("{".into(), ""),
        ("".into(), ""),
        ("\u{feff}{}".into(), ""),
        ("[]".into(), ""),
        ("null".into(), ""),
        (r#"{"user_id":"u"}"#.into(), "/message"),
        (r#"{"message":"","user_id":"u"}"#.into(), "/message"),
        (r#"{"message":" \n","user_id":"u"}"#.into(), "/message"),
        (r#"{"message":7,"user_id":"u"}"#.into(), "/message"),
        (r#"{"message":"a\u0000b","user_id":"u"}"#.into(), "/message"),
        (r#"{"message":"a"}"#.into(), "/user_id"),
        (r#"{"message":"a","user_id":""}"#.into(), "/user_id"),
        (r#"{"message":"a","user_id":"a\u0000"}"#.into(), "/user_id"),
        (format!(r#"{{"message":"a","user_id":"{long}"}}"#), "/user_id"),
        (
            format!(r#"{{"message":"a","user_id":"u","conversation_id":"{long}"}}"#),
            "/conversation_id",
        ),
        (r#"{"message":"a","user_id":"u","colour":"red"}"#.into(), "/colour"),
        (
            r#"{"message":"a","user_id":"u","tools":["drop_table"]}"#.into(),
            "/tools/0",
        ),
        (r#"{"message":"a","user_id":"u","tools":"add_task"}"#.into(), "/tools"),
        (
            r#"{"message":"a","user_id":"u","tools":["add_task","list_tasks","add_task"]}"#.into(),
            "/tools/2",
        ),
        (
            r#"{"message":"a","user_id":"u","history":[{"role":"system","content":"x"}]}"#.into(),
            "/history/0/role",
        ),
        (
            r#"{"message":"a","user_id":"u","history":[{"role":"user"}]}"#.into(),
            "/history/0/content",
        ),
        (
            r#"{"message":"a","user_id":"u","time_zone":"Mars/Base"}"#.into(),
            "/time_zone",
        ),
    ];
    for (body, pointer) in table {
        let (status, problem) = problem(&app, body.clone()).await;
        assert_eq!(status, 400, "{body:.80}: {problem}");
        assert_eq!(problem["code"], "invalid_request", "{body:.80}: {problem}");
        assert!(pointers(&problem).contains(&pointer), "{body:.80}: {problem}");
    }
    let (_, page) = app.get("/v1/decisions").await;
    assert_eq!(page["decisions"], json!([]), "an unparsable request leaves no decision");
}

/// Every route that takes JSON: a body with `TEXT` in place of a text, and the expected status.
const BODIES: [(&str, &str, &str, u16); 8] = [
    ("POST", "/v1/chat", r#"{"message":"TEXT","user_id":"u"}"#, 200),
    (
        "POST",
        "/v1/chat",
        r#"{"message":"a","user_id":"u","history":[{"role":"user","content":"TEXT"}]}"#,
        200,
    ),
    ("POST", "/v1/chat/stream", r#"{"message":"TEXT","user_id":"u"}"#, 200),
    ("POST", "/api/agent/run", r#"{"prompt":"TEXT"}"#, 200),
    ("POST", "/api/agent/run/stream", r#"{"prompt":"TEXT"}"#, 200),
    (
        "POST",
        "/api/projects/default/agents/workspace/trigger",
        r#"{"query":"TEXT"}"#,
        200,
    ),
    (
        "POST",
        "/api/agent/approvals/resolve",
        r#"{"approvalId":"018f0000-0000-7000-8000-000000000000","decision":"reject","reason":"TEXT"}"#,
        404,
    ),
    (
        "PUT",
        "/api/projects/shop/agents/seller",
        r#"{"name":"seller","description":"TEXT","system_prompt":"Sell."}"#,
        201,
    ),
];

async fn send(app: &App, method: &str, path: &str, body: Vec<u8>) -> (u16, String) {
    let headers = [("content-type", "application/json"), ("x-gavel-user", "u")];
    let answer = app.request(method, path, &headers).body(body).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// A client in another language cuts a text inside an emoji, and its JSON has half a character.
#[tokio::test]
async fn half_a_character_in_any_body_is_replaced_and_the_request_is_answered() {
    let agent = "---\nname: workspace\ndescription: Works.\n---\n\nYou work.\n";
    let said = (0..BODIES.len()).map(|_| Reply::Text("Yes.")).collect();
    let app = spawn_app(Setup::stdio_sqlite().agent("workspace.md", agent).script(said)).await;
    for (method, path, body, expected) in BODIES {
        for half in [r"call mom \ud83d", r"\udc4d call mom", r"call \uD83D mom"] {
            let body = body.replace("TEXT", half);
            let (status, answer) = send(&app, method, path, body.clone().into_bytes()).await;
            let again = status == 200 && expected == 201;
            assert!(status == expected || again, "{method} {path} {body}: {status} {answer}");
        }
    }
    let (_, page) = app.get("/v1/decisions?page_size=1&order_by=created_at").await;
    assert_eq!(page["decisions"][0]["message"], "call mom \u{fffd}", "{page}");
}

#[tokio::test]
async fn invalid_utf8_is_a_bad_request_that_names_the_position() {
    let app = app().await;
    for (method, path, body, _) in BODIES {
        let at = body.find("TEXT").unwrap();
        let (before, after) = body.split_once("TEXT").unwrap();
        let body = [before.as_bytes(), b"\xff\xfe", after.as_bytes()].concat();
        let (status, answer) = send(&app, method, path, body).await;
        assert_eq!(status, 400, "{method} {path}: {answer}");
        assert!(
            answer.contains(&format!("is not UTF-8 at byte {}", at + 1)),
            "{method} {path}: {answer}"
        );
    }
}

#[tokio::test]
async fn a_body_over_its_limit_is_413_for_every_transfer_encoding() {
    let app = app().await;
    let body = format!(r#"{{"message":"{}","user_id":"u"}}"#, "x".repeat(1 << 20));
    let (status, sized) = problem(&app, body.clone()).await;
    assert_eq!((status, &sized["code"]), (413, &json!("body_too_large")), "{sized}");
    let pieces = body
        .into_bytes()
        .chunks(4096)
        .map(|piece| Ok::<_, std::io::Error>(piece.to_vec()))
        .collect::<Vec<_>>();
    let chunked = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    let (status, _) = problem(&app, chunked).await;
    assert_eq!(status, 413);
}

#[tokio::test]
async fn unknown_routes_disallowed_methods_and_invalid_ids_are_problems() {
    let app = app().await;
    assert_eq!(app.get("/v1/nothing").await.0, 404);
    assert_eq!(app.get("/v1/chat").await.0, 405);
    assert_eq!(app.get("/v1/decisions/not-an-id").await.0, 404);
    assert_eq!(
        app.get("/v1/decisions/018f0000-0000-7000-8000-000000000000").await.0,
        404
    );
    for query in [
        "page_size=0",
        "page_size=x",
        "page_token=%00",
        "filter=colour%20%3D%201",
        "order_by=mood",
        "colour=1",
    ] {
        let (status, body) = app.get(&format!("/v1/decisions?{query}")).await;
        assert_eq!(status, 400, "{query}: {body}");
    }
    let plain = client().post(format!("{}/v1/chat", app.url));
    let plain = plain.header("content-type", "text/plain").body("hi");
    let answer = plain.send().await.unwrap();
    assert_eq!(answer.status(), 415);
    let problem: Value = answer.json().await.unwrap();
    assert_eq!(problem["code"], "unsupported_media_type", "{problem}");
}

#[tokio::test]
async fn the_same_key_and_body_get_the_same_answer_and_another_body_is_refused() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let app = spawn_app(setup).await;
        let body = json!({"message": "hi", "user_id": "ann"}).to_string();
        let key = [("idempotency-key", "k-1")];
        let (first_status, _, first) = app.post_with(&key, body.clone()).await;
        let (second_status, headers, second) = app.post_with(&key, body.clone()).await;
        assert_eq!((first_status, second_status), (200, 200), "{first} {second}");
        assert_eq!(first, second);
        assert_eq!(headers["idempotency-replayed"], "true");
        assert_eq!(app.gemini.requests().len(), 1, "the model was asked once");
        let other = json!({"message": "ho", "user_id": "ann"}).to_string();
        let (status, _, problem) = app.post_with(&key, other).await;
        assert_eq!(
            (status, &problem["code"]),
            (422, &json!("idempotency_key_reused")),
            "{problem}"
        );
        let bob = json!({"message": "hi", "user_id": "bob"}).to_string();
        assert_eq!(
            app.post_with(&key, bob).await.0,
            200,
            "the key is separate for another user"
        );
        let (_, page) = app.get("/v1/decisions").await;
        assert_eq!(
            page["decisions"].as_array().unwrap().len(),
            2,
            "one record each: {page}"
        );
    }
}

#[tokio::test]
async fn fifty_requests_with_one_key_at_once_decide_once() {
    let app = spawn_app(Setup::stdio_postgres()).await;
    let body = json!({"message": "hi", "user_id": "ann"}).to_string();
    let key = [("idempotency-key", "race")];
    let answers = futures_util::future::join_all((0..50).map(|_| app.post_with(&key, body.clone()))).await;
    for (status, _, body) in &answers {
        assert!([200, 409].contains(status), "{body}");
    }
    assert!(answers.iter().any(|(status, ..)| *status == 200));
    assert_eq!(app.gemini.requests().len(), 1);
}

/// A refusal that asks the caller to retry is not stored as the answer for 24 hours.
#[tokio::test]
async fn a_retry_with_the_key_of_a_rate_limited_request_is_a_new_request() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let app = spawn_app(setup.rate(30, 1)).await;
        let body = json!({"message": "hi", "user_id": "ann"}).to_string();
        let key = [("idempotency-key", "k-429")];
        assert_eq!(app.post_with(&[], body.clone()).await.0, 200);
        assert_eq!(app.post_with(&key, body.clone()).await.0, 429);
        crate::harness::until("the quota to let one through", || async {
            app.post_with(&key, body.clone()).await.0 == 200
        })
        .await;
        let (_, headers, _) = app.post_with(&key, body).await;
        assert_eq!(headers["idempotency-replayed"], "true");
    }
}
