//! Ratios on the logarithmic scale, where +1 % and −1 % are mirror images and a
//! slow round cancels.

/// ln(`value` / `reference`), exactly 0 when both are equal.
///
/// `None` unless both are finite and positive: a logarithm of zero or of a
/// negative number means nothing.
#[must_use]
pub fn log_ratio(value: f64, reference: f64) -> Option<f64> {
    let positive = |x: f64| x.is_finite() && x > 0.0;
    if !positive(value) || !positive(reference) {
        return None;
    }
    let ratio = value / reference;
    // The quotient of extreme doubles may over- or underflow; their logarithms do not.
    Some(if ratio.is_normal() {
        ratio.ln()
    } else {
        value.ln() - reference.ln()
    })
}

/// τ of a gate of `threshold_pct` percent on a rate: −ln(1 − g/100).
///
/// `None` when the threshold is not in [0, 100): a rate cannot lose all of itself.
#[must_use]
pub fn rate_threshold(threshold_pct: f64) -> Option<f64> {
    // 0 minus, so that a threshold of zero is +0.
    (0.0..100.0)
        .contains(&threshold_pct)
        .then(|| 0.0 - (-threshold_pct / 100.0).ln_1p())
}

/// τ of a gate of `threshold_pct` percent on a time or a size: ln(1 + g/100).
///
/// `None` when the threshold is negative or not finite.
#[must_use]
pub fn time_threshold(threshold_pct: f64) -> Option<f64> {
    (threshold_pct.is_finite() && threshold_pct >= 0.0).then(|| (threshold_pct / 100.0).ln_1p())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_a_ratio_of_exactly_zero() {
        for value in [1.0, 62.66, 1e-300, 1e300] {
            assert_eq!(log_ratio(value, value), Some(0.0));
        }
    }

    #[test]
    fn swapping_the_values_turns_the_sign() {
        let there = log_ratio(102.0, 100.0).unwrap();
        let back = log_ratio(100.0, 102.0).unwrap();
        assert!((there + back).abs() < 1e-15 && there > 0.0);
    }

    #[test]
    fn extreme_values_stay_finite() {
        let ratio = log_ratio(f64::MAX, f64::MIN_POSITIVE).unwrap();
        assert!((1418.0..1419.0).contains(&ratio), "{ratio}");
        assert!(log_ratio(5e-324, f64::MAX).unwrap().is_finite());
    }

    #[test]
    fn what_has_no_logarithm_has_no_ratio() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(log_ratio(bad, 1.0), None);
            assert_eq!(log_ratio(1.0, bad), None);
        }
    }

    #[test]
    fn one_percent_means_ninety_nine_for_a_rate_and_a_hundred_and_one_for_a_time() {
        assert!(((-rate_threshold(1.0).unwrap()).exp() - 0.99).abs() < 1e-15);
        assert!((time_threshold(1.0).unwrap().exp() - 1.01).abs() < 1e-15);
        assert_eq!(rate_threshold(100.0), None);
        assert_eq!(rate_threshold(-0.1), None);
        assert_eq!(time_threshold(f64::NAN), None);
        assert_eq!(rate_threshold(0.0).map(f64::to_bits), Some(0));
    }
}
