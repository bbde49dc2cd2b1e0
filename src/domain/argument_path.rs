//! A path to a value in the arguments of a call: `to`, `message.cc`, `attendees[].email`.
//!
//! A path that does not exist matches nothing. A path that meets a value of an unexpected type is an error: a search
//! for recipients must not miss one because of its form.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::definition::quoted;

/// A parsed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentPath {
    text: String,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Each,
}

/// Values with their locations (JSON pointers).
type Found<'a, T> = Vec<(String, &'a T)>;

impl ArgumentPath {
    /// What is allowed, for error messages.
    pub const ALLOWED: &'static str = "a path such as to, message.cc or attendees[].email";

    /// Parses a path; `None` if it is invalid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        for part in text.split('.') {
            let name = part.strip_suffix("[]").unwrap_or(part);
            if name.is_empty() || name.contains(['[', ']']) || name.chars().any(char::is_whitespace) {
                return None;
            }
            steps.push(Step::Field(name.to_owned()));
            if name.len() < part.len() {
                steps.push(Step::Each);
            }
        }
        Some(Self {
            text: text.to_owned(),
            steps,
        })
    }

    /// The argument that the path begins with.
    #[must_use]
    pub fn argument(&self) -> &str {
        match self.steps.first() {
            Some(Step::Field(name)) => name,
            _ => &self.text,
        }
    }

    /// The values at the path; `null` counts as absent.
    ///
    /// # Errors
    /// The value found in place of a list or an object, with its location.
    pub fn values<'a>(&self, arguments: &'a Value) -> Result<Found<'a, Value>, String> {
        let mut found = Vec::new();
        walk(&self.steps, arguments, String::new(), false, &mut found)?;
        Ok(found)
    }

    /// The texts at the path: a text, a list of texts, or objects with an `email`.
    ///
    /// # Errors
    /// The value that is none of these, with its location.
    pub fn texts<'a>(&self, arguments: &'a Value) -> Result<Found<'a, str>, String> {
        let mut texts = Vec::new();
        for (place, value) in self.values(arguments)? {
            match value {
                Value::Array(items) => {
                    for (n, item) in items.iter().enumerate() {
                        texts.push(text(format!("{place}/{n}"), item)?);
                    }
                }
                value => texts.push(text(place, value)?),
            }
        }
        Ok(texts)
    }

    /// The single text at the path.
    ///
    /// # Errors
    /// The value found in place of a text, with its location.
    pub fn one_text<'a>(&self, arguments: &'a Value) -> Result<Option<(String, &'a str)>, String> {
        match self.values(arguments)?.pop() {
            None => Ok(None),
            Some((place, Value::String(text))) => Ok(Some((place, text))),
            Some((place, other)) => Err(format!("{place}: found {}; allowed: a text", shown(other))),
        }
    }
}

fn text(place: String, value: &Value) -> Result<(String, &str), String> {
    let email = match value {
        Value::String(text) => return Ok((place, text)),
        Value::Object(object) => object.get("email").and_then(Value::as_str),
        _ => None,
    };
    match email {
        Some(email) => Ok((format!("{place}/email"), email)),
        None => Err(format!(
            "{place}: found {}; allowed: a text, or an object with an `email`",
            shown(value)
        )),
    }
}

fn walk<'a>(
    steps: &[Step],
    value: &'a Value,
    place: String,
    in_list: bool,
    found: &mut Found<'a, Value>,
) -> Result<(), String> {
    // A `null` entry of a list is an error: skipping it could miss a recipient.
    if value.is_null() && !in_list {
        return Ok(());
    }
    match (steps.split_first(), value) {
        (None, value) => found.push((place, value)),
        (Some((Step::Field(name), rest)), Value::Object(object)) => match object.get(name) {
            Some(value) => {
                let place = pointer(&place, name);
                walk(rest, value, place, in_list, found)?;
            }
            None if in_list => return Err(format!("{place}: has no `{name}`")),
            None => {}
        },
        (Some((Step::Each, rest)), Value::Array(items)) => {
            for (n, item) in items.iter().enumerate() {
                walk(rest, item, format!("{place}/{n}"), true, found)?;
            }
        }
        (Some((Step::Field(name), _)), other) => {
            return Err(format!(
                "{place}: found {}; allowed: an object with `{name}`",
                shown(other)
            ));
        }
        (Some((Step::Each, _)), other) => return Err(format!("{place}: found {}; allowed: a list", shown(other))),
    }
    Ok(())
}

/// The JSON pointer of a field of the object at `place`.
#[must_use]
pub fn pointer(place: &str, name: &str) -> String {
    format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The places of all values besides the texts at `texts` and the values at `free`, outermost first. An object with an
/// `email` is a text only as far as its `email`.
#[must_use]
pub fn others(texts: &[ArgumentPath], free: &[ArgumentPath], arguments: &Value) -> Vec<String> {
    let texts = texts.iter().map(|path| (path.steps.as_slice(), false));
    let free = free.iter().map(|path| (path.steps.as_slice(), true));
    let paths: Vec<Open<'_>> = texts.chain(free).collect();
    let mut others = Vec::new();
    find_others(&paths, arguments, "", &mut others);
    others
}

/// The remaining steps of a path, and whether it is a free one.
type Open<'a> = (&'a [Step], bool);

fn find_others(paths: &[Open<'_>], value: &Value, place: &str, others: &mut Vec<String>) {
    let ends = |free: bool| {
        paths
            .iter()
            .any(|(steps, is_free)| steps.is_empty() && *is_free == free)
    };
    let (is_free, is_text) = (ends(true), ends(false));
    let after = |step: &Step| -> Vec<Open<'_>> {
        let rest = paths.iter().filter_map(|(steps, is_free)| match steps.split_first() {
            Some((first, rest)) if first == step => Some((rest, *is_free)),
            _ => None,
        });
        rest.collect()
    };
    match value {
        _ if is_free => {}
        Value::String(_) | Value::Null if is_text => {}
        Value::Array(items) => {
            let mut next = after(&Step::Each);
            // A list of texts is a text.
            if is_text {
                next.push((&[], false));
            }
            if next.is_empty() {
                others.push(place.to_owned());
                return;
            }
            for (n, item) in items.iter().enumerate() {
                find_others(&next, item, &format!("{place}/{n}"), others);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let next = after(&Step::Field(name.clone()));
                match value {
                    Value::String(_) if is_text && name == "email" => {}
                    _ if next.is_empty() => others.push(pointer(place, name)),
                    value => find_others(&next, value, &pointer(place, name), others),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => others.push(place.to_owned()),
    }
}

/// A value as errors show it; long ones are cut.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

impl fmt::Display for ArgumentPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for ArgumentPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn texts(path: &str, arguments: &Value) -> Result<Vec<(String, String)>, String> {
        let found = ArgumentPath::parse(path).unwrap().texts(arguments)?;
        Ok(found
            .into_iter()
            .map(|(place, text)| (place, text.to_owned()))
            .collect())
    }

    #[test]
    fn a_path_is_names_with_dots_and_lists() {
        for right in ["to", "message.to", "attendees[].email", "a[].b[].c", "to[]", "x-y_z"] {
            assert_eq!(ArgumentPath::parse(right).unwrap().to_string(), right);
        }
        for wrong in ["", ".", "a.", "[]", "a[0]", "a[]b", "a b", "a[][]", "/to"] {
            assert!(ArgumentPath::parse(wrong).is_none() || wrong == "/to", "{wrong}");
        }
    }

    #[test]
    fn every_shape_of_recipients_is_found_with_its_place() {
        let of = |found: &[(&str, &str)]| Ok(found.iter().map(|(p, t)| ((*p).to_owned(), (*t).to_owned())).collect());
        for (path, arguments, expected) in [
            ("to", json!({"to": "a"}), of(&[("/to", "a")])),
            ("to", json!({"to": ["a", "b"]}), of(&[("/to/0", "a"), ("/to/1", "b")])),
            ("to[]", json!({"to": ["a"]}), of(&[("/to/0", "a")])),
            ("to", json!({"to": [{"email": "a"}]}), of(&[("/to/0/email", "a")])),
            ("to", json!({"to": {"email": "a"}}), of(&[("/to/email", "a")])),
            ("m.to", json!({"m": {"to": "a"}}), of(&[("/m/to", "a")])),
            ("p[].email", json!({"p": [{"email": "a"}]}), of(&[("/p/0/email", "a")])),
            ("to", json!({}), of(&[])),
            ("to", json!({"to": null}), of(&[])),
            ("m.to", json!({"m": {}}), of(&[])),
            ("p[].email", json!({"p": []}), of(&[])),
        ] {
            assert_eq!(texts(path, &arguments), expected, "{path} of {arguments}");
        }
    }

    /// a recipient in an unexpected form is never missed.
    #[test]
    fn another_shape_is_an_error_and_never_nothing() {
        for (path, arguments, place) in [
            ("p[].email", json!({"p": "eve@x.org"}), "/p: "),
            ("p[].email", json!({"p": ["eve@x.org"]}), "/p/0: "),
            ("p[].email", json!({"p": [{"mail": "eve@x.org"}]}), "/p/0: "),
            ("p[].email", json!({"p": [{"email": null}]}), "/p/0/email: "),
            ("p[].email", json!({"p": [null]}), "/p/0: "),
            ("m.to", json!({"m": "eve@x.org"}), "/m: "),
            ("m.to", json!({"m": ["eve@x.org"]}), "/m: "),
            ("to", json!({"to": 7}), "/to: "),
            ("to", json!({"to": [null]}), "/to/0: "),
            ("to", json!({"to": [["eve@x.org"]]}), "/to/0: "),
            ("to", json!({"to": {"address": "eve@x.org"}}), "/to: "),
        ] {
            let found = texts(path, &arguments);
            assert!(
                matches!(&found, Err(error) if error.starts_with(place)),
                "{path} of {arguments}: {found:?}"
            );
        }
    }

    /// a value that no path names is found, in any form and at any depth.
    #[test]
    fn all_values_besides_texts_and_free_ones_are_found() {
        let paths =
            |texts: &[&str]| -> Vec<_> { texts.iter().map(|text| ArgumentPath::parse(text).unwrap()).collect() };
        let (to, free) = (
            paths(&["to", "m.to", "p[].email"]),
            paths(&["body", "m.subject", "p[].name", "to[].name"]),
        );
        for (arguments, expected) in [
            (json!({"to": ["a"], "body": {"any": ["thing"]}}), &[][..]),
            (
                json!({"to": "a", "m": {"to": ["b"], "subject": 1}, "p": [{"email": "c", "name": "C"}]}),
                &[],
            ),
            (
                json!({"to": [{"email": "a", "name": "A"}, {"email": "b", "bcc": "e"}]}),
                &["/to/1/bcc"],
            ),
            (json!({"to": null, "p": [], "m": {}}), &[]),
            (
                json!({"to": 7, "m": [], "p": {"email": "c"}}),
                &["/m", "/p/email", "/to"],
            ),
            (json!({"to": [["e"]], "cc": null, "bcc": []}), &["/bcc", "/cc"]),
            (
                json!({"e@x.org": true, "m": {"body": "b", "to/": "e"}}),
                &["/e@x.org", "/m/body", "/m/to~1"],
            ),
            (json!({"p": [{"email": "c", "more": {"e": 1}}]}), &["/p/0/more"]),
        ] {
            assert_eq!(others(&to, &free, &arguments), expected, "{arguments}");
        }
    }
}
