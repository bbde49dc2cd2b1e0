//! Compares the observed result with the expected one.

use chrono::NaiveDate;

use super::case::{Case, ExpectedCall, ExpectedTask, ExpectedTasks};
use super::subject::{Observed, ObservedCall, Task};

/// The differences, a sentence each. Empty: the case succeeded.
pub(super) fn differences(
    case: &Case,
    observed: &Observed,
    seeded: &[Task],
    after: &[Task],
    today: NaiveDate,
) -> Vec<String> {
    let expect = &case.expect;
    let mut differs = Vec::new();
    if !expect.decision.contains(&&*observed.decision_type) {
        let expected = expect.decision.join(" or ");
        differs.push(format!("decided {}, expected {expected}", observed.decision_type));
    }
    if !expect.outcome.is_empty() && !expect.outcome.contains(&observed.outcome) {
        let expected = expect.outcome.join(" or ");
        differs.push(format!("the outcome is {}, expected {expected}", observed.outcome));
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
    differs.extend(task_differences(&expect.tasks, seeded, after, today));
    differs
}

fn task_differences(expected: &ExpectedTasks, seeded: &[Task], after: &[Task], today: NaiveDate) -> Vec<String> {
    let mut differs = Vec::new();
    match expected {
        ExpectedTasks::Any => {}
        ExpectedTasks::Unchanged => {
            let (mut before, mut after) = (seeded.iter().map(as_observed).collect::<Vec<_>>(), after.to_vec());
            before.sort();
            after.sort();
            if before != after {
                differs.push(format!("the tasks were changed to {}", names(&after)));
            }
        }
        ExpectedTasks::Exactly(tasks) => {
            let found: Vec<_> = after.iter().collect();
            let absent = unmet(tasks, &found, |expected, task| task_fits(expected, task, today));
            differs.extend(
                absent
                    .iter()
                    .map(|task| format!("no task whose description {}", task.description)),
            );
            if after.len() != tasks.len() {
                differs.push(format!(
                    "{} tasks at the end instead of {}: {}",
                    after.len(),
                    tasks.len(),
                    names(after)
                ));
            }
        }
    }
    differs
}

/// As the task server lists it.
fn as_observed(seed: &Task) -> Task {
    Task {
        priority: Some(seed.priority.clone().unwrap_or_else(|| "normal".to_owned())),
        ..seed.clone()
    }
}

fn task_fits(expected: &ExpectedTask, task: &Task, today: NaiveDate) -> bool {
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

fn names(tasks: &[Task]) -> String {
    let names: Vec<_> = tasks.iter().map(|task| task.description.as_str()).collect();
    format!("{names:?}")
}

#[cfg(test)]
mod tests;
