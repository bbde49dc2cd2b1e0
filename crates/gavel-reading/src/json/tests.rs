//! Which texts are JSON, and the line of each value.
#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn lines(node: &Node) -> Vec<u64> {
    match &node.content {
        Content::List(items) => items.iter().flat_map(lines).collect(),
        Content::Map(entries) => entries
            .iter()
            .flat_map(|(key, node)| [vec![key.line], lines(node)].concat())
            .collect(),
        _ => vec![node.line],
    }
}

#[test]
fn every_value_knows_its_line_whatever_the_white_space() {
    let node = parse("{\n\t\"a\": \"\\ud83d\\ude00\\t\",\r\n\n\"b\\\"\" : [1,\n 2.5, {\"c\":\nnull}]}")
        .unwrap()
        .0;
    assert_eq!(lines(&node), [2, 2, 4, 4, 5, 5, 6]);
    assert_eq!(node.to_json(), json!({"a": "😀\t", "b\"": [1, 2.5, {"c": null}]}));
}

#[test]
fn what_is_no_json_is_refused_with_its_line() {
    for (text, line) in [
        ("{\n\"a\": 1,\n}", 3),
        ("{\n'a': 1}", 2),
        ("{\"a\": 1}\n\nx", 3),
        ("{\"a\":\n# no\n1}", 2),
        ("{\"a\":\n yes}", 2),
        ("{\"a\":\n\n\"\\ud83d\"}", 3),
        ("{\"a\":\n\"\t\"}", 2),
        ("[\n1e999]", 2),
        ("[\n01]", 2),
        ("", 1),
    ] {
        assert_eq!(parse(text).unwrap_err().line, Some(line), "{text}");
    }
    assert!(parse(&"[".repeat(100_000)).is_err());
}

#[test]
fn what_is_no_json_is_reported_with_its_column() {
    for (text, message) in [
        ("{\n\"ä\": 1,\n}", "key must be a string, column 1"),
        ("{a: 1}", "key must be a string, column 2"),
        ("{\"a\": 1", "EOF while parsing an object, column 7"),
        ("", "EOF while parsing a value, column 0"),
    ] {
        assert_eq!(parse(text).unwrap_err().message, message, "{text}");
    }
}

#[test]
fn a_key_that_is_given_twice_says_what_it_said_first() {
    let (node, twice) = parse("{\"a\":1,\n\"\\u0061\":2, \"b\": [{\"c\": 1,\n\"c\": 2}]}").unwrap();
    assert_eq!(node.to_json(), json!({"a": 1, "b": [{"c": 1}]}));
    let twice: Vec<_> = twice.iter().map(|key| (key.line, key.name.as_str())).collect();
    assert_eq!(twice, [(2, "a"), (3, "b[0].c")]);
}

proptest! {
    /// Strings, numbers and keys are equal to those of `serde_json`.
    #[test]
    fn a_value_is_read_as_it_was_written(
        texts in prop::collection::vec(".*", 3), whole in any::<i64>(), large in any::<u64>(),
        float in any::<f64>().prop_filter("finite", |f| f.is_finite()), pretty in any::<bool>(),
    ) {
        let value = json!({texts[0].clone(): [whole, large, float, true, null, {}], "k": texts[1..]});
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        prop_assert_eq!(parse(&text).unwrap().0.to_json(), value);
    }

    #[test]
    fn no_text_makes_it_panic(text in "[\\[\\]{}\",:0-9a\\\\ud\n .e-]{0,30}") {
        let read = parse(&text);
        prop_assert!(read.is_err() || serde_json::from_str::<Value>(&text).is_ok(), "{:?}", read);
    }
}

#[test]
fn values_are_counted_outside_of_texts() {
    let list = |values: usize| format!("[{}1]", "1,".repeat(values - 1));
    assert!(
        parse(&list(MOST_NODES))
            .unwrap_err()
            .message
            .starts_with("more than 16384 values")
    );
    assert!(strict_json(list(MOST_NODES).as_bytes()).is_ok());
    let error = strict_json(list(MOST_VALUES).as_bytes()).unwrap_err();
    assert!(error.starts_with("more than 65536 values"), "{error}");
}

#[test]
fn strict_json_is_what_serde_json_reads_but_for_keys_that_stand_twice() {
    for text in [
        r#"{"a":[1,-1,18446744073709551615,1.5,null,true,"\u0041"],"b":{}}"#,
        "7",
        " [ ] ",
    ] {
        let expected = serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(strict_json(text.as_bytes()).unwrap(), expected);
    }
    let error = strict_json(b"{\"a\": 1,\n\"b\": {\"c\": 1,\n\"c\": 2}}").unwrap_err();
    assert_eq!(error, "the key \"b.c\" a second time, line 3");
    for text in ["{\"a\":1,}", "[1,", "", "{a:1}"] {
        let error = parse(text).unwrap_err().message;
        assert_eq!(
            strict_json(text.as_bytes()).unwrap_err(),
            format!("{error}, line 1"),
            "{text}"
        );
    }
}

#[test]
fn comments_and_commas_of_editors_go_away_and_lines_stay() {
    for (text, expected) in [
        ("\u{feff}{\"a\": 1}", json!({"a": 1})),
        (
            "{ // one\n \"a\": \"//x\", /* two\n */ \"b\": [1, 2,\n ], // ü\n}",
            json!({"a": "//x", "b": [1, 2]}),
        ),
        (
            r#"{"a": "/* \" */,]", "b": "\\",}"#,
            json!({"a": "/* \" */,]", "b": "\\"}),
        ),
        (r#"{"a": "x,", }"#, json!({"a": "x,"})),
    ] {
        let plain = plain(text);
        assert_eq!(serde_json::from_str::<Value>(&plain).unwrap(), expected, "{plain}");
        assert_eq!(plain.lines().count(), text.lines().count());
    }
    for invalid in ["{,}", "[1,,2]", "{\"a\": /}", "/* without end"] {
        assert!(
            serde_json::from_str::<Value>(&plain(invalid)).is_err() || invalid == "{,}",
            "{invalid}"
        );
    }
}
