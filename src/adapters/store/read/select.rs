//! Builds one statement for a query, such that an index returns its rows in order.
//!
//! The most selective condition *drives*; the others only filter. For a closed list there is one branch per value, each
//! with its own limit. So `ERROR:*` reads a page from each of its outcomes and never sorts a table. For a long duration
//! there is one branch per class of durations. SQLite has no statistics, so a unary `+` excludes the other columns from
//! its choice of an index. PostgreSQL chooses by itself.

use std::fmt::Write;

use super::super::db::{Dialect, Value};
use super::fields::{Kind, PARENT, Table};
use super::filter::{Filter, Literal, Op, Term};
use super::token::Token;
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{ProjectId, TenantId, UserId};

/// The query.
pub(super) struct Question<'a> {
    pub(super) table: &'static Table,
    pub(super) tenant: &'a TenantId,
    /// Only for runs.
    pub(super) project: Option<&'a ProjectId>,
    pub(super) user: Option<&'a UserId>,
    pub(super) filter: &'a Filter,
    pub(super) after: Option<&'a Token>,
    pub(super) descending: bool,
    pub(super) limit: usize,
}

/// The statement and its values.
pub(super) fn select(dialect: Dialect, question: &Question<'_>) -> (String, Vec<Value>) {
    let driver = driver(question);
    let Table {
        name, order, columns, ..
    } = question.table;
    let mut builder = Builder {
        dialect,
        values: Vec::new(),
    };
    // The calls of one decision are found by the primary key, which does not include the tenant.
    let tenant = builder.column("tenant", driver.column != Some("decision_id"));
    let place = builder.bind(Value::text(question.tenant.as_str()));
    let mut shared = vec![format!("{tenant} = {place}")];
    if let Some(project) = question.project {
        shared.push(format!("project_id = {}", builder.bind(Value::text(project.as_str()))));
        if !question.filter.terms.iter().any(|term| term.field.sql == PARENT) {
            shared.push(format!("{} IS NULL", builder.column(PARENT, false)));
        }
    }
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
        let at = builder.bind(Value::Int(Some(token.at)));
        let id = builder.bind(Value::text(&token.id));
        shared.push(format!("({order}, id) {sign} ({at}, {id})"));
    }
    let direction = if question.descending { "DESC" } else { "ASC" };
    let tail = format!("ORDER BY {order} {direction}, id {direction} LIMIT {}", question.limit);
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

/// The condition that the statement is driven by.
#[derive(Default)]
struct Driver {
    column: Option<&'static str>,
    /// The condition that `branches` fully express.
    term: Option<usize>,
    /// Conditions of which exactly one holds, as literals: values of closed lists, never a caller's text.
    branches: Vec<String>,
    /// The index that SQLite must use where it would choose another.
    named: Option<&'static str>,
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

fn driver(question: &Question<'_>) -> Driver {
    let terms = question.filter.terms.iter().enumerate();
    let user = question.user.map(|_| {
        let by_user = Driver {
            column: Some("user_id"),
            ..Driver::default()
        };
        (Leaves::User, by_user)
    });
    terms
        .filter_map(|(index, term)| drives(question.table, term, index))
        .chain(user)
        .min_by_key(|(leaves, _)| *leaves)
        .map(|(_, driver)| driver)
        .unwrap_or_default()
}

/// The statement driven by one condition, if an index supports that.
fn drives(table: &'static Table, term: &Term, index: usize) -> Option<(Leaves, Driver)> {
    let column = term.field.sql;
    let driver = Driver {
        column: Some(column),
        term: Some(index),
        ..Driver::default()
    };
    if column == "status"
        && let Some(index) = table.few
    {
        let driver = Driver {
            branches: vec![few(table, term)?],
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
            named: Some(table.slow),
            ..driver
        };
        let leaves = match classes.first() {
            Some(8..) => Leaves::Rare,
            Some(4) => Leaves::Slow,
            _ => Leaves::Much,
        };
        return Some((leaves, driver));
    }
    if !table.indexed.contains(&column) {
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

/// The statuses of ended runs.
fn over() -> impl Iterator<Item = &'static str> {
    RunStatus::ALL
        .iter()
        .filter(|status| status.is_over())
        .map(|status| status.as_str())
}

/// Intents of decisions that called no tool (DESIGN.md section 3).
const WITHOUT_A_TOOL: [&str; 4] = ["respond", "clarify", "refuse", "none"];

/// Minimum seconds of each class in the duration indexes (migration `0003_lists`).
const SLOW_CLASSES_S: [i64; 6] = [1, 2, 4, 8, 16, 32];

/// The classes that cover every row that a duration condition allows, shortest first. `None` if it allows durations
/// that are not in the index.
fn slow_classes(term: &Term) -> Option<Vec<i64>> {
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
fn few(table: &Table, term: &Term) -> Option<String> {
    let chosen = statuses(term)?;
    match table.name {
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
            // A status is never NULL.
            .chain((column != "status").then(|| format!("{column} IS NULL")))
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

    /// A column, marked so that SQLite uses no index for it unless it drives.
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

/// The smallest text after all texts that begin with `prefix`, in byte order; `None` if there is none.
fn after_prefix(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // A range of characters skips the surrogates.
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
    use super::super::super::db::Conn;
    use super::super::super::migrate;
    use super::super::fields::{DECISIONS, RUNS, THREADS, TOOL_INVOCATIONS};
    use super::*;

    fn sql(dialect: Dialect, table: &'static Table, filter: &str) -> String {
        let filter = Filter::parse(table, filter).unwrap();
        let question = Question {
            table,
            tenant: &TenantId::parse("t").unwrap(),
            project: None,
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

    async fn migrated(folder: &tempfile::TempDir) -> Conn {
        let url = format!("sqlite:{}", folder.path().join("plan.db").display());
        let target = Target::parse(&url, None).unwrap();
        target.create().unwrap();
        let mut conn = target.writer().await.unwrap();
        migrate::migrate(&mut conn, migrate::PATIENCE).await.unwrap();
        conn
    }

    /// SQLite's query plan.
    async fn plan(conn: &mut Conn, question: &Question<'_>) -> Vec<String> {
        let (sql, values) = select(Dialect::Sqlite, question);
        let mut plan = Vec::new();
        conn.fetch(&format!("EXPLAIN QUERY PLAN {sql}").into(), values, &mut |row| {
            plan.push(row.text(3)?);
            Ok(ControlFlow::Continue(()))
        })
        .await
        .unwrap();
        plan
    }

    /// Without statistics SQLite uses any suitable index; this test pins its choice.
    #[tokio::test]
    async fn an_index_answers_each_question() {
        let folder = tempfile::tempdir().unwrap();
        let mut conn = migrated(&folder).await;
        let project = ProjectId::parse("p").unwrap();
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
            (&DECISIONS, r#"intent = "delete_task""#, "decision_by_intent"),
            (
                &DECISIONS,
                r#"intent = "add_task" AND outcome_category = "ERROR:*""#,
                "decision_by_outcome",
            ),
            (
                &DECISIONS,
                r#"outcome_category = "SUCCESS:*" AND intent = "add_task""#,
                "decision_by_intent",
            ),
            (&DECISIONS, "duration_ms > 29000", "decision_slow"),
            (&DECISIONS, "duration_ms >= 1000", "decision_slow"),
            (&DECISIONS, "duration_ms > 998", "decision_by_time"),
            (&DECISIONS, "duration_ms < 29000", "decision_by_time"),
            (
                &DECISIONS,
                r#"duration_ms > 29000 AND intent = "add_task""#,
                "decision_slow",
            ),
            (
                &DECISIONS,
                r#"duration_ms > 1500 AND intent = "add_task""#,
                "decision_by_intent",
            ),
            (
                &DECISIONS,
                r#"intent = "respond" AND duration_ms > 5000"#,
                "decision_slow",
            ),
            (&TOOL_INVOCATIONS, "duration_ms = 4321", "tool_slow"),
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
            (&RUNS, "", "agent_run_by_time"),
            (&RUNS, r#"definition_hash = "h""#, "agent_run_by_time"),
            (
                &RUNS,
                r#"agent_id = "a" AND status = "completed""#,
                "agent_run_by_agent",
            ),
            (&RUNS, r#"agent_id = "a" AND status = "running""#, "agent_run_by_status"),
            (&RUNS, r#"status != "completed""#, "agent_run_by_status"),
            (&RUNS, r#"user_id = "ann" AND agent_id = "a""#, "agent_run_by_user"),
            (
                &RUNS,
                r#"parent_run_id = "r" AND user_id = "ann""#,
                "agent_run_by_parent",
            ),
        ] {
            let filter = Filter::parse(table, filter).unwrap();
            let question = Question {
                table,
                tenant: &TenantId::parse("t").unwrap(),
                project: (table.name == RUNS.name).then_some(&project),
                user: None,
                filter: &filter,
                after: None,
                descending: true,
                limit: 51,
            };
            let plan = plan(&mut conn, &question).await;
            let searches: Vec<_> = plan.iter().filter(|step| step.contains(table.name)).collect();
            assert!(!searches.is_empty(), "{plan:?}");
            for step in searches {
                assert!(step.starts_with("SEARCH") && step.contains(index), "{plan:?}");
            }
        }
        conn.close().await;
    }

    /// A list of threads reads one page of them, and one or two index rows for each.
    #[tokio::test]
    async fn an_index_answers_the_list_of_threads() {
        let folder = tempfile::tempdir().unwrap();
        let mut conn = migrated(&folder).await;
        let filter = Filter::parse(&THREADS, "").unwrap();
        let (tenant, user) = (TenantId::parse("t").unwrap(), UserId::parse("ann").unwrap());
        for (user, index) in [(Some(&user), "thread_by_user"), (None, "thread_by_activity")] {
            let question = Question {
                table: &THREADS,
                tenant: &tenant,
                project: None,
                user,
                filter: &filter,
                after: None,
                descending: true,
                limit: 51,
            };
            let plan = plan(&mut conn, &question).await;
            assert!(
                plan[0].starts_with("SEARCH thread ") && plan[0].contains(index),
                "{plan:?}"
            );
            for step in plan.iter().filter(|step| !step.starts_with("CORRELATED")) {
                assert!(step.starts_with("SEARCH"), "{plan:?}");
            }
        }
        conn.close().await;
    }

    #[test]
    fn the_classes_of_a_duration_hold_every_row_it_allows() {
        let classes = |filter: &str| slow_classes(&Filter::parse(&DECISIONS, filter).unwrap().terms[0]);
        for (filter, expected) in [
            ("duration_ms > 999", Some(vec![1, 2, 4, 8, 16, 32])),
            ("duration_ms >= 1000", Some(vec![1, 2, 4, 8, 16, 32])),
            ("duration_ms >= 999", None),
            ("duration_ms > 1998", Some(vec![1, 2, 4, 8, 16, 32])),
            ("duration_ms > 1999", Some(vec![2, 4, 8, 16, 32])),
            ("duration_ms = 31999", Some(vec![16])),
            ("duration_ms = 32000", Some(vec![32])),
            ("duration_ms > 9223372036854775807", Some(vec![32])),
            ("duration_ms = 5", None),
            ("duration_ms != 5000", None),
            ("duration_ms <= 5000", None),
        ] {
            assert_eq!(classes(filter), expected, "{filter}");
        }
    }

    #[test]
    fn a_prefix_ends_before_the_next_text_of_its_length() {
        assert_eq!(after_prefix("ab"), Some("ac".to_owned()));
        assert_eq!(after_prefix("a\u{10ffff}"), Some("b".to_owned()));
        assert_eq!(after_prefix("\u{d7ff}"), Some("\u{e000}".to_owned()));
        assert_eq!(after_prefix(""), None);
    }
}
