//! One statement for one question, such that an index gives its rows in order.
//!
//! The condition on the most selective indexed column *drives*; the others only check. A closed list drives
//! as one branch a value, each with its own limit, so that `ERROR:*` reads a page from each of its outcomes
//! and never sorts a table. SQLite has no statistics to choose by and is told with a unary `+`, which takes
//! a column out of the choice; PostgreSQL chooses by itself.

use std::fmt::Write;

use super::super::db::{Dialect, Value};
use super::fields::{Kind, Table};
use super::filter::{Filter, Literal, Op, Term};
use super::token::Token;
use crate::domain::ids::{TenantId, UserId};

/// What to read.
pub(super) struct Question<'a> {
    pub(super) table: &'static Table,
    pub(super) tenant: &'a TenantId,
    pub(super) user: Option<&'a UserId>,
    pub(super) filter: &'a Filter,
    pub(super) after: Option<&'a Token>,
    pub(super) descending: bool,
    pub(super) limit: usize,
}

/// The statement and its values.
pub(super) fn select(dialect: Dialect, question: &Question<'_>) -> (String, Vec<Value>) {
    let driver = driver(question);
    let mut builder = Builder {
        dialect,
        values: Vec::new(),
    };
    // The calls of one decision are found by the primary key, which has no tenant.
    let tenant = builder.column("tenant", driver.column != Some("decision_id"));
    let place = builder.bind(Value::text(question.tenant.as_str()));
    let mut shared = vec![format!("{tenant} = {place}")];
    if let Some(user) = question.user {
        let place = builder.bind(Value::text(user.as_str()));
        let column = builder.column("user_id", driver.column == Some("user_id"));
        shared.push(format!("{column} = {place}"));
    }
    for (index, term) in question.filter.terms.iter().enumerate() {
        if driver.term != Some(index) || driver.branches.is_empty() {
            let condition = builder.condition(term, driver.column == Some(term.field.sql));
            shared.push(condition);
        }
    }
    if let Some(token) = question.after {
        let sign = if question.descending { "<" } else { ">" };
        let created_at = builder.bind(Value::Int(Some(token.created_at)));
        let id = builder.bind(Value::text(&token.id));
        shared.push(format!("(created_at, id) {sign} ({created_at}, {id})"));
    }
    let direction = if question.descending { "DESC" } else { "ASC" };
    let tail = format!(
        "ORDER BY created_at {direction}, id {direction} LIMIT {}",
        question.limit
    );
    let Table { name, columns, .. } = question.table;
    let from = match driver.named {
        Some(index) if dialect == Dialect::Sqlite => format!("{name} INDEXED BY {index}"),
        _ => (*name).to_owned(),
    };
    let common = format!("SELECT {columns} FROM {from} WHERE {}", shared.join(" AND "));
    let sql = match driver.branches.as_slice() {
        [] => format!("{common} {tail}"),
        [one] => format!("{common} AND {one} {tail}"),
        many => {
            let branches: Vec<_> = many
                .iter()
                .enumerate()
                .map(|(n, branch)| format!("SELECT * FROM ({common} AND {branch} {tail}) AS b{n}"))
                .collect();
            format!("SELECT * FROM ({}) AS branches {tail}", branches.join(" UNION ALL "))
        }
    };
    (sql, builder.values)
}

/// What the statement is led by.
#[derive(Default)]
struct Driver {
    column: Option<&'static str>,
    term: Option<usize>,
    /// Conditions of which exactly one holds, as literals: values of closed lists, never a caller's text.
    branches: Vec<String>,
    /// The index SQLite must take, where it would take another.
    named: Option<&'static str>,
}

fn driver(question: &Question<'_>) -> Driver {
    for column in question.table.indexed.iter().copied() {
        if column == "user_id" && question.user.is_some() {
            return Driver {
                column: Some(column),
                ..Driver::default()
            };
        }
        for (index, term) in question.filter.terms.iter().enumerate() {
            if term.field.sql == column
                && let Some(driver) = drives(question.table, term, index)
            {
                return driver;
            }
        }
    }
    Driver::default()
}

/// The statement as led by one condition, when an index answers that.
fn drives(table: &'static Table, term: &Term, index: usize) -> Option<Driver> {
    let driver = Driver {
        column: Some(term.field.sql),
        term: Some(index),
        ..Driver::default()
    };
    if term.field.sql == "status" {
        let few = few(table, term)?;
        return Some(Driver {
            branches: vec![few],
            named: Some(table.few),
            ..driver
        });
    }
    match (&term.value, term.op) {
        (Literal::Exact(_), Op::Eq) => Some(driver),
        (Literal::OneOf(_), _) => Some(Driver {
            branches: branches(term),
            ..driver
        }),
        _ => None,
    }
}

/// The condition on the status as one that a partial index answers.
fn few(table: &Table, term: &Term) -> Option<String> {
    let chosen = statuses(term)?;
    match table.name {
        // Nothing is left, as in `status != "*"`.
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
        Kind::Enum(values) if values().contains(&"open") => &["open", "closed"],
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
    let (Kind::Enum(known), Literal::OneOf(chosen)) = (term.field.kind, &term.value) else {
        return Vec::new();
    };
    let is = |value: &&'static str| format!("{column} = '{value}'");
    match term.op {
        Op::Eq => chosen.iter().map(is).collect(),
        _ => known()
            .iter()
            .filter(|value| !chosen.contains(value))
            .map(is)
            .chain([format!("{column} IS NULL")])
            .collect(),
    }
}

fn quoted(values: &[&'static str]) -> String {
    values
        .iter()
        .map(|value| format!("'{value}'"))
        .collect::<Vec<_>>()
        .join(", ")
}

struct Builder {
    dialect: Dialect,
    values: Vec<Value>,
}

impl Builder {
    fn bind(&mut self, value: Value) -> String {
        self.values.push(value);
        format!("${}", self.values.len())
    }

    /// A column that drives, or one that only checks.
    fn column(&self, sql: &'static str, drives: bool) -> String {
        let plain = drives || sql == "created_at" || self.dialect == Dialect::Postgres;
        if plain { sql.to_owned() } else { format!("+{sql}") }
    }

    fn condition(&mut self, term: &Term, drives: bool) -> String {
        let column = self.column(term.field.sql, drives);
        match &term.value {
            Literal::Exact(text) => {
                let place = self.bind(Value::text(text));
                self.compared(&column, term.op, &place)
            }
            Literal::Int(number) => {
                let place = self.bind(Value::Int(Some(*number)));
                self.compared(&column, term.op, &place)
            }
            Literal::Prefix(prefix) => {
                let mut condition = format!("{column} >= {}", self.bind(Value::text(prefix)));
                if let Some(end) = after_prefix(prefix) {
                    let place = self.bind(Value::text(&end));
                    // Writing to a String cannot fail.
                    let _ = write!(condition, " AND {column} < {place}");
                }
                match term.op {
                    Op::Ne => format!("({column} IS NULL OR NOT ({condition}))"),
                    _ => format!("({condition})"),
                }
            }
            Literal::OneOf(values) => match term.op {
                Op::Ne => format!("({column} IS NULL OR {column} NOT IN ({}))", quoted(values)),
                _ => format!("{column} IN ({})", quoted(values)),
            },
            Literal::Bool(yes) => {
                let completed = *yes == (term.op == Op::Eq);
                format!("{column} {} 'completed'", if completed { "=" } else { "<>" })
            }
        }
    }

    fn compared(&self, column: &str, op: Op, place: &str) -> String {
        match op {
            Op::Ne => format!("({column} IS NULL OR {column} <> {place})"),
            _ => format!("{column} {} {place}", op.as_sql()),
        }
    }
}

/// The least text after all that begin with `prefix`, in byte order; none when every text does.
fn after_prefix(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // The range of characters steps over the surrogates.
        if let Some(next) = (last..=char::MAX).nth(1) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ops::ControlFlow;

    use super::super::super::connect::Target;
    use super::super::super::migrate;
    use super::super::fields::{DECISIONS, TOOL_INVOCATIONS};
    use super::*;

    fn sql(dialect: Dialect, table: &'static Table, filter: &str) -> String {
        let filter = Filter::parse(table, filter).unwrap();
        let question = Question {
            table,
            tenant: &TenantId::parse("t").unwrap(),
            user: None,
            filter: &filter,
            after: None,
            descending: true,
            limit: 51,
        };
        let (sql, _) = select(dialect, &question);
        sql.split_once(" WHERE ").unwrap().1.to_owned()
    }

    #[test]
    fn the_most_selective_condition_drives_and_the_others_check() {
        assert_eq!(
            sql(
                Dialect::Sqlite,
                &DECISIONS,
                r#"outcome_category = "ERROR:DEADLINE" AND user_id = "ann""#
            ),
            "tenant = $1 AND +outcome_category IN ('ERROR:DEADLINE') AND user_id = $2 \
             ORDER BY created_at DESC, id DESC LIMIT 51"
        );
    }

    #[test]
    fn a_prefix_of_a_closed_list_is_a_branch_for_each_value() {
        let text = sql(Dialect::Postgres, &DECISIONS, r#"outcome_category = "AMBIGUITY:*""#);
        assert!(
            text.contains("outcome_category = 'AMBIGUITY:UNCLEAR_INTENT' ORDER BY"),
            "{text}"
        );
        assert!(text.contains("UNION ALL"), "{text}");
        assert!(
            text.contains("outcome_category = 'AMBIGUITY:MULTIPLE_MATCHES' ORDER BY"),
            "{text}"
        );
    }

    #[test]
    fn what_did_not_complete_is_asked_of_its_own_index() {
        for filter in [
            "success = false",
            "success != true",
            r#"status != "completed""#,
            r#"status = "in_doubt""#,
        ] {
            let text = sql(Dialect::Sqlite, &TOOL_INVOCATIONS, filter);
            assert!(
                text.contains("status <> 'completed' AND status IN ("),
                "{filter}: {text}"
            );
        }
    }

    /// Without statistics SQLite takes any index that fits; this is what it takes.
    #[tokio::test]
    async fn an_index_answers_each_question() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("plan.db").display());
        let target = Target::parse(&url, None).unwrap();
        target.create().unwrap();
        let mut conn = target.writer().await.unwrap();
        migrate::migrate(&mut conn).await.unwrap();
        for (table, filter, index) in [
            (&DECISIONS, "", "decision_by_time"),
            (&DECISIONS, "iterations > 3", "decision_by_time"),
            (&DECISIONS, r#"created_at > "2026-11-20T00:00:00Z""#, "decision_by_time"),
            (
                &DECISIONS,
                r#"user_id = "ann" AND outcome_category = "ERROR:*""#,
                "decision_by_user",
            ),
            (
                &DECISIONS,
                r#"conversation_id = "c" AND user_id = "ann""#,
                "decision_by_conversation",
            ),
            (&DECISIONS, r#"outcome_category != "SUCCESS:*""#, "decision_by_outcome"),
            (&DECISIONS, r#"decision_type = "REFUSE""#, "decision_by_type"),
            (&DECISIONS, r#"status = "open""#, "decision_open"),
            (&TOOL_INVOCATIONS, "", "tool_by_time"),
            (&TOOL_INVOCATIONS, "success = true", "tool_by_time"),
            (&TOOL_INVOCATIONS, r#"tool = "add_task""#, "tool_by_tool"),
            (
                &TOOL_INVOCATIONS,
                r#"user_id = "ann" AND tool = "add_task""#,
                "tool_by_user",
            ),
            (
                &TOOL_INVOCATIONS,
                r#"status = "in_doubt" AND tool = "x""#,
                "tool_unsuccessful",
            ),
            (
                &TOOL_INVOCATIONS,
                r#"success = false AND user_id = "ann""#,
                "tool_by_user",
            ),
            (
                &TOOL_INVOCATIONS,
                r#"decision_id = "d""#,
                "sqlite_autoindex_tool_invocation_log_1",
            ),
        ] {
            let filter = Filter::parse(table, filter).unwrap();
            let question = Question {
                table,
                tenant: &TenantId::parse("t").unwrap(),
                user: None,
                filter: &filter,
                after: None,
                descending: true,
                limit: 51,
            };
            let (sql, values) = select(Dialect::Sqlite, &question);
            let mut plan = Vec::new();
            conn.fetch(&format!("EXPLAIN QUERY PLAN {sql}").into(), values, &mut |row| {
                plan.push(row.text(3)?);
                Ok(ControlFlow::Continue(()))
            })
            .await
            .unwrap();
            let searches: Vec<_> = plan.iter().filter(|step| step.contains("_log")).collect();
            assert!(!searches.is_empty(), "{sql}: {plan:?}");
            for step in searches {
                assert!(step.starts_with("SEARCH") && step.contains(index), "{sql}: {plan:?}");
            }
        }
        conn.close().await;
    }

    #[test]
    fn a_prefix_ends_before_the_next_text_of_its_length() {
        assert_eq!(after_prefix("ab"), Some("ac".to_owned()));
        assert_eq!(after_prefix("a\u{10ffff}"), Some("b".to_owned()));
        assert_eq!(after_prefix("\u{d7ff}"), Some("\u{e000}".to_owned()));
        assert_eq!(after_prefix(""), None);
    }
}
