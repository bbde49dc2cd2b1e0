//! YAML as a tree of values with their lines, so that all errors of a file are reported at once, each with its line.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::{Spanned, UserMessageFormatter, budget, options};

/// Most values in a file of cases.
const MOST_NODES: usize = 250_000;

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
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the text.
    Map(Vec<(Key, Node)>),
}

/// A key with its line.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) line: u64,
    pub(crate) name: String,
}

/// An error in a file of cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineError {
    /// The name of the file.
    pub file: String,
    /// The line, from 1; absent for the whole file.
    pub line: Option<u64>,
    /// The field, with those above it.
    pub field: String,
    /// What was found.
    pub found: String,
    /// What is allowed.
    pub allowed: String,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}: found {}; allowed: {}", self.field, self.found, self.allowed)
    }
}

impl Node {
    /// Parses YAML. Only `true` and `false` are booleans.
    ///
    /// # Errors
    /// The text is not YAML, has more than 250,000 values, or names a key twice: the line, and why.
    pub(crate) fn parse(text: &str) -> Result<Self, (Option<u64>, String)> {
        let options = options! {
            budget: budget! { max_nodes: MOST_NODES },
            strict_booleans: true,
            with_snippet: false,
        };
        serde_saphyr::from_str_with_options::<Spanned<Content>>(text, options)
            .map(Self::from)
            .map_err(|error| {
                let line = error.location().map(|location| location.line());
                let message = error.without_snippet().render_with_formatter(&UserMessageFormatter);
                let message = message.rsplit_once(" at line ").map_or(&*message, |(words, _)| words);
                (line, message.to_owned())
            })
    }

    /// The value as errors show it; a long text is cut.
    pub(crate) fn found(&self) -> String {
        match &self.content {
            Content::Null => "nothing".to_owned(),
            Content::List(_) => "a list".to_owned(),
            Content::Map(_) => "a map".to_owned(),
            Content::Text(text) if text.chars().count() > 60 => {
                format!("{:?}", format!("{}…", text.chars().take(60).collect::<String>()))
            }
            _ => self.scalar().to_string(),
        }
    }

    /// A value that is neither a list nor a map, as JSON.
    pub(crate) fn scalar(&self) -> Value {
        match &self.content {
            Content::Bool(value) => Value::from(*value),
            Content::Integer(value) => Value::from(*value),
            Content::Float(value) => Value::from(*value),
            Content::Text(text) => Value::from(text.as_str()),
            Content::Null | Content::List(_) | Content::Map(_) => Value::Null,
        }
    }
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
        Ok(Content::Integer(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(i64::try_from(value).map_or(Content::Float(value as f64), Content::Integer))
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
            let line = key.referenced.line();
            let name = key.value;
            map.push((Key { line, name }, entries.next_value::<Spanned<Content>>()?.into()));
        }
        Ok(Content::Map(map))
    }
}

/// What is allowed instead of an unknown name: the most similar one, or all of them.
pub(crate) fn unknown_name_message(name: &str, known: &[&str]) -> String {
    let edits = |known: &&&str| strsim::osa_distance(&name.to_lowercase(), known);
    match known.iter().min_by_key(edits) {
        Some(near) if edits(&near) <= (name.len() / 3).clamp(1, 4) && edits(&near) < name.len() => {
            format!("did you mean `{near}`?")
        }
        _ => known.join(", "),
    }
}
