//! `POST /v1/chat`.

use gavel::ports::quota::QuotaState;
use serde_json::{Value, json};

use crate::fakes::Record;
use crate::harness::{ADD, HI, QUOTA, Setup, serve};

/// C-FR-001, C-FR-006: the response is the decision in the log.
#[tokio::test]
async fn a_message_gets_the_decision_that_is_in_the_log() {
    let edge = serve(Setup::default()).await;
    let answer = edge.post_with(&[("x-request-id", "req-1")], HI).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let decision = answer.json();
    assert_eq!(decision["decision_type"], "RESPOND_ONLY");
    assert_eq!(decision["outcome_category"], "SUCCESS:RESPONSE_GIVEN");
    assert_eq!(decision["response"], "Hello there.");
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("x-request-id"), "req-1");
    assert_eq!(answer.header("ratelimit-policy"), "\"user\";q=60;w=60");
    assert_eq!(answer.header("ratelimit"), "\"user\";r=19;t=3");
    assert!(!answer.headers.contains_key("retry-after") && !answer.headers.contains_key("idempotency-replayed"));
    let closed = edge.record.closed.lock().unwrap();
    assert_eq!(closed.len(), 1);
    assert_eq!(closed[0].open.id.to_string(), decision["decision_id"]);
    assert_eq!(&*closed[0].open.request_id, "req-1");
    assert_eq!(closed[0].open.user.as_str(), "ann");
}

/// 429 and 503 carry the decision, with `Retry-After`.
#[tokio::test]
async fn quota_and_overload_refusals_are_decisions_with_their_status() {
    let quota = QuotaState {
        allowed: false,
        remaining: 0,
        reset_s: 7,
        ..QUOTA
    };
    let limited = serve(Setup {
        quota,
        ..Setup::default()
    })
    .await
    .post(HI)
    .await;
    assert_eq!((limited.status, limited.header("retry-after")), (429, "7"));
    assert_eq!(limited.header("content-type"), "application/json");
    assert_eq!(limited.header("ratelimit"), "\"user\";r=0;t=7");
    assert_eq!(limited.json()["outcome_category"], "REFUSAL:RATE_LIMITED");

    let edge = serve(Setup {
        max_in_flight: 0,
        ..Setup::default()
    })
    .await;
    let shed = edge.post(HI).await;
    assert_eq!((shed.status, shed.header("retry-after")), (503, "1"));
    assert_eq!(shed.json()["outcome_category"], "REFUSAL:OVERLOADED");
    assert_eq!(
        edge.record.closed.lock().unwrap().len(),
        1,
        "a refusal is recorded as well"
    );
}

/// C-FR-010, C-EC-1: an unavailable model gives a decision with a friendly text.
#[tokio::test]
async fn an_unavailable_model_gives_a_decision_with_a_friendly_text() {
    let edge = serve(Setup {
        model_fails: true,
        ..Setup::default()
    })
    .await;
    let answer = edge.post(HI).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["outcome_category"], "ERROR:MODEL_UNAVAILABLE");
    assert!(!answer.text.contains("canary"), "{}", answer.text);
}

/// Promise: recorded. If the decision cannot be made durable, the caller gets an error.
#[tokio::test]
async fn an_unavailable_store_is_503_before_the_model_is_asked() {
    let edge = serve(Setup::default()).await;
    *edge.record.away.lock().unwrap() = true;
    let answer = edge.post(HI).await;
    answer.problem(503, "record_unavailable");
    assert_eq!(answer.header("retry-after"), "1");
    assert!(!answer.text.contains("canary"), "{}", answer.text);
    assert_eq!(edge.model.asked.load(std::sync::atomic::Ordering::SeqCst), 0);
}

/// Commit 2 fails after an effect.
#[tokio::test]
async fn an_effect_without_a_recorded_outcome_is_500_and_names_the_decision() {
    let edge = serve(Setup::default()).await;
    *edge.record.close_fails.lock().unwrap() = true;
    let answer = edge.post(ADD).await;
    let problem = answer.problem(500, "outcome_unrecorded");
    let id = problem["decision_id"].as_str().unwrap();
    assert!(problem["detail"].as_str().unwrap().contains(id), "{problem}");
    assert!(
        !answer.headers.contains_key("retry-after"),
        "a client must not send it again"
    );
}

fn stored(record: &Record) -> Vec<Option<(u16, String)>> {
    let claims = record.claims.lock().unwrap();
    claims
        .values()
        .map(|(_, answer)| answer.as_ref().map(|one| (one.status, one.body.to_string())))
        .collect()
}

#[tokio::test]
async fn a_key_replays_its_answer_refuses_another_body_and_is_one_users() {
    let edge = serve(Setup::default()).await;
    let key = [("idempotency-key", "k-1")];
    let first = edge.post_with(&key, HI).await;
    assert!(!first.headers.contains_key("idempotency-replayed"));
    let again = edge.post_with(&key, HI).await;
    assert_eq!((again.status, &again.text), (200, &first.text));
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(stored(&edge.record), [Some((200, first.text.clone()))]);
    edge.post_with(&key, ADD).await.problem(422, "idempotency_key_reused");
    let bob = edge.post_with(&key, r#"{"message":"hi","user_id":"bob"}"#).await;
    assert_eq!(bob.status, 200);
    assert!(
        !bob.headers.contains_key("idempotency-replayed"),
        "the key is separate for another user"
    );
}

#[tokio::test]
async fn a_key_whose_request_is_running_is_409_with_retry_after() {
    let edge = serve(Setup::default()).await;
    let key = [("idempotency-key", "k-1")];
    edge.post_with(&key, HI).await;
    edge.record
        .claims
        .lock()
        .unwrap()
        .values_mut()
        .for_each(|claim| claim.1 = None);
    let running = edge.post_with(&key, HI).await;
    running.problem(409, "still_running");
    assert_eq!(running.header("retry-after"), "1");
}

/// The claim of a dead process gets the recovered outcome.
#[tokio::test]
async fn a_recovered_outcome_is_replayed_as_a_problem() {
    let edge = serve(Setup::default()).await;
    let key = [("idempotency-key", "k-1")];
    edge.post_with(&key, HI).await;
    let body: std::sync::Arc<str> = r#"{"status":500,"code":"outcome_unrecorded"}"#.into();
    for (_, answer) in edge.record.claims.lock().unwrap().values_mut() {
        let answer = answer.as_mut().unwrap();
        (answer.status, answer.body) = (500, body.clone());
    }
    let replayed = edge.post_with(&key, HI).await;
    assert_eq!((replayed.status, &*replayed.text), (500, &*body));
    assert_eq!(replayed.header("content-type"), "application/problem+json");
    assert_eq!(replayed.header("idempotency-replayed"), "true");
}

#[tokio::test]
async fn an_invalid_idempotency_key_is_named() {
    let edge = serve(Setup::default()).await;
    for key in ["", "a b", &"x".repeat(256)] {
        let answer = edge.post_with(&[("idempotency-key", key)], HI).await;
        let problem = answer.problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["pointer"], "Idempotency-Key");
    }
    edge.post_with(&[("idempotency-key", "a"), ("idempotency-key", "b")], HI)
        .await
        .problem(400, "invalid_request");
    assert_eq!(edge.record.closed.lock().unwrap().len(), 0);
}

/// The response is strictly valid under the published schema: a new field fails here.
#[tokio::test]
async fn the_response_is_valid_under_the_published_schema() {
    let edge = serve(Setup::default()).await;
    let description: Value = edge.get("/openapi.json").await.json();
    for (body, is_call) in [(HI, false), (ADD, true)] {
        let decision = edge.post(body).await.json();
        assert_eq!(decision["tool_calls"] != json!([]), is_call, "{decision}");
        crate::records::assert_described(&description, "AgentDecision", &decision);
    }
}
