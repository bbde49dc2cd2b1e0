//! Shares of a count, and what a difference between two of them says. Intervals are those of 95 %.

/// The quantile of the normal distribution for 95 %, on both sides.
const Z: f64 = 1.959_963_984_540_054;

/// `hits` of `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proportion {
    /// How many have it.
    pub hits: u64,
    /// How many there are.
    pub of: u64,
}

impl Proportion {
    /// The share; `None` of nothing.
    pub fn value(self) -> Option<f64> {
        (self.of > 0).then(|| self.hits as f64 / self.of as f64)
    }

    /// The interval that Wilson's score gives (1927): valid for few rows and for shares near 0 and 1.
    pub fn interval(self) -> Option<(f64, f64)> {
        let (share, n) = (self.value()?, self.of as f64);
        let denominator = 1.0 + Z * Z / n;
        let middle = (share + Z * Z / (2.0 * n)) / denominator;
        let half = Z / denominator * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        Some(((middle - half).max(0.0), (middle + half).min(1.0)))
    }

    /// How much larger the other share is, with Newcombe's hybrid interval (1998, method 10).
    pub fn difference(self, other: Self) -> Option<(f64, f64, f64)> {
        let (a, b) = (self.value()?, other.value()?);
        let ((a_low, a_high), (b_low, b_high)) = (self.interval()?, other.interval()?);
        let distance = |x: f64, y: f64| (x * x + y * y).sqrt();
        let difference = b - a;
        Some((
            difference,
            difference - distance(b - b_low, a_high - a),
            difference + distance(b_high - b, a - a_low),
        ))
    }

    /// How probable a difference at least as large is if the shares do not differ: by Fisher's exact test where fewer
    /// than 5 are expected in a cell, else by the two-sided z-test.
    pub fn p(self, other: Self) -> Option<f64> {
        let (n_a, n_b) = (self.of as f64, other.of as f64);
        let pooled = (self.hits + other.hits) as f64 / (n_a + n_b);
        if self.of == 0 || other.of == 0 {
            return None;
        }
        let expected = [n_a * pooled, n_a * (1.0 - pooled), n_b * pooled, n_b * (1.0 - pooled)];
        if expected.iter().any(|count| *count < 5.0) {
            return Some(fisher(self, other));
        }
        let error = (pooled * (1.0 - pooled) * (1.0 / n_a + 1.0 / n_b)).sqrt();
        let z = (other.value()? - self.value()?).abs() / error;
        Some(libm::erfc(z / std::f64::consts::SQRT_2))
    }
}

/// The two-sided exact test: the sum of all tables that are at most as probable as this one.
fn fisher(a: Proportion, b: Proportion) -> f64 {
    let factorial = |n: u64| libm::lgamma(n as f64 + 1.0);
    let choose = |n: u64, k: u64| factorial(n) - factorial(k) - factorial(n - k);
    let hits = a.hits + b.hits;
    let log_p = |k: u64| choose(a.of, k) + choose(b.of, hits - k) - choose(a.of + b.of, hits);
    let (least, most) = (hits.saturating_sub(b.of), hits.min(a.of));
    let seen = log_p(a.hits);
    // Equal tables differ by rounding.
    let as_rare = (least..=most).map(log_p).filter(|p| *p <= seen + 1e-9);
    as_rare.map(f64::exp).sum::<f64>().min(1.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 5e-4, "{found} is not {expected}");
    }

    /// The examples of Newcombe (1998), tables I and II.
    #[test]
    fn intervals_are_those_of_the_papers() {
        let (low, high) = Proportion { hits: 81, of: 263 }.interval().unwrap();
        near(low, 0.2553);
        near(high, 0.3662);
        let (low, high) = Proportion { hits: 0, of: 20 }.interval().unwrap();
        near(low, 0.0);
        near(high, 0.1611);
        let (b, a) = (Proportion { hits: 56, of: 70 }, Proportion { hits: 48, of: 80 });
        let (difference, low, high) = a.difference(b).unwrap();
        near(difference, 0.2);
        near(low, 0.0524);
        near(high, 0.3339);
    }

    /// The lady tasting tea, and a table of the z-test.
    #[test]
    fn small_counts_are_tested_exactly() {
        near(
            Proportion { hits: 3, of: 4 }.p(Proportion { hits: 1, of: 4 }).unwrap(),
            0.4857,
        );
        near(
            Proportion { hits: 1, of: 9 }
                .p(Proportion { hits: 10, of: 13 })
                .unwrap(),
            0.0075,
        );
        near(
            Proportion { hits: 60, of: 1000 }
                .p(Proportion { hits: 90, of: 1000 })
                .unwrap(),
            0.0109,
        );
        assert_eq!(Proportion { hits: 0, of: 0 }.p(Proportion { hits: 1, of: 2 }), None);
    }

    #[test]
    fn of_nothing_nothing_is_said() {
        let none = Proportion { hits: 0, of: 0 };
        assert_eq!(
            (none.value(), none.interval(), none.difference(none)),
            (None, None, None)
        );
    }
}
