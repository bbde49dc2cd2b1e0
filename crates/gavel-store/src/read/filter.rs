//! The filter language, after AIP-160: conditions `field op value`, joined by AND and OR, with parentheses and NOT or `-`.
//!
//! Operators are `=`, `!=`, for numbers and times also `<`, `<=`, `>`, `>=`, and for texts `:`, which finds a part of the
//! text in any case (of ASCII letters, on both databases). Strings are in double quotes with `\"`, `\\` and `\*` as escapes;
//! a string that ends in `*` is a prefix. Numbers and `true`, `false`, `null` have no quotes. A string or word alone is
//! found in the texts of a row. A row that lacks the field (an open decision has no outcome) matches only `!=`, and what
//! NOT makes of the others. AND and OR are not mixed without parentheses: SQL and AIP-160 differ in what that means.
//!
//! `call.FIELD` asks about the calls of a decision: the conditions that one AND joins about the same call.
//!
//! Each list says how it is called and ordered, and which indexes it has.

use std::str::FromStr;
use std::sync::LazyLock;

use chrono::DateTime;

use super::super::actions::{ACTION, GRANT, THREAD};
use super::super::audit::{AUDIT, AuditKind};
use super::super::decisions::{CALL, DECISION};
use super::super::definitions::LISTED;
use super::super::planning::SESSION;
use super::super::runs::RUN;
pub(crate) use super::super::table::Field;
use super::super::table::Table;
use super::super::views;
use crate::api::approvals::{ApprovalPage, GrantPage};
use crate::api::decisions::{CallStatus, DecisionPage, ToolInvocationPage};
pub(crate) use crate::api::filter::Kind;
use crate::api::filter::{self, FilterField, Listed};
use crate::api::planning::PlanningSessionPage;
use crate::api::runs::RunPage;
use crate::api::threads::ThreadPage;
use crate::domain::decision::Outcome;
use crate::ports::records::QueryError;

/// Maximum length of a filter, in bytes.
const MAX_LENGTH: usize = 4096;
/// Maximum number of conditions.
const MAX_TERMS: usize = 32;
/// Maximum depth of parentheses and NOTs.
const MAX_DEPTH: usize = 16;

/// Conditions.
#[derive(Debug)]
pub(crate) enum Filter {
    Is(Term),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    /// A call of the decision for which all of these hold.
    Call(Vec<Self>),
}

impl Filter {
    /// The terms in it.
    pub(crate) fn terms(&self) -> Vec<&Term> {
        match self {
            Self::Is(term) => vec![term],
            Self::Not(of) => of.terms(),
            Self::All(of) | Self::Any(of) | Self::Call(of) => of.iter().flat_map(Self::terms).collect(),
        }
    }

    /// Whether it has a condition on this column.
    pub(crate) fn asks_for(&self, column: &str) -> bool {
        self.terms().iter().any(|term| term.field.sql == column)
    }

    /// Whether it asks about calls of a decision.
    pub(crate) fn has_call(&self) -> bool {
        match self {
            Self::Is(_) => false,
            Self::Call(_) => true,
            Self::Not(of) => of.has_call(),
            Self::All(of) | Self::Any(of) => of.iter().any(Self::has_call),
        }
    }

    /// What holds where it does not. A condition that an index can drive remains one.
    fn negated(self) -> Self {
        let each = |of: Vec<Self>| of.into_iter().map(Self::negated).collect();
        match self {
            Self::Is(Term { field, op, value }) if matches!(op, Op::Eq | Op::Ne) => {
                let op = if op == Op::Eq { Op::Ne } else { Op::Eq };
                Self::Is(Term { field, op, value })
            }
            Self::All(of) => Self::any(each(of)),
            Self::Any(of) => Self::All(each(of)),
            Self::Not(of) => *of,
            other => Self::Not(Box::new(other)),
        }
    }

    /// All of them. What they say about calls is about one call.
    fn all(of: Vec<Self>) -> Self {
        let (mut all, mut call) = (Vec::new(), Vec::new());
        for one in of {
            match one {
                Self::Call(of) => call.extend(of),
                Self::All(of) => all.extend(of),
                other => all.push(other),
            }
        }
        all.extend((!call.is_empty()).then_some(Self::Call(call)));
        match all.len() {
            1 => all.remove(0),
            _ => Self::All(all),
        }
    }

    /// Any of them. Values of one closed list are one condition.
    fn any(mut of: Vec<Self>) -> Self {
        let mut values = Vec::new();
        let mut name = None;
        let is_one_list = of.iter().all(|one| match one {
            Self::Is(Term {
                field,
                op: Op::Eq,
                value: Literal::OneOf(of),
            }) => {
                for value in of {
                    if !values.contains(value) {
                        values.push(*value);
                    }
                }
                *name.get_or_insert(field.name) == field.name
            }
            _ => false,
        });
        match of.pop() {
            Some(Self::Is(last)) if is_one_list => Self::Is(Term {
                value: Literal::OneOf(values),
                ..last
            }),
            last => Self::Any(of.into_iter().chain(last).collect()),
        }
    }
}

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
    Has,
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
            Self::Has => ":",
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
    Bool(bool),
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
            is_content: false,
        };
        Self {
            field,
            op: Op::Eq,
            value,
        }
    }

    /// The same, of a text.
    pub(crate) fn text(column: &'static str, text: impl ToString) -> Self {
        Self::fixed(column, Literal::Exact(text.to_string()))
    }
}

impl Field {
    /// The values of its closed list.
    pub(crate) fn known(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Names(known) => known,
            _ => CallStatus::WORDS,
        }
    }
}

/// Parses a filter into conditions that must all hold; an empty filter matches every row.
pub(crate) fn parse(list: &'static List, text: &str) -> Result<Vec<Filter>, QueryError> {
    if text.len() > MAX_LENGTH {
        return Err(QueryError::Invalid {
            field: "filter",
            detail: format!("has {} bytes; at most {MAX_LENGTH} are allowed", text.len()),
        });
    }
    let mut parser = Parser {
        list,
        text,
        at: 0,
        terms: 0,
    };
    parser.skip_space();
    if parser.rest().is_empty() {
        return Ok(Vec::new());
    }
    let filter = parser.filter(0)?;
    match parser.rest() {
        "" => Ok(match filter {
            Filter::All(all) => all,
            one => vec![one],
        }),
        _ => Err(parser.error(parser.at, "this parenthesis closes none")),
    }
}

struct Parser<'a> {
    list: &'static List,
    text: &'a str,
    /// Byte offset.
    at: usize,
    /// Conditions so far.
    terms: usize,
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

    /// Conditions up to the end or a closing parenthesis.
    fn filter(&mut self, depth: usize) -> Result<Filter, QueryError> {
        let mut all = vec![self.condition(depth)?];
        let mut joined = None;
        loop {
            self.skip_space();
            let word = match self.word() {
                _ if self.rest().is_empty() || self.rest().starts_with(')') => break,
                "AND" => "AND",
                "OR" => "OR",
                _ => {
                    let found = self.found(self.at);
                    return Err(self.error(self.at, format!("found {found}; conditions are joined by AND or OR")));
                }
            };
            if *joined.get_or_insert(word) != word {
                let advice = "AND and OR are mixed: put what belongs together in parentheses, as in a AND (b OR c)";
                return Err(self.error(self.at, advice));
            }
            self.at += word.len();
            self.skip_space();
            all.push(self.condition(depth)?);
        }
        Ok(match joined {
            Some("OR") => Filter::any(all),
            _ => Filter::all(all),
        })
    }

    /// A condition, its opposite, or conditions in parentheses.
    fn condition(&mut self, depth: usize) -> Result<Filter, QueryError> {
        let start = self.at;
        if depth > MAX_DEPTH {
            return Err(self.error(start, format!("at most {MAX_DEPTH} parentheses and NOTs are nested")));
        }
        if self.rest().starts_with('(') {
            self.at += 1;
            self.skip_space();
            let inner = self.filter(depth + 1)?;
            if !self.rest().starts_with(')') {
                return Err(self.error(start, "this parenthesis is not closed"));
            }
            self.at += 1;
            // What it says about a call is not about that of the conditions around it.
            return Ok(match inner {
                Filter::Call(_) => Filter::All(vec![inner]),
                inner => inner,
            });
        }
        let not = if self.word() == "NOT" {
            3
        } else {
            usize::from(self.rest().starts_with('-'))
        };
        if not > 0 {
            self.at += not;
            self.skip_space();
            return Ok(self.condition(depth + 1)?.negated());
        }
        self.terms += 1;
        if self.terms > MAX_TERMS {
            return Err(self.error(start, format!("at most {MAX_TERMS} conditions are allowed")));
        }
        let name = self.word().to_owned();
        let of_call = name.strip_prefix("call.").filter(|_| self.list.has_calls);
        let list: &'static List = if of_call.is_some() {
            &TOOL_INVOCATIONS
        } else {
            self.list
        };
        let field = list.fields.iter().find(|field| field.name == of_call.unwrap_or(&name));
        let Some(field) = field else {
            return self.search(list);
        };
        self.at += name.len();
        self.skip_space();
        let op = self.op(field)?;
        self.skip_space();
        let value = self.value(field, op)?;
        let term = Filter::Is(Term {
            field: *field,
            op,
            value,
        });
        Ok(match of_call {
            Some(_) => Filter::Call(vec![term]),
            None => term,
        })
    }

    /// A string or a word alone, which is found in the texts of a row.
    fn search(&mut self, list: &'static List) -> Result<Filter, QueryError> {
        let start = self.at;
        // A word of any alphabet.
        let is_outside = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
        let word = &self.rest()[..self.rest().find(is_outside).unwrap_or(self.rest().len())];
        let word = word.to_owned();
        let after = self.text[start + word.len()..].trim_start();
        let is_alone = after.is_empty() || [")", "AND ", "OR "].iter().any(|next| after.starts_with(next));
        let is_quoted = self.rest().starts_with('"');
        if list.searched.is_empty() || !is_quoted && (word.is_empty() || !is_alone) {
            let mut allowed: Vec<_> = list.fields.iter().map(|field| field.name).collect();
            allowed.extend(list.has_calls.then_some("call.FIELD"));
            let found = self.found(start);
            return Err(self.error(
                start,
                format!("found {found}; allowed fields are {}", allowed.join(", ")),
            ));
        }
        let text = match is_quoted {
            true => self.string("a text")?.0,
            false => {
                self.at += word.len();
                word
            }
        };
        let texts = list.fields.iter().filter(|field| list.searched.contains(&field.name));
        let has = texts.map(|field| {
            Filter::Is(Term {
                field: *field,
                op: Op::Has,
                value: Literal::Exact(text.clone()),
            })
        });
        Ok(Filter::any(has.collect()))
    }

    fn op(&mut self, field: &Field) -> Result<Op, QueryError> {
        const OPS: [(&str, Op); 7] = [
            (":", Op::Has),
            ("!=", Op::Ne),
            ("<=", Op::Le),
            (">=", Op::Ge),
            ("=", Op::Eq),
            ("<", Op::Lt),
            (">", Op::Gt),
        ];
        let (_, allowed, _) = field.kind.describe();
        let found = OPS.into_iter().find(|(text, _)| self.rest().starts_with(text));
        match found {
            Some((text, op)) if allowed.contains(&text) => {
                self.at += text.len();
                Ok(op)
            }
            _ => {
                let (found, allowed) = (self.found(self.at), allowed.join(", "));
                Err(self.error(
                    self.at,
                    format!("found {found}; operators of {} are {allowed}", field.name),
                ))
            }
        }
    }

    fn value(&mut self, field: &Field, op: Op) -> Result<Literal, QueryError> {
        let start = self.at;
        let name = field.name;
        if matches!(op, Op::Eq | Op::Ne) && self.word() == "null" {
            self.at += 4;
            return Ok(Literal::Null);
        }
        match field.kind {
            // What is found may be anywhere.
            Kind::Text if op == Op::Has => Ok(Literal::Exact(self.string(name)?.0)),
            Kind::Text => Ok(match self.string(name)? {
                (text, true) => Literal::Prefix(text),
                (text, false) => Literal::Exact(text),
            }),
            Kind::Names(known) => {
                let (text, prefix) = self.string(name)?;
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
            Kind::Bool => Ok(Literal::Bool(self.bare(&format!("{name} is true or false"))?)),
            Kind::Success => {
                let yes: bool = self.bare(&format!("{name} is true or false"))?;
                let is_meant = |status: &&str| (*status == CallStatus::Completed.as_str()) == yes;
                Ok(Literal::OneOf(field.known().iter().copied().filter(is_meant).collect()))
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
    /// Where a text alone is found.
    pub(crate) searched: &'static [&'static str],
    /// Whether its rows are decisions, which have calls.
    pub(crate) has_calls: bool,
}

/// An index that has the rows of each value in the order of the list: what it begins with, after the tenant (and, for
/// runs, the project); the values of most rows; and of one that has only some rows, its name and its condition.
pub(crate) struct Index(
    pub(crate) &'static str,
    pub(crate) &'static [&'static str],
    pub(crate) Option<(&'static str, &'static str)>,
);

impl List {
    /// What its filters can ask for.
    pub(crate) fn described(&self) -> Vec<FilterField> {
        let described = self.fields.iter().map(|field| {
            let (kind, operators, values) = field.kind.describe();
            let texts = |of: &[&str]| of.iter().map(|&text| text.to_owned()).collect();
            let is_of = |Index(column, ..): &Index| *column == field.sql;
            FilterField {
                name: field.name.to_owned(),
                kind,
                operators: texts(operators),
                indexed: field.sql == self.order || self.indexed.iter().any(is_of),
                values: texts(values),
            }
        });
        described.collect()
    }
}

/// A list of a table whose pages are `P`, newest first.
fn list<P: Listed, O, C>(table: &Table<O, C>, columns: String, indexed: &'static [Index]) -> List {
    List {
        name: table.name,
        order: "created_at",
        newest_first: true,
        columns,
        fields: table.fields(P::FILTERS),
        indexed,
        searched: &[],
        has_calls: false,
    }
}

const BY_USER: Index = Index("user_id", &[], None);

const SUCCESSES: &[&str] = &[Outcome::TaskCompleted.as_str(), Outcome::ResponseGiven.as_str()];

pub(crate) static DECISIONS: LazyLock<List> = LazyLock::new(|| {
    let indexed = &[
        Index("id", &[], None),
        Index("conversation_id", &[], None),
        BY_USER,
        Index("status", &["closed"], Some(("decision_open", "status = 'open'"))),
        Index("duration_us / 1000", &[], Some(("decision_slow", SLOW))),
        Index("outcome_category", SUCCESSES, None),
        // Those of decisions without a tool.
        Index("intent", &["respond", "clarify", "refuse", "none"], None),
        Index("decision_type", &[], None),
    ];
    List {
        searched: &["message", "response"],
        has_calls: true,
        ..list::<DecisionPage, _, _>(&DECISION, DECISION.selected(), indexed)
    }
});

pub(crate) static TOOL_INVOCATIONS: LazyLock<List> = LazyLock::new(|| {
    let indexed = &[
        Index("id", &[], None),
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
    List {
        searched: &["words", "parameters", "result"],
        ..list::<ToolInvocationPage, _, _>(&CALL, CALL.selected(), indexed)
    }
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

/// Every call of a run, as the analysts' view has it.
pub(crate) static ACTION_LOG: LazyLock<List> = LazyLock::new(|| List {
    name: views::ACTIONS,
    newest_first: false,
    ..list::<ApprovalPage, _, _>(&ACTION, String::new(), &[])
});

/// The audit log, in the order of its numbers. A number is that of one row, so no id breaks ties.
pub(crate) static AUDIT_LOG: LazyLock<List> = LazyLock::new(|| List {
    name: "(SELECT audit.*, '' AS id FROM audit) AS audit",
    order: "number",
    newest_first: false,
    columns: String::new(),
    fields: AUDIT.fields(&[
        filter::Filter("kind", Kind::Names(AuditKind::WORDS)),
        filter::Filter("actor", Kind::Text),
        filter::Filter("decision_id", Kind::Text),
        filter::Filter("action_id", Kind::Text),
        filter::Filter("tool", Kind::Text),
        filter::Filter("at", Kind::Time),
    ]),
    indexed: &[],
    searched: &[],
    has_calls: false,
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
    searched: &[],
    has_calls: false,
});

/// The condition of the indexes of long durations.
pub(crate) const SLOW: &str = "duration_us >= 1000000";

/// The run that called another. Lists without a condition on it show only outermost runs.
pub(crate) const PARENT: &str = "parent_run_id";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
