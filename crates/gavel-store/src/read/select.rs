//! Builds one statement for a query, such that an index returns its rows in order.
//!
//! The most selective condition *drives*; the others only filter. For a closed list there is one branch per value, each
//! with its own limit. So `ERROR:*` reads a page from each of its outcomes and never sorts a table. For a long duration
//! there is one branch per class of durations. SQLite has no statistics, so a unary `+` excludes the other columns from
//! its choice of an index. PostgreSQL chooses by itself.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::super::db::row::{Cell, Row};
use super::filter::{Filter, Kind, List, Literal, Op, PARENT, Term};
use crate::api::decisions::CallStatus;
use crate::api::filter::names;
use crate::db::{Dialect, Value};
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{ProjectId, TenantId, UserId};
use crate::domain::planning_session::SessionStatus;
use crate::ports::records::{ListQuery, QueryError};

/// The query.
pub(super) struct Question<'a> {
    pub(super) list: &'static List,
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
    let List {
        name, order, columns, ..
    } = question.list;
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
    let tail = |at: &str, id: &str| format!("ORDER BY {at} {direction}, {id} {direction} LIMIT {}", question.limit);
    // Where the next page begins, under names that no answer has.
    let place = format!("{order} AS \"{AT}\", id AS \"{ID}\"");
    let from = match driver.named {
        Some(index) if dialect == Dialect::Sqlite => format!("{name} INDEXED BY {index}"),
        _ => (*name).to_owned(),
    };
    let common = format!("SELECT {columns}, {place} FROM {from} WHERE {}", shared.join(" AND "));
    let own = tail(order, "id");
    let sql = match driver.branches.as_slice() {
        [] => format!("{common} {own}"),
        [one] => format!("{common} AND {one} {own}"),
        many => {
            let branches: Vec<_> = many
                .iter()
                .enumerate()
                .map(|(n, branch)| format!("SELECT * FROM ({common} AND {branch} {own}) AS b{n}"))
                .collect();
            format!(
                "SELECT * FROM ({}) AS branches {}",
                branches.join(" UNION ALL "),
                tail(AT, ID)
            )
        }
    };
    (sql, builder.values)
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

// Chooses the condition that drives a statement, and its branches.

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
    let chosen: Vec<_> = match &term.value {
        Literal::OneOf(values) => values.clone(),
        Literal::Bool(true) => vec![CallStatus::Completed.as_str()],
        Literal::Bool(false) => {
            let others = names::<CallStatus>().into_iter();
            others
                .filter(|status| *status != CallStatus::Completed.as_str())
                .collect()
        }
        _ => return None,
    };
    let known = match term.field.kind {
        Kind::Names(values) => values(),
        _ => names::<CallStatus>(),
    };
    let is_allowed = |status: &&str| chosen.contains(status) == (term.op == Op::Eq);
    Some(known.into_iter().filter(is_allowed).collect())
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

/// The columns that it is read from.
pub(super) const AT: &str = "page_at";
pub(super) const ID: &str = "page_id";

/// The last row of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) at: i64,
    pub(super) id: String,
}

/// A hash of everything that must be the same on the next page; the page size may differ.
pub(super) fn fingerprint(
    table: &str,
    (tenant, project): (&TenantId, Option<&ProjectId>),
    query: &ListQuery,
    terms: &[Term],
    descending: bool,
) -> [u8; 8] {
    let user = query.user.as_ref().map_or("", |user| user.as_str());
    let project = project.map_or("", ProjectId::as_str);
    let filter = query.filter.as_deref().unwrap_or_default().trim();
    let direction = if descending { "desc" } else { "asc" };
    let mut hash = Sha256::new();
    for part in [table, tenant.as_str(), project, user, direction, filter] {
        hash.update(part.len().to_be_bytes());
        hash.update(part.as_bytes());
    }
    for term in terms {
        hash.update(format!("{term:?}"));
    }
    let mut short = [0; 8];
    short.copy_from_slice(&hash.finalize()[..8]);
    short
}

impl Token {
    /// From the columns [`AT`] and [`ID`].
    pub(super) fn of_row(row: &Row) -> Result<Self, sqlx::Error> {
        match (row.peek(AT), row.peek(ID)) {
            (Some(Cell::Int(at)), Some(Cell::Text(id))) => Ok(Self {
                at: *at,
                id: id.clone(),
            }),
            _ => Err(sqlx::Error::ColumnNotFound(AT.to_owned())),
        }
    }

    /// Base64url of fingerprint (8 bytes), time (8, big endian) and id (16).
    pub(super) fn write(&self, fingerprint: [u8; 8]) -> String {
        let mut bytes = Vec::with_capacity(32);
        bytes.extend(fingerprint);
        bytes.extend(self.at.to_be_bytes());
        // Row ids are made by gavel and are UUIDs. Any other id would restart the list; it would not leak data.
        bytes.extend(Uuid::try_parse(&self.id).unwrap_or_default().into_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Parses a token that [`Token::write`] wrote for the same query.
    pub(super) fn read(text: &str, fingerprint: [u8; 8]) -> Result<Self, QueryError> {
        let invalid = |detail: &str| QueryError::Invalid {
            field: "page_token",
            detail: detail.to_owned(),
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
        let Ok(bytes) = <[u8; 32]>::try_from(bytes) else {
            return Err(invalid(
                "is not a page token of this API; use next_page_token of the previous page",
            ));
        };
        let (head, rest) = bytes.split_at(8);
        if head != fingerprint {
            return Err(invalid(
                "belongs to another query; filter, order_by and user must be those of the previous page",
            ));
        }
        let (time, id) = rest.split_at(8);
        let (Ok(time), Ok(id)) = (time.try_into(), id.try_into()) else {
            unreachable!("32 bytes are 8, 8 and 16");
        };
        Ok(Self {
            at: i64::from_be_bytes(time),
            id: Uuid::from_bytes(id).to_string(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod token_tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_is_refused_for_another_question() {
        let token = Token {
            at: -5,
            id: Uuid::now_v7().to_string(),
        };
        let text = token.write([7; 8]);
        assert_eq!(Token::read(&text, [7; 8]).unwrap(), token);
        assert!(Token::read(&text, [8; 8]).is_err());
        assert!(Token::read("", [7; 8]).is_err());
        assert!(Token::read("%%%", [7; 8]).is_err());
    }
}
