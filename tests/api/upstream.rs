//! Faults of Gemini: each gets a named outcome and a fixed text, within the deadline, and is recorded.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::far::{Far, Step, end_of_stream, event, open_stream};
use crate::gemini::Reply;
use crate::harness::{Setup, spawn_app};

fn google(reason: &str) -> Value {
    json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}])
}

fn retry_info(delay: &str) -> Value {
    json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}])
}

fn daily() -> Value {
    json!([
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"},
    ])
}

/// C-EC-1, C-EC-2, C-FR-006, C-FR-007, C-FR-010: (fault, response, outcome, whether it is retried).
fn table() -> Vec<(&'static str, Reply, &'static str, bool)> {
    let unavailable = "ERROR:MODEL_UNAVAILABLE";
    let malformed = "ERROR:MALFORMED_OUTPUT";
    let blocked = "REFUSAL:SAFETY_BLOCKED";
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let mut rows = vec![
        (
            "400",
            Reply::error(400, "INVALID_ARGUMENT", json!([])),
            unavailable,
            false,
        ),
        (
            "400 bad key",
            Reply::error(400, "INVALID_ARGUMENT", google("API_KEY_INVALID")),
            unavailable,
            false,
        ),
        (
            "401",
            Reply::error(401, "UNAUTHENTICATED", json!([])),
            unavailable,
            false,
        ),
        (
            "403",
            Reply::error(403, "PERMISSION_DENIED", json!([])),
            unavailable,
            false,
        ),
        ("404", Reply::error(404, "NOT_FOUND", json!([])), unavailable, false),
        ("408", Reply::error(408, "", json!([])), unavailable, true),
        (
            "429",
            Reply::error(429, "RESOURCE_EXHAUSTED", json!([])),
            unavailable,
            true,
        ),
        (
            "429 retry info",
            Reply::error(429, "RESOURCE_EXHAUSTED", retry_info("0.05s")),
            unavailable,
            true,
        ),
        (
            "429 retry info beyond the deadline",
            Reply::error(429, "RESOURCE_EXHAUSTED", retry_info("3600s")),
            unavailable,
            false,
        ),
        (
            "429 daily quota",
            Reply::error(429, "RESOURCE_EXHAUSTED", daily()),
            unavailable,
            false,
        ),
        ("500", Reply::error(500, "INTERNAL", json!([])), unavailable, true),
        ("503", Reply::error(503, "UNAVAILABLE", json!([])), unavailable, true),
        (
            "504",
            Reply::error(504, "DEADLINE_EXCEEDED", json!([])),
            unavailable,
            true,
        ),
        (
            "no JSON",
            Reply::Raw(200, "<html>canary-provider-message</html>".into()),
            malformed,
            false,
        ),
        (
            "cut JSON",
            Reply::Raw(200, r#"{"candidates":[{"content":{"parts":[{"text":"h"#.into()),
            malformed,
            false,
        ),
        ("empty object", Reply::Raw(200, "{}".into()), malformed, false),
        (
            "no candidates",
            Reply::Raw(200, r#"{"candidates":[]}"#.into()),
            malformed,
            false,
        ),
        (
            "empty candidate",
            Reply::Raw(200, r#"{"candidates":[{}]}"#.into()),
            malformed,
            false,
        ),
        ("deep nesting", Reply::Raw(200, deep), malformed, false),
        ("closed", Reply::Close, unavailable, true),
        (
            "blocked prompt",
            Reply::Raw(200, r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#.into()),
            blocked,
            false,
        ),
        (
            "unknown block",
            Reply::Raw(200, r#"{"promptFeedback":{"blockReason":"SOMETHING_NEW"}}"#.into()),
            blocked,
            false,
        ),
    ];
    for reason in [
        "SAFETY",
        "PROHIBITED_CONTENT",
        "BLOCKLIST",
        "SPII",
        "RECITATION",
        "MODEL_ARMOR",
        "IMAGE_SAFETY",
    ] {
        rows.push((reason, Reply::finish(reason), blocked, false));
    }
    for reason in [
        "LANGUAGE",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
        "OTHER",
        "A_NEW_REASON",
    ] {
        rows.push((reason, Reply::finish(reason), malformed, false));
    }
    // The first has no words, as if thoughts had used up the answer.
    for reason in ["MAX_TOKENS", "MALFORMED_FUNCTION_CALL"] {
        rows.push((reason, Reply::finish(reason), malformed, true));
    }
    rows
}

#[tokio::test]
async fn every_fault_of_gemini_has_a_named_outcome_a_fixed_text_and_a_record() {
    for (what, reply, outcome, again) in table() {
        let app = spawn_app(Setup::stdio_sqlite().script(vec![reply])).await;
        let decision = app.chat("add a task to call mom").await;
        assert_eq!(decision["outcome_category"], outcome, "{what}: {decision}");
        assert!(!decision.to_string().contains("canary"), "{what} leaks: {decision}");
        assert_eq!(decision["tool_calls"], json!([]), "{what}");
        let record = app.decision(&decision["decision_id"]).await;
        assert_eq!(record["outcome_category"], outcome, "{what}");
        assert!(
            !record.to_string().contains("canary-gemini-key"),
            "{what} leaks the key: {record}"
        );
        assert_eq!(
            app.gemini.requests().len() > 1,
            again,
            "{what}: asked {} times",
            app.gemini.requests().len()
        );
    }
}

/// C-EC-1, C-SC-7: a hanging model ends in a timeout within the deadline.
#[tokio::test]
async fn a_model_that_hangs_ends_in_a_timeout_within_the_deadline() {
    let app = spawn_app(
        Setup::stdio_sqlite()
            .env("GAVEL_MODEL_FIRST_BYTE_SECONDS", "0.3")
            .script(vec![Reply::Hang]),
    )
    .await;
    let decision = app.chat("hi").await;
    assert_eq!(decision["outcome_category"], "ERROR:MODEL_TIMEOUT", "{decision}");
}

#[tokio::test]
async fn an_unreachable_gemini_is_unavailable() {
    for url in ["http://127.0.0.1:9", "http://gemini.invalid"] {
        let app = spawn_app(Setup::stdio_sqlite().env("GEMINI_BASE_URL", url)).await;
        let decision = app.chat("hi").await;
        assert_eq!(decision["outcome_category"], "ERROR:MODEL_UNAVAILABLE", "{decision}");
    }
}

/// Promise: at most once. Effects before the fault are reported.
#[tokio::test]
async fn a_fault_after_a_tool_ran_reports_the_effect() {
    let script = vec![
        Reply::call("add_task", json!({"description": "milk"})),
        Reply::error(400, "INVALID_ARGUMENT", json!([])),
    ];
    let app = spawn_app(Setup::stdio_sqlite().script(script)).await;
    let decision = app.chat("add milk").await;
    assert_eq!(decision["decision_type"], "INVOKE_TOOL", "{decision}");
    assert_eq!(decision["outcome_category"], "ERROR:MODEL_UNAVAILABLE");
    assert!(
        decision["response"].as_str().unwrap().contains("already been done"),
        "{decision}"
    );
}

#[tokio::test]
async fn a_hundred_calls_at_once_run_sixteen_and_answer_all() {
    let calls = (0..100)
        .map(|n| ("add_task", json!({"description": format!("task {n}")})))
        .collect();
    let app = spawn_app(Setup::stdio_sqlite().script(vec![Reply::Calls(calls), Reply::Text("Some.")])).await;
    let decision = app.chat("add a hundred").await;
    let results: Vec<_> = decision["tool_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| &call["result"])
        .collect();
    assert_eq!(results.len(), 100);
    assert_eq!(results.iter().filter(|result| result["success"] == true).count(), 16);
    let answers = &app.gemini.requests()[1]["contents"];
    assert_eq!(
        answers.as_array().unwrap().last().unwrap()["parts"]
            .as_array()
            .unwrap()
            .len(),
        100
    );
}

/// C-FR-012: the turn is echoed verbatim and every call has its answer.
#[tokio::test]
async fn the_second_request_echoes_the_turn_and_answers_each_call_by_its_id() {
    let calls = vec![("list_tasks", json!({})), ("list_tasks", json!({"status": "done"}))];
    let app = spawn_app(Setup::stdio_sqlite().script(vec![Reply::Calls(calls), Reply::Text("Done.")])).await;
    app.chat("list both").await;
    let request = &app.gemini.requests()[1];
    let contents = request["contents"].as_array().unwrap();
    assert_eq!(contents.len(), 3);
    assert_eq!(contents[1]["role"], "model");
    assert_eq!(
        contents[1]["parts"][0]["thoughtSignature"],
        "c2lnbmF0dXJlLW9mLXRoZS10dXJu"
    );
    let ids: Vec<_> = contents[2]["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["functionResponse"]["id"].clone())
        .collect();
    assert_eq!(ids, [json!("c1x0"), json!("c1x1")]);
}

/// C-FR-004: a verdict beside a call runs nothing.
#[tokio::test]
async fn a_verdict_beside_a_call_runs_nothing() {
    let mixed = vec![
        ("delete_task", json!({"title": "milk"})),
        ("refuse", json!({"message": "No.", "kind": "OUT_OF_SCOPE"})),
    ];
    let app = spawn_app(Setup::stdio_sqlite().script(vec![Reply::Calls(mixed), Reply::Text("Sorry.")])).await;
    let decision = app.chat("delete milk").await;
    assert_eq!(
        decision["tool_calls"][0]["result"]["error"]["code"], "mixed_with_verdict",
        "{decision}"
    );
    assert_eq!(decision["iterations"], 2);
}

/// C-EC-1, C-EC-2: responses that start well and fail later, which only a raw socket can send.
#[tokio::test]
async fn a_response_that_breaks_off_or_never_ends_has_a_named_outcome_in_time() {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let head = |rest: &[u8]| Step::Send([HEAD, rest, b"\r\n\r\n"].concat());
    let begins = || Step::Send(br#"{"candidates":[{"content":{"parts":[{"text":"canary"#.to_vec());
    let drips = Step::Drip(b" ".to_vec(), Duration::from_millis(50));
    let flood = Step::Flood(vec![b' '; 64 * 1024], 800);
    let table = [
        ("slow head", vec![Step::Hang], "ERROR:MODEL_TIMEOUT"),
        (
            "slow body",
            vec![head(b"content-length: 900"), begins(), Step::Hang],
            "ERROR:MODEL_TIMEOUT",
        ),
        (
            "dripping body",
            vec![head(b"content-length: 900000"), begins(), drips],
            "ERROR:MODEL_TIMEOUT",
        ),
        (
            "cut body",
            vec![head(b"content-length: 900"), begins(), Step::Close],
            "ERROR:MODEL_UNAVAILABLE",
        ),
        (
            "reset",
            vec![head(b"content-length: 900"), begins(), Step::Reset],
            "ERROR:MODEL_UNAVAILABLE",
        ),
        (
            "50 MB",
            vec![head(b"content-length: 52428800"), flood],
            "ERROR:MALFORMED_OUTPUT",
        ),
    ];
    for (what, steps, outcome) in table {
        let far = Far::start(vec![steps; 3]).await;
        let setup = Setup::stdio_sqlite()
            .env("GEMINI_BASE_URL", &far.url)
            .env("GAVEL_MODEL_FIRST_BYTE_SECONDS", "0.3")
            .env("GAVEL_MODEL_IDLE_SECONDS", "0.3")
            .grant(&["add_task"], 3);
        let app = spawn_app(setup).await;
        let begun = Instant::now();
        let decision = app.chat("add milk").await;
        assert!(
            begun.elapsed() < Duration::from_secs(8),
            "{what}: {:?}",
            begun.elapsed()
        );
        assert_eq!(decision["outcome_category"], outcome, "{what}: {decision}");
        let record = app.decision(&decision["decision_id"]).await;
        assert_eq!(record["outcome_category"], outcome, "{what}: {record}");
        assert!(!json!([decision, record]).to_string().contains("canary"), "{what}");
        assert!(far.sent() < 24 << 20, "{what}: {} bytes were taken", far.sent());
        app.stop().await;
    }
}

/// After a delta was sent, a retry is announced.
#[tokio::test]
async fn a_cut_stream_is_reset_repeated_and_recorded_once() {
    let words = |text: &str, end: &str| {
        event(&format!(
            r#"{{"candidates":[{{"content":{{"role":"model","parts":[{{"text":"{text}"}}]}}{end}}}]}}"#
        ))
    };
    let (mut cut, mut whole) = (open_stream(), open_stream());
    cut.extend([words("Hel", ""), Step::Reset]);
    whole.extend([words("Hello.", r#","finishReason":"STOP""#), end_of_stream()]);
    let far = Far::start([cut.clone(), whole]).await;
    let app = spawn_app(Setup::stdio_sqlite().env("GEMINI_BASE_URL", &far.url)).await;
    let reported = lines(&app.stream(&json!({"message": "hi", "user_id": "ann"})).await);
    let kinds: Vec<_> = reported.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["started", "delta", "reset", "delta", "turn", "decision"]);
    let decision = reported.last().unwrap();
    assert_eq!(
        (&decision["response"], &decision["iterations"]),
        (&json!("Hello."), &json!(1)),
        "{decision}"
    );
    app.decision(&decision["decision_id"]).await;

    let far = Far::start(vec![cut; 3]).await;
    let app = spawn_app(Setup::stdio_sqlite().env("GEMINI_BASE_URL", &far.url)).await;
    let text = app.stream(&json!({"message": "hi", "user_id": "ann"})).await;
    let decision = lines(&text).pop().unwrap();
    assert_eq!(decision["type"], "decision", "{text}");
    assert_eq!(decision["outcome_category"], "ERROR:MODEL_UNAVAILABLE", "{text}");
    let record = app.decision(&decision["decision_id"]).await;
    assert_eq!(record["outcome_category"], "ERROR:MODEL_UNAVAILABLE", "{record}");
}

fn lines(text: &str) -> Vec<Value> {
    let filled = text.lines().filter(|line| !line.is_empty());
    filled.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The caller and the analyst see which model was asked and which answered, also where the answer failed.
#[tokio::test]
async fn every_decision_names_the_requested_and_the_answering_model() {
    let body = |text: &str, finish: &str| {
        json!({
            "candidates": [{"content": {"parts": [{"text": text}], "role": "model"}, "finishReason": finish}],
            "usageMetadata": {"promptTokenCount": 1, "serviceTier": "flex"}, "modelVersion": "gemini-3.8-flash",
        })
        .to_string()
    };
    let (answered, flex) = (json!("gemini-3.8-flash"), json!("flex"));
    let failing = r#"{"error": {"code": 404, "status": "NOT_FOUND", "message": "x"}}"#.to_owned();
    for (reply, outcome, text, model, tier) in [
        (
            Reply::Raw(200, body("Hello.", "STOP")),
            "SUCCESS:RESPONSE_GIVEN",
            "Hello.",
            &answered,
            &flex,
        ),
        (
            Reply::Raw(200, body("Hel", "MAX_TOKENS")),
            "ERROR:MALFORMED_OUTPUT",
            "Hel\n\nThe model's answer was cut off before it was complete.",
            &answered,
            &flex,
        ),
        (
            Reply::Raw(200, body("x", "SAFETY")),
            "REFUSAL:SAFETY_BLOCKED",
            "",
            &answered,
            &flex,
        ),
        (
            Reply::Raw(404, failing),
            "ERROR:MODEL_UNAVAILABLE",
            "",
            &Value::Null,
            &Value::Null,
        ),
    ] {
        let app = spawn_app(
            Setup::stdio_sqlite()
                .env("GEMINI_MODEL", "gemini-3.7-flash")
                .script(vec![reply]),
        )
        .await;
        let decision = app.chat("hi").await;
        assert_eq!(decision["outcome_category"], outcome, "{decision}");
        assert!(decision["response"].as_str().unwrap().starts_with(text), "{decision}");
        assert_eq!(
            (&decision["requested_model"], &decision["model"]),
            (&json!("gemini-3.7-flash"), model)
        );
        let record = app.decision(&decision["decision_id"]).await;
        assert_eq!(
            (&record["requested_model"], &record["model"]),
            (&json!("gemini-3.7-flash"), model),
            "{record}"
        );
        assert_eq!(&record["service_tier"], tier, "{record}");
        let (_, page) = app
            .get("/v1/decisions?filter=requested_model%20%3D%20%22gemini-3.7-flash%22")
            .await;
        assert_eq!(page["decisions"].as_array().unwrap().len(), 1, "{page}");
        app.stop().await;
    }
}

/// A call in a candidate with an unsuccessful finish reason never runs. An unknown future reason does not count as
/// success.
#[tokio::test]
async fn a_call_in_a_candidate_that_did_not_end_well_never_runs() {
    let blocked = "SAFETY PROHIBITED_CONTENT BLOCKLIST SPII RECITATION IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT \
                   IMAGE_RECITATION MODEL_ARMOR ESCALATION PUP_LIMITED_DISABLED";
    let malformed = "MAX_TOKENS LANGUAGE MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS \
                     MISSING_THOUGHT_SIGNATURE MALFORMED_RESPONSE NO_IMAGE IMAGE_OTHER OTHER \
                     FINISH_REASON_UNSPECIFIED CONTINUATION A_REASON_OF_TOMORROW 4711 none";
    let candidate = Reply::from(|request| {
        let said = request["contents"][0]["parts"][0]["text"].as_str().unwrap();
        let reason = said.lines().last().unwrap();
        if reason == "list" {
            let answered = request["contents"].as_array().unwrap().len() > 1;
            return if answered {
                Reply::Text("Listed.")
            } else {
                Reply::call("list_tasks", json!({}))
            };
        }
        let call = json!({"functionCall": {"name": "add_task", "args": {"description": reason}}});
        let content = json!({"role": "model", "parts": [{"text": "canary-words"}, call]});
        let mut candidate = json!({"content": content, "finishReason": reason, "index": 0});
        if let Ok(number) = reason.parse::<u32>() {
            candidate["finishReason"] = json!(number);
        } else if reason == "none" {
            candidate.as_object_mut().unwrap().remove("finishReason");
        }
        Reply::Raw(200, json!({ "candidates": [candidate] }).to_string())
    });
    let app = spawn_app(Setup::stdio_sqlite().script(vec![candidate])).await;
    for (reasons, outcome) in [
        (blocked, "REFUSAL:SAFETY_BLOCKED"),
        (malformed, "ERROR:MALFORMED_OUTPUT"),
    ] {
        for reason in reasons.split_whitespace() {
            let decision = app.chat(reason).await;
            assert_eq!(decision["outcome_category"], outcome, "{reason}: {decision}");
            assert_eq!(decision["tool_calls"], json!([]), "{reason}");
            let record = app.decision(&decision["decision_id"]).await;
            assert_eq!(record["outcome_category"], outcome, "{reason}");
            // The words of a cut answer are kept.
            let is_kept = ["MAX_TOKENS", "none"].contains(&reason);
            let all = json!([decision, record]).to_string();
            assert_eq!(all.contains("canary"), is_kept, "{reason}: {all}");
        }
    }
    let listed = app.chat("list").await;
    assert_eq!(
        listed["tool_calls"][0]["result"]["data"]["tasks"],
        json!([]),
        "{listed}"
    );
}

#[tokio::test]
async fn every_reason_for_a_blocked_prompt_is_a_refusal() {
    for reason in [
        "SAFETY",
        "OTHER",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "IMAGE_SAFETY",
        "MODEL_ARMOR",
        "JAILBREAK",
        "NEW",
    ] {
        let body = json!({"promptFeedback": {"blockReason": reason, "blockReasonMessage": "canary"}}).to_string();
        let app = spawn_app(Setup::stdio_sqlite().script(vec![Reply::Raw(200, body)])).await;
        let decision = app.chat("hi").await;
        assert_eq!(decision["decision_type"], "REFUSE", "{reason}: {decision}");
        assert_eq!(
            decision["outcome_category"], "REFUSAL:SAFETY_BLOCKED",
            "{reason}: {decision}"
        );
        assert!(!decision.to_string().contains("canary"), "{decision}");
        assert_eq!(app.gemini.requests().len(), 1, "{reason}");
    }
}
