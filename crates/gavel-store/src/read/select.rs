//! Builds one statement for a query, such that an index returns its rows in order.
//!
//! The most selective condition *drives*; the others only filter. For a closed list there is one branch per value, each
//! with its own limit. So `ERROR:*` reads a page from each of its outcomes and never sorts a table. For a long duration
//! there is one branch per class of durations. SQLite does not know how often a value occurs, so a unary `+` excludes
//! the other columns from its choice of an index. PostgreSQL chooses by itself.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::super::db::row::{Cell, Row};
use super::filter::{Field, Filter, Index, List, Literal, Op, SLOW, Term};
use crate::db::{Dialect, Value};
use crate::ports::records::QueryError;

/// The query.
pub(super) struct Question<'a> {
    pub(super) list: &'static List,
    /// What is read.
    pub(super) columns: &'a str,
    pub(super) filters: &'a [Filter],
    pub(super) after: Option<&'a Token>,
    pub(super) order: Order,
    pub(super) limit: usize,
}

/// The order of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// A number that comes before the list's own time. Rows without it are left out.
    pub(super) by: Option<Field>,
    pub(super) descending: bool,
}

/// The statement and its values.
pub(super) fn select(dialect: Dialect, question: &Question<'_>) -> (String, Vec<Value>) {
    let (index, term, branches) = match driver(question.list, question.filters) {
        Some((index, term, branches)) => (Some(index), Some(term), branches),
        None => (None, None, Vec::new()),
    };
    let mut builder = Builder {
        index,
        ..Builder::new(dialect)
    };
    // Classes of durations are wider than the condition.
    let is_in_branches = |one: &Filter| match one {
        Filter::Is(one) => term.is_some_and(|term| std::ptr::eq(term, one)) && matches!(one.value, Literal::OneOf(_)),
        _ => false,
    };
    let shared = question.filters.iter().filter(|filter| !is_in_branches(filter));
    let mut shared: Vec<_> = shared.map(|filter| builder.filter(filter)).collect();
    let List { name, order, .. } = question.list;
    let columns = question.columns;
    let direction = if question.order.descending { "DESC" } else { "ASC" };
    let by = question.order.by.map(|field| field.sql);
    let tail = |by: Option<&str>, at: &str, id: &str| {
        let by = by.map(|by| format!("{by} {direction}, ")).unwrap_or_default();
        format!(
            "ORDER BY {by}{at} {direction}, {id} {direction} LIMIT {}",
            question.limit
        )
    };
    // Where the next page begins, under names that no answer has.
    let mut place = format!("{order} AS \"{AT}\", id AS \"{ID}\"");
    if let Some(by) = by {
        let _ = write!(place, ", {by} AS \"{BY}\"");
        shared.push(format!("{by} IS NOT NULL"));
    }
    if let Some(token) = question.after {
        let sign = if question.order.descending { "<" } else { ">" };
        let mut columns = vec![order, "id"];
        let mut last = vec![builder.bind(token.at.into()), builder.bind(Value::text(&token.id))];
        if let Some((column, by)) = by.zip(token.by) {
            columns.insert(0, column);
            last.insert(0, builder.bind(by.into()));
        }
        shared.push(format!("({}) {sign} ({})", columns.join(", "), last.join(", ")));
    }
    let from = match index.and_then(|Index(.., partial)| *partial) {
        Some((index, _)) if dialect == Dialect::Sqlite => format!("{name} INDEXED BY {index}"),
        _ => (*name).to_owned(),
    };
    let common = format!("SELECT {columns}, {place} FROM {from} WHERE {}", shared.join(" AND "));
    let own = tail(by, order, "id");
    let sql = match branches.as_slice() {
        [] => format!("{common} {own}"),
        [one] => format!("{common} AND {one} {own}"),
        many => {
            let branch = |(n, branch)| format!("SELECT * FROM ({common} AND {branch} {own}) AS b{n}");
            let branches: Vec<_> = many.iter().enumerate().map(branch).collect();
            let all = branches.join(" UNION ALL ");
            format!("SELECT * FROM ({all}) AS branches {}", tail(by.map(|_| BY), AT, ID))
        }
    };
    (sql, builder.values)
}

fn quoted(values: &[&'static str]) -> String {
    let values: Vec<_> = values.iter().map(|value| format!("'{value}'")).collect();
    values.join(", ")
}

/// Writes conditions, and keeps the values of their parameters.
pub(super) struct Builder {
    dialect: Dialect,
    /// The one that drives.
    index: Option<&'static Index>,
    pub(super) values: Vec<Value>,
}

impl Builder {
    /// The database chooses its indexes.
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            index: None,
            values: Vec::new(),
        }
    }

    pub(super) fn bind(&mut self, value: Value) -> String {
        self.values.push(value);
        format!("${}", self.values.len())
    }

    /// A column, marked so that SQLite uses no index for it unless it drives.
    fn column(&self, sql: &'static str) -> String {
        let is_of_index = |index: &Index| match sql {
            "created_at" => true,
            // Every index begins with them, but the primary keys.
            "tenant" | "project_id" => !matches!(index.0, "id" | "decision_id"),
            _ => index.0 == sql,
        };
        match self.dialect == Dialect::Postgres || self.index.is_none_or(is_of_index) {
            true => sql.to_owned(),
            false => format!("+{sql}"),
        }
    }

    pub(super) fn filter(&mut self, filter: &Filter) -> String {
        let mut joined = |of: &[Filter], by| {
            let all: Vec<_> = of.iter().map(|one| self.filter(one)).collect();
            format!("({})", all.join(by))
        };
        match filter {
            Filter::Is(term) => self.condition(term),
            Filter::All(of) => joined(of, " AND "),
            Filter::Any(of) => joined(of, " OR "),
            // What cannot be compared does not hold, so its opposite does.
            Filter::Not(of) => format!("NOT COALESCE({}, FALSE)", self.filter(of)),
            Filter::Call(of) => {
                // Inside, a name is a column of the call. Its index is the one by decision.
                let index = self.index.take();
                let all: Vec<_> = of.iter().map(|one| self.filter(one)).collect();
                self.index = index;
                format!(
                    "EXISTS (SELECT 1 FROM tool_invocation_log call WHERE call.decision_id = decision_log.id AND {})",
                    all.join(" AND ")
                )
            }
        }
    }

    fn condition(&mut self, term: &Term) -> String {
        let column = self.column(term.field.sql);
        let condition = match &term.value {
            Literal::Exact(text) if term.op == Op::Has => {
                let escaped = text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
                let like = if self.dialect == Dialect::Sqlite {
                    "LIKE"
                } else {
                    "ILIKE"
                };
                format!(
                    "{column} {like} {} ESCAPE '\\'",
                    self.bind(Value::text(&format!("%{escaped}%")))
                )
            }
            Literal::Exact(text) => format!("{column} = {}", self.bind(Value::text(text))),
            Literal::Int(number) => format!("{column} {} {}", term.op.as_sql(), self.bind((*number).into())),
            Literal::Prefix(prefix) => {
                let mut condition = format!("{column} >= {}", self.bind(Value::text(prefix)));
                if let Some(end) = after_prefix(prefix) {
                    let place = self.bind(Value::text(&end));
                    // Writing to a String cannot fail.
                    let _ = write!(condition, " AND {column} < {place}");
                }
                condition
            }
            Literal::OneOf(values) => format!("{column} IN ({})", quoted(values)),
            Literal::Bool(yes) => format!("{column} = {}", self.bind((*yes).into())),
            Literal::Null => format!("{column} IS NULL"),
        };
        match term.op {
            Op::Ne if term.value == Literal::Null => format!("{column} IS NOT NULL"),
            Op::Ne => format!("({column} IS NULL OR NOT ({condition}))"),
            _ => condition,
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

/// The index and the condition that drive a statement, and the branches of which exactly one holds, as literals: values of
/// closed lists, never a caller's text. What most rows meet drives only if nothing else does.
fn driver<'t>(list: &'static List, filters: &'t [Filter]) -> Option<(&'static Index, &'t Term, Vec<String>)> {
    let terms = filters.iter().filter_map(|filter| match filter {
        Filter::Is(term) => Some(term),
        _ => None,
    });
    [false, true].into_iter().find_map(|common_too| {
        let mut tried = list
            .indexed
            .iter()
            .flat_map(|index| terms.clone().map(move |term| (index, term)));
        tried.find_map(|(index, term)| Some((index, term, branches(index, term, common_too)?)))
    })
}

/// The branches of a statement that this index drives for this condition; `None` if it does not support it, or only for
/// `common_too` values.
fn branches(index: &Index, term: &Term, common_too: bool) -> Option<Vec<String>> {
    let Index(column, common, partial) = *index;
    if term.field.sql != column {
        return None;
    }
    let is_common = |value: &&str| common.contains(value) && !(common_too && partial.is_none());
    match (&term.value, term.op) {
        (Literal::Exact(text), Op::Eq) => (!is_common(&text.as_str())).then(Vec::new),
        (Literal::Int(_), _) => {
            let classes = slow_classes(term)?;
            let is_rare = common_too || classes.first().is_none_or(|class| *class >= RARELY_S);
            is_rare.then(|| classes.into_iter().map(slow).collect())
        }
        (Literal::OneOf(chosen), op) => {
            let mut values = chosen.clone();
            if op == Op::Ne {
                let known = term.field.known().iter().copied();
                values = known.filter(|value| !chosen.contains(value)).collect();
            }
            if values.iter().any(is_common) {
                return None;
            }
            if let Some((_, condition)) = partial {
                // The index's own condition, spelled as in its definition.
                return (!values.is_empty())
                    .then(|| vec![format!("{condition} AND {column} IN ({})", quoted(&values))]);
            }
            // A status is never NULL.
            let may_be_null = op == Op::Ne && column != "status";
            let is = values.iter().map(|value| format!("{column} = '{value}'"));
            Some(is.chain(may_be_null.then(|| format!("{column} IS NULL"))).collect())
        }
        _ => None,
    }
}

/// Minimum seconds of each class in the duration indexes (migration `0003_lists`).
const SLOW_CLASSES_S: [i64; 6] = [1, 2, 4, 8, 16, 32];

/// Most decisions are quicker.
const RARELY_S: i64 = 8;

/// The classes that cover every row that a duration condition allows, shortest first. `None` if it allows durations
/// that are not in the index.
fn slow_classes(term: &Term) -> Option<Vec<i64>> {
    let Literal::Int(ms) = term.value else { return None };
    let (least_ms, most_ms) = match term.op {
        Op::Gt => (ms.saturating_add(1), i64::MAX),
        Op::Ge => (ms, i64::MAX),
        Op::Eq => (ms, ms),
        Op::Ne | Op::Lt | Op::Le | Op::Has => return None,
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
    format!("{SLOW} AND (CASE{cases} ELSE {last} END) = {class}")
}

/// The columns that it is read from.
const AT: &str = "page_at";
const ID: &str = "page_id";
/// The number that a page is ordered by.
const BY: &str = "page_by";

/// The last row of a page.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Token {
    /// The number that the page is ordered by.
    by: Option<i64>,
    pub(super) at: i64,
    pub(super) id: String,
}

/// A hash of everything that must be the same on the next page; the page size may differ.
pub(super) fn fingerprint(list: &List, filters: &[Filter], order: Order) -> String {
    let by = order.by.map_or("", |by| by.name);
    let asked = format!("{} {} {by} {filters:?}", list.name, order.descending);
    let mut hash = hex::encode(Sha256::digest(asked));
    hash.truncate(16);
    hash
}

impl Token {
    /// From the columns [`BY`], [`AT`] and [`ID`].
    pub(super) fn of_row(row: &Row) -> Result<Self, sqlx::Error> {
        let by = match row.peek(BY) {
            Some(Cell::Int(by)) => Some(*by),
            _ => None,
        };
        match (row.peek(AT), row.peek(ID)) {
            (Some(Cell::Int(at)), Some(Cell::Text(id))) => Ok(Self {
                by,
                at: *at,
                id: id.clone(),
            }),
            _ => Err(sqlx::Error::ColumnNotFound(AT.to_owned())),
        }
    }

    pub(super) fn write(&self, fingerprint: &str) -> String {
        let json = serde_json::to_vec(&(fingerprint, self));
        URL_SAFE_NO_PAD.encode(json.unwrap_or_else(|error| unreachable!("a token prints as JSON: {error}")))
    }

    /// Parses a token that [`Token::write`] wrote for the same query.
    pub(super) fn read(text: &str, fingerprint: &str) -> Result<Self, QueryError> {
        let json = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
        let detail = match serde_json::from_slice::<(String, Self)>(&json) {
            Ok((of, token)) if of == fingerprint => return Ok(token),
            Ok(_) => "belongs to another query; filter, order_by and user must be those of the previous page",
            Err(_) => "is not a page token of this API; use next_page_token of the previous page",
        };
        Err(QueryError::Invalid {
            field: "page_token",
            detail: detail.to_owned(),
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
            by: Some(7),
            at: -5,
            id: "id".to_owned(),
        };
        let text = token.write("7");
        assert_eq!(Token::read(&text, "7").unwrap(), token);
        assert!(Token::read(&text, "8").is_err());
        assert!(Token::read("", "7").is_err());
        assert!(Token::read("%%%", "7").is_err());
    }
}
