//! Durations counted in classes, each 2^¼ as wide as the one before: from 1 ms to more than a day, so that a percentile is
//! known to 9 %. Counts of many places add up to the counts of all.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

/// The first class is below 1 ms; the last one begins after 26 hours.
const CLASSES: u32 = 108;

/// The greatest distance of a percentile from the true one, as a share of it.
pub const ERROR: f64 = 0.09;

/// Where each class but the first begins, in microseconds.
static STARTS: LazyLock<Vec<i64>> = LazyLock::new(|| {
    let start = |class: u32| (1000.0 * 2_f64.powf(f64::from(class) / 4.0)).round() as i64;
    (0..CLASSES - 1).map(start).collect()
});

/// How many durations each class has. Its text, `CLASS:COUNT` for each, separated by spaces, can be joined with others to
/// that of all together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram(BTreeMap<u32, u64>);

impl Histogram {
    /// Where each class but the first begins, in microseconds.
    pub fn starts() -> &'static [i64] {
        &STARTS
    }

    /// Adds one duration, in microseconds.
    pub fn add(&mut self, us: i64) {
        let class = STARTS.partition_point(|start| *start <= us);
        *self.0.entry(u32::try_from(class).unwrap_or(CLASSES - 1)).or_default() += 1;
    }

    /// Adds those of another.
    pub fn merge(&mut self, other: &Self) {
        for (class, count) in &other.0 {
            *self.0.entry(*class).or_default() += count;
        }
    }

    /// Parses its text; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut all = Self::default();
        for part in text.split_ascii_whitespace() {
            let (class, count) = part.split_once(':')?;
            let class = class.parse().ok().filter(|class| *class < CLASSES)?;
            *all.0.entry(class).or_default() += count.parse::<u64>().ok()?;
        }
        Some(all)
    }

    /// How many durations it has.
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The duration that this share of all does not exceed, in milliseconds, with three digits; `None` without any.
    pub fn percentile(&self, share: f64) -> Option<f64> {
        let rank = (share * self.count() as f64).ceil().max(1.0);
        let mut below = 0;
        let (class, _) = self.0.iter().find(|(_, count)| {
            below += **count;
            below as f64 >= rank
        })?;
        let start = |class: u32| STARTS.get(class as usize).map(|us| *us as f64 / 1000.0);
        let middle = match (class.checked_sub(1).and_then(start), start(*class)) {
            (Some(low), Some(high)) => (low * high).sqrt(),
            (Some(low), None) => low,
            (None, _) => 0.0,
        };
        Some(rounded(middle))
    }
}

/// With three digits.
fn rounded(value: f64) -> f64 {
    let digits = 2.0 - value.max(0.01).log10().floor();
    let scale = 10_f64.powf(digits.abs());
    match digits > 0.0 {
        true => (value * scale).round() / scale,
        false => (value / scale).round() * scale,
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (class, count)) in self.0.iter().enumerate() {
            let space = if place == 0 { "" } else { " " };
            write!(f, "{space}{class}:{count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_percentile_is_within_its_error_and_parts_add_up(
            mut all in proptest::collection::vec(1000_i64..90_000_000_000, 1..200),
            cut in 0_usize..200,
            share in 0.01..1.0_f64,
        ) {
            let cut = cut.min(all.len());
            let of = |part: &[i64]| {
                let mut histogram = Histogram::default();
                part.iter().for_each(|us| histogram.add(*us));
                histogram
            };
            let (first, second) = (of(&all[..cut]), of(&all[cut..]));
            let joined = Histogram::parse(&format!("{first} {second}")).unwrap();
            let mut merged = first;
            merged.merge(&second);
            prop_assert_eq!(&joined, &of(&all));
            prop_assert_eq!(&joined, &merged);

            all.sort_unstable();
            let rank = ((share * all.len() as f64).ceil() as usize).max(1);
            let exact = all[rank - 1] as f64 / 1000.0;
            let found = joined.percentile(share).unwrap();
            prop_assert!((found - exact).abs() <= exact * (ERROR + 0.006), "{found} for {exact}");
        }
    }

    #[test]
    fn what_is_no_histogram_is_refused_and_an_empty_one_has_no_percentile() {
        for text in ["x", "1", "1:", "1:-1", "108:1", "1:1,2:2"] {
            assert_eq!(Histogram::parse(text), None, "{text}");
        }
        assert_eq!(Histogram::default().percentile(0.5), None);
        assert_eq!(Histogram::parse("0:3").unwrap().percentile(0.95), Some(0.0));
        assert_eq!(Histogram::parse("107:1").unwrap().percentile(0.5), Some(94_900_000.0));
    }
}
