//! Labels of metrics whose values others choose: definitions name models, for example.
//!
//! A metric is kept for each value of its labels, for ever. So only the first values are told by their name, and all later
//! ones together.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Distinct values of one label: several times the models that a provider has, and some 200 KiB of `/metrics`.
const MOST: usize = 64;
/// Bytes of a value.
const LONGEST: usize = 128;
/// Every value beyond those.
const OTHER: &str = "other";

/// The values of one label that are told by their name.
#[derive(Debug)]
pub(super) struct Labels(LazyLock<Mutex<HashSet<Box<str>>>>);

impl Labels {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self(LazyLock::new(Mutex::default))
    }

    /// What a metric says for `value`: the value, its beginning where it is long, or `other`.
    pub(super) fn of<'a>(&self, value: &'a str) -> &'a str {
        let end = value.floor_char_boundary(LONGEST);
        let value = &value[..end];
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(value) {
            return value;
        }
        if known.len() == MOST {
            return OTHER;
        }
        known.insert(value.into());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_keep_their_names_and_all_others_share_one() {
        let labels = Labels::new();
        let first = "x".repeat(1000);
        assert_eq!(labels.of(&first), "x".repeat(LONGEST));
        let seen: HashSet<_> = (0..10_000)
            .map(|n| labels.of(&format!("model-{n}")).to_owned())
            .collect();
        assert_eq!(seen.len(), MOST, "{seen:?}");
        assert!(seen.contains("model-0") && seen.contains(OTHER));
        assert_eq!(labels.of("model-0"), "model-0");
        assert_eq!(labels.of("model-9999"), OTHER);
    }
}
