//! Patterns of a schema: compiled when a value first needs them, within a size, and kept while there is room.
//!
//! A pattern of ten bytes may take ten megabytes compiled, so all that are compiled share one room. What a match may cost is
//! charged to the check before it is made: an engine that has begun cannot be stopped.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::Location;
use jsonschema::{Keyword, PatternOptions, ValidationError, ValidationOptions, Validator};
use serde_json::{Map, Value, json};

use super::counted::{Counted, Looks, charge, exhausted, may_compile, time_passed};

/// Sizes that a pattern is compiled to fit, smallest first, in bytes. One that fits none is not matched.
const SIZES: [usize; 5] = [2 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20];
/// What all compiled patterns of the process may take, in bytes.
const ROOM: usize = 32 << 20;
/// What a pattern's automaton may take beside it, for each thread that matches, in bytes.
const AUTOMATON: usize = 256 << 10;
/// Steps back of an engine that goes back, for one match.
const STEPS_BACK: usize = 20_000;
/// The longest text that a pattern with look-around is matched with, in bytes: each step back may go through all of it.
const LONGEST_LOOKED_AROUND: usize = 16 << 10;
/// Size of each name in `patternProperties`, in bytes: all of them are compiled with the schema.
const NAMED_SIZE: usize = 64 << 10;

/// How schemas are compiled here.
pub(super) fn options() -> ValidationOptions<'static, Arc<dyn jsonschema::Retrieve>, Looks> {
    jsonschema::options_for::<Looks>()
        .with_pattern_options(limits(NAMED_SIZE))
        .with_keyword("pattern", keyword)
}

fn limits(size: usize) -> PatternOptions<jsonschema::FancyRegex> {
    PatternOptions::fancy_regex()
        .backtrack_limit(STEPS_BACK)
        .size_limit(size)
        .dfa_size_limit(AUTOMATON)
}

fn keyword<'a>(
    _schema: &'a Map<String, Value>,
    value: &'a Value,
    _place: Location,
) -> Result<Box<dyn for<'i> Keyword<'i, Looks>>, ValidationError<'a>> {
    let Some(text) = value.as_str() else {
        return Err(ValidationError::custom("`pattern` must be text"));
    };
    let pattern = Pattern {
        text: Arc::from(text),
        compiled: Mutex::default(),
    };
    // Most are valid as the standard has it. What only the engine takes is compiled to see.
    if !is_standard(text) && matches!(compile(text), Err(Unusable::Invalid)) {
        return Err(ValidationError::custom(format!("{text:?} is not a valid pattern")));
    }
    // A schema may hold hundreds of them.
    time_passed();
    Ok(Box::new(pattern))
}

/// Is it a pattern by ECMA-262, which JSON Schema names?
fn is_standard(text: &str) -> bool {
    static FORMAT: LazyLock<Option<Validator>> = LazyLock::new(|| {
        let options = jsonschema::options().should_validate_formats(true);
        options.build(&json!({"format": "regex"})).ok()
    });
    FORMAT
        .as_ref()
        .is_some_and(|format| format.is_valid(&Value::String(text.to_owned())))
}

struct Pattern {
    text: Arc<str>,
    /// Kept by [`Room`], as long as it has room.
    compiled: Mutex<Weak<Compiled>>,
}

struct Compiled {
    text: Arc<str>,
    validator: Validator,
    /// Which of [`SIZES`] it fits.
    size: usize,
    looks_around: bool,
}

enum Unusable {
    Invalid,
    TooLarge,
}

/// A validator of that pattern alone, in the smallest size that it fits.
fn compile(text: &str) -> Result<Compiled, Unusable> {
    let schema = json!({"pattern": text});
    let mut fits = SIZES.into_iter().map(|size| {
        let options = jsonschema::options().with_pattern_options(limits(size));
        options.build(&schema).map(|validator| (validator, size))
    });
    match fits.find_map(Result::ok) {
        Some((validator, size)) => Ok(Compiled {
            text: Arc::from(text),
            validator,
            size,
            looks_around: ["(?=", "(?!", "(?<", "(?>"].iter().any(|sign| text.contains(sign)) || refers_back(text),
        }),
        None if is_standard(text) => Err(Unusable::TooLarge),
        None => Err(Unusable::Invalid),
    }
}

/// `\1` and its like.
fn refers_back(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes
        .windows(2)
        .any(|two| two[0] == b'\\' && (two[1].is_ascii_digit() || two[1] == b'k'))
}

impl Pattern {
    fn matches(&self, value: &Value) -> bool {
        let Value::String(text) = value else { return true };
        let compiled = self.compiled();
        if compiled.looks_around && text.len() > LONGEST_LOOKED_AROUND {
            exhausted()
        }
        // An engine goes through all states of the pattern for each character at worst; a state takes some 32 bytes.
        let worst = (text.len() as u64).saturating_mul(compiled.size as u64 / 32);
        charge(1 + worst / 64);
        let found = compiled.validator.validate(value);
        time_passed();
        match found {
            Ok(()) => true,
            Err(error) if matches!(error.kind(), ValidationErrorKind::Pattern { .. }) => false,
            // The engine gave up.
            Err(_) => exhausted(),
        }
    }

    fn compiled(&self) -> Arc<Compiled> {
        let kept = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = kept().upgrade() {
            return compiled;
        }
        // Without the lock: a check that may not compile must not wait for one that does.
        may_compile();
        let compiled = ROOM_FOR_ALL.compiled(&self.text);
        time_passed();
        let Some(compiled) = compiled else { exhausted() };
        *kept() = Arc::downgrade(&compiled);
        compiled
    }
}

impl<'i> Keyword<'i, Looks> for Pattern {
    fn validate(&self, instance: Counted<'i>) -> Result<(), ValidationError<'i>> {
        if self.matches(instance.0) {
            return Ok(());
        }
        let value = crate::domain::text::capped(instance.0.as_str().unwrap_or_default(), 256).into_owned();
        Err(ValidationError::custom(format!(
            "{value:?} does not match {:?}",
            self.text
        )))
    }

    fn is_valid(&self, instance: Counted<'i>) -> bool {
        self.matches(instance.0)
    }
}

/// The compiled patterns of the process, oldest first.
struct Room(Mutex<VecDeque<Arc<Compiled>>>);

static ROOM_FOR_ALL: Room = Room(Mutex::new(VecDeque::new()));

impl Room {
    /// A pattern as it is kept, or compiled anew; the oldest ones make room. `None` when it cannot be compiled.
    fn compiled(&self, text: &str) -> Option<Arc<Compiled>> {
        let known = |kept: &VecDeque<Arc<Compiled>>| kept.iter().find(|one| &*one.text == text).cloned();
        if let Some(known) = known(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Some(known);
        }
        // Without the lock: it takes milliseconds.
        let compiled = Arc::new(compile(text).ok()?);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(Arc::clone(&compiled));
        let mut size: usize = kept.iter().map(|one| one.size).sum();
        while size > ROOM && kept.len() > 1 {
            size -= kept.pop_front().map_or(0, |one| one.size);
        }
        Some(compiled)
    }
}
