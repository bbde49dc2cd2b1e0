#![allow(clippy::unwrap_used)]

use super::*;
use crate::inbox::testing::inbox;

fn read(result: &[u8], max: usize) -> Said {
    super::read(result, max, &inbox().source)
}

fn reply(result: &Value, max: usize) -> CallReply {
    match read(result.to_string().as_bytes(), max) {
        Said::Reply(reply) => reply,
        other => panic!("{other:?}"),
    }
}

fn data_of(result: &Value, max: usize) -> String {
    match reply(result, max) {
        CallReply::Data(raw) => raw.get().to_owned(),
        other => panic!("{other:?}"),
    }
}

fn failure(result: &Value) -> CallFailure {
    match reply(result, 1024) {
        CallReply::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

/// The data of a result with both parts, as JSON.
fn both_of(text: &str, structured: &Value) -> Value {
    let result = json!({"content": [{"type": "text", "text": text}], "structuredContent": structured});
    match read(result.to_string().as_bytes(), 10_000) {
        Said::Reply(CallReply::Data(data)) => serde_json::from_str(data.get()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn text_that_is_more_than_the_json_of_the_structure_is_kept_beside_it() {
    let structured = json!({"a": 1, "b": [true, "x"]});
    for same in [
        r#"{"a":1,"b":[true,"x"]}"#,
        "{\n  \"b\": [ true, \"x\" ],\n  \"a\": 1.0\n}",
        "",
        " \n",
    ] {
        assert_eq!(both_of(same, &structured), structured, "{same}");
    }
    for other in ["two rows were changed", r#"{"a":2,"b":[true,"x"]}"#, "{", "1"] {
        let expected = json!({"content": other, "structuredContent": structured});
        assert_eq!(both_of(other, &structured), expected, "{other}");
    }
    // Some SDKs put a value that is not an object under a single member.
    assert_eq!(
        both_of("hello", &json!({"result": "hello"})),
        json!({"result": "hello"})
    );
    assert_eq!(both_of("7", &json!({"result": 7})), json!({"result": 7}));
    let list = json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "2"}],
        "structuredContent": {"result": ["a", 2]}});
    assert_eq!(data_of(&list, 100), r#"{"result":["a",2]}"#);
    let null = json!({"content": [{"type": "text", "text": "x"}], "structuredContent": null});
    assert_eq!(data_of(&null, 100), r#""x""#);
    let picture =
        json!({"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}], "structuredContent": {"a": 1}});
    match read(picture.to_string().as_bytes(), 1000) {
        Said::Reply(CallReply::Data(data)) => assert!(data.get().contains("image/png"), "{data}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_error_has_the_words_and_the_structure() {
    let of = |text: &str, structured: Value| {
        let content = json!([{"type": "text", "text": text}]);
        failure(&json!({"isError": true, "content": content, "structuredContent": structured})).message
    };
    assert_eq!(
        of("quota exceeded", json!({"retry": 7})),
        "quota exceeded\n{\"retry\":7}"
    );
    assert_eq!(of("{\"retry\": 7}", json!({"retry": 7})), "{\"retry\": 7}");
    assert_eq!(of("no", Value::Null), "no");
    assert_eq!(
        failure(&json!({"isError": true, "structuredContent": {"a": 1}})).message,
        r#"{"a":1}"#
    );
    let long = of(&"x".repeat(9000), json!({"retry": 7}));
    assert!(long.len() <= ERROR_BYTES && long.ends_with("{\"retry\":7}"), "{long}");
}

/// A tool's own code and the short fields beside it are kept, whatever the form; the rest is only in the text.
#[test]
fn a_tools_own_error_has_its_code_and_its_short_fields() {
    let error = json!({"error": {
        "code": "already_exists", "class": "arguments", "message": "There is one.", "number": 7, "retryAfterSeconds": 1.5,
        "argument": "head", "draft": false, "htmlUrl": "https://x", "list": [1], "a b": 1, "long": "x".repeat(65),
    }});
    let text = json!([{"type": "text", "text": error.to_string()}]);
    for result in [
        json!({"isError": true, "structuredContent": error}),
        json!({"isError": true, "content": text}),
        json!({"isError": true, "content": [{"type": "text", "text": "no"}], "structuredContent": error["error"]}),
    ] {
        let own = failure(&result).own.unwrap();
        assert_eq!(own.code, "already_exists");
        let expected = json!({"argument": "head", "draft": false, "number": 7, "retryAfterSeconds": 1.5});
        assert_eq!(serde_json::to_value(&own.details).unwrap(), expected);
    }
    let coded = |error: Value| failure(&json!({"isError": true, "structuredContent": error})).own;
    assert_eq!(coded(json!({"code": 404})).unwrap().code, "404");
    let many: serde_json::Map<_, _> = (0..20).map(|n| (format!("f{n}"), json!(n))).collect();
    let mut many = Value::Object(many);
    many["code"] = json!("many");
    assert_eq!(coded(many).unwrap().details.len(), 8);
    for error in [
        json!({"error": "no"}),
        json!({"code": "two words"}),
        json!({"code": "x".repeat(65)}),
        json!({"code": ""}),
        json!({"code": {"a": 1}}),
        json!({"code": "a\u{202e}b"}),
    ] {
        assert_eq!(coded(error.clone()), None, "{error}");
    }
    assert_eq!(failure(&json!({"isError": true, "content": "it failed"})).own, None);
}

#[test]
fn members_that_are_bent_are_understood_or_named() {
    for content in [
        json!("x"),
        json!({"type": "text", "text": "x"}),
        json!(["x"]),
        json!([{"type": "text", "text": "x"}]),
    ] {
        assert_eq!(data_of(&json!({"content": content}), 100), r#""x""#, "{content}");
    }
    for none in [json!(null), json!({}), json!([])] {
        assert_eq!(data_of(&json!({"content": none}), 100), "[]");
    }
    // An invalid block does not affect the others.
    let odd = json!({"content": [{"type": 7}, {"type": "text", "text": "x"}]});
    assert_eq!(data_of(&odd, 100), r#"[{"type":7},"x"]"#);
    for error in [json!(true), json!("true"), json!(1)] {
        assert_eq!(failure(&json!({"isError": error, "content": "no"})).message, "no");
    }
    for (result, member) in [
        (json!({"content": 7}), "`content`"),
        (json!({"isError": "perhaps"}), "`isError`"),
        (json!({"resultType": 7}), "`resultType`"),
    ] {
        match read(result.to_string().as_bytes(), 100) {
            Said::Unreadable(why) => assert!(why.contains(member) && !why.contains("expected"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn one_text_is_a_string_and_several_blocks_an_array_without_payloads() {
    let one = json!({"content": [{"type": "text", "text": "say \"hi\""}]});
    assert_eq!(data_of(&one, 100), r#""say \"hi\"""#);
    let many = json!({"content": [
        {"type": "text", "text": "a"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "f:///a", "mimeType": "text/plain", "text": "t"}},
        {"type": "resource", "resource": {"uri": "f:///b", "blob": "AAAAAA=="}},
        {"type": "hologram", "x": 1}
    ]});
    let data: Value = serde_json::from_str(&data_of(&many, 1000)).unwrap();
    assert_eq!(
        data,
        json!(["a",
        {"type": "image", "mimeType": "image/png", "bytes": 3},
        {"type": "resource", "uri": "f:///a", "mimeType": "text/plain", "text": "t"},
        {"type": "resource", "uri": "f:///b", "mimeType": null, "bytes": 4},
        {"type": "hologram", "mimeType": null}])
    );
    assert_eq!(data_of(&json!({"content": []}), 100), "[]");
}

#[test]
fn large_data_is_cut_between_characters_and_stays_json() {
    for large in [
        json!({"content": [{"type": "text", "text": "ä\"".repeat(500)}]}),
        json!({"structuredContent": {"rows": vec!["ä\\"; 500]}}),
    ] {
        let data = data_of(&large, 300);
        assert!(data.len() <= 300, "{}", data.len());
        let text: String = serde_json::from_str(&data).unwrap();
        assert!(text.contains("[cut: "), "{text}");
    }
}

#[test]
fn data_that_nests_too_deeply_is_handed_on_as_text() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let data = |levels| {
        let result = format!(r#"{{"structuredContent":{}}}"#, nested(levels));
        match read(result.as_bytes(), 1_000_000) {
            Said::Reply(CallReply::Data(raw)) => raw.get().to_owned(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(data(nesting::MAX_LEVELS), nested(nesting::MAX_LEVELS));
    for levels in [nesting::MAX_LEVELS + 1, 100_000] {
        let text: String = serde_json::from_str(&data(levels)).unwrap();
        assert_eq!(text, nested(levels));
    }
}

/// A JavaScript server that truncates a text may split an emoji.
#[test]
fn half_a_character_is_replaced_and_the_text_around_it_kept() {
    let data = |result: &str| match read(result.as_bytes(), 1000) {
        Said::Reply(CallReply::Data(raw)) => serde_json::from_str::<Value>(raw.get()).unwrap(),
        other => panic!("{other:?}"),
    };
    let text = r#"{"type":"text","text":"cut \ud83d"}"#;
    assert_eq!(data(&format!(r#"{{"content":[{text}]}}"#)), json!("cut \u{fffd}"));
    assert_eq!(
        data(&format!(r#"{{"content":[{text},{text}]}}"#)),
        json!(["cut \u{fffd}", "cut \u{fffd}"])
    );
    let structured = r#"{"structuredContent":{"\uDE00":["cut \ud83d","\ud83d\ude00"]}}"#;
    assert_eq!(data(structured), json!({"\u{fffd}": ["cut \u{fffd}", "\u{1f600}"]}));
    let error = format!(r#"{{"isError":true,"content":[{text}]}}"#);
    match read(error.as_bytes(), 1000) {
        Said::Reply(CallReply::Failed(failure)) => assert_eq!(failure.message, "cut \u{fffd}"),
        other => panic!("{other:?}"),
    }
    // gavel truncates the repaired text.
    let long = format!(
        r#"{{"content":[{{"type":"text","text":"{}\ud83d"}}]}}"#,
        "x".repeat(5000)
    );
    assert!(data(&long).as_str().unwrap().contains("[cut: "));
}

#[test]
fn a_text_that_is_none_is_not_lost() {
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let result = format!(r#"{{"content":[{{"type":"text","text":{deep}}},{{"type":"text","text":7}}]}}"#);
    match read(result.as_bytes(), 10_000) {
        Said::Reply(CallReply::Data(raw)) => {
            assert_eq!(serde_json::from_str::<Value>(raw.get()).unwrap(), json!([deep, 7]));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        failure(&json!({"isError": true, "content": [{"type": "text", "text": {"a": 1}}]})).message,
        r#"{"a":1}"#
    );
}

#[test]
fn an_error_is_the_tools_own_word_and_short() {
    let error =
        json!({"isError": true, "content": [{"type": "text", "text": "no\n"}, {"type": "text", "text": "way"}]});
    assert_eq!(failure(&error), CallFailure::new(FailureCode::ToolError, "no\n\nway"));
    let long = json!({"isError": true, "content": [{"type": "text", "text": "x".repeat(9000)}]});
    assert!(failure(&long).message.len() <= ERROR_BYTES);
    assert!(!failure(&json!({"isError": true})).message.is_empty());
}

#[test]
fn a_question_is_not_an_answer() {
    let question = json!({"resultType": "input_required", "inputRequests": {}});
    assert_eq!(failure(&question).code, FailureCode::Unsupported);
    let task = json!({"task": {"taskId": "t"}});
    assert!(matches!(read(task.to_string().as_bytes(), 100), Said::Task));
    assert!(matches!(read(b"[]", 100), Said::Unreadable(_)));
    assert!(matches!(read(br#"{"resultType":"new"}"#, 100), Said::Unreadable(_)));
}
