//! What is misleading about the texts of a call, in words for who approves it: the same in the API, on the command line and in the
//! console.
//!
//! What is wrong is refused before anybody is asked; what stands here may be meant.

use serde_json::Value;

use super::address::look_alikes;
use super::hypertext::{self, ReadOut};
use super::schema::resolved;
use super::text::{is_hidden, is_visible};

/// Most warnings of a call; the rest is counted.
const MOST: usize = 50;
/// Most things of one kind that are named of one text; the rest is counted.
const MOST_NAMED: usize = 6;
/// Characters of an address in a warning: its site comes first.
const ADDRESS: usize = 120;
/// Characters of what is odd about HTML.
const ODD: usize = 40;
/// Bytes of all texts of a call that are looked through for letters that look like others.
const MOST_LETTERS: usize = 256 * 1024;

/// Looks through all texts of `arguments`, which `schema` takes, and adds to the warnings that there are of its addresses. Each
/// begins with the place of its text: `/body: …`.
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
    /// Bytes that may still be looked through for letters.
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
        self.place.push('/');
        self.place.push_str(&name.replace('~', "~0").replace('/', "~1"));
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
                "holds characters that nobody can see, or marks that turn the writing direction: {}",
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
            None => self.warn("its HTML is too long or too intricate to be read; look at the markup"),
        }
    }

    fn hypertext(&mut self, read: &ReadOut) {
        for (named, target) in read.astray.iter().take(MOST_NAMED) {
            self.warn(&format!(
                "a link reads as {} and leads to {}",
                cut(named, ADDRESS),
                cut(target, ADDRESS)
            ));
        }
        if read.astray.len() > MOST_NAMED {
            let more = read.astray.len() - MOST_NAMED;
            self.warn(&format!("{more} more links read as another address than theirs"));
        }
        if !read.odd.is_empty() {
            let odd: Vec<_> = read.odd.iter().map(|odd| cut(odd, ODD)).collect();
            self.warn(&format!(
                "its reader may see something else than its words, since its HTML has {}",
                listed(&odd)
            ));
        }
        if read.fetches {
            self.warn("a picture in it is fetched each time it is opened, and can be another one then");
        }
        self.look_alikes(&read.text);
    }

    /// Of an address there are warnings of their own.
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
            return self.warn("too long to be looked through for letters that look like others");
        }
        self.letters -= text.len();
        let found: Vec<_> = look_alikes(text).iter().map(|found| found.to_string()).collect();
        if !found.is_empty() {
            self.warn(&listed(&found));
        }
    }
}

/// The characters that cannot be seen, each once, by their numbers.
fn unseen(text: &str) -> String {
    let mut codes: Vec<_> = text.chars().filter(|c| is_hidden(*c)).collect();
    codes.sort_unstable();
    codes.dedup();
    let codes: Vec<_> = codes.iter().map(|c| format!("U+{:04X}", u32::from(*c))).collect();
    listed(&codes)
}

/// The first few, and how many more there are.
fn listed(all: &[String]) -> String {
    let named = all[..all.len().min(MOST_NAMED)].join(", ");
    match all.len().saturating_sub(MOST_NAMED) {
        0 => named,
        more => format!("{named}, and {more} more"),
    }
}

/// In quotation marks, with what cannot be seen escaped.
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

    /// R-5, promise 4: what an approver could be misled by is said in words, with its place.
    #[test]
    fn each_kind_of_misleading_text_is_a_warning_with_its_place() {
        let link = "<a href='https://evil.example/x'>https://bank.example</a>";
        for (arguments, warnings) in [
            (
                json!({"html": "<p>Hi <b>Ann</b></p>", "body": "Jürgen, 安 李, Привет", "n": 1}),
                vec![],
            ),
            (
                json!({"html": link}),
                vec!["/html: a link reads as \"bank.example\" and leads to \"https://evil.example/x\""],
            ),
            (
                json!({"parts": [{"html": link}]}),
                vec!["/parts/0/html: a link reads as \"bank.example\" and leads to \"https://evil.example/x\""],
            ),
            (
                json!({"html": "<p style='display:none'>not"}),
                vec!["/html: its reader may see something else than its words, since its HTML has \"style display\""],
            ),
            (
                json!({"html": "<img src=//a.example/x>"}),
                vec!["/html: a picture in it is fetched each time it is opened, and can be another one then"],
            ),
            (
                json!({"html": "<b>".repeat(100_000)}),
                vec!["/html: its HTML is too long or too intricate to be read; look at the markup"],
            ),
            (
                json!({"a/b": {"c~": ["x\u{202e}y\u{200b}"]}}),
                vec![
                    "/a~1b/c~0/0: holds characters that nobody can see, or marks that turn the writing direction: \
                     U+200B, U+202E",
                ],
            ),
            (
                json!({"body": "Pay by p\u{430}ypal today"}),
                vec!["/body: \"p\u{430}ypal\" looks like \"paypal\", and has letters of Cyrillic"],
            ),
            (
                json!({"html": "<p>Pay by p\u{430}ypal</p>"}),
                vec!["/html: \"p\u{430}ypal\" looks like \"paypal\", and has letters of Cyrillic"],
            ),
        ] {
            assert_eq!(found(&arguments), warnings, "{arguments}");
        }
    }

    /// Promise 5: however many there are, what is kept of them is small; and what is not looked at is said.
    #[test]
    fn warnings_are_counted_where_they_are_many_and_say_what_was_not_looked_at() {
        let links = "<a href='https://evil.example'>https://bank.example</a>".repeat(20);
        assert_eq!(found(&json!({ "html": links })).len(), 7);
        let many = found(&json!({"t": vec!["\u{200b}"; 60_000]}));
        assert_eq!((many.len(), &*many[50]), (51, "59950 more warnings like these"));
        let long = "пример ".repeat(30_000);
        let told = found(&json!({"a": long, "b": "b\u{43e}ss"}));
        assert_eq!(
            told,
            [
                "/a: too long to be looked through for letters that look like others",
                "/b: \"b\u{43e}ss\" looks like \"boss\", and has letters of Cyrillic"
            ]
        );
        let halves = "<p>x</p>".repeat(hypertext::MOST / 12);
        let told = found(&json!({"html": halves, "parts": [{"html": halves}]}));
        assert_eq!(
            told,
            ["/parts/0/html: its HTML is too long or too intricate to be read; look at the markup"]
        );
    }

    /// What an address looks like is said once, by the check of addresses.
    #[test]
    fn a_text_with_a_warning_of_its_address_is_not_warned_of_again() {
        let mut warnings = vec!["/to/0: the domain has letters outside ASCII".to_owned()];
        let arguments = json!({"to": ["ann@b\u{43e}ss.com", "ann@b\u{43e}b.com"]});
        of_texts(&json!({}), &arguments, &mut warnings);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[1].starts_with("/to/1: \"b\u{43e}b\""), "{warnings:?}");
    }
}
