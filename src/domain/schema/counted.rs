//! A JSON value that counts how often it is looked at.
//!
//! Whatever keywords a schema has and however they are nested, the validator learns of a value through [`Node`]. So that is
//! where its work is counted. When an effort is used up, the check is unwound to where it began: a keyword that is only told
//! "not valid" would go on with the next branch.

use std::borrow::Cow;
use std::cell::Cell;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, cmp, unique};
use serde_json::{Map, Number, Value};

/// What a check may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// What may be done on a thread that serves others: a fraction of a millisecond. No pattern is compiled.
    Quick,
    /// The most that a check may take, on a thread of its own: a second.
    Full,
    /// As [`Effort::Full`], with fewer looks.
    AtMost(u64),
}

/// Looks of a [`Effort::Quick`] check; a tool's usual arguments take some hundred.
const QUICK: u64 = 20_000;
/// Looks of a [`Effort::Full`] check.
const FULL: u64 = 20_000_000;
/// The longest [`Effort::Quick`] check.
const QUICK_TIME: Duration = Duration::from_millis(2);
/// The longest [`Effort::Full`] check.
const TIME: Duration = Duration::from_secs(1);
/// Looks between two looks at the clock. A look may stand for ten thousand schemas that do not look at the value.
const BETWEEN: u64 = 256;
/// The longest name of a member in a value that is checked, in bytes.
const LONGEST_NAME: usize = 4 << 10;
/// Stack that a check may use, in bytes. Threads of the runtime have 2 MiB.
const STACK: usize = 1 << 20;

impl Effort {
    pub(super) fn looks(self) -> u64 {
        match self {
            Self::Quick => QUICK,
            Self::Full => FULL,
            Self::AtMost(looks) => looks.min(FULL),
        }
    }

    /// The same with at most `looks`.
    pub(super) fn at_most(self, looks: u64) -> Self {
        match self {
            Self::Quick => Self::Quick,
            Self::Full | Self::AtMost(_) => Self::AtMost(self.looks().min(looks)),
        }
    }
}

/// Ends a check whose effort is used up. No panic: the hook is not run, and [`within`] always catches it.
pub(super) struct Exhausted;

/// What is left of the check that this thread makes.
#[derive(Clone, Copy)]
struct Left {
    /// Beside those in [`CHUNK`].
    looks: u64,
    until: Option<Instant>,
    /// The stack may not grow to or below this address.
    stack: usize,
    may_compile: bool,
}

thread_local! {
    static LEFT: Cell<Left> = const { Cell::new(Left { looks: 0, until: None, stack: 0, may_compile: false }) };
    /// Looks up to the next look at the clock: all that a look has to touch.
    static CHUNK: Cell<u64> = const { Cell::new(0) };
}

/// Runs a check; `None` when its effort is used up first.
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

/// Takes `looks` from what is left.
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

/// May this check compile a pattern? Ends it otherwise.
pub(super) fn may_compile() {
    if !LEFT.get().may_compile {
        exhausted()
    }
}

/// Looks at the clock: something took longer than its looks say.
pub(super) fn time_passed() {
    next_chunk(0);
}

/// Ends the check.
pub(super) fn exhausted() -> ! {
    resume_unwind(Box::new(Exhausted))
}

/// One level deeper; values nest as far as arguments may, and in-place references as far as [`super::cost`] allows.
fn descend() {
    let here = 0_u8;
    if (std::ptr::from_ref(&here) as usize) < LEFT.get().stack {
        exhausted()
    }
}

/// A text's own cost beside the look at it.
fn of_text(text: &str) -> u64 {
    text.len() as u64 / 256
}

/// A name's own cost. It may be matched with every name of `patternProperties`, where nothing else counts.
fn of_name(name: &str) -> u64 {
    match name.len() {
        0..=64 => 0,
        long if long > LONGEST_NAME => exhausted(),
        long => long as u64,
    }
}

/// The representation of values that counts.
pub(super) struct Looks;

/// A value that counts looks at it.
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

/// Equality as JSON Schema has it (numbers by value), each compared part counted.
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
    // A part is hashed, and compared with those of the same hash.
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

/// The members of an object; each one is a look.
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

/// The elements of an array; each one is a look.
pub(super) struct Elements<'a>(Option<std::slice::Iter<'a, Value>>);

impl<'a> Iterator for Elements<'a> {
    type Item = Counted<'a>;

    fn next(&mut self) -> Option<Counted<'a>> {
        let value = self.0.as_mut()?.next()?;
        charge(1);
        Some(Counted(value))
    }
}
