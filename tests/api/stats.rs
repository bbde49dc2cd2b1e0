//! Statistics of the logs, through the API.

use serde_json::{Value, json};

use crate::gemini::Reply;
use crate::harness::{Answer, App, spawn_app};
use crate::threads::both;

async fn ask(app: &App, headers: &[(&str, &str)], path: &str, question: &Value) -> Answer {
    let request = app.request("POST", path, headers);
    Answer::of(request.json(question)).await
}

/// Two decisions of Ann, one of them with a call, and one of Bob.
fn script() -> Vec<Reply> {
    vec![
        Reply::call("list_tasks", json!({})),
        Reply::Text("You have no tasks."),
        Reply::Text("Hello."),
        Reply::Text("Hello, Bob."),
    ]
}

#[tokio::test]
async fn questions_are_answered_over_both_logs_and_each_user_sees_their_own() {
    for setup in both() {
        let app = spawn_app(setup.script(script())).await;
        app.chat_as("ann", "what is open?").await;
        app.chat_as("ann", "hello").await;
        app.chat_as("bob", "hello").await;

        let question = json!({
            "bucket": "day", "time_zone": "Asia/Kolkata", "by": ["surface"],
            "measures": ["count", {"rate": "call.tool = \"list_tasks\"", "name": "asked"}, "p50(duration_ms)",
                "sum(input_tokens)", "sum(cost_usd)"],
        });
        let found = ask(&app, &[], "/v1/stats/query", &question).await.expect(200);
        let row = &found["rows"][0];
        assert_eq!((&row["count"], &row["surface"]), (&json!(3), &json!("chat")), "{found}");
        assert!(row["bucket"].as_str().unwrap().ends_with("T00:00:00+05:30"), "{found}");
        assert_eq!(
            (&row["asked"]["k"], &row["asked"]["n"]),
            (&json!(1), &json!(3)),
            "{found}"
        );
        assert!(row["p50(duration_ms)"].is_number(), "{found}");
        // What the stand-in's model costs is unknown.
        assert_eq!(
            (&row["sum(cost_usd)"], &found["missing"]["cost"]),
            (&Value::Null, &json!(3)),
            "{found}"
        );
        assert_eq!(
            (&found["open"], &found["source"]),
            (&json!(0), &json!("log")),
            "{found}"
        );

        // One user's own, for a service that asks for them.
        let of_bob = ask(&app, &[("x-gavel-user", "bob")], "/v1/stats/query", &json!({}))
            .await
            .expect(200);
        assert_eq!(of_bob["rows"], json!([{"count": 1}]), "{of_bob}");

        let (_, outcomes) = app.get("/v1/stats/outcomes?by=surface").await;
        assert_eq!(outcomes["source"], "rollup", "{outcomes}");
        let expected = json!([
            {"count": 2, "outcome_category": "SUCCESS:RESPONSE_GIVEN", "surface": "chat"},
            {"count": 1, "outcome_category": "SUCCESS:TASK_COMPLETED", "surface": "chat"},
        ]);
        assert_eq!(outcomes["rows"], expected, "{outcomes}");
        let (_, tools) = app.get("/v1/stats/tools").await;
        assert_eq!(tools["rows"][0]["tool"], "list_tasks", "{tools}");
        assert_eq!(tools["rows"][0]["failed"]["value"], json!(0.0), "{tools}");
        assert!(tools["rows"][0]["avg(result_bytes)"].as_f64().unwrap() > 0.0, "{tools}");
        let (_, latency) = app.get("/v1/stats/latency").await;
        assert!(latency["rows"][0]["p95(own_ms)"].is_number(), "{latency}");
        let (_, models) = app.get("/v1/stats/models").await;
        assert_eq!(models["rows"][0]["count"], 3, "{models}");
        let (_, cost) = app.get("/v1/stats/cost?filter=surface%20%3D%20%22agent%22").await;
        assert_eq!(cost["rows"], json!([]), "{cost}");

        let both = json!({"a": "user_id = \"ann\"", "b": "user_id = \"bob\""});
        let compared = ask(&app, &[], "/v1/stats/compare", &both).await.expect(200);
        assert_eq!(
            (&compared["a"]["n"], &compared["b"]["n"]),
            (&json!(2), &json!(1)),
            "{compared}"
        );
        assert!(
            compared["says"].as_str().unwrap().starts_with("Too few to say"),
            "{compared}"
        );
        app.stop().await;
    }
}

#[tokio::test]
async fn an_invalid_question_names_each_place_and_what_is_allowed() {
    let app = spawn_app(crate::harness::Setup::stdio_sqlite().script(vec![])).await;
    let question =
        json!({"from": "2026-11-18T00:00:00Z", "to": "2026-11-18T00:00:00Z", "measures": ["max(x)"], "limit": 0});
    let problem = ask(&app, &[], "/v1/stats/query", &question)
        .await
        .problem(400, "invalid_request");
    let places: Vec<_> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["pointer"].clone())
        .collect();
    assert_eq!(places, ["/from", "/measures/0", "/limit"], "{problem}");
    // The number by which the database has a time is none that a caller may give.
    for (path, question) in [
        ("/v1/stats/query", json!({"to": 0})),
        (
            "/v1/stats/compare",
            json!({"a": "surface = \"chat\"", "b": "surface = \"agent\"", "from": 0}),
        ),
    ] {
        ask(&app, &[], path, &question).await.problem(400, "invalid_request");
    }
    let question = json!({"by": ["message"], "filter": "surface = \"chat\""});
    let problem = ask(&app, &[], "/v1/stats/query", &question)
        .await
        .problem(400, "invalid_request");
    assert_eq!(problem["errors"][0]["pointer"], "/by", "{problem}");
    let problem = ask(&app, &[], "/v1/stats/query", &json!({"filter": "nope = 1"}))
        .await
        .problem(400, "invalid_request");
    assert_eq!(problem["errors"][0]["pointer"], "/filter", "{problem}");
    let both = json!({"a": "surface = \"chat\"", "b": "nope = 1"});
    let problem = ask(&app, &[], "/v1/stats/compare", &both)
        .await
        .problem(400, "invalid_request");
    assert_eq!(problem["errors"][0]["pointer"], "/b", "{problem}");
    // The same in the parameters of a question with a name.
    for (query, pointer) in [
        ("from=yesterday", "from"),
        ("bucket=year", "bucket"),
        ("time_zone=Mars", "time_zone"),
        ("by=message", "by"),
        ("filter=nope%20%3D%201", "filter"),
        ("days=7", "days"),
    ] {
        let request = app.request("GET", &format!("/v1/stats/outcomes?{query}"), &[]);
        let problem = Answer::of(request).await.problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{query}: {problem}");
    }
}
