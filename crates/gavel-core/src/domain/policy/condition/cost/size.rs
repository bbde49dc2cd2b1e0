//! The sizes of a call's data, which bound the cost of a condition.

use std::collections::HashMap;

use serde_json::Value;

use super::BYTES_A_STEP;

/// The size of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Values, including those inside lists and maps.
    pub(super) values: u64,
    /// Bytes of texts and of map keys.
    pub(crate) bytes: u64,
}

impl Size {
    pub(super) const ONE: Self = Self { values: 1, bytes: 0 };

    pub(crate) const fn text(text: &str) -> Self {
        Self {
            values: 1,
            bytes: text.len() as u64,
        }
    }

    /// The size of a value with everything in it.
    pub(crate) fn of(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::text(text),
            Value::Array(items) => items.iter().map(Self::of).fold(Self::ONE, Self::plus),
            // A key is a value in a loop over a map.
            Value::Object(object) => object
                .iter()
                .map(|(name, value)| Self::text(name).plus(Self::of(value)))
                .fold(Self::ONE, Self::plus),
            _ => Self::ONE,
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            values: self.values.saturating_add(other.values),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    pub(super) fn times(self, times: u64) -> Self {
        Self {
            values: self.values.saturating_mul(times),
            bytes: self.bytes.saturating_mul(times),
        }
    }

    pub(crate) fn most(self, other: Self) -> Self {
        Self {
            values: self.values.max(other.values),
            bytes: self.bytes.max(other.bytes),
        }
    }

    pub(super) fn least(self, other: Self) -> Self {
        Self {
            values: self.values.min(other.values),
            bytes: self.bytes.min(other.bytes),
        }
    }

    /// Steps for one pass over it.
    pub(super) fn steps(self) -> u64 {
        self.values.saturating_add(self.bytes / BYTES_A_STEP)
    }
}

/// The sizes of the data that a condition can read.
#[derive(Clone, Debug)]
pub(crate) struct Sizes<'a> {
    pub(crate) arguments: Size,
    /// Of each argument, if known: a long text does not affect a loop over another argument.
    pub(crate) fields: Option<HashMap<&'a str, Size>>,
    pub(crate) recipients: Size,
    /// The longest name: of the user, the tool and so on.
    pub(crate) name: Size,
}

impl<'a> Sizes<'a> {
    /// The sizes of the arguments, together and each alone.
    pub(crate) fn of_arguments(arguments: &'a Value) -> (Size, Option<HashMap<&'a str, Size>>) {
        let Value::Object(object) = arguments else {
            return (Size::of(arguments), None);
        };
        let fields: HashMap<_, _> = object
            .iter()
            .map(|(name, value)| (name.as_str(), Size::of(value)))
            .collect();
        let all = fields
            .iter()
            .map(|(name, size)| Size::text(name).plus(*size))
            .fold(Size::ONE, Size::plus);
        (all, Some(fields))
    }

    /// A small call. A condition that takes too long even for this is an error in the policy.
    pub(crate) const SMALL: Self = Self {
        arguments: Size {
            values: 50,
            bytes: 4096,
        },
        fields: None,
        recipients: Size {
            values: 50,
            bytes: 2048,
        },
        name: Size { values: 1, bytes: 64 },
    };
}
