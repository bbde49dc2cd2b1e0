//! JSON Schemas that others wrote, checked within bounds.
//!
//! A schema of a few kilobytes can ask for more work than there is time: references that double, patterns that backtrack,
//! circles. The crate `jsonschema` checks; this module bounds what it may do, in two steps:
//!
//! - [`JsonSchema::compile`] estimates what a check costs with every reference in place and refuses a schema that is too
//!   large, names the part, and says the limit ([`cost`]);
//! - [`JsonSchema::check`] counts each look that a keyword takes at the value ([`counted`]) and each match of a pattern
//!   ([`pattern`]), and ends when an [`Effort`] is used up.

mod cost;
mod counted;
mod pattern;

use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use serde_json::Value;
use serde_json::value::RawValue;

pub use self::counted::Effort;
use self::counted::{Counted, Looks};

/// Errors that are reported of one value.
const MOST_ERRORS: usize = 8;
/// Looks at a value for collecting what is wrong with it; beyond, for the first error alone; beyond that, it is only said that something is
/// wrong. Errors name what they are about, so each look may take memory.
const LOOKS_FOR_ERRORS: u64 = 200_000;
const LOOKS_FOR_FIRST: u64 = 600_000;

/// A schema, compiled.
pub struct JsonSchema {
    original: Box<RawValue>,
    validator: jsonschema::Validator<Looks>,
}

/// Why a schema was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// It is no schema, or it refers to something that is not in it. The compiler's message.
    #[error("{0}")]
    Invalid(String),
    /// A check would cost too much.
    #[error("{what} at {place:?}; at most {limit} are allowed")]
    TooCostly {
        /// Where, as a JSON pointer into the schema; empty for the whole schema.
        place: String,
        /// What there is too much of, with the amount.
        what: String,
        /// How many of these are allowed.
        limit: u64,
    },
}

/// Why a value was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckError {
    /// Up to 8 messages, each with the JSON pointer of what it is about. They quote the value, in 512 bytes at most.
    Invalid(Vec<String>),
    /// The effort was used up before there was an answer. With [`Effort::Quick`] a check with [`Effort::Full`] may have one.
    TooCostly,
}

/// What a user or a model reads where a check with [`Effort::Full`] ends without an answer.
pub const TOO_COSTLY: &str = "checking this value by its schema takes more steps than are allowed";

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(errors) => f.write_str(&errors.join("; ")),
            Self::TooCostly => f.write_str(TOO_COSTLY),
        }
    }
}

impl JsonSchema {
    /// Compiles `original`; nothing is fetched for a remote `$ref`.
    ///
    /// # Errors
    /// [`SchemaError`]: it is no schema, or a check by it would cost too much.
    pub fn compile(original: Box<RawValue>) -> Result<Self, SchemaError> {
        let invalid = |message: String| SchemaError::Invalid(message);
        let schema: Value = serde_json::from_str(original.get()).map_err(|error| invalid(error.to_string()))?;
        cost::estimate(&schema)?;
        let compiled = counted::within(Effort::Full, || {
            pattern::options().build(&schema).map_err(|error| limited(&error))
        });
        let validator = compiled
            .ok_or_else(|| SchemaError::TooCostly {
                place: String::new(),
                what: "more steps than are allowed to compile the schema".to_owned(),
                limit: Effort::Full.looks(),
            })?
            .map_err(invalid)?;
        Ok(Self { original, validator })
    }

    /// Is a check by this schema within the limits? Compiles nothing. Returns the bytes of all its patterns.
    ///
    /// # Errors
    /// [`SchemaError::TooCostly`], with the place.
    pub fn estimate(schema: &Value) -> Result<u64, SchemaError> {
        cost::estimate(schema)
    }

    /// The schema's text, as it was given.
    #[must_use]
    pub fn original(&self) -> &RawValue {
        &self.original
    }

    /// The same, read.
    #[must_use]
    pub fn value(&self) -> Value {
        serde_json::from_str(self.original.get()).unwrap_or_default()
    }

    /// Does it name this argument?
    #[must_use]
    pub fn has_property(&self, name: &str) -> bool {
        self.value()["properties"].get(name).is_some()
    }

    /// Checks a value, whatever it takes within `effort`.
    ///
    /// # Errors
    /// [`CheckError`]: the value is not valid, or the effort is used up.
    pub fn check(&self, value: &Value, effort: Effort) -> Result<(), CheckError> {
        let valid = counted::within(effort, || self.validator.is_valid(Counted(value))).ok_or(CheckError::TooCostly)?;
        if valid {
            return Ok(());
        }
        let collected = counted::within(effort.at_most(LOOKS_FOR_ERRORS), || {
            let errors = self.validator.iter_errors(Counted(value));
            errors.take(MOST_ERRORS).map(|error| message(&error)).collect()
        });
        let first = || {
            counted::within(effort.at_most(LOOKS_FOR_FIRST), || {
                let error = self.validator.validate(Counted(value)).err();
                error.iter().map(message).collect()
            })
        };
        let collected: Option<Vec<String>> = collected.or_else(first);
        // Errors name what they are about, each in each branch: where there are very many, nobody reads them, and they take memory.
        Err(match (collected, effort) {
            (Some(errors), _) => CheckError::Invalid(errors),
            // With more effort it may be said.
            (None, Effort::Quick) => CheckError::TooCostly,
            (None, Effort::Full | Effort::AtMost(_)) => CheckError::Invalid(vec![format!(
                "{TOP}: it does not fit the schema, and saying where takes too long"
            )]),
        })
    }
}

/// The place of a whole value in a message.
const TOP: &str = "/";

/// Runs `work` so that [`counted::exhausted`] ends it.
fn until_exhausted<T>(work: impl FnOnce() -> T) -> Option<T> {
    // Nothing that `work` changes is looked at after it has ended early.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(ended) if ended.is::<counted::Exhausted>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

fn message(error: &jsonschema::ValidationError<'_>) -> String {
    let mut message = Message::default();
    let place = error.instance_path().as_str();
    let place = if place.is_empty() { TOP } else { place };
    // Full, the message writes no more; there is no other error.
    if write!(message, "{place}: {error}").is_err() {
        message.0.push('…');
    }
    message.0
}

fn limited(error: &jsonschema::ValidationError<'_>) -> String {
    let mut message = Message::default();
    if write!(message, "{error}").is_err() {
        message.0.push('…');
    }
    message.0
}

/// A message about something that may be of any size.
#[derive(Default)]
struct Message(String);

impl Message {
    const MOST_BYTES: usize = 512;
}

impl fmt::Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.floor_char_boundary(Self::MOST_BYTES - self.0.len());
        self.0.push_str(&text[..fits]);
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

impl fmt::Debug for JsonSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.original.get())
    }
}

/// Bytes of a reference in a schema that is followed outside of a check: it is looked at for each value.
const MOST_REFERENCE: usize = 1000;

/// A schema, or the one in the same document that it refers to.
pub(crate) fn resolved<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let target = schema["$ref"].as_str().and_then(|target| target.strip_prefix('#'));
    target
        .filter(|target| target.len() <= MOST_REFERENCE)
        .and_then(|pointer| root.pointer(pointer))
        .unwrap_or(schema)
}

#[cfg(test)]
mod tests;
