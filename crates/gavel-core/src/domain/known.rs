//! Which text a session may send out of itself unasked: what a person wrote or confirmed, and addresses that it was given.
//!
//! An address carries data out as any text does. So only a whole address that occurred is known, letter by letter: no
//! prefix of it, nothing appended, no other spelling.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// What may open, and what may close, a text inside a sentence.
const OPENS: &[char] = &['(', '[', '{', '<', '"', '\'', '`', '“', '‘', '«', '*', '_'];
const CLOSES: &[char] = &[
    ')', ']', '}', '>', '"', '\'', '`', '”', '’', '»', '*', '_', '.', ',', ';', ':', '!', '?',
];

/// Known texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// What persons wrote or confirmed, with single blanks.
    words: Vec<String>,
    addresses: BTreeSet<String>,
}

impl Known {
    /// What persons wrote or confirmed.
    pub fn of(words: &[String]) -> Self {
        let mut known = Self::default();
        for text in words {
            known.addresses.extend(addresses(text));
            known.words.push(text.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        known
    }

    /// Adds the addresses in every text of a page.
    pub fn add_page(&mut self, page: &Value) {
        match page {
            Value::String(text) => self.addresses.extend(addresses(text)),
            Value::Array(items) => items.iter().for_each(|item| self.add_page(item)),
            Value::Object(fields) => fields.values().for_each(|field| self.add_page(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Adds the addresses of the `sources` of a search, and none of its texts.
    pub fn add_sources(&mut self, result: &Value) {
        let forms = [result.get("sources"), result.pointer("/structuredContent/sources")];
        let sources = forms.into_iter().flatten().filter_map(Value::as_array).flatten();
        let found = sources.filter_map(|source| source.get("url")?.as_str());
        self.addresses.extend(found.map(str::to_owned));
    }

    /// Whether this text, as a whole, is known: an address by itself, other text as a part of what persons wrote.
    pub fn knows(&self, text: &str) -> bool {
        match text.contains("://") {
            true => self.addresses.contains(text),
            false => text.is_empty() || self.words.iter().any(|words| occurs(words, text)),
        }
    }
}

/// Does `text` occur between blanks, or marks beside blanks?
fn occurs(words: &str, text: &str) -> bool {
    words.match_indices(text).any(|(at, _)| {
        let before = words[..at].trim_end_matches(OPENS);
        let after = words[at + text.len()..].trim_start_matches(CLOSES);
        (before.is_empty() || before.ends_with(' ')) && (after.is_empty() || after.starts_with(' '))
    })
}

/// The addresses in a text, each whole, without the marks of the sentence. One with brackets is left out: where it ends
/// is not certain.
fn addresses(text: &str) -> impl Iterator<Item = String> {
    static ADDRESS: LazyLock<Regex> = LazyLock::new(|| {
        let pattern = r#"\bhttps?://[^\s\p{Cc}<>"'`|\\^{}\[\]“”’»)]+"#;
        Regex::new(pattern).unwrap_or_else(|error| unreachable!("it is constant: {error}"))
    });
    let found = ADDRESS
        .find_iter(text)
        .map(|found| found.as_str().trim_end_matches(CLOSES));
    found.filter(|address| !address.contains('(')).map(str::to_owned)
}

/// Adds the texts of a value that its schema leaves open, and the names that it does not declare.
pub fn open_texts(schema: &Value, value: &Value, texts: &mut Vec<String>) {
    // A `format` is not checked, so it closes nothing.
    let is_closed = ["enum", "const"].iter().any(|key| schema.get(key).is_some());
    match value {
        Value::String(text) if !is_closed => texts.push(text.clone()),
        Value::Array(items) => {
            // Behind `prefixItems`, `items` says nothing of the first ones.
            let of_all = schema.get("items").filter(|_| schema.get("prefixItems").is_none());
            items
                .iter()
                .for_each(|item| open_texts(of_all.unwrap_or(&Value::Null), item, texts));
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let declared = schema["properties"].get(name);
                if declared.is_none() {
                    texts.push(name.clone());
                }
                open_texts(declared.unwrap_or(&Value::Null), value, texts);
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known() -> Known {
        let words = [
            "Accept ISO weeks\n  such as 2026-W48, as https://docs.example/weeks. says (see\nhttp://a.example:8080/x?y=1).",
            "Read [the page](https://docs.example/page_(old)) and <https://docs.example/last>, not a.evil.example or pre-ISO days",
        ];
        let mut known = Known::of(&words.map(str::to_owned));
        known.add_page(
            &json!({"file": {"content": "[more](https://repo.example/more), `https://repo.example/code`\n"}}),
        );
        known.add_sources(&json!({
            "answer": "see https://answer.example/x", "sources": [{"title": "https://title.example/", "url": "https://found.example/1"}],
        }));
        known.add_sources(
            &json!({"content": "x", "structuredContent": {"sources": [{"url": "https://found.example/2"}]}}),
        );
        known
    }

    /// What an attacker would make of a known address or of known words.
    #[test]
    fn only_whole_addresses_and_words_that_occurred_are_known() {
        let known = known();
        for text in [
            "https://docs.example/weeks",
            "http://a.example:8080/x?y=1",
            "https://docs.example/last",
            "https://repo.example/more",
            "https://repo.example/code",
            "https://found.example/1",
            "https://found.example/2",
            "ISO weeks",
            "ISO weeks such as 2026-W48",
            "2026-W48",
            "",
        ] {
            assert!(known.knows(text), "{text}");
        }
        for text in [
            "https://docs.example/weeks?q=SECRET",
            "https://docs.example/weeks#SECRET",
            "https://docs.example/weeks/SECRET",
            "https://docs.example/weeks.",
            "https://docs.example/week",
            "https://docs.example/page_",
            "https://docs.example/",
            "https://docs.example",
            "https://user:SECRET@docs.example/weeks",
            "https://DOCS.example/weeks",
            "HTTPS://docs.example/weeks",
            "https://docs.example./weeks",
            "https://docs.example:443/weeks",
            "https://docs.example/%77eeks",
            "https://docs.example.evil.example/weeks",
            "https://docs.ex\u{430}mple/weeks",
            " https://docs.example/weeks",
            "https://docs.example/weeks\n",
            "http://docs.example/weeks",
            "ftp://docs.example/weeks",
            "http://a.example:8080/x?y=10",
            "http://a",
            "https://answer.example/x",
            "https://title.example/",
            "a",
            "evil.example",
            "docs.example/weeks",
            "//docs.example/weeks",
            "ISO week",
            "SO weeks",
            "iso weeks",
            "ISO  weeks",
            "ISO weeks SECRET",
            "weeks ISO",
            " ",
            "!",
        ] {
            assert!(!known.knows(text), "{text:?}");
        }
    }

    #[test]
    fn a_text_is_open_unless_its_schema_closes_it() {
        let schema = json!({"type": "object", "properties": {
            "query": {"type": "string"}, "kind": {"type": "string", "enum": ["a"]}, "day": {"type": "string", "format": "date"},
            "list": {"type": "array", "items": {"type": "string"}}, "closed": {"type": "array", "items": {"const": "x"}},
            "n": {"type": "integer"}, "first": {"prefixItems": [{}], "items": {"const": "x"}}, "deep": {"type": "object", "properties": {"text": {}}},
        }});
        let value = json!({
            "query": "q", "kind": "a", "day": "2026-12-01", "list": ["l"], "closed": ["x"], "n": 7,
            "deep": {"text": "d", "undeclared": "u"}, "first": ["f"], "more": {"name": "v"},
        });
        let mut texts = Vec::new();
        open_texts(&schema, &value, &mut texts);
        texts.sort();
        assert_eq!(
            texts,
            ["2026-12-01", "d", "f", "l", "more", "name", "q", "u", "undeclared", "v"]
        );
    }
}
