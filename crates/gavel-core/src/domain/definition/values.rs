//! Single values: converts a node to the type of a field, or reports an error with what is allowed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use gavel_reading::{At, Content, Errors, FLAG, Node, Parser, ReadError, Scalar, Whole};
use serde_json::Value;

use super::canonical::shortest;
use super::fields::{Field, Fields, Holds};
use super::{Flow, Input};

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

/// Reads fields; every error is reported.
pub(super) struct Values<'a> {
    pub(super) whole: At<'a>,
    /// The text of the file; empty for a form without lines.
    pub(super) text: &'a str,
    pub(super) fields: Fields<'a>,
    /// The groups that are given, by their portable names.
    pub(super) groups: Vec<(&'static str, At<'a>)>,
    pub(super) errors: &'a RefCell<Errors>,
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

impl<'a> Values<'a> {
    /// A field, as first given; a null counts as absent.
    pub(super) fn given(&self, field: Field) -> Option<&At<'a>> {
        self.fields.get(&field).filter(|at| !at.node.is_null())
    }

    /// Whether a field is given, valid or not.
    pub(super) fn has(&self, field: Field) -> bool {
        self.given(field).is_some()
    }

    /// The value of a field; `None` if it is absent or invalid.
    pub(super) fn take<P: Parser>(&self, field: Field, parser: P) -> Option<P::Value> {
        parser.parse(self.given(field)?)
    }

    /// As [`Self::take`]; an absent field is an error, which says what is needed.
    pub(super) fn need<P: Parser>(&self, field: Field, needed: &str, parser: P) -> Option<P::Value> {
        if !self.has(field) {
            self.missing(field, needed);
        }
        self.take(field, parser)
    }

    /// Where errors about a field are; the portable spelling if it is not given, or is the text below the fields.
    pub(super) fn place(&self, field: Field) -> At<'a> {
        match self.given(field) {
            Some(at) if at.path == BODY => at.clone().named(field.portable()),
            Some(at) => at.clone(),
            None => self.nowhere(&field.portable()),
        }
    }

    /// The same for a part with a portable path.
    pub(super) fn place_of(&self, path: &str) -> At<'a> {
        let at = self.nowhere(&self.places.spelled(path));
        at.on_line(self.places.line(path).unwrap_or_default())
    }

    fn nowhere(&self, path: &str) -> At<'a> {
        self.whole.clone().named(path).on_line(0)
    }

    /// Reports the `${` at offset `at` in a text: what was found and what is allowed.
    pub(super) fn error_within(
        &self,
        place: &At<'_>,
        (text, at): (&str, usize),
        words: impl FnOnce() -> (String, String),
    ) {
        place.report(|| {
            let (found, allowed) = words();
            let mut marks = lines_of(self.text, place.line, text);
            let line = marks.find(|(mark, _)| *mark == at).map(|(_, line)| line);
            (line.filter(|_| place.line > 0).unwrap_or(place.line), found, allowed)
        });
    }

    /// Reports that a required field is absent or null. If its group is not a map, only the group has an error.
    pub(super) fn missing(&self, field: Field, allowed: &str) {
        if field.row().grouped.is_some_and(|(group, _)| self.is_invalid(group)) {
            return;
        }
        if let Some(null) = self.fields.get(&field) {
            return null.error("nothing", allowed);
        }
        // A misspelled field already has an error.
        let spellings = field.row().spellings();
        let meant = |error: &ReadError| {
            let near = error.allowed.strip_prefix("did you mean `")?.strip_suffix("`?")?;
            let parent = error.field.rsplit_once('.').map(|(parent, _)| format!("{parent}."));
            Some(parent.unwrap_or_default() + near)
        };
        let is_misspelled = |error: &ReadError| meant(error).is_some_and(|meant| spellings.contains(&meant));
        if !self.errors.borrow().listed().iter().any(is_misspelled) {
            self.nowhere(&spellings[0]).error("nothing", allowed);
        }
    }

    /// Whether a group is given but not a map. Then its content is unknown.
    pub(super) fn is_invalid(&self, group: &str) -> bool {
        let is_map = |at: &At<'_>| matches!(at.node.content, Content::Map(_));
        self.groups.iter().any(|(name, at)| *name == group && !is_map(at))
    }

    /// The items of a list, each with its place.
    pub(super) fn items(&mut self, field: Field, allowed: &str) -> Vec<At<'a>> {
        let Some(at) = self.given(field).cloned() else {
            return Vec::new();
        };
        if at.node.items().is_none() {
            at.invalid(allowed);
            return Vec::new();
        }
        let items = at.items(MOST_ITEMS).unwrap_or_default();
        for (n, item) in items.iter().enumerate() {
            self.places.insert(format!("{}[{n}]", field.portable()), item);
        }
        items
    }

    /// A text that is not blank.
    pub(super) fn text(&self, field: Field) -> Option<String> {
        self.take(field, SOME_TEXT)
    }

    /// A whole number in the range of the table.
    fn whole<T: Copy + PartialOrd + Display + TryFrom<i128> + TryFrom<i32>>(&self, field: Field) -> Option<T> {
        let Holds::Whole(least) = field.row().holds else {
            unreachable!("the field holds a whole number")
        };
        let range = T::try_from(least).ok()?..=T::try_from(i32::MAX).ok()?;
        self.take(field, Whole(range))
    }

    /// A whole number from 1.
    pub(super) fn count(&self, field: Field) -> Option<u32> {
        self.whole(field)
    }

    /// A number in the range of the table, stored as a protobuf float.
    fn float(&self, field: Field) -> Option<f32> {
        let Holds::Number(most) = field.row().holds else {
            unreachable!("the field holds a number")
        };
        let at = self.given(field)?;
        let value = float(at.node).filter(|value| (0.0..=most).contains(value));
        if value.is_none() {
            at.invalid(format!("a number from 0 to {most}"));
        }
        value
    }
}

/// The type of an optional field that is read and written alone.
pub(super) trait Held: Sized {
    fn read(values: &Values<'_>, field: Field) -> Option<Self>;
    fn to_json(&self) -> Value;
}

macro_rules! held {
    ($($type:ty: $read:expr, $write:expr;)+) => {
        $(impl Held for $type {
            fn read(values: &Values<'_>, field: Field) -> Option<Self> {
                let read: fn(&Values<'_>, Field) -> Option<Self> = $read;
                read(values, field)
            }
            fn to_json(&self) -> Value {
                let write: fn(&Self) -> Value = $write;
                write(self)
            }
        })+
    };
}

held! {
    String: |values, field| values.text(field), |text| Value::from(text.as_str());
    bool: |values, field| values.take(field, FLAG), |value| Value::from(*value);
    i32: |values, field| values.whole(field), |value| Value::from(*value);
    u32: |values, field| values.count(field), |value| Value::from(*value);
    Duration: |values, field| values.take(field, SECONDS), |time| Value::from(time.as_secs());
    f32: |values, field| values.float(field), |value| Value::from(shortest(*value));
}

/// Locations of fields and list items by their portable path, for later checks.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(BTreeMap<String, (String, u64)>);

impl Places {
    /// Records the location and the spelling of `path`.
    pub(super) fn insert(&mut self, path: String, at: &At<'_>) {
        self.0.entry(path).or_insert_with(|| (at.path.clone(), at.line));
    }

    /// The line of a portable path, if it is given.
    pub(super) fn line(&self, path: &str) -> Option<u64> {
        self.0.get(path).map(|(_, line)| *line).filter(|line| *line > 0)
    }

    /// Whether it is given.
    pub(super) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// The spelling of a portable path in the file.
    pub(super) fn spelled(&self, path: &str) -> String {
        self.0.get(path).map_or(path, |(spelled, _)| spelled).to_owned()
    }
}

/// Each `${` of a text that begins on `line` of the file `whole`, with its line. The nth `${` of the text is the nth in
/// the file from that line on. If the file spells them in another way and has fewer, the line is that of the text's
/// start.
pub(super) fn lines_of<'t>(whole: &'t str, line: u64, text: &'t str) -> impl Iterator<Item = (usize, u64)> + 't {
    let whole = whole.as_bytes();
    let lines_before = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
    let start = match lines_before.checked_sub(1) {
        Some(last) => memchr::memchr_iter(b'\n', whole)
            .nth(last)
            .map_or(whole.len(), |end| end + 1),
        None => 0,
    };
    let (mut counted, mut at_line) = (start, line);
    let lines = memchr::memmem::find_iter(&whole[start..], "${").map(move |at| {
        // Counts from one to the next, so that the file is scanned once.
        at_line += memchr::memchr_iter(b'\n', &whole[counted..start + at]).count() as u64;
        counted = start + at;
        at_line
    });
    let marks = text.match_indices("${").map(|(at, _)| at);
    marks.zip(lines.chain(std::iter::repeat(line)))
}

/// Whether the text has any non-space character. Like `\S` in the JSON Schema, for which a byte order mark is a space
/// (ECMA-262, WhiteSpace).
fn has_words(text: &str) -> bool {
    text.chars().any(|c| !c.is_whitespace() && c != '\u{feff}')
}

/// Text that is not blank, unchanged.
fn text(node: &Node) -> Option<String> {
    match &node.content {
        Content::Text(text) if has_words(text) => Some(text.clone()),
        _ => None,
    }
}

fn float(node: &Node) -> Option<f32> {
    match node.content {
        Content::Integer(value) => i16::try_from(value).ok().map(f32::from),
        // Removes the sign of a zero, so that -0.0 equals 0.0 and has its hash.
        Content::Float(value) => Some(value as f32 + 0.0),
        _ => None,
    }
}

/// Whether the text is an allowed name of an agent, an input or an output.
pub(super) fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

/// A field in seconds.
pub(super) const SECONDS: Scalar<Duration> = Scalar {
    allowed: "a number of seconds from 1, or a text such as 90s, 5m or 1h30m",
    read: seconds,
};

/// A field in minutes.
pub(super) const MINUTES: Scalar<Duration> = Scalar {
    allowed: "a number of minutes above 0; a fraction is rounded to whole seconds",
    read: minutes,
};

/// The texts that [`seconds`] accepts, for the JSON Schema. No sum of them exceeds an `int32` of seconds.
pub(super) const PATTERN: &str = "^(?:[1-9][0-9]{0,4}h)?(?:[1-9][0-9]{0,6}m)?(?:[1-9][0-9]{0,8}s)?$";

/// Units with their seconds and their most digits, in the order of a text.
const UNITS: [(char, u64, usize); 3] = [('h', 3600, 5), ('m', 60, 7), ('s', 1, 9)];

/// Whole seconds from a number of seconds or a text with units.
fn seconds(node: &Node) -> Option<Duration> {
    let seconds = match &node.content {
        Content::Integer(value) => u64::try_from(*value).ok()?,
        Content::Float(value) if *value >= 1.0 => nearest(*value)?,
        Content::Text(text) => with_units(text)?,
        Content::Float(_) | Content::Null | Content::Bool(_) | Content::List(_) | Content::Map(_) => return None,
    };
    (1..=MOST_UNITS)
        .contains(&seconds)
        .then(|| Duration::from_secs(seconds))
}

/// Whole seconds from a number of minutes; beyond what an `int32` of seconds holds, whole minutes.
fn minutes(node: &Node) -> Option<Duration> {
    let seconds = match node.content {
        Content::Integer(value) => u64::try_from(value).ok().filter(|minutes| *minutes <= MOST_UNITS)? * 60,
        Content::Float(value) if value > 0.0 && value <= MOST_UNITS as f64 => match nearest(value * 60.0) {
            Some(seconds) if seconds <= MOST_UNITS => seconds.max(1),
            _ => nearest(value)? * 60,
        },
        _ => return None,
    };
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// The most seconds, and the most minutes: the maximum of an `int32` of the protobuf form.
const MOST_UNITS: u64 = i32::MAX as u64;

/// The nearest whole number.
fn nearest(value: f64) -> Option<u64> {
    let rounded = value.round();
    // Within this range every whole number is exact.
    (0.0..=1e15).contains(&rounded).then_some(rounded as u64)
}

fn with_units(text: &str) -> Option<u64> {
    let (mut rest, mut sum) = (text, 0);
    for (unit, seconds, digits) in UNITS {
        let Some((number, after)) = rest.split_once(unit) else {
            continue;
        };
        let is_number = (1..=digits).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
        if !is_number || number.starts_with('0') {
            return None;
        }
        sum += number.parse::<u64>().ok()? * seconds;
        rest = after;
    }
    (rest.is_empty() && sum > 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(content: Content) -> Node {
        Node { line: 1, content }
    }

    #[test]
    fn seconds_are_a_number_or_a_text_with_units() {
        for (text, expected) in [
            ("5m", Some(300)),
            ("90s", Some(90)),
            ("1h30m", Some(5400)),
            ("2h1s", Some(7201)),
            ("99999h9999999m999999999s", Some(1_959_996_339)),
            ("", None),
            ("5", None),
            ("0s", None),
            ("05m", None),
            ("m", None),
            ("5 m", None),
            ("5M", None),
            ("30s5m", None),
            ("-5m", None),
            ("1.5h", None),
            ("100000h", None),
        ] {
            let read = seconds(&node(Content::Text(text.to_owned())));
            assert_eq!(read.map(|time| time.as_secs()), expected, "{text:?}");
        }
        for (value, expected) in [
            (300.0, Some(300)),
            (1.4, Some(1)),
            (0.5, None),
            (-1.0, None),
            (f64::NAN, None),
        ] {
            let read = seconds(&node(Content::Float(value)));
            assert_eq!(read.map(|time| time.as_secs()), expected, "{value}");
        }
        assert_eq!(seconds(&node(Content::Integer(0))), None);
        assert_eq!(seconds(&node(Content::Integer(i128::from(i32::MAX) + 1))), None);
        assert_eq!(seconds(&node(Content::Bool(true))), None);
    }

    #[test]
    fn minutes_may_be_a_fraction() {
        for (value, expected) in [
            (0.5, Some(30)),
            (0.001, Some(1)),
            (1.0 / 3.0, Some(20)),
            (2.0, Some(120)),
            (2e9 + 0.5, Some(2_000_000_001 * 60)),
            (0.0, None),
            (-0.5, None),
            (3e9, None),
            (f64::INFINITY, None),
        ] {
            let read = minutes(&node(Content::Float(value)));
            assert_eq!(read.map(|time| time.as_secs()), expected, "{value}");
        }
        assert_eq!(minutes(&node(Content::Integer(5))), Some(Duration::from_secs(300)));
        assert_eq!(minutes(&node(Content::Integer(0))), None);
        assert_eq!(minutes(&node(Content::Text("5m".to_owned()))), None);
    }
}

#[cfg(test)]
mod convert_tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_alone_is_no_text() {
        assert!(!has_words("\u{feff} \n"));
        assert!(has_words("\u{feff}a"));
    }
}
