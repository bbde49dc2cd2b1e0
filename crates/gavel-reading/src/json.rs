//! JSON, strictly by RFC 8259, with the line of every value.
//!
//! `serde_json` parses each level and returns the text of its children. The position of that text in the whole
//! determines the line.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::node::{Content, Key, MOST_NODES, Node, SyntaxError, quoted, too_many};
use crate::{malformed, nesting};

/// Parses one JSON value and also returns duplicate keys, by their paths. The first value is kept.
///
/// # Errors
/// The text is not JSON, or is too large.
pub fn parse(text: &str) -> Result<(Node, Vec<Key>), SyntaxError> {
    // Each level is parsed once for every level around it, so their number is limited.
    if !nesting::within(text.as_bytes(), nesting::MAX_LEVELS) {
        return Err(SyntaxError {
            line: None,
            message: format!("more than {} levels", nesting::MAX_LEVELS),
        });
    }
    if nesting::has_more(text.as_bytes(), MOST_NODES) {
        return Err(SyntaxError {
            line: None,
            message: too_many(MOST_NODES),
        });
    }
    let ends = memchr::memchr_iter(b'\n', text.as_bytes()).collect();
    let reader = Reader { text, ends };
    let whole: &RawValue = serde_json::from_str(text).map_err(|error| reader.no_json(&error))?;
    let mut node = reader.node(whole)?;
    let twice = node.take_twice();
    Ok((node, twice))
}

/// Parses one JSON value and rejects duplicate keys, in one pass. Otherwise like [`parse`], but without lines.
///
/// # Errors
/// What is invalid, with its line.
fn strict(text: &str) -> Result<Value, SyntaxError> {
    if !nesting::within(text.as_bytes(), nesting::MAX_LEVELS) {
        return Err(SyntaxError {
            line: None,
            message: format!("more than {} levels", nesting::MAX_LEVELS),
        });
    }
    if nesting::has_more(text.as_bytes(), MOST_VALUES) {
        return Err(SyntaxError {
            line: None,
            message: too_many(MOST_VALUES),
        });
    }
    serde_json::from_str(text).map(|Strict(value)| value).map_err(|error| {
        if error.is_data() {
            return SyntaxError {
                line: Some(error.line() as u64),
                message: malformed::words(&error),
            };
        }
        let ends = memchr::memchr_iter(b'\n', text.as_bytes()).collect();
        Reader { text, ends }.no_json(&error)
    })
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Strict, E> {
        Ok(Strict(Value::Null))
    }
    fn visit_bool<E>(self, value: bool) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }
    fn visit_str<E>(self, text: &str) -> Result<Strict, E> {
        Ok(Strict(text.into()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Strict, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Strict(Value::Array(list)))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Strict, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {} a second time", quoted(&key))));
            }
            let Strict(value) = entries.next_value()?;
            map.insert(key, value);
        }
        Ok(Strict(Value::Object(map)))
    }
}

/// The most values of a run's inputs, including field names.
const MOST_VALUES: usize = 65_536;

struct Reader<'a> {
    text: &'a str,
    /// Offsets of its line ends.
    ends: Vec<usize>,
}

impl<'a> Reader<'a> {
    fn node(&self, raw: &'a RawValue) -> Result<Node, SyntaxError> {
        let line = self.line(raw);
        let content = match raw.get().as_bytes().first() {
            Some(b'{') => Content::Map(self.entries(raw, line)?),
            Some(b'[') => {
                let items: Vec<&RawValue> = self.read(raw, line)?;
                Content::List(
                    items
                        .into_iter()
                        .map(|item| self.node(item))
                        .collect::<Result<_, _>>()?,
                )
            }
            _ => match self.read(raw, line)? {
                Value::Bool(value) => Content::Bool(value),
                Value::String(text) => Content::Text(text),
                Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                    (Some(whole), ..) => Content::Integer(whole.into()),
                    (_, Some(whole), _) => Content::Integer(whole.into()),
                    (.., Some(value)) => Content::Float(value),
                    _ => unreachable!("a JSON number is a number"),
                },
                _ => Content::Null,
            },
        };
        Ok(Node { line, content })
    }

    fn entries(&self, raw: &'a RawValue, line: u64) -> Result<Vec<(Key, Node)>, SyntaxError> {
        let Entries(entries) = self.read(raw, line)?;
        let mut map: Vec<(Key, Node)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let line = self.line(key);
            let name: String = self.read(key, line)?;
            map.push((Key { line, name }, self.node(value)?));
        }
        Ok(map)
    }

    fn read<T: Deserialize<'a>>(&self, raw: &'a RawValue, line: u64) -> Result<T, SyntaxError> {
        serde_json::from_str(raw.get()).map_err(|error| self.error(&error, line))
    }

    /// Where the text stops being JSON, and why if known.
    fn no_json(&self, error: &serde_json::Error) -> SyntaxError {
        let start = match error.line() {
            0 | 1 => 0,
            line => self.ends.get(line - 2).map_or(0, |end| end + 1),
        };
        // The column counts the bytes up to and including the unexpected one.
        let at = (start + error.column().saturating_sub(1)).min(self.text.len());
        let before = self.text.get(..at).unwrap_or_default().trim_end();
        let next = self.text.get(at..).and_then(|rest| rest.chars().next());
        let (at, message) = match next {
            Some(end @ ('}' | ']')) if before.ends_with(',') => {
                (before.len() - 1, format!("a trailing comma before `{end}`"))
            }
            _ if error.is_eof() => (self.text.trim_end().len(), "it ends too early".to_owned()),
            _ => (at, malformed::syntax(error).to_owned()),
        };
        let line = self.ends.partition_point(|end| *end < at);
        let start = line
            .checked_sub(1)
            .and_then(|line| self.ends.get(line))
            .map_or(0, |end| end + 1);
        let column = self.text.get(start..at).map_or(0, |text| text.chars().count()) + 1;
        SyntaxError {
            line: Some(line as u64 + 1),
            message: format!("{message}, column {column}"),
        }
    }

    /// An error in a text that begins on `line`.
    fn error(&self, error: &serde_json::Error, line: u64) -> SyntaxError {
        let message = match error.is_data() {
            true => malformed::words(error),
            false => malformed::syntax(error).to_owned(),
        };
        SyntaxError {
            line: Some(line + (error.line().max(1) - 1) as u64),
            message,
        }
    }

    /// The line on which a part of the text begins.
    fn line(&self, part: &RawValue) -> u64 {
        let at = part.get().as_ptr().addr() - self.text.as_ptr().addr();
        self.ends.partition_point(|end| *end < at) as u64 + 1
    }
}

/// The entries of an object, each as its raw text.
struct Entries<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<'de>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}

/// Parses a caller's JSON and rejects duplicate keys: some readers use the first value, others the last.
///
/// # Errors
/// What is invalid, with its line.
pub fn strict_json(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    strict(text).map_err(|SyntaxError { line, message }| match line {
        Some(line) => format!("{message}, line {line}"),
        None => message,
    })
}

/// A text as editors write it (comments, trailing commas, a byte order mark) as plain JSON; line numbers do not change.
pub fn plain(text: &str) -> Cow<'_, str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut out = text.as_bytes().to_vec();
    let bytes = text.as_bytes();
    let (mut at, mut comma) = (0, None);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'"', ..] => {
                comma = None;
                at += string_end(&bytes[at..]);
                continue;
            }
            [b'/', b'/', rest @ ..] => {
                let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                blank(&mut out[at..at + 2 + end]);
                at += 2 + end;
                continue;
            }
            [b'/', b'*', rest @ ..] => {
                let end = rest
                    .windows(2)
                    .position(|end| end == b"*/")
                    .map_or(rest.len(), |end| end + 2);
                blank(&mut out[at..at + 2 + end]);
                at += 2 + end;
                continue;
            }
            [b',', ..] => comma = Some(at),
            [b'}' | b']', ..] => {
                if let Some(comma) = comma.take() {
                    out[comma] = b' ';
                }
            }
            [byte, ..] if byte.is_ascii_whitespace() => {}
            _ => comma = None,
        }
        at += 1;
    }
    match out == bytes {
        true => Cow::Borrowed(text),
        // Whole comments are blanked, so no character is split.
        false => String::from_utf8(out).map_or(Cow::Borrowed(text), Cow::Owned),
    }
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

/// The length of the string at the start of `bytes`, including its quotes.
fn string_end(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests;
