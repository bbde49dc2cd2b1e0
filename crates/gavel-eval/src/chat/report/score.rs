//! Rates and counts of an evaluation.

use std::collections::BTreeMap;
use std::iter::Sum;

use serde::Serialize;

/// A number of successes out of a total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rate {
    /// The number that succeeded.
    pub succeeded: usize,
    /// The total.
    pub total: usize,
}

impl Rate {
    /// The share, 0..=1; 0 if the total is 0.
    #[must_use]
    pub fn share(self) -> f64 {
        if self.total == 0 {
            0.0
        } else {
            self.succeeded as f64 / self.total as f64
        }
    }

    /// The share as `50.0 %`, never rounded up: 89.96 % is less than 90 %.
    #[must_use]
    pub fn percent(self) -> String {
        let tenths = (self.succeeded * 1000).checked_div(self.total).unwrap_or(0);
        format!("{}.{} %", tenths / 10, tenths % 10)
    }

    pub(super) fn count(&mut self, succeeded: bool) {
        self.total += 1;
        self.succeeded += usize::from(succeeded);
    }
}

impl Sum for Rate {
    fn sum<I: Iterator<Item = Self>>(rates: I) -> Self {
        rates.fold(Self::default(), |sum, rate| Self {
            succeeded: sum.succeeded + rate.succeeded,
            total: sum.total + rate.total,
        })
    }
}

/// The score of a kind. It does not count cases that were not run.
#[derive(Clone, Debug, Serialize)]
pub struct KindScore {
    /// The kind.
    pub kind: &'static str,
    /// How many succeeded.
    #[serde(flatten)]
    pub rate: Rate,
    /// Its clear requests (C-SC-1), and how many of them succeeded.
    pub clear_requests: Rate,
    /// The median of the decisions' durations, in milliseconds.
    pub median_ms: u64,
}

impl KindScore {
    pub(super) fn counted(&self) -> String {
        let counted = self.clear_requests;
        format!("{} {}/{}", self.kind, counted.succeeded, counted.total)
    }
}

/// Expected decision type against observed, as counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Confusion(pub BTreeMap<String, BTreeMap<String, usize>>);

impl Confusion {
    /// How often a case with `expected` had the result `observed`.
    pub fn get(&self, expected: &str, observed: &str) -> usize {
        self.0
            .get(expected)
            .and_then(|row| row.get(observed))
            .copied()
            .unwrap_or(0)
    }
}
