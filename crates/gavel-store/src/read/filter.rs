//! The filter language, a subset of AIP-160: `field op value [AND field op value …]`.
//!
//! Operators are `=`, `!=` and, for numbers and times, `<`, `<=`, `>`, `>=`. Strings are in double quotes with `\"`,
//! `\\` and `\*` as escapes; a string that ends in `*` is a prefix. Numbers and `true`, `false` have no quotes. A row
//! that lacks the field (an open decision has no outcome) matches only `!=`.
//!
//! Each list says how it is called and ordered, and which indexes it has.

use std::str::FromStr;
use std::sync::LazyLock;

use chrono::DateTime;

use super::super::actions::{ACTION, GRANT, THREAD};
use super::super::decisions::{CALL, DECISION};
use super::super::definitions::LISTED;
use super::super::planning::SESSION;
use super::super::runs::RUN;
pub(crate) use super::super::table::Field;
use super::super::table::Table;
use crate::api::approvals::{ApprovalPage, GrantPage};
use crate::api::decisions::{CallStatus, DecisionPage, ToolInvocationPage};
pub(crate) use crate::api::filter::Kind;
use crate::api::filter::{self, Listed};
use crate::api::planning::PlanningSessionPage;
use crate::api::runs::RunPage;
use crate::api::threads::ThreadPage;
use crate::domain::decision::Outcome;
use crate::ports::records::QueryError;

/// Maximum length of a filter, in bytes.
const MAX_LENGTH: usize = 4096;
/// Maximum number of conditions.
const MAX_TERMS: usize = 32;

/// One condition.
pub(crate) struct Term {
    pub(crate) field: Field,
    pub(crate) op: Op,
    pub(crate) value: Literal,
}

/// How to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Op {
    /// Of [`Op::Ne`] that of its opposite.
    pub(crate) fn as_sql(self) -> &'static str {
        match self {
            Self::Eq | Self::Ne => "=",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
        }
    }
}

/// What to compare with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Literal {
    Exact(String),
    Prefix(String),
    /// One of these values of a closed list.
    OneOf(Vec<&'static str>),
    Int(i64),
    Null,
}

impl std::fmt::Debug for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {:?}", self.field.name, self.op, self.value)
    }
}

impl Term {
    /// A condition that is no part of the caller's filter.
    pub(crate) fn fixed(column: &'static str, value: Literal) -> Self {
        let field = Field {
            name: column,
            sql: column,
            kind: Kind::Text,
        };
        Self {
            field,
            op: Op::Eq,
            value,
        }
    }
}

impl Field {
    /// The values of its closed list.
    pub(crate) fn known(&self) -> Vec<&'static str> {
        match self.kind {
            Kind::Names(known) => known(),
            _ => filter::names::<CallStatus>(),
        }
    }
}

/// Parses a filter into conditions that must all hold; an empty filter matches every row.
pub(crate) fn parse(list: &'static List, text: &str) -> Result<Vec<Term>, QueryError> {
    if text.len() > MAX_LENGTH {
        return Err(QueryError::Invalid {
            field: "filter",
            detail: format!("has {} bytes; at most {MAX_LENGTH} are allowed", text.len()),
        });
    }
    let mut parser = Parser { text, at: 0 };
    let mut terms = Vec::new();
    parser.skip_space();
    while !parser.rest().is_empty() {
        if !terms.is_empty() {
            parser.and()?;
        }
        terms.push(parser.term(list)?);
        if terms.len() > MAX_TERMS {
            return Err(parser.error(parser.at, format!("at most {MAX_TERMS} conditions are allowed")));
        }
        parser.skip_space();
    }
    Ok(terms)
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
        Ok(Term {
            field: *field,
            op,
            value,
        })
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
            Kind::Text => Ok(match self.string(name)? {
                (text, true) => Literal::Prefix(text),
                (text, false) => Literal::Exact(text),
            }),
            Kind::Names(known) => {
                let (text, prefix) = self.string(name)?;
                let known = known();
                let is_meant = |value: &&str| {
                    if prefix {
                        value.starts_with(&text)
                    } else {
                        *value == text
                    }
                };
                let chosen: Vec<_> = known.iter().copied().filter(is_meant).collect();
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
                let number = self.bare(&format!("{name} is compared with a whole number"))?;
                Ok(Literal::Int(number))
            }
            Kind::Success => {
                let yes: bool = self.bare(&format!("{name} is true or false"))?;
                let is_meant = |status: &&str| (*status == CallStatus::Completed.as_str()) == yes;
                Ok(Literal::OneOf(field.known().into_iter().filter(is_meant).collect()))
            }
        }
    }

    /// A value without quotes.
    fn bare<T: FromStr>(&mut self, expected: &str) -> Result<T, QueryError> {
        let word = self.word();
        let Ok(value) = word.parse() else {
            let found = self.found(self.at);
            return Err(self.error(self.at, format!("found {found}; {expected}, without quotes")));
        };
        self.at += word.len();
        Ok(value)
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
pub(crate) struct List {
    /// Its name in SQL.
    pub(crate) name: &'static str,
    /// The time column that its lists are ordered by; `id` breaks ties.
    pub(crate) order: &'static str,
    /// The order of a list for which the caller asks none.
    pub(crate) newest_first: bool,
    /// What is read.
    pub(crate) columns: String,
    /// The fields that a filter can use.
    pub(crate) fields: Vec<Field>,
    /// Its indexes, most selective first.
    pub(crate) indexed: &'static [Index],
}

/// An index that has the rows of each value in the order of the list: what it begins with, after the tenant (and, for
/// runs, the project); the values of most rows; and of one that has only some rows, its name and its condition.
pub(crate) struct Index(
    pub(crate) &'static str,
    pub(crate) &'static [&'static str],
    pub(crate) Option<(&'static str, &'static str)>,
);

/// A list of a table whose pages are `P`, newest first.
fn list<P: Listed, O, C>(table: &Table<O, C>, columns: String, indexed: &'static [Index]) -> List {
    List {
        name: table.name,
        order: "created_at",
        newest_first: true,
        columns,
        fields: table.fields(P::FILTERS),
        indexed,
    }
}

const BY_USER: Index = Index("user_id", &[], None);

const SUCCESSES: &[&str] = &[Outcome::TaskCompleted.as_str(), Outcome::ResponseGiven.as_str()];

pub(crate) static DECISIONS: LazyLock<List> = LazyLock::new(|| {
    let indexed = &[
        Index("conversation_id", &[], None),
        BY_USER,
        Index("status", &["closed"], Some(("decision_open", "status = 'open'"))),
        Index("duration_us / 1000", &[], Some(("decision_slow", SLOW))),
        Index("outcome_category", SUCCESSES, None),
        // Those of decisions without a tool.
        Index("intent", &["respond", "clarify", "refuse", "none"], None),
        Index("decision_type", &[], None),
    ];
    list::<DecisionPage, _, _>(&DECISION, DECISION.selected(), indexed)
});

pub(crate) static TOOL_INVOCATIONS: LazyLock<List> = LazyLock::new(|| {
    let indexed = &[
        Index("decision_id", &[], None),
        BY_USER,
        Index(
            "status",
            &["completed"],
            Some(("tool_unsuccessful", "status <> 'completed'")),
        ),
        Index("duration_us / 1000", &[], Some(("tool_slow", SLOW))),
        Index("tool", &[], None),
    ];
    list::<ToolInvocationPage, _, _>(&CALL, CALL.selected(), indexed)
});

pub(crate) static RUNS: LazyLock<List> = LazyLock::new(|| {
    let indexed = &[
        Index(PARENT, &[], None),
        BY_USER,
        Index("status", &["completed"], None),
        Index("agent_id", &[], None),
    ];
    list::<RunPage, _, _>(&RUN, RUN.selected(), indexed)
});

/// Oldest first.
pub(crate) static ACTIONS: LazyLock<List> = LazyLock::new(|| List {
    newest_first: false,
    ..list::<ApprovalPage, _, _>(&ACTION, ACTION.selected(), &[BY_USER, Index("status", &[], None)])
});

pub(crate) static GRANTS: LazyLock<List> =
    LazyLock::new(|| list::<GrantPage, _, _>(&GRANT, GRANT.selected_in_camel_case(), &[BY_USER]));

/// Most recently active first.
pub(crate) static THREADS: LazyLock<List> = LazyLock::new(|| List {
    order: "updated_at",
    ..list::<ThreadPage, _, _>(&THREAD, THREAD.selected_in_camel_case(), &[BY_USER])
});

pub(crate) static PLANNING_SESSIONS: LazyLock<List> = LazyLock::new(|| {
    let indexed = &[BY_USER, Index("status", &["COMPLETED"], None)];
    list::<PlanningSessionPage, _, _>(&SESSION, SESSION.selected(), indexed)
});

/// Newest first.
pub(crate) static VERSIONS: LazyLock<List> = LazyLock::new(|| List {
    name: "agent_definition",
    order: "version",
    newest_first: true,
    columns: LISTED.to_owned(),
    fields: Vec::new(),
    indexed: &[],
});

/// The condition of the indexes of long durations.
pub(crate) const SLOW: &str = "duration_us >= 1000000";

/// The run that called another. Lists without a condition on it show only outermost runs.
pub(crate) const PARENT: &str = "parent_run_id";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
