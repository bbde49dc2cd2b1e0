//! `POST /v1/chat/stream`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use gavel::http::EdgeLimits;
use gavel::ports::quota::QuotaState;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::harness::{ADD, Answer, HI, PATIENCE, QUOTA, Running, Setup, serve, until};

const PATH: &str = "/v1/chat/stream";

async fn streamed(edge: &Running, headers: &[(&str, &str)], body: &'static str) -> Answer {
    let request = headers.iter().fold(edge.chat(PATH, body), |request, (name, value)| {
        request.header(*name, *value)
    });
    Answer::of(request.send().await.unwrap()).await
}

fn lines(text: &str) -> Vec<Value> {
    assert!(text.ends_with('\n'), "{text:?}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kinds(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_run_is_streamed_line_by_line_and_ends_with_the_decision() {
    let edge = serve(Setup::default()).await;
    let answer = streamed(&edge, &[("x-request-id", "req-1")], HI).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    assert_eq!(answer.header("x-accel-buffering"), "no");
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("x-request-id"), "req-1");
    let lines = lines(&answer.text);
    assert_eq!(kinds(&lines), ["started", "delta", "delta", "turn", "decision"]);
    let decision = lines.last().unwrap();
    assert_eq!(decision["decision_id"], lines[0]["decision_id"]);
    assert_eq!(decision["response"], "Hello there.");
    assert_eq!(edge.record.closed.lock().unwrap().len(), 1);
}

/// A tool's answer contains line breaks between its tokens.
#[tokio::test]
async fn each_event_is_one_line_and_as_described() {
    let edge = serve(Setup::default()).await;
    let description = edge.get("/openapi.json").await.json();
    let lines = lines(&streamed(&edge, &[], ADD).await.text);
    let kinds = kinds(&lines);
    assert!(
        kinds.contains(&"tool_call") && kinds.contains(&"tool_result"),
        "{kinds:?}"
    );
    assert_eq!(lines.last().unwrap()["tool_calls"][0]["result"]["data"]["id"], 7);
    for line in &lines {
        crate::records::assert_valid(&description, "StreamLine", line);
    }
}

#[tokio::test]
async fn server_sent_events_carry_ids_that_never_fall() {
    let edge = serve(Setup::default()).await;
    let answer = streamed(&edge, &[("accept", "text/event-stream")], HI).await;
    assert_eq!(answer.header("content-type"), "text/event-stream");
    let messages: Vec<_> = answer.text.split_terminator("\n\n").collect();
    let mut ids = Vec::new();
    for message in &messages {
        let (id, data) = message.split_once('\n').unwrap();
        ids.push(id.strip_prefix("id: ").unwrap().parse::<u64>().unwrap());
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert!(data["type"].is_string());
    }
    assert!(ids.is_sorted() && ids[0] == 1, "{ids:?}");
    assert!(messages.last().unwrap().contains(r#""type":"decision""#));
}

#[tokio::test]
async fn the_first_lines_are_sent_while_the_model_is_still_thinking() {
    let hold = Arc::new(Semaphore::new(0));
    let edge = serve(Setup {
        hold: Some(hold.clone()),
        ..Setup::default()
    })
    .await;
    let response = edge.chat(PATH, HI).send().await.unwrap();
    let mut pieces = response.bytes_stream();
    let mut seen = String::new();
    while !seen.contains("Hello ") {
        let piece = tokio::time::timeout(PATIENCE, pieces.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        seen.push_str(std::str::from_utf8(&piece).unwrap());
    }
    assert!(
        seen.starts_with(r#"{"type":"started""#) && !seen.contains("decision\""),
        "{seen}"
    );
    hold.add_permits(1);
    while let Some(piece) = pieces.next().await {
        seen.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
    }
    assert_eq!(kinds(&lines(&seen)).last(), Some(&"decision"));
}

/// A proxy would take a silent stream for a dead one.
#[tokio::test]
async fn a_silent_stream_carries_heartbeats() {
    let accepts = [
        ("application/x-ndjson", "{\"type\":\"heartbeat\"}\n"),
        ("text/event-stream", ": heartbeat\n\n"),
    ];
    for (accept, sign) in accepts {
        let hold = Arc::new(Semaphore::new(0));
        let edge = serve(Setup {
            hold: Some(hold.clone()),
            limits: EdgeLimits {
                heartbeat: Duration::from_millis(20),
                ..EdgeLimits::default()
            },
            ..Setup::default()
        })
        .await;
        let response = edge.chat(PATH, HI).header("accept", accept).send().await.unwrap();
        let mut pieces = response.bytes_stream();
        let mut seen = String::new();
        while seen.matches(sign).count() < 2 {
            let piece = tokio::time::timeout(PATIENCE, pieces.next()).await.unwrap();
            seen.push_str(std::str::from_utf8(&piece.unwrap().unwrap()).unwrap());
        }
        hold.add_permits(1);
        while let Some(piece) = pieces.next().await {
            seen.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
        }
        assert!(seen.contains(r#""type":"decision""#), "{seen}");
    }
}

/// A disconnect does not cancel the decision.
#[tokio::test]
async fn a_client_that_disconnects_loses_no_record() {
    for path in [PATH, "/v1/chat"] {
        let hold = Arc::new(Semaphore::new(0));
        let edge = serve(Setup {
            hold: Some(hold.clone()),
            ..Setup::default()
        })
        .await;
        let sent = tokio::spawn(edge.chat(path, HI).send());
        until("the model to be asked", || edge.model.asked.load(Ordering::SeqCst) == 1).await;
        sent.abort();
        assert!(sent.await.is_err() || path == PATH);
        hold.add_permits(1);
        until("the decision to be recorded", || {
            edge.record.closed.lock().unwrap().len() == 1
        })
        .await;
    }
}

#[tokio::test]
async fn a_request_refused_before_the_stream_starts_has_its_own_status() {
    let edge = serve(Setup::default()).await;
    streamed(&edge, &[], "{").await.problem(400, "invalid_request");
    streamed(&edge, &[], r#"{"message":"a","user_id":"u","tools":["rm"]}"#)
        .await
        .problem(400, "invalid_request");
    *edge.record.away.lock().unwrap() = true;
    streamed(&edge, &[], HI).await.problem(503, "record_unavailable");

    let quota = QuotaState {
        allowed: false,
        remaining: 0,
        reset_s: 7,
        ..QUOTA
    };
    let edge = serve(Setup {
        quota,
        ..Setup::default()
    })
    .await;
    let limited = streamed(&edge, &[], HI).await;
    assert_eq!((limited.status, limited.header("retry-after")), (429, "7"));
    assert_eq!(limited.header("content-type"), "application/x-ndjson");
    let lines = lines(&limited.text);
    assert_eq!(kinds(&lines), ["decision"]);
    assert_eq!(lines[0]["outcome_category"], "REFUSAL:RATE_LIMITED");
}

#[tokio::test]
async fn an_outcome_that_is_not_recorded_is_the_last_line() {
    let edge = serve(Setup::default()).await;
    *edge.record.close_fails.lock().unwrap() = true;
    let answer = streamed(&edge, &[], ADD).await;
    let lines = lines(&answer.text);
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["type"], &last["problem"]["code"]),
        (&"error".into(), &"outcome_unrecorded".into())
    );
    assert_eq!(last["problem"]["request_id"], answer.header("x-request-id"));
    let description = edge.get("/openapi.json").await.json();
    crate::records::assert_valid(&description, "StreamLine", last);
}

#[tokio::test]
async fn a_replay_has_only_the_last_line_and_keys_are_separate_per_route() {
    let edge = serve(Setup::default()).await;
    let key = [("idempotency-key", "k-1")];
    let first = lines(&streamed(&edge, &key, HI).await.text);
    let again = streamed(&edge, &key, HI).await;
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(lines(&again.text), first[first.len() - 1..]);
    let unary = edge.post_with(&key, HI).await;
    assert!(!unary.headers.contains_key("idempotency-replayed"));
}
