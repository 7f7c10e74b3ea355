//! Paired differences over rounds, as they are shown for null arms: what two
//! copies of the same program differ by on this machine.

use super::quantile::{median, range};

/// Median and range of paired differences.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    /// Median over rounds.
    pub median: f64,
    /// Smallest difference.
    pub low: f64,
    /// Largest difference.
    pub high: f64,
}

/// `first[r] − second[r]` of every round. The shorter column decides the length.
#[must_use]
pub fn paired(first: &[f64], second: &[f64]) -> Vec<f64> {
    first.iter().zip(second).map(|(a, b)| a - b).collect()
}

/// Median and range of `differences`; `None` when there are none.
#[must_use]
pub fn band(differences: &[f64]) -> Option<Band> {
    let (low, high) = range(differences)?;
    Some(Band {
        median: median(differences)?,
        low,
        high,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_is_the_median_and_the_range_of_the_paired_differences() {
        let differences = paired(&[2.0, 5.0, 9.0], &[1.0, 7.0, 4.0]);
        assert_eq!(differences, [1.0, -2.0, 5.0]);
        let found = band(&differences).unwrap();
        assert_eq!((found.median, found.low, found.high), (1.0, -2.0, 5.0));
    }

    #[test]
    fn no_rounds_give_no_band() {
        assert_eq!(band(&paired(&[], &[1.0])), None);
    }
}
