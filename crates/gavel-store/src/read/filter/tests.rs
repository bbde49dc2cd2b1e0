//! Which filters parse.

use super::super::filter::{DECISIONS, TOOL_INVOCATIONS};
use super::*;

fn detail(list: &'static List, text: &str) -> String {
    match parse(list, text).unwrap_err() {
        QueryError::Invalid {
            field: "filter",
            detail,
        } => detail,
        other => panic!("{other:?}"),
    }
}

#[test]
fn conditions_are_read_with_their_kinds() {
    let filter = parse(
        &DECISIONS,
        r#" outcome_category = "ERROR:*" AND user_id!="a\"b\*" AND duration_ms >= 10 AND created_at<"1970-01-01T00:00:01+00:00" "#,
    )
    .unwrap();
    let texts: Vec<_> = filter.iter().map(|filter| format!("{:?}", filter.terms()[0])).collect();
    assert!(
        texts[0].starts_with(r#"outcome_category Eq OneOf(["ERROR:USER_INPUT""#),
        "{texts:?}"
    );
    assert_eq!(texts[1], r#"user_id Ne Exact("a\"b*")"#);
    assert_eq!(texts[2], "duration_ms Ge Int(10)");
    assert_eq!(texts[3], "created_at Lt Int(1000000)");
    assert!(parse(&DECISIONS, "  ").unwrap().is_empty());
}

#[test]
fn an_error_names_the_place_what_was_found_and_what_is_allowed() {
    for (text, parts) in [
        (r#"user = "ann""#, ["at character 1", "\"user = ", "conversation_id"]),
        (
            r#"user_id = "ann" XOR intent = "x""#,
            ["at character 17", "\"XOR ", "AND or OR"],
        ),
        (
            r#"user_id = "ann" AND "x" OR "y""#,
            ["at character 25", "mixed", "parentheses"],
        ),
        (r#"(user_id = "ann""#, ["at character 1", "parenthesis", "not closed"]),
        (r#"user_id = "ann")"#, ["at character 16", "parenthesis", "closes none"]),
        (r#"usr = "ann""#, ["at character 1", "usr", "call.FIELD"]),
        (r#"call.usr = "ann""#, ["at character 1", "call.usr", "tool_digest"]),
        (
            r#"call.call.tool = "x""#,
            ["at character 1", "call.call.tool", "error_code"],
        ),
        (r#"duration_ms:5"#, ["at character 12", ":5", "<="]),
        (r#"NOT"#, ["at character 4", "the end", "allowed"]),
        (r#"user_id < "ann""#, ["at character 9", "\"< ", "=, !=, :"]),
        (r#"user_id = ann"#, ["at character 11", "\"ann\"", "double quotes"]),
        (r#"user_id = "ann"#, ["at character 11", "closing", "double quote"]),
        (
            r#"decision_type = "REFUZE""#,
            ["at character 17", "REFUZE", "REQUEST_CLARIFICATION"],
        ),
        (r#"iterations = "2""#, ["at character 14", "\\\"2\\\"", "whole number"]),
        (
            r#"created_at > "yesterday""#,
            ["at character 14", "yesterday", "2026-11-20T00:00:00Z"],
        ),
        (r#"intent = "a*b""#, ["at character 12", "*", "\\*"]),
        (
            r#"user_id = "ü" AND"#,
            ["at character 18", "the end", "conversation_id"],
        ),
    ] {
        let detail = detail(&DECISIONS, text);
        for part in parts {
            assert!(detail.contains(part), "{text}: {detail} lacks {part}");
        }
    }
    assert!(detail(&TOOL_INVOCATIONS, "success = yes").contains("true or false"));
}

#[test]
fn a_filter_is_bounded() {
    let long = vec!["iterations = 1"; 33].join(" AND ");
    assert!(detail(&DECISIONS, &long).contains("at most 32"));
    assert!(detail(&DECISIONS, &"x".repeat(5000)).contains("at most 4096"));
    for deep in ["(".repeat(2000), "NOT ".repeat(500), "-".repeat(2000)] {
        assert!(detail(&DECISIONS, &deep).contains("at most 16"), "{deep}");
    }
}

#[test]
fn values_of_one_list_are_one_condition_which_has_each_once() {
    for filter in [
        r#"decision_type = "R*" OR decision_type = "REFUSE""#,
        r#"decision_type = "REFUSE" OR (decision_type = "R*")"#,
        r#"NOT (decision_type != "R*" AND decision_type != "REFUSE")"#,
    ] {
        let parsed = parse(&DECISIONS, filter).unwrap();
        let [Filter::Is(term)] = &parsed[..] else {
            panic!("{filter}: {parsed:?}")
        };
        let Literal::OneOf(mut values) = term.value.clone() else {
            panic!("{filter}: {parsed:?}")
        };
        values.sort_unstable();
        assert_eq!(values, ["REFUSE", "REQUEST_CLARIFICATION", "RESPOND_ONLY"], "{filter}");
    }
}
