//! Single values: converts a node to the type of a field, or reports an error with what is allowed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use gavel_reading::{Content, Errors, Node, OneOf, Parser, ReadError, Scalar, quoted};
use serde_json::Value;

use super::canonical::shortest;
use super::fields::{Field, Fields, Given, GivenGroup, Holds};
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
        self.get(field, SECONDS, seconds)
    }

    /// A duration in minutes.
    pub(super) fn minutes(&mut self, field: Field) -> Option<Duration> {
        self.get(field, MINUTES, minutes)
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

/// Locations of fields and list items by their portable path, for later checks.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(BTreeMap<String, (String, u64)>);

impl Places {
    /// Records the location and the spelling of `path`.
    pub(crate) fn insert(&mut self, path: String, spelled: String, line: u64) {
        self.0.entry(path).or_insert((spelled, line));
    }

    /// The line of a portable path, if it is given.
    pub(crate) fn line(&self, path: &str) -> Option<u64> {
        self.0.get(path).map(|(_, line)| *line).filter(|line| *line > 0)
    }

    /// Whether it is given.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// The spelling of a portable path in the file.
    pub(crate) fn spelled(&self, path: &str) -> String {
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
pub(super) fn text(node: &Node) -> Option<String> {
    match &node.content {
        Content::Text(text) if has_words(text) => Some(text.clone()),
        _ => None,
    }
}

/// One of a few names.
pub(super) fn choice<T: Copy>(node: &Node, names: &[(&str, T)]) -> Option<T> {
    let Content::Text(text) = &node.content else {
        return None;
    };
    names.iter().find(|(name, _)| name == text).map(|(_, value)| *value)
}

fn whole(node: &Node) -> Option<i32> {
    match node.content {
        Content::Integer(value) => i32::try_from(value).ok(),
        // 5.0 is 5, as in JSON.
        Content::Float(value) if value.fract() == 0.0 && value.abs() <= f64::from(i32::MAX) => Some(value as i32),
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

/// What a field in seconds accepts.
pub(super) const SECONDS: &str = "a number of seconds from 1, or a text such as 90s, 5m or 1h30m";

/// A field in seconds.
pub(super) const TIMEOUT: Scalar<Duration> = Scalar {
    allowed: SECONDS,
    read: seconds,
};

/// What a field in minutes accepts.
pub(super) const MINUTES: &str = "a number of minutes above 0; a fraction is rounded to whole seconds";

/// The texts that [`seconds`] accepts, for the JSON Schema. No sum of them exceeds an `int32` of seconds.
pub(super) const PATTERN: &str = "^(?:[1-9][0-9]{0,4}h)?(?:[1-9][0-9]{0,6}m)?(?:[1-9][0-9]{0,8}s)?$";

/// Units with their seconds and their most digits, in the order of a text.
const UNITS: [(char, u64, usize); 3] = [('h', 3600, 5), ('m', 60, 7), ('s', 1, 9)];

/// Whole seconds from a number of seconds or a text with units.
pub(super) fn seconds(node: &Node) -> Option<Duration> {
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
pub(super) fn minutes(node: &Node) -> Option<Duration> {
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
