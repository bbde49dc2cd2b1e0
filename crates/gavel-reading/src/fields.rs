//! A value at its place, and the fields of a map.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::error::unknown_name_message;
use crate::error::{Errors, ReadError};
use crate::node::{Content, Key, Node, SyntaxError};

/// The most bytes of a name that paths show; errors show no more of a path.
const LONGEST_NAME: usize = 200;

/// Reads the whole of a file, in the form of this name.
///
/// # Errors
/// Every error in it, each with its place.
pub fn read_file<T>(
    file: &str,
    form: &'static str,
    parsed: Result<(Node, Vec<Key>), SyntaxError>,
    read: impl FnOnce(&At<'_>) -> Option<T>,
) -> Result<T, Vec<ReadError>> {
    let errors = RefCell::default();
    let value = match parsed {
        Ok((node, twice)) => {
            let at = At::root(&errors, file, &node);
            at.given_twice(&twice);
            read(&at)
        }
        Err(error) => {
            let (found, allowed) = error.describe(form);
            let nothing = Node::bare(Content::Null);
            let at = At::root(&errors, file, &nothing).on_line(error.line.unwrap_or_default());
            at.error(found, allowed);
            None
        }
    };
    let errors = errors.into_inner();
    match value {
        Some(value) if errors.is_empty() => Ok(value),
        _ => Err(errors.into_vec(file)),
    }
}

/// Reads one value, and knows what is allowed.
pub trait Parser {
    /// What it makes of a value.
    type Value;

    /// What is allowed, for errors and for the documentation.
    fn allowed(&self) -> String;

    /// The value; `None` after it has reported why there is none.
    fn parse(&self, at: &At<'_>) -> Option<Self::Value>;
}

/// A value at its place in a file, through which its reader reports errors.
#[derive(Clone)]
pub struct At<'a> {
    errors: &'a RefCell<Errors>,
    file: &'a str,
    /// The names and indexes that lead to the value, such as `rules[0].name`; empty for the whole file.
    pub path: String,
    /// The value.
    pub node: &'a Node,
    /// The line that errors show: the value's, unless they are about its key.
    pub line: u64,
    found: fn(&Node) -> String,
}

impl<'a> At<'a> {
    /// The whole of a file, which errors name so.
    pub fn root(errors: &'a RefCell<Errors>, file: &'a str, node: &'a Node) -> Self {
        Self {
            errors,
            file,
            path: String::new(),
            node,
            line: node.line,
            found: Node::found,
        }
    }

    /// The same value under this path.
    #[must_use]
    pub fn named(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// The same value; errors show this line.
    #[must_use]
    pub fn on_line(mut self, line: u64) -> Self {
        self.line = line;
        self
    }

    /// Another value in the same place.
    pub fn holding<'b>(&self, node: &'b Node) -> At<'b>
    where
        'a: 'b,
    {
        let line = node.line;
        At {
            node,
            line,
            ..self.clone()
        }
    }

    /// The same value, with another list for what is reported.
    pub fn reporting_to<'b>(&self, errors: &'b RefCell<Errors>) -> At<'b>
    where
        'a: 'b,
    {
        At { errors, ..self.clone() }
    }

    /// The same value; errors show it so.
    #[must_use]
    pub fn shown_by(mut self, found: fn(&Node) -> String) -> Self {
        self.found = found;
        self
    }

    /// The value as errors show it.
    pub fn found(&self) -> String {
        (self.found)(self.node)
    }

    /// Reports that something else is allowed than what was found.
    pub fn invalid(&self, allowed: impl Into<String>) {
        self.error(self.found(), allowed);
    }

    /// Reports what was found, and what is allowed.
    pub fn error(&self, found: impl Into<String>, allowed: impl Into<String>) {
        self.report(|| (self.line, found.into(), allowed.into()));
    }

    /// As [`Self::error`], with the line, if the words are expensive: there may be as many errors as the file has bytes.
    pub fn report(&self, words: impl FnOnce() -> (u64, String, String)) {
        self.errors.borrow_mut().add(|| {
            let (line, found, allowed) = words();
            ReadError {
                file: self.file.to_owned(),
                line: Some(line),
                field: match self.path.is_empty() {
                    true => "the file".to_owned(),
                    false => self.path.clone(),
                },
                found,
                allowed,
            }
        });
    }

    /// Reports keys that are given a second time.
    pub fn given_twice(&self, keys: &[Key]) {
        for key in keys {
            let at = self.clone().named(&key.name).on_line(key.line);
            at.error("the key a second time", "each key once");
        }
    }

    /// An entry of this map, whose errors are about its key.
    pub fn entry(&self, key: &Key, node: &'a Node) -> Self {
        self.inner(self.below(&key.name), node).on_line(key.line)
    }

    fn inner(&self, path: String, node: &'a Node) -> Self {
        self.holding(node).named(path)
    }

    /// Its items. Anything but a list is an error, and so is a longer one.
    pub fn items(&self, most: usize) -> Option<Vec<Self>> {
        let Content::List(items) = &self.node.content else {
            self.invalid("a list");
            return None;
        };
        if items.len() > most {
            self.error(format!("{} of them", items.len()), format!("at most {most}"));
            return None;
        }
        let items = items.iter().enumerate();
        Some(
            items
                .map(|(n, item)| self.inner(format!("{}[{n}]", self.path), item))
                .collect(),
        )
    }

    /// Its entries by name. Anything but a map is an error.
    pub fn entries(&self) -> Option<Vec<(&'a str, Self)>> {
        let Content::Map(entries) = &self.node.content else {
            self.invalid("a map");
            return None;
        };
        let entry = |(key, node): &'a (Key, Node)| (key.name.as_str(), self.inner(self.below(&key.name), node));
        Some(entries.iter().map(entry).collect())
    }

    fn below(&self, name: &str) -> String {
        // Every path below a name contains it, and there may be as many as the file has values.
        let name = &name[..name.floor_char_boundary(LONGEST_NAME)];
        match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }

    /// A map of known fields, which `read` takes. A field that it does not ask for is an error, and so is a missing one
    /// that it needs.
    pub fn record<T>(&self, read: impl FnOnce(&Fields<'a>) -> Option<T>) -> Option<T> {
        let (record, rest) = self.open_record(read)?;
        rest.unknown();
        record
    }

    /// As [`Self::record`], but leaves to the caller what unknown fields mean.
    pub fn open_record<T>(&self, read: impl FnOnce(&Fields<'a>) -> Option<T>) -> Option<(Option<T>, Rest<'a>)> {
        let Content::Map(entries) = &self.node.content else {
            self.invalid("a map");
            return None;
        };
        let fields = Fields {
            at: self.clone(),
            entries,
            known: RefCell::default(),
            missing: RefCell::default(),
        };
        let record = read(&fields);
        let mut known: Vec<&str> = Vec::new();
        for name in fields.known.into_inner() {
            if !known.contains(&name) {
                known.push(name);
            }
        }
        let unknown: Vec<_> = entries
            .iter()
            .filter(|(key, _)| !known.contains(&key.name.as_str()))
            .map(|(key, _)| key)
            .collect();
        for (name, allowed) in fields.missing.into_inner() {
            // A misspelled field has an error of its own.
            let is_misspelled = |key: &&Key| crate::nearest(&key.name, known.iter().copied()) == Some(name);
            if !unknown.iter().any(is_misspelled) {
                self.clone().named(self.below(name)).error("nothing", allowed);
            }
        }
        let at = self.clone();
        Some((record, Rest { at, known, unknown }))
    }
}

/// The fields of a map that its reader did not ask for.
pub struct Rest<'a> {
    at: At<'a>,
    /// The names of the others.
    pub known: Vec<&'static str>,
    /// Their keys.
    pub unknown: Vec<&'a Key>,
}

impl Rest<'_> {
    /// Reports each as an error.
    pub fn unknown(&self) {
        for key in &self.unknown {
            self.report(key, &unknown_name_message(&key.name, &self.known));
        }
    }

    /// Reports one of them, and what is allowed instead.
    pub fn report(&self, key: &Key, allowed: &str) {
        let at = self.at.clone().named(self.at.below(&key.name)).on_line(key.line);
        at.error("an unknown field", allowed);
    }

    /// The same, with another list for what is reported.
    pub fn reporting_to<'b>(&'b self, errors: &'b RefCell<Errors>) -> Rest<'b> {
        Rest {
            at: self.at.reporting_to(errors),
            known: self.known.clone(),
            unknown: self.unknown.clone(),
        }
    }
}

/// The fields of a map. `null` counts as absent.
pub struct Fields<'a> {
    /// The map.
    pub at: At<'a>,
    entries: &'a [(Key, Node)],
    known: RefCell<Vec<&'static str>>,
    missing: RefCell<Vec<(&'static str, String)>>,
}

impl<'a> Fields<'a> {
    /// Makes names known of fields that are not read, or not always.
    pub fn known(&self, names: &[&'static str]) {
        self.known.borrow_mut().extend(names);
    }

    /// A field as it is; `None` if it is absent.
    pub fn get(&self, name: &'static str) -> Option<At<'a>> {
        self.known(&[name]);
        let found = self
            .entries
            .iter()
            .find(|(key, node)| key.name == name && !node.is_null());
        found.map(|(_, node)| self.at.inner(self.at.below(name), node))
    }

    /// A field; `None` if it is absent or invalid.
    pub fn take<P: Parser>(&self, name: &'static str, parser: P) -> Option<P::Value> {
        parser.parse(&self.get(name)?)
    }

    /// As [`Self::take`]; an absent field is an error.
    pub fn need<P: Parser>(&self, name: &'static str, parser: P) -> Option<P::Value> {
        let allowed = parser.allowed();
        self.need_as(name, &allowed, parser)
    }

    /// As [`Self::need`], for a field whose absence needs other words than an invalid value.
    pub fn need_as<P: Parser>(&self, name: &'static str, absent: &str, parser: P) -> Option<P::Value> {
        match self.get(name) {
            Some(at) => parser.parse(&at),
            None => {
                self.missing(name, absent);
                None
            }
        }
    }

    /// Reports that a field is missing, unless it is only misspelled.
    pub fn missing(&self, name: &'static str, allowed: impl Into<String>) {
        self.missing.borrow_mut().push((name, allowed.into()));
    }
}

/// What an optional field becomes in a struct.
pub trait Taken<V> {
    /// The value of the field; `None` if it is absent or invalid.
    fn taken(value: Option<V>) -> Self;
}

impl<V> Taken<V> for Option<V> {
    fn taken(value: Self) -> Self {
        value
    }
}

impl Taken<Self> for bool {
    fn taken(value: Option<Self>) -> Self {
        value.unwrap_or_default()
    }
}

impl<T> Taken<Self> for Vec<T> {
    fn taken(value: Option<Self>) -> Self {
        value.unwrap_or_default()
    }
}

impl<K: Ord, V> Taken<Self> for BTreeMap<K, V> {
    fn taken(value: Option<Self>) -> Self {
        value.unwrap_or_default()
    }
}

/// Declares a struct that is read from a map: each field with its documentation, its name in the file and its parser. A
/// field is optional (`Option`, list, map, bool), `required`, or has a default (`or 30`).
///
/// `Self::read(fields)` reads it.
#[macro_export]
macro_rules! record {
    ($(#[$meta:meta])* $vis:vis struct $record:ident {
        $($(#[$about:meta])+ $field:ident: $type:ty = $name:literal: $parser:expr $(, $how:ident $($default:expr)?)?;)+
    }) => {
        $(#[$meta])*
        $vis struct $record { $($(#[$about])+ pub $field: $type,)+ }

        impl $record {
            /// Reads the fields; every error is reported.
            $vis fn read(fields: &$crate::Fields<'_>) -> Option<Self> {
                $(let $field = $crate::record!(@read fields, $name, $parser $(, $how $($default)?)?);)+
                Some(Self { $($field: $field?,)+ })
            }
        }
    };
    (@read $fields:ident, $name:literal, $parser:expr) => {
        Some($crate::Taken::taken($fields.take($name, $parser)))
    };
    (@read $fields:ident, $name:literal, $parser:expr, required) => {
        $fields.need($name, $parser)
    };
    (@read $fields:ident, $name:literal, $parser:expr, or $default:expr) => {
        Some($fields.take($name, $parser).unwrap_or($default))
    };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{FLAG, List, OneOf, Record, TEXT, Whole};

    record! {
        #[derive(Debug, PartialEq)]
        struct Rule {
            /// Its name.
            name: String = "name": TEXT, required;
            /// Its effect.
            effect: char = "effect": OneOf(&[("allow", 'a'), ("deny", 'd')]), or 'd';
            /// How often.
            most: Option<u32> = "most": Whole(1..=9);
            /// Whether it counts.
            is_on: bool = "on": FLAG;
            /// Its parts.
            parts: Vec<Rule> = "parts": List(Record("a rule", Rule::read));
        }
    }

    fn read(text: &str) -> Result<Rule, Vec<String>> {
        let (errors, node) = (RefCell::default(), Node::parse(text, 100).unwrap());
        let rule = At::root(&errors, "f", &node).record(Rule::read);
        let errors = errors.into_inner().into_vec("f");
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        rule.filter(|_| errors.is_empty()).ok_or(errors)
    }

    #[test]
    fn a_record_is_read_with_its_defaults() {
        let part = |name: &str| Rule {
            name: name.to_owned(),
            effect: 'd',
            most: None,
            is_on: false,
            parts: Vec::new(),
        };
        let whole = Rule {
            effect: 'a',
            most: Some(3),
            is_on: true,
            parts: vec![part("b")],
            ..part("a")
        };
        let text = "name: a\neffect: allow\nmost: 3\non: true\nparts: [{name: b, most: null}]\n";
        assert_eq!(read(text), Ok(whole));
    }

    #[test]
    fn every_error_is_reported_with_its_place_and_a_misspelled_field_once() {
        let text = "nmae: a\neffect: maybe\nmost: 10\nparts:\n- 7\n- {on: 1, colour: red}\n";
        assert_eq!(
            read(text).unwrap_err(),
            [
                "f:1: nmae: found an unknown field; allowed: did you mean `name`?",
                "f:2: effect: found \"maybe\"; allowed: allow or deny",
                "f:3: most: found 10; allowed: a whole number from 1 to 9",
                "f:5: parts[0]: found 7; allowed: a rule",
                "f:6: parts[1].on: found 1; allowed: true or false",
                "f:6: parts[1].name: found nothing; allowed: text",
                "f:6: parts[1].colour: found an unknown field; allowed: name, effect, most, on, parts",
            ]
        );
        assert_eq!(
            read("- a").unwrap_err(),
            ["f:1: the file: found a list; allowed: a map"]
        );
    }
}
