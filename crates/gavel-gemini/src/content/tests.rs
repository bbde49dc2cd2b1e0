//! What is echoed equals what was received, whole or in pieces.
#![allow(clippy::unwrap_used)]

use super::*;

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

fn joined(chunks: &[&str]) -> (String, Vec<Part>, Vec<String>) {
    let (mut pieces, mut deltas) = (Pieces::default(), Vec::new());
    for parts in chunks {
        let content = raw(&format!(r#"{{"parts":[{parts}],"role":"model"}}"#));
        pieces
            .take_chunk(&content, |event| deltas.push(format!("{event:?}")))
            .unwrap();
    }
    let (content, parts) = pieces.finish().unwrap();
    (content.get().to_owned(), parts, deltas)
}

#[test]
fn text_is_joined_within_unsigned_runs_of_one_kind_and_never_across_a_signature() {
    let (content, parts, deltas) = joined(&[
        r#"{"text":"think","thought":true}"#,
        r#"{"thought":true,"text":"ing"}"#,
        r#"{"text":"one "}"#,
        r#"{"text":"two "},{"text":"three","thoughtSignature":"Uw=="}"#,
        r#"{"text":"four"}"#,
        r#"{"text":""}"#,
        r#"{"text":"","thoughtSignature":"VA=="}"#,
    ]);
    assert_eq!(
        content,
        concat!(
            r#"{"role":"model","parts":[{"text":"thinking","thought":true},{"text":"one two "},"#,
            r#"{"text":"three","thoughtSignature":"Uw=="},{"text":"four"},{"text":"","thoughtSignature":"VA=="}]}"#
        )
    );
    assert_eq!(
        deltas,
        [
            r#"Thought("think")"#,
            r#"Thought("ing")"#,
            r#"Delta("one ")"#,
            r#"Delta("two ")"#,
            r#"Delta("three")"#,
            r#"Delta("four")"#
        ]
    );
    assert_eq!(parts.len(), 5);
}

/// D-R6: a thought is delivered in every form, and is never part of the answer.
#[test]
fn thoughts_are_delivered_and_are_no_answer() {
    for chunks in [
        &[r#"{"text":"hm","thought":true}"#][..],
        &[r#"{"text":"hm","thought":true,"thoughtSignature":"Uw=="}"#],
        &[r#"{"text":"h","thought":true}"#, r#"{"text":"m","thought":true}"#],
        &[r#"{"text":"hm","thought":true},{"text":""}"#],
        &[r#"{"text":"","thought":true},{"text":"hm","thought":true}"#],
    ] {
        let (mut pieces, mut reported) = (Pieces::default(), String::new());
        for parts in chunks {
            let content = raw(&format!(r#"{{"parts":[{parts}]}}"#));
            let tell = |event: ModelEvent<'_>| match event {
                ModelEvent::Thought(text) => reported.push_str(text),
                other => panic!("{other:?}"),
            };
            pieces.take_chunk(&content, tell).unwrap();
        }
        assert_eq!((reported.as_str(), pieces.text().as_str()), ("hm", ""), "{chunks:?}");
        assert_eq!(
            pieces.no_answer(),
            Some("the answer is empty: the model only thought"),
            "{chunks:?}"
        );
    }
}

#[test]
fn calls_over_several_chunks_keep_their_order_and_their_bytes() {
    let (content, parts, _) = joined(&[
        r#"{"functionCall":{"name":"b","args":{"z":1,"a":2.50}},"thoughtSignature":"Uw=="}"#,
        r#"{"functionCall":{"id":"i1","name":"a"}}"#,
        r#"{"text":""}"#,
    ]);
    assert_eq!(
        content,
        concat!(
            r#"{"role":"model","parts":[{"functionCall":{"name":"b","args":{"z":1,"a":2.50}},"thoughtSignature":"Uw=="},"#,
            r#"{"functionCall":{"id":"i1","name":"a"}}]}"#
        )
    );
    let [Part::Call(first), Part::Call(second)] = parts.as_slice() else {
        panic!("{parts:?}")
    };
    assert_eq!((first.id.as_deref(), first.args.get()), (None, r#"{"z":1,"a":2.50}"#));
    assert_eq!((second.id.as_deref(), second.args.get()), (Some("i1"), "{}"));
}

#[test]
fn a_unary_content_is_echoed_byte_for_byte() {
    let text = r#"{ "parts": [ {"text":""}, {"text": "\u00e9", "thoughtSignature":"U/+="} ],  "role":"model"}"#;
    let mut pieces = Pieces::default();
    pieces.take_whole(&raw(text)).unwrap();
    assert_eq!(pieces.finish().unwrap().0.get(), text);
}

#[test]
fn a_unary_content_that_would_be_refused_is_repaired_in_that_place_only() {
    let mut pieces = Pieces::default();
    pieces
        .take_whole(&raw(r#"{"parts":[{"text":"a" },{}, {"inlineData":{}}]}"#))
        .unwrap();
    assert_eq!(
        pieces.finish().unwrap().0.get(),
        r#"{"role":"model","parts":[{"text":"a" },{"inlineData":{}}]}"#
    );
}

#[test]
fn a_call_that_cannot_be_run_is_distinguished() {
    for (part, reason) in [
        (r#"{"functionCall":{}}"#, "no name"),
        (r#"{"functionCall":{"name":""}}"#, "no name"),
        (r#"{"functionCall":7}"#, "not an object"),
        (r#"{"functionCall":{"name":"a","args":"{}"}}"#, "not an object"),
        (r#"{"functionCall":{"name":"a","args":[1]}}"#, "not an object"),
        (r#"{"functionCall":{"name":"a","willContinue":true}}"#, "in pieces"),
        (r#"{"functionCall":{"name":"a","partialArgs":[]}}"#, "in pieces"),
    ] {
        let mut pieces = Pieces::default();
        pieces
            .take_whole(&raw(&format!(r#"{{"role":"model","parts":[{part}]}}"#)))
            .unwrap();
        assert!(pieces.garbled().is_some_and(|why| why.contains(reason)), "{part}");
        assert!(pieces.no_answer().is_some(), "{part}");
    }
}

#[test]
fn a_call_the_provider_answered_itself_is_not_ours_to_run() {
    let (_, parts, _) = joined(&[
        r#"{"functionCall":{"name":"search"}},{"functionResponse":{"name":"search","response":{}}}"#,
        r#"{"functionCall":{"name":"add_task"}}"#,
    ]);
    assert!(matches!(parts.as_slice(), [Part::Other, Part::Other, Part::Call(call)] if call.name == "add_task"));
    // The id distinguishes two calls with the same name.
    let (_, parts, _) = joined(&[concat!(
        r#"{"functionCall":{"id":"1","name":"search"}},{"functionCall":{"id":"2","name":"search"}},"#,
        r#"{"functionResponse":{"id":"2","name":"search"}}"#
    )]);
    let [Part::Call(left), Part::Other, Part::Other] = parts.as_slice() else {
        panic!("{parts:?}")
    };
    assert_eq!(left.id.as_deref(), Some("1"));
}
