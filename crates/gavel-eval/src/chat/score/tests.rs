//! Which differences a score finds, and that its pairing is the largest.

use super::*;
use crate::chat::parse;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The differences between the expectation and a decision that added `call mom`, due tomorrow.
fn differs(expect: &str, change: impl FnOnce(&mut Value)) -> String {
    let text = format!("kind: clear\ncases: [{{id: a, message: m, tasks: [old], expect: {{{expect}}}}}]");
    let case = parse(&text, "x", &["SUCCESS:TASK_COMPLETED", "ERROR:INTERNAL"])
        .unwrap()
        .remove(0);
    let mut body = json!({
        "decision_type": "INVOKE_TOOL", "outcome_category": "SUCCESS:TASK_COMPLETED", "response": "Added call mom.",
        "iterations": 2, "model": "m", "duration_ms": 1,
        "tool_calls": [{"sequence": 1, "tool": "add_task", "result": {"success": true, "data": {}, "error": null},
            "parameters": {"description": "call mom", "due": "2026-11-21"}}],
    });
    change(&mut body);
    let observed: Observed = serde_json::from_value(body).unwrap();
    let seeds = [Task {
        description: "old".to_owned(),
        ..Task::default()
    }];
    let mut after = vec![as_observed(&seeds[0])];
    after.push(Task {
        description: "call mom".to_owned(),
        due: Some("2026-11-21".to_owned()),
        ..after[0].clone()
    });
    let today = NaiveDate::from_ymd_opt(2026, 11, 20).unwrap();
    differences(&case, &observed, &seeds, &after, today).join("; ")
}

#[test]
fn what_is_as_expected_differs_in_nothing() {
    let expect = "decision: [RESPOND_ONLY, INVOKE_TOOL], outcome: SUCCESS:TASK_COMPLETED, forbidden: [delete_task],
            calls: [{tool: add_task, arguments: {description: {contains: MOM}, due: {on: tomorrow}, notes: absent}}],
            response: {contains: mom}, tasks: [old, {description: call mom, due: {on: +1}, priority: normal}]";
    assert_eq!(differs(expect, |_| {}), "");
}

#[test]
fn each_difference_is_reported() {
    for (expect, words) in [
        ("decision: REFUSE", "decided INVOKE_TOOL, expected REFUSE"),
        (
            "decision: INVOKE_TOOL, outcome: ERROR:INTERNAL",
            "the outcome is SUCCESS:TASK_COMPLETED",
        ),
        (
            "decision: INVOKE_TOOL, calls: [list_tasks]",
            "missing successful call: list_tasks",
        ),
        (
            "decision: INVOKE_TOOL, calls: [add_task, add_task], in_order: false",
            "missing successful call: add_task",
        ),
        (
            "decision: INVOKE_TOOL, calls: [{tool: add_task, arguments: {due: {on: today}}}]",
            "add_task where due is on today+0",
        ),
        (
            "decision: INVOKE_TOOL, forbidden: [add_task]",
            "called add_task, which is forbidden here",
        ),
        ("decision: INVOKE_TOOL, forbidden: effects", "the tasks were changed"),
        (
            "decision: INVOKE_TOOL, response: {lacks: mom}",
            "the reply \"Added call mom.\" does not meet the condition: lacks",
        ),
        ("decision: INVOKE_TOOL, tasks: [old]", "2 tasks at the end instead of 1"),
        (
            "decision: INVOKE_TOOL, tasks: [old, {description: call mom, done: true}]",
            "no task whose description",
        ),
        (
            "decision: INVOKE_TOOL, tasks: [old, {description: call mom, due: absent}]",
            "no task whose description",
        ),
    ] {
        let reported = differs(expect, |_| {});
        assert!(reported.contains(words), "{expect}: {reported}");
    }
}

#[test]
fn a_call_that_failed_is_no_success_and_one_that_never_ran_is_not_forbidden() {
    let failed = json!({"success": false, "error": {"code": "unknown_tool", "message": ""}});
    let reported = differs(
        "decision: INVOKE_TOOL, calls: [add_task], forbidden: [add_task]",
        |body| {
            body["tool_calls"][0]["result"] = failed;
        },
    );
    assert_eq!(reported, "missing successful call: add_task");
}

#[test]
fn pairs_are_found_whatever_the_order() {
    let fits = |expected: &&str, found: &&str| found.contains(expected);
    let found = [&"ab", &"a"];
    assert!(unmet(&["a", "b"], &found, fits).is_empty());
    assert!(unmet(&["b", "a"], &found, fits).is_empty());
    assert_eq!(unmet(&["b", "b"], &found, fits), [&"b"]);
    assert_eq!(unmet_in_order(&["a", "b"], &found, fits), [&"b"]);
    assert!(unmet_in_order(&["b", "a"], &found, fits).is_empty());
}

proptest! {
    /// As many are met as by trying every order.
    #[test]
    fn the_pairing_is_the_largest(table in proptest::collection::vec(proptest::collection::vec(any::<bool>(), 4), 0..5)) {
        let expected: Vec<usize> = (0..table.len()).collect();
        let places = [0usize, 1, 2, 3];
        let found: Vec<_> = places.iter().collect();
        let met = expected.len() - unmet(&expected, &found, |row, column| table[*row][*column]).len();
        prop_assert_eq!(met, largest(&table, 0, 0));
    }
}

fn largest(table: &[Vec<bool>], row: usize, used: u8) -> usize {
    let Some(fits) = table.get(row) else { return 0 };
    let free = (0..4).filter(|column| fits[*column] && used & (1 << column) == 0);
    let taken = free
        .map(|column| 1 + largest(table, row + 1, used | (1 << column)))
        .max()
        .unwrap_or(0);
    taken.max(largest(table, row + 1, used))
}
