//! JSON, strictly by RFC 8259, with the line of every value.
//!
//! `serde_json` parses each level and returns the text of its children. The position of that text in the whole
//! determines the line.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::nesting;
use crate::node::{Content, Key, MOST_NODES, Node, SyntaxError, quoted, too_many};

/// Parses one JSON value and also returns duplicate keys, by their paths. The first value is kept.
///
/// # Errors
/// The text is not JSON, or is too large.
pub fn parse(text: &str) -> Result<(Node, Vec<Key>), SyntaxError> {
    parse_up_to(text, MOST_NODES)
}

fn parse_up_to(text: &str, values: usize) -> Result<(Node, Vec<Key>), SyntaxError> {
    let too_large = |message| SyntaxError { line: None, message };
    // Each level is parsed once for every level around it, so their number is limited.
    if !nesting::within(text.as_bytes(), nesting::MAX_LEVELS) {
        return Err(too_large(format!("more than {} levels", nesting::MAX_LEVELS)));
    }
    if nesting::has_more(text.as_bytes(), values) {
        return Err(too_large(too_many(values)));
    }
    let whole: &RawValue = serde_json::from_str(text).map_err(|error| invalid(&error, 1))?;
    let ends = memchr::memchr_iter(b'\n', text.as_bytes()).collect();
    let mut node = Reader { text, ends }.node(whole)?;
    let twice = node.take_twice();
    Ok((node, twice))
}

/// What serde says of a text that begins on `line`.
fn invalid(error: &serde_json::Error, line: u64) -> SyntaxError {
    let whole = error.to_string();
    let message = whole.rsplit_once(" at line ").map_or(&*whole, |(message, _)| message);
    SyntaxError {
        line: Some(line + (error.line().max(1) - 1) as u64),
        message: format!("{message}, column {}", error.column()),
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
        serde_json::from_str(raw.get()).map_err(|error| invalid(&error, line))
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
    let (node, twice) = parse_up_to(text, MOST_VALUES).map_err(|SyntaxError { line, message }| match line {
        Some(line) => format!("{message}, line {line}"),
        None => message,
    })?;
    match twice.first() {
        Some(Key { line, name }) => Err(format!("the key {} a second time, line {line}", quoted(name))),
        None => Ok(node.to_json()),
    }
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
