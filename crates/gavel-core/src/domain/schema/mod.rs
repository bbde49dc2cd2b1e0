//! JSON Schemas from outside gavel, checked within limits.
//!
//! A schema of a few kilobytes can require unbounded work: references that double, patterns that backtrack, cycles. The
//! crate `jsonschema` does the check. This module limits its work in two steps:
//!
//! - [`JsonSchema::compile`] estimates the cost of a check with every reference expanded. It rejects a schema that is
//!   too large, and names the part and the limit ([`cost`]);
//! - [`JsonSchema::check`] counts each access of a keyword to the value ([`counted`]) and each match of a pattern
//!   ([`pattern`]), and ends when an [`Effort`] is exhausted.

mod cost;
mod counted;
mod pattern;
mod repair;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use jsonschema::error::ValidationErrorKind;
use serde_json::Value;
use serde_json::value::RawValue;

pub use self::counted::Effort;
use self::counted::{Counted, Looks};
pub use self::repair::{Repair, repair};
use super::text::capped;

/// The most errors that are reported for one value.
const MOST_ERRORS: usize = 8;
/// Accesses allowed for collecting the errors of a value. Beyond that, the message only says that the value is invalid.
/// Errors contain what they refer to, so each access may take memory.
const LOOKS_FOR_ERRORS: u64 = 400_000;

/// A compiled schema.
pub struct JsonSchema {
    original: Box<RawValue>,
    validator: jsonschema::Validator<Looks>,
}

/// Why a schema was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// It is not a schema, or it refers to something outside of it. The compiler's message.
    #[error("{0}")]
    Invalid(String),
    /// A check would cost too much.
    #[error("{what} at {place:?}; at most {limit} are allowed")]
    TooCostly {
        /// JSON pointer into the schema; empty for the whole schema.
        place: String,
        /// What exceeds the limit, with the amount.
        what: String,
        /// The limit.
        limit: u64,
    },
}

/// Why a value was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckError {
    /// The first places.
    Invalid(Vec<Mismatch>),
    /// The effort was exhausted before there was a result. After [`Effort::Quick`], a check with [`Effort::Full`] may
    /// still return one.
    TooCostly,
}

/// A place where a value does not match its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// JSON pointer of the part, also of one that is missing or not allowed; empty: the whole value.
    pub place: String,
    /// What is found there, and what the schema requires. It quotes the value, up to 512 bytes.
    pub message: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.place.is_empty() { "/" } else { &self.place };
        write!(f, "{place}: {}", self.message)
    }
}

/// The text for users and models if a check with [`Effort::Full`] ends without a result.
pub const TOO_COSTLY: &str = "checking this value against its schema takes more steps than are allowed";

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(places) => {
                let places: Vec<_> = places.iter().map(Mismatch::to_string).collect();
                f.write_str(&places.join("; "))
            }
            Self::TooCostly => f.write_str(TOO_COSTLY),
        }
    }
}

impl JsonSchema {
    /// Compiles `original`. A remote `$ref` is not fetched.
    ///
    /// # Errors
    /// [`SchemaError`]: it is not a schema, or a check by it would cost too much.
    pub fn compile(original: Box<RawValue>) -> Result<Self, SchemaError> {
        let invalid = |message: String| SchemaError::Invalid(message);
        let schema: Value = serde_json::from_str(original.get()).map_err(|error| invalid(error.to_string()))?;
        cost::estimate(&schema)?;
        let compiled = counted::within(Effort::Full, || pattern::options().build(&schema).map_err(limited));
        let validator = compiled
            .ok_or_else(|| SchemaError::TooCostly {
                place: String::new(),
                what: "more steps than are allowed to compile the schema".to_owned(),
                limit: Effort::Full.looks(),
            })?
            .map_err(invalid)?;
        Ok(Self { original, validator })
    }

    /// Whether a check by this schema stays within the limits. Compiles nothing. Returns the total size of its patterns
    /// in bytes.
    ///
    /// # Errors
    /// [`SchemaError::TooCostly`], with the place.
    pub fn estimate(schema: &Value) -> Result<u64, SchemaError> {
        cost::estimate(schema)
    }

    /// The original text of the schema.
    pub fn original(&self) -> &RawValue {
        &self.original
    }

    /// The schema, parsed.
    pub fn value(&self) -> Value {
        serde_json::from_str(self.original.get()).unwrap_or_default()
    }

    /// Whether it names this argument.
    pub fn has_property(&self, name: &str) -> bool {
        self.value()["properties"].get(name).is_some()
    }

    /// Checks a value within `effort`.
    ///
    /// # Errors
    /// [`CheckError`]: the value is invalid, or the effort is exhausted.
    pub fn check(&self, value: &Value, effort: Effort) -> Result<(), CheckError> {
        let valid = counted::within(effort, || self.validator.is_valid(Counted(value))).ok_or(CheckError::TooCostly)?;
        if valid {
            return Ok(());
        }
        let collected: Option<Vec<Mismatch>> = counted::within(effort.at_most(LOOKS_FOR_ERRORS), || {
            let errors = self.validator.iter_errors(Counted(value));
            errors.flat_map(|error| self.places(&error)).take(MOST_ERRORS).collect()
        });
        // Each branch repeats its errors with what they refer to. Very many of them take memory and help no reader.
        Err(match (collected, effort) {
            (Some(places), _) => CheckError::Invalid(places),
            // A check with more effort may still return the errors.
            (None, Effort::Quick) => CheckError::TooCostly,
            (None, Effort::Full | Effort::AtMost(_)) => CheckError::Invalid(vec![Mismatch {
                place: String::new(),
                message: "it does not match the schema; finding the exact place takes too long".to_owned(),
            }]),
        })
    }

    /// The places of an error: of the members that are missing or not allowed, else of the value that it is about.
    fn places(&self, error: &jsonschema::ValidationError<'_>) -> Vec<Mismatch> {
        let place = error.instance_path();
        let member = |name: &str, message: &str| Mismatch {
            place: limited(place.join(name).as_str()),
            message: message.to_owned(),
        };
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let schema = self.value();
                let keyword = error.schema_path().as_str();
                let parent = keyword.rsplit_once('/').and_then(|(parent, _)| schema.pointer(parent));
                let known = parent.and_then(|parent| parent["properties"].as_object());
                let known: Vec<_> = known.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
                let message = limited(format_args!("is not known; allowed: {}", known.join(", ")));
                let unexpected = unexpected.iter().take(MOST_ERRORS);
                unexpected.map(|name| member(name, &message)).collect()
            }
            ValidationErrorKind::Required { property } => {
                vec![member(property.as_str().unwrap_or_default(), "is missing")]
            }
            _ => vec![Mismatch {
                place: place.as_str().to_owned(),
                message: limited(error),
            }],
        }
    }
}

/// Runs `work` so that [`counted::exhausted`] ends it.
fn until_exhausted<T>(work: impl FnOnce() -> T) -> Option<T> {
    // Nothing that `work` changes is used after it ended early.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(ended) if ended.is::<counted::Exhausted>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// A message may quote the whole value.
fn limited(message: impl fmt::Display) -> String {
    capped(&message.to_string(), MOST_MESSAGE).into_owned()
}

/// The longest message of an error, in bytes.
const MOST_MESSAGE: usize = 512;

impl fmt::Debug for JsonSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.original.get())
    }
}

/// The longest reference that is followed outside of a check, in bytes. It is read once for each value.
const MOST_REFERENCE: usize = 1000;

/// The schema, or the one in the same document that it refers to.
pub fn resolved<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let target = schema["$ref"].as_str().and_then(|target| target.strip_prefix('#'));
    target
        .filter(|target| target.len() <= MOST_REFERENCE)
        .and_then(|pointer| root.pointer(pointer))
        .unwrap_or(schema)
}

#[cfg(test)]
mod tests;
