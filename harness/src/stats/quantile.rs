//! Order statistics of small samples.

/// The median; the mean of the two middle values for an even count. `None` when empty.
///
/// Values are ordered by `total_cmp`, so the answer does not depend on the input's order.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The quantile at `share` in [0, 1], linear between order statistics
/// (type 7 of Hyndman and Fan 1996). `None` when empty or `share` is outside.
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    if values.is_empty() || !(0.0..=1.0).contains(&share) {
        return None;
    }
    let mut values = values.to_vec();
    #[expect(clippy::cast_precision_loss, reason = "samples are far below 2^52")]
    let position = share * (values.len() - 1) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the last index"
    )]
    let below = position.floor() as usize;
    let part = position - position.floor();
    // Selected, not sorted: Hodges–Lehmann asks for the median of half a million averages.
    let (_, low, greater) = values.select_nth_unstable_by(below, f64::total_cmp);
    let low = *low;
    let high = greater.iter().copied().min_by(f64::total_cmp);
    // This form stays within the two values and never forms inf − inf.
    Some(low * (1.0 - part) + high.unwrap_or(low) * part)
}

/// Smallest and largest value. `None` when empty.
#[must_use]
pub fn range(values: &[f64]) -> Option<(f64, f64)> {
    let low = values.iter().copied().min_by(f64::total_cmp)?;
    let high = values.iter().copied().max_by(f64::total_cmp)?;
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn quantiles_are_linear_between_the_values() {
        let values = [10.0, 20.0, 30.0, 40.0, 50.0];
        assert_eq!(quantile(&values, 0.0), Some(10.0));
        assert_eq!(quantile(&values, 1.0), Some(50.0));
        assert_eq!(quantile(&values, 0.25), Some(20.0));
        assert_eq!(quantile(&values, 0.1), Some(14.0));
        assert_eq!(quantile(&values, 1.1), None);
    }

    #[test]
    fn the_range_is_smallest_and_largest() {
        assert_eq!(range(&[2.0, -1.0, 5.0]), Some((-1.0, 5.0)));
        assert_eq!(range(&[]), None);
    }
}
