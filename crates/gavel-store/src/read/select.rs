//! Builds one statement for a query, such that an index returns its rows in order.
//!
//! The most selective condition *drives*; the others only filter. For a closed list there is one branch per value, each
//! with its own limit. So `ERROR:*` reads a page from each of its outcomes and never sorts a table. For a long duration
//! there is one branch per class of durations. SQLite has no statistics, so a unary `+` excludes the other columns from
//! its choice of an index. PostgreSQL chooses by itself.

mod driver;

use std::fmt::Write;

use self::driver::driver;
use super::super::db::{Dialect, Value};
use super::fields::{List, PARENT};
use super::filter::{Filter, Literal, Op, Term};
use super::token::{AT, ID, Token};
use crate::domain::ids::{ProjectId, TenantId, UserId};

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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
