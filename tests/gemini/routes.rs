//! The model that answers is not always the one that was asked.

use gavel::domain::definition::{ModelSettings, ThinkingLevel};
use gavel::domain::journal::{FaultKind, Speaker};
use gavel::ports::model::{Content, FunctionResponse};
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};

use crate::helpers::{Question, USAGE, assert_fault, chunk, error, gemini, raw, reply, said};
use crate::server::{Far, Step, end_of_stream, event, json as answer, open_stream};

/// The reply, from this model.
fn from(model: &str, reply: &str) -> String {
    let usage = USAGE.replace('}', r#","serviceTier":"priority"}"#);
    let tail = format!(r#"{usage},"modelVersion":"{model}"}}"#);
    match reply.contains(USAGE) {
        true => reply.replace(&format!("{USAGE}}}"), &tail),
        false => format!("{},{tail}", reply.strip_suffix('}').unwrap()),
    }
}

fn asking(model: &str) -> Question<'static> {
    Question {
        settings: ModelSettings {
            model: Some(model.to_owned()),
            ..ModelSettings::default()
        },
        ..Question::default()
    }
}

#[tokio::test]
async fn a_turn_and_a_fault_name_the_requested_and_the_answering_model_and_the_tier() {
    let question = asking("models/gemini-3.7-flash");
    for (status, body, model, tier) in [
        (
            200,
            from("models/gemini-3.8-flash", &said("Done.")),
            Some("gemini-3.8-flash"),
            Some("priority"),
        ),
        (200, said("Done."), Some("gemini-3.7-flash"), None),
        (
            200,
            from("gemini-3.8-flash", &reply(r#"{"text":"Do"}"#, "MAX_TOKENS", "")),
            Some("gemini-3.8-flash"),
            Some("priority"),
        ),
        (
            200,
            from("gemini-3.8-flash", r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#),
            Some("gemini-3.8-flash"),
            Some("priority"),
        ),
        (404, error(404, "NOT_FOUND", ""), None, None),
    ] {
        let far = Far::start([answer(status, &body)]).await;
        let served = match question.ask(&gemini(&far.url)).await {
            Ok(turn) => turn.served,
            Err(fault) => *fault.served,
        };
        assert_eq!(&*served.requested_model, "gemini-3.7-flash", "{body}");
        assert_eq!(
            (served.model.as_deref(), served.service_tier.as_deref()),
            (model, tier),
            "{body}"
        );
    }
}

#[tokio::test]
async fn settings_follow_the_answering_model_once_it_is_known() {
    let far = Far::start([
        answer(200, &from("gemini-3.5-flash-lite", &said("a"))),
        answer(200, &from("gemini-4-argon", &said("b"))),
        open_stream()
            .into_iter()
            .chain([event(&said("c")), end_of_stream()])
            .collect(),
    ])
    .await;
    let mut question = asking("gemini-2.5-flash");
    question.settings.thinking_budget = Some(0);
    question.settings.max_output_tokens = Some(40_000);
    let gemini = gemini(&far.url);
    for _ in 0..3 {
        question.ask(&gemini).await.unwrap();
    }
    let sent: Vec<_> = far
        .seen()
        .iter()
        .map(|seen| seen.json()["generationConfig"]["thinkingConfig"].clone())
        .collect();
    assert_eq!(
        sent,
        [
            json!({"thinkingBudget": 0}),
            json!({"thinkingLevel": "LOW"}),
            json!({"thinkingLevel": "LOW"})
        ]
    );
    let streamed: Vec<_> = far.seen().iter().map(|seen| seen.line.contains(":stream")).collect();
    assert_eq!(streamed, [false, false, true], "the cap is that of the answering model");
}

#[tokio::test]
async fn a_unary_request_is_streamed_only_above_the_cap_of_its_model() {
    for (model, most, streamed) in [
        ("gemini-4-argon", 32_768, false),
        ("gemini-4-argon", 32_769, true),
        ("gemini-4-hydrogen", 65_536, false),
        ("gemini-4-neon", 65_536, false),
        ("gemini-4-neon", 65_537, true),
    ] {
        let far = Far::start([answer(599, "")]).await;
        let mut question = asking(model);
        question.settings.max_output_tokens = Some(most);
        question.ask(&gemini(&far.url)).await.unwrap_err();
        assert_eq!(far.seen()[0].line.contains(":stream"), streamed, "{model} {most}");
    }
}

#[test]
fn each_new_pair_is_logged_once_and_every_answer_is_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let (handle, log) = (recorder.handle(), crate::secrets::log());
    // Names of no other test, because all tests of the process share the log.
    let answers = ["gemini-one", "gemini-two", "gemini-one", "gemini-asked-001"];
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let far = Far::start(answers.map(|model| answer(200, &from(model, &said("a"))))).await;
            let gemini = gemini(&far.url);
            for _ in answers {
                asking("gemini-asked").ask(&gemini).await.unwrap();
            }
        });
    });
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let warned = |answered: &str| {
        let pair = format!(r#"requested="gemini-asked" answered="{answered}""#);
        let is_warning = |line: &&str| line.contains("WARN") && line.contains(&pair);
        log.lines().filter(is_warning).count()
    };
    assert_eq!(answers.map(warned), [1, 1, 1, 0]);
    // Another test may have used up the names that labels keep.
    let metrics = handle.render();
    let start = r#"gavel_model_answers_total{endpoint="developer",requested=""#;
    let counts = metrics
        .lines()
        .filter(|line| line.starts_with(start) && line.contains(r#",answered=""#));
    let counts = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    assert_eq!(counts.sum::<u64>(), 4, "{metrics}");
}

/// A turn of an older model with two calls, the responses to them, and an empty text that only carries a signature.
const CALLS: &str = r#"{"role":"model","parts":[{"text":"hm","thought":true},{"functionCall":{"id":"c1","name":"add_task","args":{"n":1e2}},"thoughtSignature":"T0xE"},{"functionCall":{"name":"add_task","args":{}}},{"text":"","thoughtSignature":"T0xE"}]}"#;

async fn after_calls(far: &Far, times: usize) -> Vec<Result<String, gavel::ports::model::ModelFault>> {
    let (turn, data) = (raw(CALLS), raw(r#"{"ok":true}"#));
    let response = |id| FunctionResponse {
        id,
        name: "add_task",
        outcome: Ok(&data),
    };
    let responses = [response(Some("c1")), response(None)];
    let question = Question {
        contents: vec![
            Content::Text(Speaker::User, "add milk"),
            Content::Turn(&turn, Some("gemini-3.7-flash")),
            Content::Responses(&responses),
        ],
        ..asking("gemini-3.7-flash")
    };
    let gemini = gemini(&far.url);
    let mut answers = Vec::new();
    for _ in 0..times {
        answers.push(question.ask(&gemini).await.map(|turn| turn.text()));
    }
    answers
}

fn parts(far: &Far, request: usize) -> Value {
    far.seen()[request].json()["contents"][1]["parts"].clone()
}

/// Base64 of `skip_thought_signature_validator`, as recorded.
fn repaired() -> Value {
    json!([
        {"text": "hm", "thought": true},
        {"functionCall": {"id": "c1", "name": "add_task", "args": {"n": 1e2}},
         "thoughtSignature": "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="},
        {"functionCall": {"name": "add_task", "args": {}}},
    ])
}

#[tokio::test]
async fn a_refused_signature_is_repaired_once_and_then_not_sent_to_the_new_model() {
    for message in [
        "Corrupted thought signature.",
        "Invalid thought signature",
        "Function call is missing a thought_signature in functionCall parts.",
        "Request contains an invalid argument.",
    ] {
        let refused = format!(r#"{{"error":{{"code":400,"status":"INVALID_ARGUMENT","message":"{message}"}}}}"#);
        let done = from("gemini-3.8-flash", &said("Done."));
        let far = Far::start([answer(400, &refused), answer(200, &done), answer(200, &done)]).await;
        let answers = after_calls(&far, 2).await;
        assert!(
            answers
                .iter()
                .all(|text| text.as_deref().is_ok_and(|text| text == "Done.")),
            "{answers:?}"
        );
        assert_eq!(parts(&far, 0), serde_json::from_str::<Value>(CALLS).unwrap()["parts"]);
        assert_eq!(parts(&far, 1), repaired(), "{message}");
        assert_eq!(parts(&far, 2), repaired(), "the route is known: no second refusal");

        let far = Far::start([answer(400, &refused), answer(400, &refused), answer(200, &done)]).await;
        let fault = after_calls(&far, 1).await.remove(0).unwrap_err();
        assert_eq!((fault.kind, fault.served.attempts), (FaultKind::Rejected, 2));
        assert!(fault.detail.contains(message.trim_end_matches('.')), "{}", fault.detail);
    }
}

#[tokio::test]
async fn a_refusal_without_an_earlier_turn_is_final() {
    let refused = r#"{"error":{"code":400,"message":"Request contains an invalid argument."}}"#;
    let far = Far::start([answer(400, refused), answer(200, &said("late"))]).await;
    assert_fault(
        asking("gemini-3.8-flash").ask(&gemini(&far.url)).await,
        FaultKind::Rejected,
        "400",
        1,
    );
}

#[tokio::test]
async fn thoughts_that_use_up_all_tokens_are_repaired_once_with_less_thinking() {
    let spent = from(
        "gemini-3.5-flash-lite",
        &reply(r#"{"text":"hm","thought":true}"#, "MAX_TOKENS", ""),
    );
    let mut question = asking("gemini-2.5-flash");
    question.settings.thinking_level = Some(ThinkingLevel::Medium);
    let far = Far::start([answer(200, &spent), answer(200, &said("Done."))]).await;
    assert_eq!(question.ask(&gemini(&far.url)).await.unwrap().text(), "Done.");
    assert_eq!(
        far.seen()[1].json()["generationConfig"],
        json!({"thinkingConfig": {"thinkingLevel": "LOW"}})
    );

    let far = Far::start([answer(200, &spent), answer(200, &spent), answer(200, &said("late"))]).await;
    let gemini = gemini(&far.url);
    let words = "cut off: MAX_TOKENS; thinking used up its tokens";
    let fault = assert_fault(question.ask(&gemini).await, FaultKind::Malformed, words, 2);
    assert_eq!((fault.usage.thought_tokens, fault.said.as_deref()), (4, Some("")));

    // With the least thinking already, the same request would end the same way.
    question.settings.thinking_level = Some(ThinkingLevel::Low);
    let far = Far::start([answer(200, &spent), answer(200, &spent), answer(200, &said("late"))]).await;
    let gemini = crate::helpers::gemini(&far.url);
    asking("gemini-2.5-flash").ask(&gemini).await.unwrap_err();
    assert_eq!(far.seen().len(), 2);
    assert!(question.ask(&gemini).await.is_ok());
    assert_eq!(far.seen().len(), 3);
}

#[tokio::test]
async fn the_words_of_a_cut_answer_are_kept() {
    let far = Far::start([
        answer(200, &reply(r#"{"text":"Hel"}"#, "MAX_TOKENS", "")),
        answer(200, &said("late")),
    ])
    .await;
    let fault = assert_fault(
        asking("m").ask(&gemini(&far.url)).await,
        FaultKind::Malformed,
        "cut off: MAX_TOKENS",
        1,
    );
    assert_eq!(fault.said.as_deref(), Some("Hel"));

    let mut broken = open_stream();
    broken.extend([event(&chunk(r#"{"text":"Hel"}"#)), Step::Reset]);
    let far = Far::start([broken.clone(), broken.clone(), broken]).await;
    let (answered, _) = asking("m").listen(&gemini(&far.url)).await;
    let fault = answered.unwrap_err();
    assert_eq!(
        (fault.served.attempts, fault.said.as_deref()),
        (2, Some("Hel")),
        "one more try: {fault:?}"
    );

    // The text of earlier hops belongs to it.
    let first = reply(r#"{"text":"one "}"#, "CONTINUATION", r#","continuationToken":"t""#);
    let far = Far::start([
        answer(200, &first),
        answer(200, &reply(r#"{"text":"tw"}"#, "MAX_TOKENS", "")),
    ])
    .await;
    let fault = asking("m").ask(&gemini(&far.url)).await.unwrap_err();
    assert_eq!(fault.said.as_deref(), Some("one tw"));
}
