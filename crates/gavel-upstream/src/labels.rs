//! Bounded metric labels, for values that come from outside: definitions name models, for example.
//!
//! A metrics registry keeps one series for each label value, permanently. So only the first values keep their name; all
//! later values share one.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Distinct values of one label: several times the models of a provider, and about 200 KiB of `/metrics`.
const MOST: usize = 64;
/// Maximum length of a value, in bytes.
const LONGEST: usize = 128;
/// The label of every value beyond [`MOST`].
const OTHER: &str = "other";

/// The values of one label that keep their name.
#[derive(Debug)]
pub struct Labels(LazyLock<Mutex<HashSet<Box<str>>>>);

impl Labels {
    /// An empty set.
    #[expect(clippy::new_without_default, reason = "only statics are made, and those by a const")]
    pub const fn new() -> Self {
        Self(LazyLock::new(Mutex::default))
    }

    /// The label of `value`: the value itself, cut to [`LONGEST`] bytes, or `other`.
    pub fn of<'a>(&self, value: &'a str) -> &'a str {
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
