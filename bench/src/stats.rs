//! Percentiles and medians.

/// The smallest value that at least `share` (0..=1) of the values do not exceed (nearest rank).
/// Zero for no values.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or_default()
}

/// Sorts in place.
pub(crate) fn sort(values: &mut [f64]) {
    values.sort_unstable_by(f64::total_cmp);
}

/// The middle value, of an even number the mean of the two in the middle; zero for none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    sort(&mut values);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_seen() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.5), 100.0);
        assert_eq!(percentile(&values, 0.99), 198.0);
        assert_eq!(percentile(&values, 1.0), 200.0);
        assert_eq!(percentile(&values, 0.0), 1.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }

    #[test]
    fn a_median_does_not_need_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }
}
