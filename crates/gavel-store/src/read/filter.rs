//! The filter language, a subset of AIP-160: `field op value [AND field op value …]`.
//!
//! Operators are `=`, `!=` and, for numbers and times, `<`, `<=`, `>`, `>=`. Strings are in double quotes with `\"`,
//! `\\` and `\*` as escapes; a string that ends in `*` is a prefix. Numbers and `true`, `false` have no quotes. A row
//! that lacks the field (an open decision has no outcome) matches only `!=`.
//!
//! Each list says how it is called and ordered, and which indexes it has.

use std::sync::LazyLock;

use chrono::DateTime;

use super::super::actions::{ACTION, GRANT, THREAD};
use super::super::decisions::{CALL, DECISION};
use super::super::planning::SESSION;
use super::super::runs::RUN;
pub(super) use super::super::table::Field;
use super::super::table::Table;
use crate::api::approvals::{ApprovalPage, GrantPage};
use crate::api::decisions::{DecisionPage, ToolInvocationPage};
pub(super) use crate::api::filter::Kind;
use crate::api::filter::{self, Listed};
use crate::api::planning::PlanningSessionPage;
use crate::api::runs::RunPage;
use crate::api::threads::ThreadPage;
use crate::domain::action::ActionStatus;
use crate::ports::records::QueryError;

/// Maximum length of a filter, in bytes.
const MAX_LENGTH: usize = 4096;
/// Maximum number of conditions.
const MAX_TERMS: usize = 32;

/// Conditions that must all hold.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pub(super) terms: Vec<Term>,
}

/// One condition.
pub(super) struct Term {
    pub(super) field: &'static Field,
    pub(super) op: Op,
    pub(super) value: Literal,
}

/// How to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Op {
    pub(super) fn as_sql(self) -> &'static str {
        match self {
            Self::Eq => "=",
            Self::Ne => "<>",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
        }
    }
}

/// What to compare with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    Exact(String),
    Prefix(String),
    /// One of these values of a closed list.
    OneOf(Vec<&'static str>),
    Int(i64),
    Bool(bool),
}

impl std::fmt::Debug for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {:?}", self.field.name, self.op, self.value)
    }
}

impl Term {
    /// `field` must be one of the table's.
    pub(super) fn eq(list: &'static List, field: &'static str, value: Literal) -> Self {
        let found = list.fields.iter().find(|known| known.name == field);
        Self {
            field: found.unwrap_or_else(|| unreachable!("{} has the field {field}", list.name)),
            op: Op::Eq,
            value,
        }
    }
}

impl Filter {
    /// Parses a filter; an empty filter matches every row.
    pub(super) fn parse(list: &'static List, text: &str) -> Result<Self, QueryError> {
        if text.len() > MAX_LENGTH {
            return Err(QueryError::Invalid {
                field: "filter",
                detail: format!("has {} bytes; at most {MAX_LENGTH} are allowed", text.len()),
            });
        }
        let mut parser = Parser { text, at: 0 };
        let mut filter = Self::default();
        parser.skip_space();
        if parser.rest().is_empty() {
            return Ok(filter);
        }
        loop {
            filter.terms.push(parser.term(list)?);
            if filter.terms.len() > MAX_TERMS {
                return Err(parser.error(parser.at, format!("at most {MAX_TERMS} conditions are allowed")));
            }
            parser.skip_space();
            if parser.rest().is_empty() {
                return Ok(filter);
            }
            parser.and()?;
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Byte offset.
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// Letters, digits, `_`, `-` and `.` from here.
    fn word(&self) -> &str {
        let end = self
            .rest()
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')));
        &self.rest()[..end.unwrap_or(self.rest().len())]
    }

    fn error(&self, at: usize, detail: impl std::fmt::Display) -> QueryError {
        let position = self.text[..at].chars().count() + 1;
        QueryError::Invalid {
            field: "filter",
            detail: format!("at character {position}: {detail}"),
        }
    }

    /// The text at `at`, for an error message.
    fn found(&self, at: usize) -> String {
        let rest = &self.text[at..];
        match rest.chars().next() {
            None => "the end".to_owned(),
            Some(_) => format!("{:?}", rest.chars().take(20).collect::<String>()),
        }
    }

    fn and(&mut self) -> Result<(), QueryError> {
        if self.word() != "AND" {
            return Err(self.error(
                self.at,
                format!("found {}; conditions can only be joined by AND", self.found(self.at)),
            ));
        }
        self.at += 3;
        self.skip_space();
        Ok(())
    }

    fn term(&mut self, list: &'static List) -> Result<Term, QueryError> {
        let start = self.at;
        let name = self.word();
        let Some(field) = list.fields.iter().find(|field| field.name == name) else {
            let allowed: Vec<_> = list.fields.iter().map(|field| field.name).collect();
            return Err(self.error(
                start,
                format!("found {}; allowed fields are {}", self.found(start), allowed.join(", ")),
            ));
        };
        self.at += name.len();
        self.skip_space();
        let op = self.op(field)?;
        self.skip_space();
        let value = self.value(field)?;
        Ok(Term { field, op, value })
    }

    fn op(&mut self, field: &Field) -> Result<Op, QueryError> {
        const OPS: [(&str, Op); 6] = [
            ("!=", Op::Ne),
            ("<=", Op::Le),
            (">=", Op::Ge),
            ("=", Op::Eq),
            ("<", Op::Lt),
            (">", Op::Gt),
        ];
        let ordered = matches!(field.kind, Kind::Number | Kind::Duration | Kind::Time);
        let found = OPS.into_iter().find(|(text, _)| self.rest().starts_with(text));
        match found {
            Some((text, op)) if ordered || matches!(op, Op::Eq | Op::Ne) => {
                self.at += text.len();
                Ok(op)
            }
            _ => {
                let allowed = if ordered { "=, !=, <, <=, >, >=" } else { "=, !=" };
                let found = self.found(self.at);
                Err(self.error(
                    self.at,
                    format!("found {found}; operators of {} are {allowed}", field.name),
                ))
            }
        }
    }

    fn value(&mut self, field: &Field) -> Result<Literal, QueryError> {
        let start = self.at;
        let name = field.name;
        match field.kind {
            Kind::Text => self.string(name).map(|(text, prefix)| {
                if prefix {
                    Literal::Prefix(text)
                } else {
                    Literal::Exact(text)
                }
            }),
            Kind::Names(values) => {
                let (text, prefix) = self.string(name)?;
                let known = values();
                let matches = |value: &&str| {
                    if prefix {
                        value.starts_with(&text)
                    } else {
                        **value == text
                    }
                };
                let chosen: Vec<_> = known.iter().copied().filter(|value| matches(value)).collect();
                if chosen.is_empty() {
                    let found = self.text[start..self.at].to_owned();
                    return Err(self.error(start, format!("found {found}; {name} is one of {}", known.join(", "))));
                }
                Ok(Literal::OneOf(chosen))
            }
            Kind::Time => {
                let (text, prefix) = self.string(name)?;
                match DateTime::parse_from_rfc3339(&text) {
                    Ok(time) if !prefix => Ok(Literal::Int(time.timestamp_micros())),
                    _ => Err(self.error(
                        start,
                        format!("found {text:?}; {name} is compared with a time like \"2026-11-20T00:00:00Z\""),
                    )),
                }
            }
            Kind::Number | Kind::Duration => {
                let word = self.word().to_owned();
                let Ok(number) = word.parse() else {
                    let found = self.found(start);
                    return Err(self.error(
                        start,
                        format!("found {found}; {name} is compared with a whole number, without quotes"),
                    ));
                };
                self.at += word.len();
                Ok(Literal::Int(number))
            }
            Kind::Success => {
                let word = self.word().to_owned();
                let Ok(yes) = word.parse() else {
                    let found = self.found(start);
                    return Err(self.error(start, format!("found {found}; {name} is true or false, without quotes")));
                };
                self.at += word.len();
                Ok(Literal::Bool(yes))
            }
        }
    }

    /// A quoted string, unescaped. The flag is true if the string ends in an unescaped `*`, which is removed.
    fn string(&mut self, name: &str) -> Result<(String, bool), QueryError> {
        let start = self.at;
        let Some(body) = self.rest().strip_prefix('"') else {
            let found = self.found(start);
            return Err(self.error(
                start,
                format!("found {found}; {name} is compared with a string in double quotes"),
            ));
        };
        let (mut text, mut prefix) = (String::new(), false);
        let mut chars = body.char_indices();
        while let Some((offset, c)) = chars.next() {
            let at = start + 1 + offset;
            match c {
                '"' => {
                    self.at = at + 1;
                    return Ok((text, prefix));
                }
                _ if prefix => {
                    return Err(self.error(
                        at - 1,
                        "found \"*\" inside a string; it is allowed only at the end, and \\* is a literal asterisk",
                    ));
                }
                '*' => prefix = true,
                '\\' => match chars.next() {
                    Some((_, escaped @ ('"' | '\\' | '*'))) => text.push(escaped),
                    _ => return Err(self.error(at, "found an incomplete escape \\; allowed are \\\", \\\\ and \\*")),
                },
                _ => text.push(c),
            }
        }
        Err(self.error(start, "the string has no closing double quote"))
    }
}

/// A table that can be listed.
pub(super) struct List {
    /// Its name in SQL.
    pub(super) name: &'static str,
    /// The time column that its lists are ordered by; `id` breaks ties.
    pub(super) order: &'static str,
    /// The order of a list for which the caller asks none.
    pub(super) newest_first: bool,
    /// What is read.
    pub(super) columns: String,
    /// The fields that a filter can use.
    pub(super) fields: Vec<Field>,
    /// Columns that an index begins with, after the tenant (and, for runs, the project).
    pub(super) indexed: &'static [&'static str],
    /// The partial index of rows that are open or did not complete; `None` if one index covers all states.
    pub(super) few: Option<&'static str>,
    /// The partial index of long durations, by class.
    pub(super) slow: &'static str,
}

/// A list of a table whose pages are `P`, newest first.
fn list<P: Listed, O, C>(table: &Table<O, C>, columns: String, indexed: &'static [&'static str]) -> List {
    List {
        name: table.name,
        order: "created_at",
        newest_first: true,
        columns,
        fields: table.fields(P::FILTERS),
        indexed,
        few: None,
        slow: "",
    }
}

pub(super) static DECISIONS: LazyLock<List> = LazyLock::new(|| List {
    few: Some("decision_open"),
    slow: "decision_slow",
    ..list::<DecisionPage, _, _>(
        &DECISION,
        DECISION.selected(),
        &[
            "conversation_id",
            "user_id",
            "outcome_category",
            "decision_type",
            "intent",
        ],
    )
});

pub(super) static TOOL_INVOCATIONS: LazyLock<List> = LazyLock::new(|| List {
    few: Some("tool_unsuccessful"),
    slow: "tool_slow",
    ..list::<ToolInvocationPage, _, _>(&CALL, CALL.selected(), &["decision_id", "user_id", "tool"])
});

pub(super) static RUNS: LazyLock<List> =
    LazyLock::new(|| list::<RunPage, _, _>(&RUN, RUN.selected(), &[PARENT, "user_id", "agent_id", "status"]));

/// Oldest first.
pub(super) static ACTIONS: LazyLock<List> = LazyLock::new(|| List {
    newest_first: false,
    // Each list of actions is of those in a state, which no filter repeats.
    fields: ACTION.fields(
        ApprovalPage::FILTERS
            .iter()
            .chain(&[filter::Filter("status", Kind::Names(filter::names::<ActionStatus>))]),
    ),
    ..list::<ApprovalPage, _, _>(&ACTION, ACTION.selected(), &["user_id", "status"])
});

pub(super) static GRANTS: LazyLock<List> =
    LazyLock::new(|| list::<GrantPage, _, _>(&GRANT, GRANT.selected_in_camel_case(), &["user_id"]));

/// Most recently active first.
pub(super) static THREADS: LazyLock<List> = LazyLock::new(|| List {
    order: "updated_at",
    ..list::<ThreadPage, _, _>(&THREAD, THREAD.selected_in_camel_case(), &["user_id"])
});

pub(super) static PLANNING_SESSIONS: LazyLock<List> =
    LazyLock::new(|| list::<PlanningSessionPage, _, _>(&SESSION, SESSION.selected(), &["user_id", "status"]));

/// The run that called another. Lists without a condition on it show only outermost runs.
pub(super) const PARENT: &str = "parent_run_id";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
