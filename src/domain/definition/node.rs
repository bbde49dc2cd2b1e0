//! A tree of values with their lines, into which every form of a definition is parsed. Also the YAML parser.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Error, Spanned, UserMessageFormatter, alias_limits, budget, options};

use crate::domain::text;

/// A value with its first line.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) line: u64,
    pub(crate) content: Content,
}

/// The value itself.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Null,
    Bool(bool),
    /// Within the range of `i64` or of `u64`, as in JSON.
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the text; without duplicate keys once it is parsed.
    Map(Vec<(Key, Node)>),
}

/// A key with its line.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) line: u64,
    pub(crate) name: String,
}

/// The most bytes of a key's path that are kept; at least as many as errors show.
const LONGEST_PATH: usize = 256;

/// The most values of a definition, including field names. Each takes some microseconds in each of several passes, and
/// no hand-written definition has a tenth of them.
pub(super) const MOST_NODES: usize = 16_384;

/// The most lines of a text: comments are not values, but take time as well.
const MOST_LINES: usize = 65_536;

/// The most anchors and the most aliases of a text.
const MOST_ALIASES: usize = 1000;

/// The message for a text with more.
pub(super) fn too_many(nodes: usize) -> String {
    format!("{MORE}{nodes} values and names of fields")
}

/// Text that is not YAML.
#[derive(Clone, Debug)]
pub(crate) struct SyntaxError {
    pub(crate) line: Option<u64>,
    pub(crate) message: String,
}

impl SyntaxError {
    /// What was found and what is allowed, for a text that should have this form.
    pub(super) fn describe(&self, form: &'static str) -> (String, &'static str) {
        match self.message.starts_with(MORE) {
            true => (self.message.clone(), "at most that many"),
            false => (format!("text that is not {form} ({})", self.message), form),
        }
    }
}

/// The start of the message for a text that exceeds a limit.
const MORE: &str = "more than ";

impl Node {
    /// Parses YAML of at most `nodes` values, including keys. Only `true` and `false` are booleans (YAML 1.2).
    pub(crate) fn parse(text: &str, nodes: usize) -> Result<Self, SyntaxError> {
        Self::parse_with(text, nodes, DuplicateKeyPolicy::Error).map_err(|(error, _)| error)
    }

    /// As [`Node::parse`], but also returns duplicate keys, by their paths. The first value is kept.
    pub(super) fn parse_all(text: &str) -> Result<(Self, Vec<Key>), SyntaxError> {
        let error = match Self::parse_with(text, MOST_NODES, DuplicateKeyPolicy::Error) {
            Ok(node) => return Ok((node, Vec::new())),
            Err((error, true)) => error,
            Err((error, false)) => return Err(error),
        };
        // With this policy the parser returns every key, and duplicates are found here.
        let Ok(mut node) = Self::parse_with(text, MOST_NODES, DuplicateKeyPolicy::LastWins) else {
            return Err(error);
        };
        let twice = node.take_twice();
        if twice.is_empty() {
            return Err(error);
        }
        Ok((node, twice))
    }

    /// The flag in the error tells whether a duplicate key is the cause.
    fn parse_with(text: &str, nodes: usize, duplicate_keys: DuplicateKeyPolicy) -> Result<Self, (SyntaxError, bool)> {
        if memchr::memchr_iter(b'\n', text.as_bytes()).count() > MOST_LINES {
            let (line, message) = (None, format!("{MORE}{MOST_LINES} lines"));
            return Err((SyntaxError { line, message }, false));
        }
        let options = options! {
            budget: budget! {
                max_nodes: nodes,
                max_aliases: MOST_ALIASES,
                max_anchors: MOST_ALIASES,
            },
            alias_limits: alias_limits! {
                max_total_replayed_events: nodes,
            },
            duplicate_keys: duplicate_keys,
            strict_booleans: true,
            with_snippet: false,
        };
        match serde_saphyr::from_str_with_options::<Spanned<Content>>(text, options) {
            Ok(spanned) => Ok(spanned.into()),
            Err(error) => {
                let line = error.location().map(|location| location.line());
                let error = error.without_snippet();
                let is_twice = matches!(error, Error::DuplicateMappingKey { .. });
                // The message ends with a location in the front matter, not in the file.
                let message = error.render_with_formatter(&UserMessageFormatter);
                let message = match message.rsplit_once(" at line ") {
                    // Includes the values that aliases expand to.
                    _ if message.contains("limits breached: Nodes") => too_many(nodes),
                    Some((words, _)) => words.to_owned(),
                    None => message,
                };
                let message = match line.and_then(|line| unquoted(text, line)) {
                    Some(key) if !is_twice => format!(
                        "{message}; the value of `{key}` holds `: `, so write it in quotes, or indented below `{key}: >-`"
                    ),
                    _ => message,
                };
                Err((SyntaxError { line, message }, is_twice))
            }
        }
    }

    /// Removes duplicate keys and returns them, named by their paths.
    pub(super) fn take_twice(&mut self) -> Vec<Key> {
        let mut twice = Vec::new();
        self.take_twice_below(&mut String::new(), &mut twice);
        twice.sort_by_key(|key| key.line);
        twice
    }

    fn take_twice_below(&mut self, path: &mut String, twice: &mut Vec<Key>) {
        let above = path.len();
        match &mut self.content {
            Content::List(items) => {
                for (n, item) in items.iter_mut().enumerate() {
                    path.push_str(&format!("[{n}]"));
                    item.take_twice_below(path, twice);
                    path.truncate(above);
                }
            }
            Content::Map(entries) => {
                let mut seen = BTreeSet::new();
                entries.retain_mut(|(key, node)| {
                    if above > 0 {
                        path.push('.');
                    }
                    path.push_str(&key.name);
                    let is_first = seen.insert(key.name.clone());
                    if is_first {
                        node.take_twice_below(path, twice);
                    } else {
                        twice.push(Key {
                            line: key.line,
                            // There may be many, each below a name with the length of the definition.
                            name: text::prefix(path, LONGEST_PATH).to_owned(),
                        });
                    }
                    path.truncate(above);
                    is_first
                });
            }
            _ => {}
        }
    }

    /// The value as errors show it; long values are cut.
    pub(crate) fn found(&self) -> String {
        match &self.content {
            Content::Null => "nothing".to_owned(),
            Content::Bool(value) => value.to_string(),
            Content::Integer(value) => value.to_string(),
            Content::Float(value) => value.to_string(),
            Content::Text(text) => quoted(text),
            Content::List(_) => "a list".to_owned(),
            Content::Map(_) => "a map".to_owned(),
        }
    }

    /// The value as JSON, without lines.
    pub(crate) fn to_json(&self) -> Value {
        match &self.content {
            Content::Null => Value::Null,
            Content::Bool(value) => Value::from(*value),
            Content::Integer(value) => match (i64::try_from(*value), u64::try_from(*value)) {
                (Ok(value), _) => Value::from(value),
                (_, Ok(value)) => Value::from(value),
                _ => unreachable!("no reader makes a larger integer"),
            },
            Content::Float(value) => Value::from(*value),
            Content::Text(text) => Value::from(text.as_str()),
            Content::List(items) => items.iter().map(Self::to_json).collect(),
            Content::Map(entries) => Value::Object(
                entries
                    .iter()
                    .map(|(key, node)| (key.name.clone(), node.to_json()))
                    .collect(),
            ),
        }
    }
}

impl Node {
    /// The tree with `by` added to each line.
    pub(super) fn moved(self, by: u64) -> Self {
        let content = match self.content {
            Content::List(items) => Content::List(items.into_iter().map(|item| item.moved(by)).collect()),
            Content::Map(entries) => Content::Map(
                entries
                    .into_iter()
                    .map(|(key, node)| {
                        let line = key.line + by;
                        (Key { line, ..key }, node.moved(by))
                    })
                    .collect(),
            ),
            other => other,
        };
        Self {
            line: self.line + by,
            content,
        }
    }

    /// The tree with all of it on one line: that of the text that contains it.
    pub(super) fn on_line(self, line: u64) -> Self {
        let content = match self.content {
            Content::List(items) => Content::List(items.into_iter().map(|item| item.on_line(line)).collect()),
            Content::Map(entries) => Content::Map(
                entries
                    .into_iter()
                    .map(|(key, node)| (Key { line, ..key }, node.on_line(line)))
                    .collect(),
            ),
            other => other,
        };
        Self { line, content }
    }

    /// The part at a JSON pointer, or its last existing parent.
    pub(super) fn at(&self, pointer: &str) -> &Self {
        let mut node = self;
        for part in pointer.split('/').skip(1) {
            let name = part.replace("~1", "/").replace("~0", "~");
            let next = match &node.content {
                Content::Map(entries) => entries.iter().find(|(key, _)| key.name == name).map(|(_, node)| node),
                Content::List(items) => name.parse().ok().and_then(|n: usize| items.get(n)),
                _ => None,
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node
    }
}

/// The key whose unquoted value, on this line or the one before, contains `: `, which YAML reads as another key.
fn unquoted<'t>(text: &'t str, line: u64) -> Option<&'t str> {
    let at = usize::try_from(line).ok()?.checked_sub(1)?;
    let lines = text
        .lines()
        .skip(at.saturating_sub(1))
        .take(if at == 0 { 1 } else { 2 });
    let key = |line: &'t str| {
        let (key, value) = line.split_once(": ")?;
        let value = value.trim_start();
        let is_plain = !value.starts_with(['"', '\'', '|', '>', '[', '{', '&', '*', '!', '#']);
        let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        (is_key && is_plain && value.contains(": ")).then_some(key)
    };
    lines.filter_map(key).last()
}

/// A text as errors show it: quoted, with controls escaped, at most 60 characters.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(60).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

impl From<Spanned<Content>> for Node {
    fn from(spanned: Spanned<Content>) -> Self {
        Self {
            line: spanned.referenced.line(),
            content: spanned.value,
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Integer(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Integer(value.into()))
    }
    // Larger ones are floats, as in JSON parsers.
    fn visit_i128<E>(self, value: i128) -> Result<Content, E> {
        Ok(Content::Float(value as f64))
    }
    fn visit_u128<E>(self, value: u128) -> Result<Content, E> {
        Ok(Content::Float(value as f64))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Content, E> {
        Ok(Content::Float(value))
    }
    fn visit_str<E>(self, text: &str) -> Result<Content, E> {
        Ok(Content::Text(text.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Content, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Spanned<Content>>()? {
            list.push(item.into());
        }
        Ok(Content::List(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Content, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<String>>()? {
            let value = entries.next_value::<Spanned<Content>>()?;
            map.push((
                Key {
                    line: key.referenced.line(),
                    name: key.value,
                },
                value.into(),
            ));
        }
        Ok(Content::Map(map))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_value_knows_its_line() {
        let node = Node::parse("a: 1\nb:\n  - x\n  - c: true\n    d: 0.5\ne: on\n", MOST_NODES).unwrap();
        let Content::Map(entries) = &node.content else {
            panic!("{node:?}")
        };
        let lines: Vec<_> = entries
            .iter()
            .map(|(key, node)| (key.name.as_str(), key.line, node.line))
            .collect();
        assert_eq!(lines, [("a", 1, 1), ("b", 2, 3), ("e", 6, 6)]);
        assert_eq!(
            node.to_json(),
            serde_json::json!({"a": 1, "b": ["x", {"c": true, "d": 0.5}], "e": "on"})
        );
        let Content::List(items) = &entries[1].1.content else {
            panic!("{node:?}")
        };
        assert_eq!((items[0].line, items[1].line), (3, 4));
    }

    #[test]
    fn a_key_given_twice_is_an_error_with_its_line() {
        let error = Node::parse("a: 1\nb: 2\na: 3\n", MOST_NODES).unwrap_err();
        assert_eq!(error.line, Some(3), "{}", error.message);
    }

    #[test]
    fn aliases_make_no_more_of_a_text_than_it_may_have() {
        let many = format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(200), "*a,".repeat(200));
        let error = Node::parse(&many, MOST_NODES).unwrap_err();
        assert_eq!(error.message, "more than 16384 values and names of fields");
        assert!(Node::parse("a: &a [x]\nb: *a\nc: {<<: {d: 1}, e: 2}\n", MOST_NODES).is_ok());
        let error = Node::parse(&format!("a: [{}]", "1,".repeat(100)), 50).unwrap_err();
        assert_eq!(
            (error.line, error.message.as_str()),
            (Some(1), "more than 50 values and names of fields")
        );
    }

    proptest! {
        #[test]
        fn json_is_read_as_what_it_is(text in "[ -~äß\n]{0,40}", number in any::<i32>(), half in -1.0e6..1.0e6f64) {
            let value = serde_json::json!({"t": text, "l": [number, half, null, true], "m": {"x": {}}});
            let read = Node::parse(&value.to_string(), MOST_NODES).unwrap().to_json();
            prop_assert_eq!(read, value);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC*") {
            let _ = Node::parse(&text, MOST_NODES);
        }
    }
}
