//! A tree of values with their lines, into which every form is parsed.

mod yaml;

use std::collections::BTreeSet;

use serde_json::Value;

pub(crate) use self::yaml::too_many;
pub use self::yaml::{MOST_NODES, SyntaxError};

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
    #[must_use]
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
    #[must_use]
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
    #[must_use]
    pub fn bare(content: Content) -> Self {
        Self { line: 0, content }
    }

    /// The items of a list; `None` for anything else.
    #[must_use]
    pub fn items(&self) -> Option<&[Self]> {
        match &self.content {
            Content::List(items) => Some(items),
            _ => None,
        }
    }

    /// A text as it is; `None` for anything else.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Whether it is an explicit null, which counts as absent.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self.content, Content::Null)
    }

    /// The text of a value that is no list and no map; `None` for null too.
    #[must_use]
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
    #[must_use]
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
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(60).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
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
