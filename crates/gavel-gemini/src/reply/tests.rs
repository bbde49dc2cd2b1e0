//! How each reply ends, and that no bytes make the decoder panic.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::domain::journal::Part;
use crate::wire::{Frame, Framer};

fn streamed(chunks: &[&str]) -> (Result<Hop, Failure>, Usage, String) {
    let (mut reply, mut received) = (Reply::default(), String::new());
    let mut tell = |event: ModelEvent<'_>| {
        if let ModelEvent::Delta(words) = event {
            received.push_str(words);
        }
    };
    let read = chunks
        .iter()
        .try_for_each(|chunk| reply.take_chunk(chunk.as_bytes(), false, &mut tell));
    let usage = reply.usage();
    (read.and_then(|()| reply.finish()), usage, received)
}

fn candidate(parts: &str, rest: &str) -> String {
    format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}}{rest}}}]}}"#)
}

/// The turn is recorded, echoed and sent to a tool as received, so it must be valid JSON for every parser.
#[test]
fn half_a_character_is_replaced_in_words_and_arguments() {
    let parts = r#"{"text":"cut \ud83d"},{"functionCall":{"name":"f","args":{"a":"\ude00"}}}"#;
    let (hop, _, received) = streamed(&[&candidate(parts, r#","finishReason":"STOP""#)]);
    assert_eq!(received, "cut \u{fffd}");
    let (content, read) = hop.unwrap().pieces.finish().unwrap();
    let echoed: serde_json::Value = serde_json::from_str(content.get()).unwrap();
    assert_eq!(echoed["parts"][1]["functionCall"]["args"]["a"], "\u{fffd}");
    let args = read.iter().find_map(|part| match part {
        Part::Call(call) => Some(call.args.get()),
        _ => None,
    });
    assert_eq!(args, Some(r#"{"a":"\ufffd"}"#));
}

#[test]
fn every_finish_reason_ends_in_its_kind() {
    for (reason, kind, retry) in [
        ("SAFETY", FaultKind::Blocked, Retry::No),
        ("PROHIBITED_CONTENT", FaultKind::Blocked, Retry::No),
        ("BLOCKLIST", FaultKind::Blocked, Retry::No),
        ("SPII", FaultKind::Blocked, Retry::No),
        ("RECITATION", FaultKind::Blocked, Retry::No),
        ("MODEL_ARMOR", FaultKind::Blocked, Retry::No),
        ("IMAGE_SAFETY", FaultKind::Blocked, Retry::No),
        ("IMAGE_PROHIBITED_CONTENT", FaultKind::Blocked, Retry::No),
        ("IMAGE_RECITATION", FaultKind::Blocked, Retry::No),
        ("ESCALATION", FaultKind::Blocked, Retry::No),
        ("PUP_LIMITED_DISABLED", FaultKind::Blocked, Retry::No),
        ("MALFORMED_FUNCTION_CALL", FaultKind::Malformed, Retry::Once),
        ("MALFORMED_RESPONSE", FaultKind::Malformed, Retry::Once),
        ("MAX_TOKENS", FaultKind::Malformed, Retry::No),
        ("UNEXPECTED_TOOL_CALL", FaultKind::Malformed, Retry::No),
        ("TOO_MANY_TOOL_CALLS", FaultKind::Malformed, Retry::No),
        ("MISSING_THOUGHT_SIGNATURE", FaultKind::Malformed, Retry::No),
        ("LANGUAGE", FaultKind::Malformed, Retry::No),
        ("NO_IMAGE", FaultKind::Malformed, Retry::No),
        ("IMAGE_OTHER", FaultKind::Malformed, Retry::No),
        ("OTHER", FaultKind::Malformed, Retry::No),
        ("FINISH_REASON_UNSPECIFIED", FaultKind::Malformed, Retry::No),
        ("FROM_THE_FUTURE", FaultKind::Malformed, Retry::No),
    ] {
        // A call in it is not executed.
        let call = r#"{"functionCall":{"name":"delete_task","args":{}}}"#;
        let chunk = candidate(call, &format!(r#","finishReason":"{reason}""#));
        let failure = streamed(&[&chunk]).0.unwrap_err();
        assert_eq!((failure.kind, failure.retry), (kind, retry), "{reason}");
        assert!(failure.detail.contains(reason), "{}", failure.detail);
    }
}

#[test]
fn a_stop_is_not_the_end_and_a_later_block_counts() {
    let stop = r#","finishReason":"STOP""#;
    let one = candidate(r#"{"text":"one "}"#, stop);
    let (hop, _, received) = streamed(&[&one, &candidate(r#"{"text":"two"}"#, stop)]);
    assert_eq!(
        (hop.unwrap().pieces.text().as_str(), received.as_str()),
        ("one two", "one two")
    );
    let (hop, _, _) = streamed(&[&one, r#"{"candidates":[{"finishReason":"RECITATION"}]}"#, &one]);
    assert_eq!(hop.unwrap_err().kind, FaultKind::Blocked);
}

#[test]
fn counts_are_running_totals_that_an_absent_field_does_not_erase() {
    let (_, usage, _) = streamed(&[
        r#"{"usageMetadata":{"promptTokenCount":10,"thoughtsTokenCount":"7","cachedContentTokenCount":4}}"#,
        r#"{"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":3,"toolUsePromptTokenCount":2}}"#,
        r#"{"usageMetadata":{"candidatesTokenCount":5}}"#,
    ]);
    let expected = Usage {
        input_tokens: 12,
        output_tokens: 5,
        thought_tokens: 7,
        cached_tokens: 4,
    };
    assert_eq!(usage, expected);
}

#[test]
fn what_is_blocked_cut_or_empty_is_named() {
    let cut = candidate(r#"{"functionCall":{"name":"delete_task"}}"#, "");
    for (chunk, kind, words) in [
        (
            r#"{"promptFeedback":{"blockReason":"JAILBREAK"}}"#,
            FaultKind::Blocked,
            "JAILBREAK",
        ),
        (r#"{"promptFeedback":{"blockReason":3}}"#, FaultKind::Blocked, "3"),
        (
            r#"{"promptFeedback":{"safetyRatings":[]}}"#,
            FaultKind::Malformed,
            "no candidate",
        ),
        (r#"{"candidates":[]}"#, FaultKind::Malformed, "no candidate"),
        (
            r#"{"candidates":[{"content":{}}]}"#,
            FaultKind::Malformed,
            "no candidate",
        ),
        (cut.as_str(), FaultKind::Malformed, "cut off"),
        (
            r#"{"candidates":[{"finishReason":"CONTINUATION"}]}"#,
            FaultKind::Malformed,
            "token",
        ),
        (r#"{"candidates":7}"#, FaultKind::Malformed, "unexpected JSON"),
        (r#"{"candidates":[{"#, FaultKind::Malformed, "cut off"),
        (
            r#"{"error":{"code":503,"status":"UNAVAILABLE"}}"#,
            FaultKind::Unavailable,
            "503 UNAVAILABLE",
        ),
        (r#"{"error":"what"}"#, FaultKind::Unavailable, "answered 0"),
    ] {
        let failure = streamed(&[chunk]).0.unwrap_err();
        assert_eq!(failure.kind, kind, "{chunk}");
        assert!(failure.detail.contains(words), "{chunk}: {}", failure.detail);
    }
}

#[test]
fn of_several_candidates_the_first_is_taken() {
    let (hop, _, _) = streamed(&[
        r#"{"candidates":[{"index":1,"content":{"parts":[{"text":"no"}]},"finishReason":"SAFETY"}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"yes"}]},"finishReason":"STOP"},{"index":1,"content":{"parts":[{"text":"no"}]}}]}"#,
    ]);
    assert_eq!(hop.unwrap().pieces.text(), "yes");
}

fn json_like() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f32>()
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(|n| format!("{n:e}")),
        "[a-zA-Z0-9 {}\\[\\]:,é]{0,8}".prop_map(|s| format!("\"{s}\"")),
        prop::sample::select(vec!["STOP", "SAFETY", "CONTINUATION", "model"]).prop_map(|s| format!("\"{s}\"")),
    ];
    let key = prop::sample::select(vec![
        "candidates",
        "content",
        "parts",
        "text",
        "thought",
        "functionCall",
        "functionResponse",
        "name",
        "args",
        "id",
        "thoughtSignature",
        "finishReason",
        "index",
        "continuationToken",
        "promptFeedback",
        "blockReason",
        "usageMetadata",
        "promptTokenCount",
        "modelVersion",
        "error",
        "code",
        "message",
        "details",
        "role",
        "x",
    ]);
    leaf.prop_recursive(6, 64, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((key.clone(), inner), 0..5).prop_map(|fields| {
                let fields: Vec<_> = fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    })
}

fn read_every_way(body: &[u8]) {
    let mut whole = Reply::default();
    if whole.take_whole(body, true).is_ok()
        && let Ok(hop) = whole.finish()
    {
        let says = hop.pieces.no_answer().is_none();
        let (content, parts) = hop.pieces.finish().expect("what was read prints");
        let echoed: serde_json::Value = serde_json::from_str(content.get()).expect("the echo is JSON");
        assert_eq!(echoed["role"], "model", "an echo without its role would be the user's");
        assert!(!says || !parts.is_empty());
    }
    let mut reply = Reply::default();
    let mut framer = Framer::default();
    let mut each = |frame: Frame<'_>| {
        let (Frame::Event(json) | Frame::Bare(json)) = frame;
        // A broken chunk ends a real stream; here the rest is tested as well.
        let _ = reply.take_chunk(json, false, &mut |_| {});
        Ok::<_, std::convert::Infallible>(())
    };
    let Ok(()) = framer.feed(body, &mut each);
    let Ok(()) = framer.end(&mut each);
    let _ = reply
        .finish()
        .map(|hop| hop.pieces.finish().expect("what was read prints"));
    let _ = ApiError::of_body(500, body).into_failure(false).detail;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_bytes_make_the_decoder_panic(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        read_every_way(&body);
    }

    #[test]
    fn no_json_makes_the_decoder_panic(value in json_like()) {
        read_every_way(value.as_bytes());
        read_every_way(format!("data: {value}\r\n\r\n").as_bytes());
        let parts = format!(r#"{{"candidates":[{{"content":{{"parts":[{value}]}},"finishReason":"STOP"}}]}}"#);
        read_every_way(parts.as_bytes());
        read_every_way(format!("data: {parts}\n\n").as_bytes());
    }
}
