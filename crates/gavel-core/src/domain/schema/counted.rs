//! A JSON value that counts accesses to it.
//!
//! For every keyword and every nesting of a schema, the validator reads a value through [`Node`], so its work is
//! counted there. When an effort is exhausted, the check unwinds to its start: a keyword that only gets "not valid"
//! would continue with the next branch.

use std::borrow::Cow;
use std::cell::Cell;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, cmp, unique};
use serde_json::{Map, Number, Value};

/// The limit for the cost of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// The limit on a thread that serves other requests: a fraction of a millisecond. Compiles no pattern.
    Quick,
    /// The limit on a thread of its own: a second.
    Full,
    /// As [`Effort::Full`], with fewer accesses.
    AtMost(u64),
}

/// Accesses of an [`Effort::Quick`] check. The usual arguments of a tool take a few hundred.
const QUICK: u64 = 20_000;
/// Accesses of an [`Effort::Full`] check.
const FULL: u64 = 20_000_000;
/// The longest [`Effort::Quick`] check.
const QUICK_TIME: Duration = Duration::from_millis(2);
/// The longest [`Effort::Full`] check.
const TIME: Duration = Duration::from_secs(1);
/// Accesses between two readings of the clock. One access may represent ten thousand schemas that do not read the
/// value.
const BETWEEN: u64 = 256;
/// The longest member name in a checked value, in bytes.
const LONGEST_NAME: usize = 4 << 10;
/// Stack limit of a check, in bytes. Threads of the runtime have 2 MiB.
const STACK: usize = 1 << 20;

impl Effort {
    pub(super) fn looks(self) -> u64 {
        match self {
            Self::Quick => QUICK,
            Self::Full => FULL,
            Self::AtMost(looks) => looks.min(FULL),
        }
    }

    /// The same effort with at most this many accesses.
    pub(super) fn at_most(self, looks: u64) -> Self {
        match self {
            Self::Quick => Self::Quick,
            Self::Full | Self::AtMost(_) => Self::AtMost(self.looks().min(looks)),
        }
    }
}

/// Ends a check whose effort is exhausted. It is not a panic: the hook does not run, and [`within`] always catches it.
pub(super) struct Exhausted;

/// What remains of the effort of this thread's check.
#[derive(Clone, Copy)]
struct Left {
    /// In addition to those in [`CHUNK`].
    looks: u64,
    until: Option<Instant>,
    /// The stack may not grow to or below this address.
    stack: usize,
    may_compile: bool,
}

thread_local! {
    static LEFT: Cell<Left> = const { Cell::new(Left { looks: 0, until: None, stack: 0, may_compile: false }) };
    /// Accesses until the next reading of the clock: the only state that an access has to touch.
    static CHUNK: Cell<u64> = const { Cell::new(0) };
}

/// Runs a check; `None` if its effort is exhausted first.
pub(super) fn within<T>(effort: Effort, check: impl FnOnce() -> T) -> Option<T> {
    let here = 0_u8;
    let full = effort != Effort::Quick;
    let before = LEFT.replace(Left {
        looks: effort.looks(),
        until: Some(Instant::now() + if full { TIME } else { QUICK_TIME }),
        stack: (std::ptr::from_ref(&here) as usize).saturating_sub(STACK),
        may_compile: full,
    });
    let chunk = CHUNK.replace(0);
    let done = super::until_exhausted(check);
    LEFT.set(before);
    CHUNK.set(chunk);
    done
}

/// Subtracts this many accesses from the remaining effort.
#[inline]
pub(super) fn charge(looks: u64) {
    match CHUNK.get().checked_sub(looks) {
        Some(rest) => CHUNK.set(rest),
        None => next_chunk(looks),
    }
}

#[cold]
fn next_chunk(looks: u64) {
    let left = LEFT.get();
    let Some(rest) = (left.looks + CHUNK.get()).checked_sub(looks) else {
        exhausted()
    };
    if left.until.is_some_and(|until| Instant::now() >= until) {
        exhausted()
    }
    let chunk = rest.min(BETWEEN);
    CHUNK.set(chunk);
    LEFT.set(Left {
        looks: rest - chunk,
        ..left
    });
}

/// Ends the check unless it may compile a pattern.
pub(super) fn may_compile() {
    if !LEFT.get().may_compile {
        exhausted()
    }
}

/// Reads the clock, after work that took longer than its accesses count.
pub(super) fn time_passed() {
    next_chunk(0);
}

/// Ends the check.
pub(super) fn exhausted() -> ! {
    resume_unwind(Box::new(Exhausted))
}

/// Checks the stack one level deeper. Values nest as deep as arguments may, and in-place references as deep as
/// [`super::cost`] allows.
fn descend() {
    let here = 0_u8;
    if (std::ptr::from_ref(&here) as usize) < LEFT.get().stack {
        exhausted()
    }
}

/// The cost of a text, in addition to the access.
fn of_text(text: &str) -> u64 {
    text.len() as u64 / 256
}

/// The cost of a name. It may be matched against every name in `patternProperties`, which is not counted elsewhere.
fn of_name(name: &str) -> u64 {
    match name.len() {
        0..=64 => 0,
        long if long > LONGEST_NAME => exhausted(),
        long => long as u64,
    }
}

/// The JSON representation that counts accesses.
pub(super) struct Looks;

/// A value that counts accesses to it.
#[derive(Clone, Copy)]
pub(super) struct Counted<'a>(pub(super) &'a Value);

impl Json for Looks {
    type Node<'a> = Counted<'a>;
    type PreparedKey = String;
    type StringBuffer = ();

    const KEYS_PER_LOOKUP: usize = 2;
    const ACYCLIC: bool = true;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>((): &mut (), string: &str, f: impl FnOnce(Counted<'_>) -> T) -> T {
        charge(1 + of_name(string));
        f(Counted(&Value::String(string.to_owned())))
    }
}

impl<'a> Node<'a, Looks> for Counted<'a> {
    type Object = Counted<'a>;
    type Array = Counted<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<Self::Object> {
        charge(1);
        descend();
        self.0.is_object().then_some(*self)
    }

    fn as_array(&self) -> Option<Self::Array> {
        charge(1);
        descend();
        self.0.is_array().then_some(*self)
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.0.as_str();
        charge(1 + text.map(of_text).unwrap_or_default());
        text.map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a Number> {
        charge(1);
        match self.0 {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    fn as_boolean(&self) -> Option<bool> {
        charge(1);
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        charge(1);
        self.0.is_null()
    }

    fn json_type(&self) -> JsonType {
        charge(1);
        match self.0 {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        equal(self.0, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        charge(1);
        Cow::Borrowed(self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        charge(1);
        Some(NodeIdentity::new(std::ptr::from_ref::<Value>(self.0) as usize))
    }
}

/// Equality by JSON Schema (numbers by value). Each compared part is counted.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            charge(1);
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            charge(1);
            let same = |(key, left): (&String, &Value)| right.get(key).is_some_and(|right| equal(left, right));
            left.len() == right.len() && left.iter().all(same)
        }
        (Value::String(left), Value::String(right)) => {
            let same_length = left.len() == right.len();
            charge(1 + if same_length { of_text(left) } else { 0 });
            same_length && left == right
        }
        _ => {
            charge(1);
            cmp::equal(left, right)
        }
    }
}

/// Counts every part of a value.
fn charge_all(value: &Value) {
    match value {
        Value::Array(items) => items.iter().for_each(charge_all),
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            charge(1 + of_text(key));
            charge_all(value);
        }),
        Value::String(text) => charge(of_text(text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    // Each part is hashed and compared with parts of the same hash.
    charge(4);
}

impl<'a> Object<'a, Looks> for Counted<'a> {
    type Node = Counted<'a>;
    type MemberName = &'a str;
    type MembersIter = Members<'a>;

    fn len(&self) -> usize {
        charge(1);
        self.0.as_object().map_or(0, Map::len)
    }

    fn get(&self, key: &String) -> Option<Counted<'a>> {
        charge(1);
        self.0.get(key).map(Counted)
    }

    fn members(&self) -> Members<'a> {
        Members(self.0.as_object().map(Map::iter))
    }
}

/// The members of an object; each one counts as an access.
pub(super) struct Members<'a>(Option<serde_json::map::Iter<'a>>);

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, Counted<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = self.0.as_mut()?.next()?;
        charge(1 + of_name(key));
        Some((key.as_str(), Counted(value)))
    }
}

impl<'a> Array<'a, Looks> for Counted<'a> {
    type Node = Counted<'a>;
    type ElementsIter = Elements<'a>;

    fn len(&self) -> usize {
        charge(1);
        self.0.as_array().map_or(0, Vec::len)
    }

    fn elements(&self) -> Elements<'a> {
        Elements(self.0.as_array().map(|items| items.iter()))
    }

    fn is_unique(&self) -> bool {
        let items = self.0.as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().for_each(charge_all);
        unique::is_unique(items)
    }
}

/// The elements of an array; each one counts as an access.
pub(super) struct Elements<'a>(Option<std::slice::Iter<'a, Value>>);

impl<'a> Iterator for Elements<'a> {
    type Item = Counted<'a>;

    fn next(&mut self) -> Option<Counted<'a>> {
        let value = self.0.as_mut()?.next()?;
        charge(1);
        Some(Counted(value))
    }
}
