//! The fields that a list can be filtered by: one table beside the type of its page, from which the API description, the
//! help of commands and the conditions of the store follow.

use super::names::{names, sent};

/// A field of a filter, and what it is compared with.
pub struct Filter(pub &'static str, pub Kind);

/// What a filter compares a field with.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any quoted string.
    Text,
    /// A quoted string from a closed list.
    Names(&'static [&'static str]),
    /// An integer without quotes.
    Number,
    /// An integer in milliseconds, without quotes.
    Duration,
    /// A quoted RFC 3339 time.
    Time,
    /// `true` or `false`, without quotes.
    Bool,
    /// The same, of whether a call succeeded.
    Success,
}

/// A text as a filter has it.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

/// The beginning of texts as a filter has it.
pub fn beginning(text: &str) -> String {
    format!("\"{}*\"", escaped(text))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('*', "\\*")
}

names! {
    /// What a filter compares a field with.
    FieldKind {
        /// A quoted string; one that ends in `*` is a prefix.
        Text = "text",
        /// One of `values`, quoted; a prefix chooses several.
        Name = "name",
        /// A whole number.
        Number = "number",
        /// A whole number of milliseconds.
        Milliseconds = "milliseconds",
        /// A quoted RFC 3339 time.
        Time = "time",
        /// `true` or `false`.
        Bool = "bool",
    }
}

sent! {
    /// A field that a list can be filtered by.
    FilterField as "FilterField" {
        /// Its name.
        name: String,
        /// What it is compared with.
        kind: FieldKind,
        /// Its operators; `:` finds a part of a text. Every field that can be absent is also compared with `null`.
        operators: Vec<String>,
        /// Whether an index finds its rows. Without one, give `created_at` too where the log is large.
        indexed: bool,
        /// The values of a closed list, else empty.
        values: Vec<String>,
    }
}

sent! {
    /// The fields that lists can be filtered by.
    FilterFields as "FilterFields" {
        /// Of decisions. `call.NAME` is the field of their tool invocations.
        decisions: Vec<FilterField>,
        /// Of tool invocations.
        tool_invocations: Vec<FilterField>,
        /// Of runs of agents.
        runs: Vec<FilterField>,
        /// Of pending approvals and in-doubt actions.
        actions: Vec<FilterField>,
    }
}

impl Kind {
    /// What it is, its operators, and the values of a closed list.
    pub fn describe(self) -> (FieldKind, &'static [&'static str], &'static [&'static str]) {
        const EQUAL: &[&str] = &["=", "!="];
        const TEXT: &[&str] = &["=", "!=", ":"];
        const ORDERED: &[&str] = &["=", "!=", "<", "<=", ">", ">="];
        match self {
            Self::Text => (FieldKind::Text, TEXT, &[]),
            Self::Names(names) => (FieldKind::Name, EQUAL, names),
            Self::Number => (FieldKind::Number, ORDERED, &[]),
            Self::Duration => (FieldKind::Milliseconds, ORDERED, &[]),
            Self::Time => (FieldKind::Time, ORDERED, &[]),
            Self::Bool | Self::Success => (FieldKind::Bool, EQUAL, &[]),
        }
    }
}

/// A page of a list with a filter and an order.
pub trait Listed {
    /// The fields of its filter.
    const FILTERS: &'static [Filter];
    /// An example of a filter.
    const EXAMPLE: &'static str;
    /// Its orders by time.
    const ORDER: &'static str = "`created_at desc` (the default) or `created_at`";

    /// The names of its fields.
    fn fields() -> String {
        let names: Vec<_> = Self::FILTERS.iter().map(|Filter(name, _)| *name).collect();
        names.join(", ")
    }

    /// All its orders.
    fn orders() -> String {
        let is_number = |kind| matches!(kind, Kind::Number | Kind::Duration);
        let numbers = Self::FILTERS.iter().filter(|Filter(_, kind)| is_number(*kind));
        let numbers: Vec<_> = numbers.map(|Filter(name, _)| format!("`{name}`")).collect();
        match numbers.as_slice() {
            [] => format!("{}.", Self::ORDER),
            numbers => format!(
                "{}, or with a filter that spans at most 31 days also {}, each alone or with `desc`.",
                Self::ORDER,
                numbers.join(", ")
            ),
        }
    }
}

/// The orders of a list whose oldest row is first.
pub(super) const OLDEST_FIRST: &str = "`created_at` (the default) or `created_at desc`";
