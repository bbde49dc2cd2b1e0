//! Chooses the condition that drives a statement, and its branches.

use super::super::fields::{Kind, List, PARENT};
use super::super::filter::{Literal, Op, Term};
use super::{Question, quoted};
use crate::domain::agent_run::RunStatus;
use crate::domain::planning_session::SessionStatus;
use std::fmt::Write;

/// The condition that the statement is driven by.
#[derive(Default)]
pub(super) struct Driver {
    pub(super) column: Option<&'static str>,
    /// The condition that `branches` fully express.
    pub(super) term: Option<usize>,
    /// Conditions of which exactly one holds, as literals: values of closed lists, never a caller's text.
    pub(super) branches: Vec<String>,
    /// The index that SQLite must use where it would choose another.
    pub(super) named: Option<&'static str>,
}

/// How many rows a condition leaves, judged by its text. The smallest drives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Leaves {
    /// One decision, or one conversation.
    One,
    /// The rows of one user.
    User,
    /// Rows that are open or did not complete.
    Unfinished,
    /// Unsuccessful outcomes, or very long durations.
    Rare,
    /// One tool, or the intent of one tool.
    Named,
    /// Long durations.
    Slow,
    /// A large part of the table.
    Much,
}

pub(super) fn driver(question: &Question<'_>) -> Driver {
    let terms = question.filter.terms.iter().enumerate();
    let user = question.user.map(|_| {
        let by_user = Driver {
            column: Some("user_id"),
            ..Driver::default()
        };
        (Leaves::User, by_user)
    });
    terms
        .filter_map(|(index, term)| drives(question.list, term, index))
        .chain(user)
        .min_by_key(|(leaves, _)| *leaves)
        .map(|(_, driver)| driver)
        .unwrap_or_default()
}

/// The statement driven by one condition, if an index supports that.
fn drives(list: &'static List, term: &Term, index: usize) -> Option<(Leaves, Driver)> {
    let column = term.field.sql;
    let driver = Driver {
        column: Some(column),
        term: Some(index),
        ..Driver::default()
    };
    if column == "status"
        && let Some(index) = list.few
    {
        let driver = Driver {
            branches: vec![few(list, term)?],
            named: Some(index),
            ..driver
        };
        return Some((Leaves::Unfinished, driver));
    }
    if let Kind::Duration = term.field.kind {
        let classes = slow_classes(term)?;
        let driver = Driver {
            term: None,
            branches: classes.iter().map(|class| slow(*class)).collect(),
            named: Some(list.slow),
            ..driver
        };
        let leaves = match classes.first() {
            Some(8..) => Leaves::Rare,
            Some(4) => Leaves::Slow,
            _ => Leaves::Much,
        };
        return Some((leaves, driver));
    }
    if !list.indexed.contains(&column) {
        return None;
    }
    match (&term.value, term.op) {
        (Literal::Exact(text), Op::Eq) => {
            let leaves = match column {
                "decision_id" | "conversation_id" | PARENT => Leaves::One,
                "user_id" => Leaves::User,
                "intent" if WITHOUT_A_TOOL.contains(&text.as_str()) => Leaves::Much,
                _ => Leaves::Named,
            };
            Some((leaves, driver))
        }
        (Literal::OneOf(_), _) => {
            let branches = branches(term);
            let none_is = |value: &str| !branches.iter().any(|branch| branch.contains(value));
            let leaves = match column {
                "outcome_category" if none_is("'SUCCESS:") => Leaves::Rare,
                "status" if over().all(none_is) => Leaves::Unfinished,
                _ => Leaves::Much,
            };
            Some((leaves, Driver { branches, ..driver }))
        }
        _ => None,
    }
}

/// The statuses of ended runs and planning sessions.
fn over() -> impl Iterator<Item = &'static str> {
    RunStatus::ALL
        .iter()
        .filter(|status| status.has_ended())
        .map(|status| status.as_str())
        .chain(
            SessionStatus::ALL
                .iter()
                .filter(|status| status.has_ended())
                .map(|status| status.as_str()),
        )
}

/// Intents of decisions that called no tool.
const WITHOUT_A_TOOL: [&str; 4] = ["respond", "clarify", "refuse", "none"];

/// Minimum seconds of each class in the duration indexes (migration `0003_lists`).
const SLOW_CLASSES_S: [i64; 6] = [1, 2, 4, 8, 16, 32];

/// The classes that cover every row that a duration condition allows, shortest first. `None` if it allows durations
/// that are not in the index.
pub(super) fn slow_classes(term: &Term) -> Option<Vec<i64>> {
    let Literal::Int(ms) = term.value else { return None };
    let (least_ms, most_ms) = match term.op {
        Op::Gt => (ms.saturating_add(1), i64::MAX),
        Op::Ge => (ms, i64::MAX),
        Op::Eq => (ms, ms),
        Op::Ne | Op::Lt | Op::Le => return None,
    };
    let first = SLOW_CLASSES_S.iter().rposition(|class| class * 1000 <= least_ms)?;
    let classes = SLOW_CLASSES_S[first..].iter().copied();
    Some(classes.take_while(|class| class * 1000 <= most_ms).collect())
}

/// One class, with the condition and expression spelled exactly as in the index's definition.
fn slow(class: i64) -> String {
    let (last, quicker) = SLOW_CLASSES_S.split_last().unwrap_or((&0, &[]));
    let cases = quicker.iter().fold(String::new(), |mut cases, class| {
        // Writing to a String cannot fail.
        let _ = write!(cases, " WHEN duration_us < {} THEN {class}", class * 2_000_000);
        cases
    });
    format!("duration_us >= 1000000 AND (CASE{cases} ELSE {last} END) = {class}")
}

/// The status condition in a form that a partial index supports.
fn few(list: &List, term: &Term) -> Option<String> {
    let chosen = statuses(term)?;
    match list.name {
        // No status is left, as in `status != "*"`.
        _ if chosen.is_empty() => None,
        "decision_log" if chosen == ["open"] => Some("status = 'open'".to_owned()),
        "tool_invocation_log" if !chosen.contains(&"completed") => {
            // The index's own condition, spelled as in its definition.
            Some(format!("status <> 'completed' AND status IN ({})", quoted(&chosen)))
        }
        _ => None,
    }
}

/// The statuses a condition allows. A status is never NULL.
fn statuses(term: &Term) -> Option<Vec<&'static str>> {
    let all = [
        "started",
        "completed",
        "failed",
        "in_doubt",
        "not_sent",
        "open",
        "closed",
    ];
    let wanted: Vec<&str> = match &term.value {
        Literal::OneOf(values) => values.clone(),
        Literal::Bool(yes) => {
            let completed = *yes;
            all[..5]
                .iter()
                .copied()
                .filter(|status| (*status == "completed") == completed)
                .collect()
        }
        _ => return None,
    };
    let known: &[&'static str] = match term.field.kind {
        Kind::Names(values) if values().contains(&"open") => &["open", "closed"],
        _ => &["started", "completed", "failed", "in_doubt", "not_sent"],
    };
    let equal = term.op == Op::Eq;
    Some(
        known
            .iter()
            .copied()
            .filter(|status| wanted.contains(status) == equal)
            .collect(),
    )
}

/// One condition for each value of a closed list that `term` allows.
fn branches(term: &Term) -> Vec<String> {
    let column = term.field.sql;
    let (Kind::Names(known), Literal::OneOf(chosen)) = (term.field.kind, &term.value) else {
        return Vec::new();
    };
    let is = |value: &&'static str| format!("{column} = '{value}'");
    match term.op {
        Op::Eq => chosen.iter().map(is).collect(),
        _ => known()
            .iter()
            .filter(|value| !chosen.contains(value))
            .map(is)
            // A status is never NULL.
            .chain((column != "status").then(|| format!("{column} IS NULL")))
            .collect(),
    }
}
