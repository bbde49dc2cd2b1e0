//! Warnings for the approver about misleading texts in a call. The API, the command line and the console show the same
//! text.
//!
//! Invalid arguments are rejected before approval is requested. The texts reported here may be intended.

use serde_json::Value;

use super::address::look_alikes;
use super::argument_path::pointer;
use super::hypertext::{self, ReadOut};
use super::schema::resolved;
use super::text::{is_hidden, is_visible};

/// The most warnings of a call; the rest are counted.
const MOST: usize = 50;
/// The most items of one kind that are named for one text; the rest are counted.
const MOST_NAMED: usize = 6;
/// The most characters of an address in a warning; its site comes first.
const ADDRESS: usize = 120;
/// The most characters of a suspicious part of HTML.
const SUSPICIOUS: usize = 40;
/// The most bytes of all texts of a call that are checked for look-alike letters.
const MOST_LETTERS: usize = 256 * 1024;

/// Checks all texts of `arguments`, which match `schema`, and adds to the existing warnings about its addresses. Each
/// warning begins with the location of its text: `/body: …`.
pub fn of_texts(schema: &Value, arguments: &Value, warnings: &mut Vec<String>) {
    let mut search = Search {
        root: schema,
        place: String::new(),
        of_addresses: warnings,
        found: Vec::new(),
        more: 0,
        hypertext: hypertext::MOST,
        letters: MOST_LETTERS,
    };
    search.value(arguments, schema);
    if search.more > 0 {
        search.found.push(format!("{} more warnings like these", search.more));
    }
    let found = search.found;
    warnings.extend(found);
}

struct Search<'a> {
    root: &'a Value,
    place: String,
    of_addresses: &'a [String],
    found: Vec<String>,
    more: usize,
    /// Bytes of HTML that may still be read.
    hypertext: usize,
    /// Bytes that may still be checked for look-alike letters.
    letters: usize,
}

impl<'a> Search<'a> {
    fn value(&mut self, value: &Value, schema: &'a Value) {
        let schema = resolved(schema, self.root);
        match value {
            Value::Array(items) => {
                for (n, item) in items.iter().enumerate() {
                    self.below(&n.to_string(), item, &schema["items"]);
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.below(name, field, &schema["properties"][name]);
                }
            }
            Value::String(text) => self.text(text, schema["contentMediaType"] == "text/html"),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn below(&mut self, name: &str, value: &Value, schema: &'a Value) {
        let before = self.place.len();
        self.place = pointer(&self.place, name);
        self.value(value, schema);
        self.place.truncate(before);
    }

    fn warn(&mut self, what: &str) {
        match self.found.len() < MOST {
            true => self.found.push(format!("{}: {what}", self.place)),
            false => self.more += 1,
        }
    }

    fn text(&mut self, text: &str, is_hypertext: bool) {
        if !is_visible(text) {
            self.warn(&format!(
                "contains invisible characters or marks that change the writing direction: {}",
                unseen(text)
            ));
        }
        if !is_hypertext {
            return self.look_alikes(text);
        }
        let read = (text.len() <= self.hypertext)
            .then(|| hypertext::read_out(text))
            .flatten();
        self.hypertext = self.hypertext.saturating_sub(text.len());
        match read {
            Some(read) => self.hypertext(&read),
            None => self.warn("its HTML is too long or too complex to be checked; check the markup"),
        }
    }

    fn hypertext(&mut self, read: &ReadOut) {
        let misleading: Vec<_> = read
            .links
            .iter()
            .filter_map(|link| Some((link.named.as_deref()?, &*link.target)))
            .collect();
        for (named, target) in misleading.iter().take(MOST_NAMED) {
            self.warn(&format!(
                "a link shows {} but leads to {}",
                cut(named, ADDRESS),
                cut(target, ADDRESS)
            ));
        }
        if misleading.len() > MOST_NAMED {
            let more = misleading.len() - MOST_NAMED;
            self.warn(&format!("{more} more links show an address other than their target"));
        }
        if !read.suspicious.is_empty() {
            let suspicious: Vec<_> = read
                .suspicious
                .iter()
                .map(|suspicious| cut(suspicious, SUSPICIOUS))
                .collect();
            self.warn(&format!(
                "mail programs may hide a part of it, or show it in another way, because its HTML has {}",
                listed(&suspicious)
            ));
        }
        if read.fetches {
            self.warn("a picture in it is loaded each time it is opened, and may be a different one each time");
        }
        self.look_alikes(&read.text);
    }

    /// Whether the text is an address that already has warnings.
    fn is_known(&self) -> bool {
        let mut known = self.of_addresses.iter();
        known.any(|known| {
            known
                .strip_prefix(&self.place)
                .is_some_and(|rest| rest.starts_with(": "))
        })
    }

    fn look_alikes(&mut self, text: &str) {
        if text.is_ascii() || self.is_known() {
            return;
        }
        if text.len() > self.letters {
            return self.warn("too long to be checked for look-alike letters");
        }
        self.letters -= text.len();
        let found = look_alikes(text);
        for found in found.iter().take(MOST_NAMED) {
            self.warn(&found.to_string());
        }
        if found.len() > MOST_NAMED {
            let more = found.len() - MOST_NAMED;
            self.warn(&format!("{more} more words look like others but are not"));
        }
    }
}

/// The invisible characters, each once, by their numbers.
fn unseen(text: &str) -> String {
    let mut codes: Vec<_> = text.chars().filter(|c| is_hidden(*c)).collect();
    codes.sort_unstable();
    codes.dedup();
    let codes: Vec<_> = codes.iter().map(|c| format!("U+{:04X}", u32::from(*c))).collect();
    listed(&codes)
}

/// The first few, and the number of the rest.
fn listed(all: &[String]) -> String {
    let named = all[..all.len().min(MOST_NAMED)].join(", ");
    match all.len().saturating_sub(MOST_NAMED) {
        0 => named,
        more => format!("{named}, and {more} more"),
    }
}

/// In quotation marks, with invisible characters escaped.
fn cut(text: &str, most: usize) -> String {
    let mut shown: String = text.chars().take(most).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn found(arguments: &Value) -> Vec<String> {
        let schema = json!({
            "properties": {
                "html": {"$ref": "#/$defs/Hypertext"},
                "parts": {"items": {"properties": {"html": {"$ref": "#/$defs/Hypertext"}}}},
            },
            "$defs": {"Hypertext": {"type": "string", "contentMediaType": "text/html"}},
        });
        let mut warnings = Vec::new();
        of_texts(&schema, arguments, &mut warnings);
        warnings
    }

    fn unlike(place: &str, word: &str, looks: &str, letter: char) -> String {
        format!(
            "{place}: {word:?} is not {looks:?}, but looks like it: {:?} is a letter of another alphabet (Cyrillic)",
            letter.to_string()
        )
    }

    /// Promise: exact approvals. Everything that could mislead an approver has a warning with its location.
    #[test]
    fn each_kind_of_misleading_text_is_a_warning_with_its_place() {
        let link = "<a href='https://evil.example/x'>https://bank.example</a>";
        let in_body = unlike("/body", "p\u{430}ypal", "paypal", '\u{430}');
        let in_html = unlike("/html", "p\u{430}ypal", "paypal", '\u{430}');
        for (arguments, warnings) in [
            (
                json!({"html": "<p>Hi <b>Ann</b></p>", "body": "Jürgen, 安 李, Привет", "n": 1}),
                vec![],
            ),
            (
                json!({"html": link}),
                vec!["/html: a link shows \"bank.example\" but leads to \"https://evil.example/x\""],
            ),
            (
                json!({"parts": [{"html": link}]}),
                vec!["/parts/0/html: a link shows \"bank.example\" but leads to \"https://evil.example/x\""],
            ),
            (
                json!({"html": "<p style='display:none'>not"}),
                vec![
                    "/html: mail programs may hide a part of it, or show it in another way, because its HTML has \"style display\"",
                ],
            ),
            (
                json!({"html": "<img src=//a.example/x>"}),
                vec!["/html: a picture in it is loaded each time it is opened, and may be a different one each time"],
            ),
            (
                json!({"html": "<b>".repeat(100_000)}),
                vec!["/html: its HTML is too long or too complex to be checked; check the markup"],
            ),
            (
                json!({"a/b": {"c~": ["x\u{202e}y\u{200b}"]}}),
                vec![
                    "/a~1b/c~0/0: contains invisible characters or marks that change the writing direction: \
                     U+200B, U+202E",
                ],
            ),
            (json!({"body": "Pay by p\u{430}ypal today"}), vec![&*in_body]),
            (json!({"html": "<p>Pay by p\u{430}ypal</p>"}), vec![&*in_html]),
        ] {
            assert_eq!(found(&arguments), warnings, "{arguments}");
        }
    }

    /// Promise: bounded faults. The number of stored warnings is bounded, and unchecked texts are reported.
    #[test]
    fn warnings_are_counted_where_they_are_many_and_say_what_was_not_looked_at() {
        let links = "<a href='https://evil.example'>https://bank.example</a>".repeat(20);
        assert_eq!(found(&json!({ "html": links })).len(), 7);
        let many = found(&json!({"t": vec!["\u{200b}"; 60_000]}));
        assert_eq!((many.len(), &*many[50]), (51, "59950 more warnings like these"));
        let long = "пример ".repeat(30_000);
        let reported = found(&json!({"a": long, "b": "b\u{43e}ss"}));
        assert_eq!(
            reported,
            [
                "/a: too long to be checked for look-alike letters",
                &*unlike("/b", "b\u{43e}ss", "boss", '\u{43e}')
            ]
        );
        let halves = "<p>x</p>".repeat(hypertext::MOST / 12);
        let reported = found(&json!({"html": halves, "parts": [{"html": halves}]}));
        assert_eq!(
            reported,
            ["/parts/0/html: its HTML is too long or too complex to be checked; check the markup"]
        );
    }

    /// Look-alike letters in an address are reported once, by the address check.
    #[test]
    fn a_text_with_a_warning_of_its_address_is_not_warned_of_again() {
        let mut warnings = vec!["/to/0: the domain has non-ASCII letters".to_owned()];
        let arguments = json!({"to": ["ann@b\u{43e}ss.com", "ann@b\u{43e}b.com"]});
        of_texts(&json!({}), &arguments, &mut warnings);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[1].starts_with("/to/1: \"b\u{43e}b\""), "{warnings:?}");
    }
}
