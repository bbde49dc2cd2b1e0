//! Parses YAML into a tree of values, within limits.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Error, Spanned, UserMessageFormatter, alias_limits, budget, options};

use super::{Content, Key, Node};

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
    #[must_use]
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
