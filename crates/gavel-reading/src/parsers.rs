//! Parsers of single values and of lists.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::fields::{At, Fields, Parser};
use crate::node::{Content, Node};

/// A value that is read from its node alone.
#[derive(Clone, Copy)]
pub struct Scalar<T> {
    /// What is allowed.
    pub allowed: &'static str,
    /// `None` for a value that is not allowed.
    pub read: fn(&Node) -> Option<T>,
}

/// Any text.
pub const TEXT: Scalar<String> = Scalar {
    allowed: "text",
    read: |node| match &node.content {
        Content::Text(text) => Some(text.clone()),
        _ => None,
    },
};

/// A text that is not blank, without the spaces around it.
pub const WORDS: Scalar<String> = Scalar {
    allowed: "text that is not blank",
    read: |node| match &node.content {
        Content::Text(text) if !text.trim().is_empty() => Some(text.trim().to_owned()),
        _ => None,
    },
};

/// True or false.
pub const FLAG: Scalar<bool> = Scalar {
    allowed: "true or false",
    read: |node| match node.content {
        Content::Bool(value) => Some(value),
        _ => None,
    },
};

impl<T> Parser for Scalar<T> {
    type Value = T;

    fn allowed(&self) -> String {
        self.allowed.to_owned()
    }

    fn parse(&self, at: &At<'_>) -> Option<T> {
        let value = (self.read)(at.node);
        if value.is_none() {
            at.invalid(self.allowed);
        }
        value
    }
}

/// A text, a number or a boolean, which is read from its text, as a variable holds it.
#[derive(Clone, Copy)]
pub struct ByText<T> {
    /// What is allowed.
    pub allowed: &'static str,
    /// Reads the text without the spaces around it; `None` for a value that is not allowed.
    pub read: fn(&str) -> Option<T>,
}

impl<T> Parser for ByText<T> {
    type Value = T;

    fn allowed(&self) -> String {
        self.allowed.to_owned()
    }

    fn parse(&self, at: &At<'_>) -> Option<T> {
        let value = at.node.scalar().and_then(|text| (self.read)(text.trim()));
        if value.is_none() {
            at.invalid(self.allowed);
        }
        value
    }
}

/// A whole number in a range.
#[derive(Clone)]
pub struct Whole<T>(pub RangeInclusive<T>);

impl<T: Copy + PartialOrd + Display + TryFrom<i128>> Parser for Whole<T> {
    type Value = T;

    fn allowed(&self) -> String {
        format!("a whole number from {} to {}", self.0.start(), self.0.end())
    }

    fn parse(&self, at: &At<'_>) -> Option<T> {
        let number = match at.node.content {
            Content::Integer(number) => Some(number),
            // 5.0 is 5, as in JSON.
            Content::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => Some(number as i128),
            _ => None,
        };
        let number = number
            .and_then(|number| T::try_from(number).ok())
            .filter(|number| self.0.contains(number));
        if number.is_none() {
            at.invalid(self.allowed());
        }
        number
    }
}

/// One of a few names.
#[derive(Clone, Copy)]
pub struct OneOf<'a, T>(pub &'a [(&'a str, T)]);

impl<T: Clone> Parser for OneOf<'_, T> {
    type Value = T;

    fn allowed(&self) -> String {
        let names: Vec<_> = self.0.iter().map(|(name, _)| *name).collect();
        match names.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => "nothing".to_owned(),
        }
    }

    fn parse(&self, at: &At<'_>) -> Option<T> {
        let found = match &at.node.content {
            Content::Text(text) => self.0.iter().find(|(name, _)| name == text),
            _ => None,
        };
        if found.is_none() {
            at.invalid(self.allowed());
        }
        found.map(|(_, value)| value.clone())
    }
}

/// A list of at most 1000 items. Invalid items are reported and left out.
#[derive(Clone, Copy)]
pub struct List<P>(pub P);

/// The most items of a list.
const MOST_ITEMS: usize = 1000;

impl<P: Parser> Parser for List<P> {
    type Value = Vec<P::Value>;

    fn allowed(&self) -> String {
        format!("a list, each item {}", self.0.allowed())
    }

    fn parse(&self, at: &At<'_>) -> Option<Self::Value> {
        if !matches!(at.node.content, Content::List(_)) {
            at.invalid(self.allowed());
            return None;
        }
        let items = at.items(MOST_ITEMS)?;
        Some(items.iter().filter_map(|item| self.0.parse(item)).collect())
    }
}

/// A list as of [`List`], or a single item as a list of one.
#[derive(Clone, Copy)]
pub struct Several<P>(pub P);

impl<P: Parser> Parser for Several<P> {
    type Value = Vec<P::Value>;

    fn allowed(&self) -> String {
        self.0.allowed()
    }

    fn parse(&self, at: &At<'_>) -> Option<Self::Value> {
        let items = match &at.node.content {
            Content::List(_) => at.items(MOST_ITEMS)?,
            _ => vec![at.clone()],
        };
        Some(items.iter().filter_map(|item| self.0.parse(item)).collect())
    }
}

/// A map from names to values. Invalid values are reported and left out.
#[derive(Clone, Copy)]
pub struct Entries<P>(pub P);

impl<P: Parser> Parser for Entries<P> {
    type Value = Vec<(String, P::Value)>;

    fn allowed(&self) -> String {
        format!("a map, each value {}", self.0.allowed())
    }

    fn parse(&self, at: &At<'_>) -> Option<Self::Value> {
        let entries = at.entries()?.into_iter();
        Some(
            entries
                .filter_map(|(name, at)| Some((name.to_owned(), self.0.parse(&at)?)))
                .collect(),
        )
    }
}

/// A map of known fields: what is allowed, and what takes them.
#[derive(Clone, Copy)]
pub struct Record<F>(pub &'static str, pub F);

impl<T, F: Fn(&Fields<'_>) -> Option<T>> Parser for Record<F> {
    type Value = T;

    fn allowed(&self) -> String {
        self.0.to_owned()
    }

    fn parse(&self, at: &At<'_>) -> Option<T> {
        if !matches!(at.node.content, Content::Map(_)) {
            at.invalid(self.0);
            return None;
        }
        at.record(&self.1)
    }
}

/// What is allowed, and a function that reads the value and reports its errors.
#[derive(Clone, Copy)]
pub struct With<F>(pub &'static str, pub F);

impl<T, F: Fn(&At<'_>) -> Option<T>> Parser for With<F> {
    type Value = T;

    fn allowed(&self) -> String {
        self.0.to_owned()
    }

    fn parse(&self, at: &At<'_>) -> Option<T> {
        (self.1)(at)
    }
}

/// The value of another parser, as something else.
#[derive(Clone, Copy)]
pub struct Mapped<P, F>(pub P, pub F);

impl<T, P: Parser, F: Fn(P::Value) -> T> Parser for Mapped<P, F> {
    type Value = T;

    fn allowed(&self) -> String {
        self.0.allowed()
    }

    fn parse(&self, at: &At<'_>) -> Option<T> {
        self.0.parse(at).map(&self.1)
    }
}

/// A whole number in a range, also as text.
#[derive(Clone)]
pub struct Digits<T>(pub RangeInclusive<T>);

impl<T: Copy + PartialOrd + Display + FromStr> Parser for Digits<T> {
    type Value = T;

    fn allowed(&self) -> String {
        format!("a whole number from {} to {}", self.0.start(), self.0.end())
    }

    fn parse(&self, at: &At<'_>) -> Option<T> {
        let number = at.node.scalar().and_then(|text| text.trim().parse().ok());
        let number = number.filter(|number| self.0.contains(number));
        if number.is_none() {
            at.invalid(self.allowed());
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// What a parser makes of a value, or its error.
    fn read<P: Parser>(parser: &P, content: Content) -> Result<P::Value, String> {
        let (errors, node) = (RefCell::default(), Node::bare(content));
        let value = parser.parse(&At::root(&errors, "f", &node).named("x"));
        let errors = errors.into_inner().into_vec("f");
        match (value, errors.first()) {
            (Some(value), None) => Ok(value),
            (_, Some(error)) => Err(error.to_string()),
            (None, None) => unreachable!("no value and no error"),
        }
    }

    #[test]
    fn whole_numbers_are_bounded_and_may_be_text_where_variables_are_read() {
        let text = |text: &str| Content::Text(text.to_owned());
        assert_eq!(read(&Whole(1..=5_u32), Content::Float(5.0)), Ok(5));
        let refused = "f: x: found \"5\"; allowed: a whole number from 1 to 5";
        assert_eq!(read(&Whole(1..=5_u32), text("5")), Err(refused.to_owned()));
        assert_eq!(read(&Digits(1..=5_u32), text(" 5 ")), Ok(5));
        assert_eq!(read(&Digits(1..=5_u32), Content::Integer(5)), Ok(5));
        for invalid in ["", "0", "6", "-1", "1.5", "2e0", "1h", "99999999999999999999"] {
            assert!(read(&Digits(1..=5_u32), text(invalid)).is_err(), "{invalid}");
        }
    }
}
