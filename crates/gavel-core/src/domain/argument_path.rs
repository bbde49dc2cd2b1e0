//! A path to a value in the arguments of a call: `to`, `message.cc`, `attendees[].email`.
//!
//! A path that does not exist matches nothing. A path that meets a value of an unexpected type is an error: a search
//! for recipients must not miss one because of its form.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

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

    /// Sets the value at the path; in a list, as its only item.
    pub fn set(&self, arguments: &mut Value, value: Value) {
        let at = self.steps.iter().fold(arguments, |at, step| match step {
            Step::Field(name) => {
                if !at.is_object() {
                    *at = Value::Object(Map::default());
                }
                &mut at[name.as_str()]
            }
            Step::Each => {
                if !at.is_array() {
                    *at = Value::Array(vec![Value::Null]);
                }
                &mut at[0]
            }
        });
        *at = value;
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
pub fn pointer(place: &str, name: &str) -> String {
    format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The places of all values besides the texts at `texts` and the values at `free`, outermost first. An object with an
/// `email` is a text only as far as its `email`.
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
mod tests;
