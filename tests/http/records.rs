//! The decision log for analysts, and the published schemas compared with the responses.

use gavel::domain::ids::DecisionId;
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Setup, serve};

/// Asserts that `value` is valid under the component `name`.
pub fn assert_valid(description: &Value, name: &str, value: &Value) {
    let mut schema = description.clone();
    schema["$ref"] = json!(format!("#/components/schemas/{name}"));
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<_> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{name}: {errors:#?} in {value}");
}

/// As `assert_valid`; also asserts that every field is in the schema, at any depth that has properties.
pub fn assert_described(description: &Value, name: &str, value: &Value) {
    assert_valid(description, name, value);
    let mut strict = description.clone();
    for schema in strict["components"]["schemas"].as_object_mut().unwrap().values_mut() {
        if schema["properties"].is_object() {
            schema["additionalProperties"] = json!(false);
        }
    }
    assert_valid(&strict, name, value);
}

#[tokio::test]
async fn a_list_passes_its_parameters_on_and_returns_the_next_page_token() {
    let edge = serve(Setup::default()).await;
    edge.record
        .rows
        .lock()
        .unwrap()
        .insert(DecisionId::new(), json!({"decision_id": "d"}));
    for (path, name) in [
        ("/v1/decisions", "decisions"),
        ("/v1/tool-invocations", "tool_invocations"),
    ] {
        let answer = edge
            .get(&format!(
                "{path}?page_size=7&page_token=abc&filter=intent%20%3D%20%22x%22&order_by=created_at"
            ))
            .await;
        let page = answer.json();
        assert_eq!(
            (&page[name][0]["decision_id"], &page["next_page_token"]),
            (&json!("d"), &json!("next"))
        );
        assert_eq!(page.as_object().unwrap().len(), 2);
        assert_eq!(answer.header("cache-control"), "no-store");
        let (tenant, query) = edge.record.queries.lock().unwrap().pop().unwrap();
        assert_eq!((tenant.as_str(), query.page_size), ("default", 7));
        assert_eq!(query.page_token.as_deref(), Some("abc"));
        assert_eq!(query.filter.as_deref(), Some("intent = \"x\""));
        assert_eq!(query.order_by.as_deref(), Some("created_at"));
    }
    edge.get("/v1/decisions").await;
    assert_eq!(edge.record.queries.lock().unwrap().pop().unwrap().1.page_size, 50);
}

/// A service that names a user sees that user's rows, as on every other route.
#[tokio::test]
async fn the_log_is_limited_to_the_user_in_the_header() {
    let edge = serve(Setup::default()).await;
    let id = DecisionId::new();
    edge.record
        .rows
        .lock()
        .unwrap()
        .insert(id, json!({"decision_id": "d", "user_id": "bob"}));
    let get = async |path: &str, user: Option<&str>| {
        let request = edge.request(Method::GET, path);
        let request = match user {
            Some(user) => request.header("x-gavel-user", user),
            None => request,
        };
        Answer::of(request.send().await.unwrap()).await
    };
    let one = format!("/v1/decisions/{id}");
    for path in ["/v1/decisions", "/v1/tool-invocations"] {
        for (user, asked) in [(Some("ann"), Some("ann")), (None, None)] {
            assert_eq!(get(path, user).await.status, 200);
            let (_, query) = edge.record.queries.lock().unwrap().pop().unwrap();
            assert_eq!(query.user.as_ref().map(|user| user.as_str()), asked, "{path}");
        }
    }
    assert_eq!(get(&one, Some("bob")).await.status, 200);
    assert_eq!(get(&one, None).await.status, 200);
    get(&one, Some("ann")).await.problem(404, "not_found");
    for path in ["/v1/decisions", "/v1/tool-invocations", &one] {
        for blank in [" \u{a0}\u{3000}", "\u{3164}", "\u{115f}", "\u{2800}", "\u{200b}"] {
            let problem = get(path, Some(blank)).await.problem(400, "invalid_request");
            assert_eq!(problem["errors"][0]["pointer"], "X-Gavel-User", "{blank:?}");
        }
    }
}

#[tokio::test]
async fn an_invalid_parameter_is_named_by_the_edge_or_by_the_store() {
    let edge = serve(Setup::default()).await;
    for query in [
        "page_size=0",
        "page_size=1001",
        "page_size=x",
        "colour=1",
        "page_token=%00",
        "filter=a&filter=b",
        "filter=wrong",
    ] {
        let answer = edge.get(&format!("/v1/decisions?{query}")).await;
        let problem = answer.problem(400, "invalid_request");
        let name = query.split('=').next().unwrap();
        assert_eq!(problem["errors"][0]["pointer"], name, "{problem}");
    }
    edge.get("/v1/decisions/018f0000-0000-7000-8000-000000000000?x=1")
        .await
        .problem(400, "invalid_request");
}

#[tokio::test]
async fn an_unavailable_store_is_503_without_internal_details() {
    let edge = serve(Setup::default()).await;
    *edge.record.away.lock().unwrap() = true;
    let answer = edge.get("/v1/decisions").await;
    answer.problem(503, "record_unavailable");
    assert!(!answer.text.contains("canary"), "{}", answer.text);
}

#[tokio::test]
async fn a_decision_is_found_by_its_id() {
    let edge = serve(Setup::default()).await;
    let id = DecisionId::new();
    edge.record
        .rows
        .lock()
        .unwrap()
        .insert(id, json!({"decision_id": id.to_string(), "user_id": "ann"}));
    let answer = edge.get(&format!("/v1/decisions/{id}")).await;
    assert_eq!(
        (answer.status, &answer.json()["decision_id"]),
        (200, &json!(id.to_string()))
    );
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let edge = serve(Setup::default()).await;
    for path in [
        "/livez",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/docs",
        "/docs/swagger-ui.css",
        "/v1/decisions",
        "/v1/tool-invocations",
    ] {
        let get = edge.get(path).await;
        let head = Answer::of(edge.request(Method::HEAD, path).send().await.unwrap()).await;
        assert_eq!((head.status, head.text.as_str()), (get.status, ""), "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
        assert_eq!(head.header("content-length"), get.text.len().to_string(), "{path}");
    }
}
