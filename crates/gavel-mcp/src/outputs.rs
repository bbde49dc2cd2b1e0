//! Do tools follow their own output schemas? A violation only causes a warning.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use memchr::memmem;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use super::log;
use super::source::Source;
use crate::domain::schema::{CheckError, Effort, JsonSchema};
use crate::domain::tool::Tool;

/// Results compared per definition. A tool that follows its schema eight times is trusted.
const CHECKS: u8 = 8;
/// Maximum remembered definitions. A server has fewer at a time, but may change them endlessly.
const REMEMBERED: usize = 1024;

/// Maximum bytes of a reason.
const WORDS: usize = 512;
/// Maximum bytes of a result that is compared.
const LARGEST: usize = 1 << 20;

/// How often each definition was compared, by digest.
pub(super) struct Outputs {
    compared: Mutex<HashMap<Arc<str>, u8>>,
    /// Held by the comparison in progress.
    place: Arc<Semaphore>,
}

impl Default for Outputs {
    fn default() -> Self {
        Self {
            compared: Mutex::default(),
            place: Arc::new(Semaphore::new(1)),
        }
    }
}

/// Why the data does not match. Nothing is reported if the comparison would take long, because only a warning depends
/// on it.
fn compared(schema: Box<RawValue>, data: &RawValue) -> Result<(), String> {
    let schema = JsonSchema::compile(schema).map_err(|error| format!("its output schema is not usable: {error}"))?;
    let Ok(data) = serde_json::from_str::<Value>(data.get()) else {
        return Ok(());
    };
    match schema.check(&data, Effort::Full) {
        Ok(()) | Err(CheckError::TooCostly) => Ok(()),
        // The errors quote the data, so only their number is reported.
        Err(CheckError::Invalid(errors)) => Err(format!("{} parts of it are invalid", errors.len())),
    }
}

impl Outputs {
    /// Logs a warning if data does not match the tool's own output schema. The comparison runs on a separate thread,
    /// one at a time. No caller waits for it, and it is skipped while another one runs.
    pub(super) fn check(&self, tool: &Tool, data: &RawValue, source: &Arc<Source>) {
        let Some(schema) = &tool.output_schema else { return };
        if data.get().len() > LARGEST || !self.is_due(&tool.digest) {
            return;
        }
        let Ok(place) = Arc::clone(&self.place).try_acquire_owned() else {
            return;
        };
        let (schema, data) = (schema.clone(), data.to_owned());
        let (source, name) = (Arc::clone(source), Arc::clone(&tool.name));
        tokio::task::spawn_blocking(move || {
            let _place = place;
            let why = match compared(schema, &data) {
                Ok(()) => return,
                Err(why) => why,
            };
            let why = source.words(&why, WORDS);
            log::line!(
                source.log,
                warn,
                "result does not fit",
                tool = &*name,
                why,
                "a result does not match the tool's output schema"
            );
        });
    }

    fn is_due(&self, digest: &Arc<str>) -> bool {
        let mut checked = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        if checked.len() >= REMEMBERED && !checked.contains_key(digest) {
            // Definitions that still exist are compared a few times more.
            checked.clear();
        }
        let done = checked.entry(digest.clone()).or_default();
        let due = *done < CHECKS;
        *done += u8::from(due);
        due
    }
}

// Writes whole numbers in the form that servers accept. A model's `10` may arrive as `10.0`, which is the same number,
// but strict servers reject it as an integer.

/// The arguments with whole numbers written without a fraction, otherwise unchanged.
pub(super) fn written(arguments: &RawValue) -> Cow<'_, RawValue> {
    let text = arguments.get();
    if memmem::find(text.as_bytes(), b".0").is_none() {
        return Cow::Borrowed(arguments);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // Outside of strings, a digit begins a number, and a number ends before a comma, a bracket or white space.
    while let Some(at) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        let end = match rest.as_bytes()[at] {
            b'"' => at + string_end(&rest[at..]),
            _ => rest[at..]
                .find([',', ']', '}', ' ', '\n', '\r', '\t'])
                .map_or(rest.len(), |end| at + end),
        };
        let token = &rest[at..end];
        let whole = token
            .split_once('.')
            .filter(|(_, zeros)| zeros.bytes().all(|digit| digit == b'0'));
        out.push_str(&rest[..at]);
        out.push_str(match whole {
            Some((whole, _)) if !token.starts_with('"') => whole,
            _ => token,
        });
        rest = &rest[end..];
    }
    out.push_str(rest);
    RawValue::from_string(out).map_or(Cow::Borrowed(arguments), Cow::Owned)
}

/// The end of the string at the start of `text`, including its closing quote.
fn string_end(text: &str) -> usize {
    let mut at = 1;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &text.as_bytes()[at..]) {
        at += found + 1;
        if text.as_bytes()[at - 1] == b'"' {
            return at;
        }
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: bounded faults. In bounded memory.
    #[test]
    fn a_definition_is_looked_at_a_few_times_and_not_remembered_for_ever() {
        let outputs = Outputs::default();
        let digest = |n: usize| Arc::from(n.to_string());
        for n in 0..20 {
            assert_eq!(outputs.is_due(&digest(0)), n < usize::from(CHECKS), "{n}");
        }
        for n in 0..10 * REMEMBERED {
            assert!(outputs.is_due(&digest(n + 1)));
            let remembered = outputs.compared.lock().map(|checked| checked.len());
            assert!(remembered.is_ok_and(|n| n <= REMEMBERED));
        }
    }
}

#[cfg(test)]
mod integers_tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn whole_numbers_lose_their_fraction_and_nothing_else_changes() {
        for (arguments, expected) in [
            (r#"{"n":10.0}"#, r#"{"n":10}"#),
            (r#"{"n": -3.000 ,"m":[0.0, 1.50,2.0]}"#, r#"{"n": -3 ,"m":[0, 1.50,2]}"#),
            (
                r#"{"10.0":"10.0","a":"\"1.0","b":"\\","c":1.0}"#,
                r#"{"10.0":"10.0","a":"\"1.0","b":"\\","c":1}"#,
            ),
            (
                r#"{"a":1.0e3,"b":10.05,"c":1e2,"d":true}"#,
                r#"{"a":1.0e3,"b":10.05,"c":1e2,"d":true}"#,
            ),
            (r#"{"ä":"ö.0","n":7.0}"#, r#"{"ä":"ö.0","n":7}"#),
            ("{}", "{}"),
        ] {
            let raw = RawValue::from_string(arguments.to_owned()).unwrap();
            assert_eq!(written(&raw).get(), expected);
        }
    }
}
