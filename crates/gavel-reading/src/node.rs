//! A tree of values with their lines, into which every form is parsed.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Error, Spanned, UserMessageFormatter, alias_limits, budget, options};
use toml_edit::{ImDocument, Item, TableLike};

/// A value with its first line.
#[derive(Clone, Debug)]
pub struct Node {
    /// From 1; 0 if the form has no lines.
    pub line: u64,
    /// The value itself.
    pub content: Content,
}

/// The value itself.
#[derive(Clone, Debug)]
pub enum Content {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// Within the range of `i64` or of `u64`, as in JSON.
    Integer(i128),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// In the order of the text; without duplicate keys once it is parsed.
    Map(Vec<(Key, Node)>),
}

/// A key with its line.
#[derive(Clone, Debug)]
pub struct Key {
    /// From 1; 0 if the form has no lines.
    pub line: u64,
    /// As written.
    pub name: String,
}

/// The most bytes of a key's path that are kept; at least as many as errors show.
const LONGEST_PATH: usize = 256;

impl Node {
    /// Removes duplicate keys and returns them, named by their paths.
    pub(crate) fn take_twice(&mut self) -> Vec<Key> {
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
                            // There may be many, each below a name with the length of the text.
                            name: path[..path.floor_char_boundary(LONGEST_PATH)].to_owned(),
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
    pub fn found(&self) -> String {
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
    pub fn to_json(&self) -> Value {
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

/// Without lines.
impl From<&Value> for Node {
    fn from(value: &Value) -> Self {
        Self::bare(match value {
            Value::Null => Content::Null,
            Value::Bool(value) => Content::Bool(*value),
            Value::Number(number) => match (number.as_i128(), number.as_f64()) {
                (Some(whole), _) => Content::Integer(whole),
                (None, number) => Content::Float(number.unwrap_or(f64::INFINITY)),
            },
            Value::String(text) => Content::Text(text.clone()),
            Value::Array(items) => Content::List(items.iter().map(Self::from).collect()),
            Value::Object(entries) => {
                let entry = |(name, value): (&String, &Value)| {
                    let name = name.clone();
                    (Key { line: 0, name }, Self::from(value))
                };
                Content::Map(entries.iter().map(entry).collect())
            }
        })
    }
}

impl Node {
    /// A value without a line.
    pub fn bare(content: Content) -> Self {
        Self { line: 0, content }
    }

    /// The items of a list; `None` for anything else.
    pub fn items(&self) -> Option<&[Self]> {
        match &self.content {
            Content::List(items) => Some(items),
            _ => None,
        }
    }

    /// A text as it is; `None` for anything else.
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is an explicit null, which counts as absent.
    pub fn is_null(&self) -> bool {
        matches!(self.content, Content::Null)
    }

    /// The text of a value that is no list and no map; `None` for null too.
    pub fn scalar(&self) -> Option<String> {
        match &self.content {
            Content::Bool(value) => Some(value.to_string()),
            Content::Integer(value) => Some(value.to_string()),
            Content::Float(value) => Some(value.to_string()),
            Content::Text(text) => Some(text.clone()),
            Content::Null | Content::List(_) | Content::Map(_) => None,
        }
    }

    /// The tree with `by` added to each line.
    #[must_use]
    pub fn moved(self, by: u64) -> Self {
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
    #[must_use]
    pub fn on_line(self, line: u64) -> Self {
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
    pub fn at(&self, pointer: &str) -> &Self {
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

/// A text as errors show it: quoted, with controls escaped, at most 60 characters.
pub fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(60).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// The most values of a definition, including field names. Each takes some microseconds in each of several passes, and
/// no hand-written definition has a tenth of them.
pub const MOST_NODES: usize = 16_384;

/// The most lines of a text: comments are not values, but take time as well.
const MOST_LINES: usize = 65_536;

/// The most anchors and the most aliases of a text.
const MOST_ALIASES: usize = 1000;

/// The message for a text with more.
pub(crate) fn too_many(nodes: usize) -> String {
    format!("{MORE}{nodes} values and names of fields")
}

/// Text that is not YAML.
#[derive(Clone, Debug)]
pub struct SyntaxError {
    /// The line, if it is known.
    pub line: Option<u64>,
    /// Why.
    pub message: String,
}

impl SyntaxError {
    /// What was found and what is allowed, for a text that should have this form.
    pub fn describe(&self, form: &'static str) -> (String, &'static str) {
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
    ///
    /// # Errors
    /// The text is not YAML, is too large, or has a key twice.
    pub fn parse(text: &str, nodes: usize) -> Result<Self, SyntaxError> {
        Self::parse_with(text, nodes, DuplicateKeyPolicy::Error).map_err(|(error, _)| error)
    }

    /// As [`Node::parse`], but also returns duplicate keys, by their paths. The first value is kept.
    ///
    /// # Errors
    /// The text is not YAML, or is too large.
    pub fn parse_all(text: &str) -> Result<(Self, Vec<Key>), SyntaxError> {
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

impl Node {
    /// Parses TOML. A date or a time is a text.
    ///
    /// # Errors
    /// The text is not TOML, or has a key twice.
    pub fn parse_toml(text: &str) -> Result<Self, SyntaxError> {
        let reader = Reader { text };
        let document = ImDocument::parse(text).map_err(|error| SyntaxError {
            line: Some(reader.line(error.span().map_or(0, |span| span.start))),
            message: error.message().replace('\n', ", "),
        })?;
        Ok(reader.table(document.as_table(), 1))
    }
}

struct Reader<'a> {
    text: &'a str,
}

impl Reader<'_> {
    /// A value; `line` is that of what it belongs to.
    fn node(&self, item: &Item, line: u64) -> Node {
        let line = item.span().map_or(line, |span| self.line(span.start));
        let content = if let Some(text) = item.as_str() {
            Content::Text(text.to_owned())
        } else if let Some(number) = item.as_integer() {
            Content::Integer(number.into())
        } else if let Some(number) = item.as_float() {
            Content::Float(number)
        } else if let Some(value) = item.as_bool() {
            Content::Bool(value)
        } else if let Some(tables) = item.as_array_of_tables() {
            let table = |table: &toml_edit::Table| {
                let line = table.span().map_or(line, |span| self.line(span.start));
                self.table(table, line)
            };
            Content::List(tables.iter().map(table).collect())
        } else if let Some(array) = item.as_array() {
            let items = array.iter().map(|value| self.node(&Item::Value(value.clone()), line));
            Content::List(items.collect())
        } else if let Some(table) = item.as_table_like() {
            return self.table(table, line);
        } else {
            Content::Text(item.as_datetime().map(ToString::to_string).unwrap_or_default())
        };
        Node { line, content }
    }

    fn table(&self, table: &dyn TableLike, line: u64) -> Node {
        let entries = table.iter().map(|(name, item)| {
            let span = table.key(name).and_then(toml_edit::Key::span).or_else(|| item.span());
            let line = span.map_or(line, |span| self.line(span.start));
            let name = name.to_owned();
            (Key { line, name }, self.node(item, line))
        });
        let content = Content::Map(entries.collect());
        Node { line, content }
    }

    fn line(&self, at: usize) -> u64 {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        1 + memchr::memchr_iter(b'\n', before).count() as u64
    }
}

#[cfg(test)]
mod toml_tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn every_value_of_toml_knows_its_line() {
        let text = "a = 1\nb.c = [\n 2.5,\n {d = true},\n]\n[[e]]\nf = 2024-01-01\n";
        let node = Node::parse_toml(text).unwrap();
        let expected = json!({"a": 1, "b": {"c": [2.5, {"d": true}]}, "e": [{"f": "2024-01-01"}]});
        assert_eq!(node.to_json(), expected);
        for (pointer, line) in [("/b/c/0", 3), ("/b/c/1", 4), ("/e/0", 6), ("/e/0/f", 7)] {
            assert_eq!(node.at(pointer).line, line, "{pointer}");
        }
        assert_eq!(Node::parse_toml("a = 1\na = 2\n").unwrap_err().line, Some(2));
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
