//! Patterns of a schema: compiled on first use, within a size limit, and cached while there is room.
//!
//! A pattern of ten bytes may need ten megabytes compiled, so all compiled patterns share one cache. The possible cost
//! of a match is charged to the check beforehand, because a running engine cannot be stopped.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::Location;
use jsonschema::{Keyword, PatternOptions, ValidationError, ValidationOptions, Validator};
use serde_json::{Map, Value, json};

use super::counted::{Counted, Looks, charge, exhausted, may_compile, time_passed};

/// Size limits for compiling a pattern, smallest first, in bytes. A pattern that exceeds all of them is not matched.
const SIZES: [usize; 5] = [2 << 10, 16 << 10, 128 << 10, 1 << 20, 4 << 20];
/// Size limit of all compiled patterns of the process, in bytes.
const ROOM: usize = 32 << 20;
/// Size limit of a pattern's automaton, which comes on top, for each matching thread, in bytes.
const AUTOMATON: usize = 256 << 10;
/// Backtracking steps allowed for one match.
const STEPS_BACK: usize = 20_000;
/// The longest text for a pattern with look-around, in bytes: each backtracking step may scan all of it.
const LONGEST_LOOKED_AROUND: usize = 16 << 10;
/// Size limit of each pattern in `patternProperties`, in bytes. They are all compiled with the schema.
const NAMED_SIZE: usize = 64 << 10;

/// Options for compiling schemas.
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
    // Most patterns are valid by the standard. Others are compiled here to see whether the engine accepts them.
    if !is_standard(text) && matches!(compile(text), Err(Unusable::Invalid)) {
        return Err(ValidationError::custom(format!("{text:?} is not a valid pattern")));
    }
    // A schema may have hundreds of patterns.
    time_passed();
    Ok(Box::new(pattern))
}

/// Whether it is a pattern by ECMA-262, which JSON Schema prescribes.
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
    /// Owned by [`Room`], which drops it when space runs out.
    compiled: Mutex<Weak<Compiled>>,
}

struct Compiled {
    text: Arc<str>,
    validator: Validator,
    /// The smallest of [`SIZES`] that it fits.
    size: usize,
    looks_around: bool,
}

enum Unusable {
    Invalid,
    TooLarge,
}

/// Compiles a validator for this pattern alone, within the smallest size that it fits.
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

/// Whether the pattern has back-references such as `\1`.
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
        // At worst, an engine visits all states of the pattern for each character. A state takes about 32 bytes.
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
        // Without the lock: a check that must not compile must not wait for one that does.
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

/// Cache of the process's compiled patterns, oldest first.
struct Room(Mutex<VecDeque<Arc<Compiled>>>);

static ROOM_FOR_ALL: Room = Room(Mutex::new(VecDeque::new()));

impl Room {
    /// Returns a pattern from the cache, or compiles it and evicts the oldest ones if necessary. `None` if it cannot be
    /// compiled.
    fn compiled(&self, text: &str) -> Option<Arc<Compiled>> {
        let known = |kept: &VecDeque<Arc<Compiled>>| kept.iter().find(|one| &*one.text == text).cloned();
        if let Some(known) = known(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Some(known);
        }
        // Without the lock, because compiling takes milliseconds.
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
