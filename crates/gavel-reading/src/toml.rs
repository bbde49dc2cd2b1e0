//! TOML, with the line of every value.

use toml_edit::{ImDocument, Item, TableLike};

use crate::node::{Content, Key, Node, SyntaxError};

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
mod tests {
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
