//! Compares the observed result with the expected one.

use chrono::NaiveDate;

use super::case::{Case, ExpectedCall, ExpectedTask, ExpectedTasks};
use super::subject::{Observed, ObservedCall, ObservedTask, Seed};

/// The differences, a sentence each. Empty: the case succeeded.
pub(super) fn differences(
    case: &Case,
    observed: &Observed,
    seeded: &[Seed],
    after: &[ObservedTask],
    today: NaiveDate,
) -> Vec<String> {
    let expect = &case.expect;
    let mut differs = Vec::new();
    if !expect.decision.contains(&observed.decision_type) {
        let expected: Vec<_> = expect.decision.iter().map(|decision| decision.as_str()).collect();
        differs.push(format!(
            "decided {}, expected {}",
            observed.decision_type.as_str(),
            expected.join(" or ")
        ));
    }
    if !expect.outcome.is_empty() && !expect.outcome.contains(&observed.outcome) {
        let expected: Vec<_> = expect.outcome.iter().map(|outcome| outcome.as_str()).collect();
        differs.push(format!(
            "the outcome is {}, expected {}",
            observed.outcome.as_str(),
            expected.join(" or ")
        ));
    }
    let successful: Vec<_> = observed.tool_calls.iter().filter(|call| call.succeeded()).collect();
    let fits = |expected: &ExpectedCall, call: &ObservedCall| {
        let arguments = &mut expected.arguments.iter();
        expected.tool == call.tool && arguments.all(|(name, matcher)| matcher.matches(call.parameters.get(name), today))
    };
    let absent = if expect.in_order {
        unmet_in_order(&expect.calls, &successful, fits)
    } else {
        unmet(&expect.calls, &successful, |expected, call| fits(expected, call))
    };
    differs.extend(
        absent
            .into_iter()
            .map(|call| format!("missing successful call: {}", shown(call))),
    );
    for call in observed
        .tool_calls
        .iter()
        .filter(|call| call.ran() && expect.forbidden.forbids(&call.tool))
    {
        differs.push(format!("called {}, which is forbidden here", call.tool));
    }
    if let Some(matcher) = &expect.response
        && !matcher.matches_text(Some(&observed.response), today)
    {
        let shown: String = observed.response.chars().take(120).collect();
        differs.push(format!("the reply {shown:?} does not meet the condition: {matcher}"));
    }
    match &expect.tasks {
        ExpectedTasks::Any => {}
        ExpectedTasks::Unchanged => {
            let (mut before, mut after) = (seeded.iter().map(as_observed).collect::<Vec<_>>(), after.to_vec());
            before.sort();
            after.sort();
            if before != after {
                differs.push(format!("the tasks were changed to {}", names(&after)));
            }
        }
        ExpectedTasks::Exactly(expected) => {
            let found: Vec<_> = after.iter().collect();
            let absent = unmet(expected, &found, |expected, task| task_fits(expected, task, today));
            differs.extend(
                absent
                    .iter()
                    .map(|task| format!("no task whose description {}", task.description)),
            );
            if after.len() != expected.len() {
                differs.push(format!(
                    "{} tasks at the end instead of {}: {}",
                    after.len(),
                    expected.len(),
                    names(after)
                ));
            }
        }
    }
    differs
}

fn as_observed(seed: &Seed) -> ObservedTask {
    ObservedTask {
        description: seed.description.clone(),
        due: seed.due.clone(),
        priority: Some(seed.priority.clone().unwrap_or_else(|| "normal".to_owned())),
        notes: seed.notes.clone(),
        done: seed.done,
    }
}

fn task_fits(expected: &ExpectedTask, task: &ObservedTask, today: NaiveDate) -> bool {
    let optional = |matcher: &Option<super::matcher::Matcher>, text: &Option<String>| {
        matcher
            .as_ref()
            .is_none_or(|matcher| matcher.matches_text(text.as_deref(), today))
    };
    expected.done == task.done
        && expected.description.matches_text(Some(&task.description), today)
        && optional(&expected.due, &task.due)
        && optional(&expected.priority, &task.priority)
        && optional(&expected.notes, &task.notes)
}

/// The first match is always good enough: an earlier match never spoils a later one.
fn unmet_in_order<'e, E, F>(expected: &'e [E], found: &[&F], fits: impl Fn(&E, &F) -> bool) -> Vec<&'e E> {
    let mut rest = found.iter();
    expected
        .iter()
        .filter(|expected| !rest.any(|found| fits(expected, found)))
        .collect()
}

/// The elements of `expected` that remain when as many as possible are paired with one of `found` each.
fn unmet<'e, E, F>(expected: &'e [E], found: &[&F], fits: impl Fn(&E, &F) -> bool) -> Vec<&'e E> {
    let mut pairs: Vec<Option<usize>> = vec![None; found.len()];
    let mut left = Vec::new();
    for n in 0..expected.len() {
        if !pair(n, expected, found, &fits, &mut pairs, &mut vec![false; found.len()]) {
            left.push(&expected[n]);
        }
    }
    left
}

/// One augmenting path of a bipartite matching.
fn pair<E, F>(
    n: usize,
    expected: &[E],
    found: &[&F],
    fits: &impl Fn(&E, &F) -> bool,
    pairs: &mut [Option<usize>],
    tried: &mut Vec<bool>,
) -> bool {
    for at in 0..found.len() {
        if tried[at] || !fits(&expected[n], found[at]) {
            continue;
        }
        tried[at] = true;
        if pairs[at].is_none_or(|other| pair(other, expected, found, fits, pairs, tried)) {
            pairs[at] = Some(n);
            return true;
        }
    }
    false
}

fn shown(call: &ExpectedCall) -> String {
    let arguments: Vec<_> = call
        .arguments
        .iter()
        .map(|(name, matcher)| format!("{name} {matcher}"))
        .collect();
    if arguments.is_empty() {
        call.tool.clone()
    } else {
        format!("{} where {}", call.tool, arguments.join(" and "))
    }
}

fn names(tasks: &[ObservedTask]) -> String {
    let names: Vec<_> = tasks.iter().map(|task| task.description.as_str()).collect();
    format!("{names:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::parse;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// The differences between the expectation and a decision that added `call mom`, due tomorrow.
    fn differs(expect: &str, change: impl FnOnce(&mut Value)) -> String {
        let text = format!("kind: clear\ncases: [{{id: a, message: m, tasks: [old], expect: {{{expect}}}}}]");
        let case = parse(&text, "x").unwrap().remove(0);
        let mut body = json!({
            "decision_type": "INVOKE_TOOL", "outcome_category": "SUCCESS:TASK_COMPLETED", "response": "Added call mom.",
            "iterations": 2, "model": "m", "duration_ms": 1,
            "tool_calls": [{"sequence": 1, "tool": "add_task", "result": {"success": true, "data": {}, "error": null},
                "parameters": {"description": "call mom", "due": "2026-11-21"}}],
        });
        change(&mut body);
        let observed: Observed = serde_json::from_value(body).unwrap();
        let seeds = [Seed {
            description: "old".to_owned(),
            ..Seed::default()
        }];
        let mut after = vec![as_observed(&seeds[0])];
        after.push(ObservedTask {
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
    fn each_difference_is_told() {
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
            let told = differs(expect, |_| {});
            assert!(told.contains(words), "{expect}: {told}");
        }
    }

    #[test]
    fn a_call_that_failed_is_no_success_and_one_that_never_ran_is_not_forbidden() {
        let failed = json!({"success": false, "error": {"code": "unknown_tool", "message": ""}});
        let told = differs(
            "decision: INVOKE_TOOL, calls: [add_task], forbidden: [add_task]",
            |body| {
                body["tool_calls"][0]["result"] = failed;
            },
        );
        assert_eq!(told, "missing successful call: add_task");
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
}
