//! Single values: converts a node to the type of a field, or reports an error with what is allowed.

mod convert;
mod places;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

pub(super) use self::convert::{choice, is_name, lines_of, text};
use self::convert::{float, whole};
pub(super) use self::places::Places;
use super::canonical::shortest;
use super::duration;
use super::fields::{Field, Fields, Given, GivenGroup, Holds};
use super::{Flow, Input};
use gavel_reading::{Content, Node, OneOf, Parser, Scalar, quoted};
use gavel_reading::{Errors, ReadError};

/// The allowed names of agents, inputs, outputs and steps.
pub(super) const NAME: &str = "1 to 64 letters, digits, `_` or `-`";

/// The name of an agent or a step.
pub(super) const AGENT: Scalar<String> = Scalar {
    allowed: NAME,
    read: |node| text(node).filter(|text| is_name(text)),
};

/// Text that is not blank, unchanged.
pub(super) const SOME_TEXT: Scalar<String> = Scalar {
    allowed: "text that is not blank",
    read: text,
};

/// The name of the system prompt in a form that keeps it apart from the fields.
pub(super) const BODY: &str = "the text below the front matter";

/// The most items of a list, and the most inputs: more than a model can be offered, and few enough for pairwise
/// comparison.
pub(super) const MOST_ITEMS: usize = 512;

/// Reads fields and collects every error.
pub(super) struct Values<'a> {
    pub(super) file: &'a str,
    /// The text of the file; empty for a form without lines.
    pub(super) text: &'a str,
    pub(super) fields: Fields<'a>,
    pub(super) groups: Vec<GivenGroup>,
    pub(super) errors: RefCell<Errors>,
    /// Locations of the items of lists and maps; fields are added at the end.
    pub(super) places: Places,
    /// References to other files.
    pub(super) names: Named,
}

/// References of a definition to other definitions and files.
#[derive(Clone, Debug, Default)]
pub(super) struct Named {
    /// Agents, each with its portable path.
    pub(super) agents: Vec<(String, String)>,
    /// Tools, each with its portable path.
    pub(super) tools: Vec<(String, String)>,
    /// A registered schema.
    pub(super) schema: Option<String>,
    /// The output's name, and the template that formats it.
    pub(super) process_output: Option<(String, String)>,
    /// Its inputs, if all of them are valid.
    pub(super) inputs: Option<BTreeMap<String, Input>>,
    /// Its flow, if its steps are valid.
    pub(super) flow: Flow,
}

/// A node in the place of a list or a map.
pub(super) struct Part<'a> {
    pub(super) path: String,
    pub(super) node: &'a Node,
}

/// Compares two spellings of a field by value.
struct Same<'a>(&'a Node);

impl PartialEq for Same<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_json() == other.0.to_json()
    }
}

impl<'a> Values<'a> {
    /// Records an error.
    pub(super) fn error(&mut self, line: Option<u64>, field: &str, found: &str, allowed: &str) {
        self.error_with(line, field, found, || allowed.to_owned());
    }

    /// As [`Self::error`], if computing what is allowed is expensive.
    pub(super) fn error_with(&mut self, line: Option<u64>, field: &str, found: &str, allowed: impl FnOnce() -> String) {
        let file = self.file;
        self.errors.get_mut().add(|| ReadError {
            file: file.to_owned(),
            line,
            field: field.to_owned(),
            found: found.to_owned(),
            allowed: allowed(),
        });
    }

    /// Records an error at the `${` at offset `at` in a text that begins on `line`: what was found and what is allowed.
    pub(super) fn error_within(
        &mut self,
        line: Option<u64>,
        field: &str,
        (text, at): (&str, usize),
        reported: impl FnOnce() -> (String, String),
    ) {
        let (file, whole) = (self.file, self.text);
        self.errors.get_mut().add(|| {
            let (found, allowed) = reported();
            ReadError {
                file: file.to_owned(),
                line: line.map(|line| {
                    let within = lines_of(whole, line, text).find(|(mark, _)| *mark == at);
                    within.map_or(line, |(_, line)| line)
                }),
                field: field.to_owned(),
                found,
                allowed,
            }
        });
    }

    /// Records that a required field is absent or null. If its group is not a map, only the group has an error.
    pub(super) fn missing(&mut self, field: Field, allowed: &str) {
        if field.row().grouped.is_some_and(|(group, _)| self.is_invalid(group)) {
            return;
        }
        let null = self.fields.get(&field).and_then(|given| given.first());
        match null.map(|null| (null.line, null.path.clone())) {
            Some((line, path)) => self.error(Some(line), &path, "nothing", allowed),
            None => self.missing_at(&field.row().spellings(), allowed),
        }
    }

    /// Whether a group is given but not a map. Then its content is unknown.
    pub(super) fn is_invalid(&self, group: &str) -> bool {
        self.groups.iter().any(|given| given.name == group && !given.is_map)
    }

    /// A misspelled field already has an error.
    fn missing_at(&mut self, spellings: &[String], allowed: &str) {
        let meant = |error: &ReadError| {
            let near = error.allowed.strip_prefix("did you mean `")?.strip_suffix("`?")?;
            let parent = error.field.rsplit_once('.').map(|(parent, _)| format!("{parent}."));
            Some(parent.unwrap_or_default() + near)
        };
        let misspelled = self
            .errors
            .get_mut()
            .listed()
            .iter()
            .filter_map(meant)
            .any(|meant| spellings.contains(&meant));
        if let Some(path) = spellings.first().filter(|_| !misspelled) {
            self.error(None, path, "nothing", allowed);
        }
    }

    /// The line of a field; a null counts as absent.
    pub(super) fn line(&self, field: Field) -> Option<u64> {
        self.given(field).map(|given| given.line)
    }

    /// The first occurrence of a field; a null counts as absent.
    pub(super) fn given(&self, field: Field) -> Option<&Given<'a>> {
        self.fields.get(&field)?.iter().find(|given| !given.is_null())
    }

    /// The value of a field; `read` returns `None` for a value that is not `allowed`. An explicit null counts as
    /// absent. If a field is given under several names, all must have the same value.
    pub(super) fn get<T: PartialEq>(
        &mut self,
        field: Field,
        allowed: &str,
        read: impl Fn(&'a Node) -> Option<T>,
    ) -> Option<T> {
        let given = self.fields.remove(&field)?;
        let mut kept: Option<T> = None;
        let mut first: Option<(Option<T>, &Given<'_>)> = None;
        for one in given.iter().filter(|one| !one.is_null()) {
            let value = read(one.node);
            if value.is_none() {
                self.error(Some(one.node.line), &one.path, &one.node.found(), allowed);
            }
            let Some((known, place)) = &first else {
                first = Some((value, one));
                continue;
            };
            let is_same = match (&value, known) {
                (Some(value), Some(known)) => value == known,
                // Two different invalid values are still different.
                _ => Same(one.node) == Same(place.node),
            };
            if !is_same {
                let found = format!(
                    "{}, while line {} says {}",
                    one.node.found(),
                    place.line,
                    place.node.found()
                );
                let allowed = format!("one value; `{}` and `{}` are the same field", one.path, place.path);
                self.error(Some(one.node.line), &one.path, &found, &allowed);
            }
            kept = kept.or(value);
        }
        let kept = first.and_then(|(value, _)| value).or(kept);
        self.fields.insert(field, given);
        kept
    }

    /// The spelling of a field in the text; the portable spelling if it is not given, or is the text below the fields.
    pub(super) fn spelled(&self, field: Field) -> String {
        match self.given(field) {
            Some(given) if given.path != BODY => given.path.clone(),
            Some(_) | None => field.portable(),
        }
    }

    /// A list or a map, whose parts are read one by one.
    pub(super) fn part(&mut self, field: Field, allowed: &str, fits: fn(&Content) -> bool) -> Option<Part<'a>> {
        let Same(node) = self.get(field, allowed, |node| fits(&node.content).then_some(Same(node)))?;
        let given = self
            .fields
            .get(&field)?
            .iter()
            .find(|one| std::ptr::eq(one.node, node))?;
        let path = given.path.clone();
        let items = match &node.content {
            Content::List(items) => items.len(),
            Content::Map(entries) => entries.len(),
            _ => 0,
        };
        if items > MOST_ITEMS {
            let allowed = format!("at most {MOST_ITEMS}");
            self.error(Some(node.line), &path, &format!("{items} of them"), &allowed);
            return None;
        }
        Some(Part { path, node })
    }

    /// A list of distinct texts, each with its index. `fits` accepts an item. `written` is what to write if it is not a
    /// list.
    pub(super) fn names(
        &mut self,
        field: Field,
        item: &str,
        written: Option<String>,
        fits: fn(&str) -> bool,
    ) -> Vec<(usize, String)> {
        let allowed = written.unwrap_or_else(|| format!("a list, each item {item}"));
        let Some(Part { path, node }) = self.part(field, &allowed, |content| matches!(content, Content::List(_)))
        else {
            return Vec::new();
        };
        let Content::List(items) = &node.content else {
            return Vec::new();
        };
        let mut names: Vec<(usize, String)> = Vec::new();
        for (n, node) in items.iter().enumerate() {
            let path = format!("{path}[{n}]");
            match text(node).filter(|name| fits(name)) {
                None => self.error(Some(node.line), &path, &node.found(), item),
                Some(name) if names.iter().any(|(_, other)| *other == name) => {
                    let found = format!("{} a second time", quoted(&name));
                    self.error(Some(node.line), &path, &found, "each name once");
                }
                Some(name) => names.push((n, name)),
            }
            self.places
                .insert(format!("{}[{n}]", field.portable()), path, node.line);
        }
        names
    }

    /// A text that is not blank.
    pub(super) fn text(&mut self, field: Field) -> Option<String> {
        self.get(field, "text that is not blank", text)
    }

    /// A whole number in the range of the table.
    fn whole(&mut self, field: Field) -> Option<i32> {
        let Holds::Whole(least) = field.row().holds else {
            unreachable!("the field holds a whole number")
        };
        let allowed = format!("a whole number from {least}");
        self.get(field, &allowed, |node| whole(node).filter(|value| *value >= least))
    }

    /// A duration in seconds, or as a text with units.
    pub(super) fn seconds(&mut self, field: Field) -> Option<Duration> {
        self.get(field, duration::SECONDS, duration::seconds)
    }

    /// A duration in minutes.
    pub(super) fn minutes(&mut self, field: Field) -> Option<Duration> {
        self.get(field, duration::MINUTES, duration::minutes)
    }

    /// A whole number from 1.
    pub(super) fn count(&mut self, field: Field) -> Option<u32> {
        self.whole(field).and_then(|value| u32::try_from(value).ok())
    }

    /// A number in the range of the table, stored as a protobuf float.
    fn float(&mut self, field: Field) -> Option<f32> {
        let Holds::Number(most) = field.row().holds else {
            unreachable!("the field holds a number")
        };
        let allowed = format!("a number from 0 to {most}");
        self.get(field, &allowed, |node| {
            float(node).filter(|value| (0.0..=most).contains(value))
        })
    }

    /// True or false.
    fn boolean(&mut self, field: Field) -> Option<bool> {
        self.get(field, "true or false", |node| match node.content {
            Content::Bool(value) => Some(value),
            _ => None,
        })
    }

    /// One of a few names.
    pub(super) fn choice<T: Copy + PartialEq>(&mut self, field: Field, names: &[(&str, T)]) -> Option<T> {
        self.get(field, &OneOf(names).allowed(), |node| choice(node, names))
    }
}

/// The type of an optional field that is read and written alone.
pub(super) trait Held: Sized {
    fn read(values: &mut Values<'_>, field: Field) -> Option<Self>;
    fn to_json(&self) -> Value;
}

macro_rules! held {
    ($($type:ty: $read:expr, $write:expr;)+) => {
        $(impl Held for $type {
            fn read(values: &mut Values<'_>, field: Field) -> Option<Self> {
                $read(values, field)
            }
            fn to_json(&self) -> Value {
                let write: fn(&Self) -> Value = $write;
                write(self)
            }
        })+
    };
}

held! {
    String: Values::text, |text| Value::from(text.as_str());
    bool: Values::boolean, |value| Value::from(*value);
    i32: Values::whole, |value| Value::from(*value);
    u32: Values::count, |value| Value::from(*value);
    f32: Values::float, |value| Value::from(shortest(*value));
}

/// Declares a struct of optional fields of one group, each with its field in the table.
macro_rules! fields {
    ($(#[$meta:meta])* pub struct $group:ident {
        $($(#[$about:meta])+ $name:ident: $type:ty = $field:ident;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default)]
        pub struct $group { $($(#[$about])+ pub $name: Option<$type>,)+ }

        impl $group {
            pub(super) fn read(values: &mut crate::domain::definition::values::Values<'_>) -> Self {
                use crate::domain::definition::Field;
                use crate::domain::definition::values::Held;
                Self { $($name: <$type>::read(values, Field::$field),)+ }
            }

            /// The fields that are present, by their portable names.
            pub(super) fn to_json(&self) -> impl Iterator<Item = (String, serde_json::Value)> {
                use crate::domain::definition::Field;
                use crate::domain::definition::values::Held;
                let fields = [$((Field::$field, self.$name.as_ref().map(Held::to_json)),)+];
                fields.into_iter().filter_map(|(field, value)| Some((field.name().to_owned(), value?)))
            }
        }
    };
}
pub(super) use fields;
