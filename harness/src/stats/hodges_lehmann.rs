//! The Hodges–Lehmann estimate of a location: the median of all pairwise averages.
//!
//! Hodges and Lehmann 1963. It is shown beside the deciding estimate and decides nothing.

use super::quantile::median;

/// Median of (xᵢ + xⱼ)/2 over i ≤ j (the Walsh averages). `None` when empty.
///
/// Takes n(n + 1)/2 numbers of memory: meant for rounds, not for traces.
#[must_use]
pub fn hodges_lehmann(values: &[f64]) -> Option<f64> {
    let mut averages = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (index, first) in values.iter().enumerate() {
        // Halved before adding, so that two huge values do not overflow.
        averages.extend(
            values[index..]
                .iter()
                .map(|second| first / 2.0 + second / 2.0),
        );
    }
    median(&averages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_median_of_the_walsh_averages() {
        // Averages of 1, 2, 6: 1, 1.5, 2, 3.5, 4, 6.
        assert_eq!(hodges_lehmann(&[6.0, 1.0, 2.0]), Some(2.75));
        assert_eq!(hodges_lehmann(&[3.0]), Some(3.0));
        assert_eq!(hodges_lehmann(&[]), None);
    }

    #[test]
    fn one_wild_value_moves_it_little() {
        let calm = hodges_lehmann(&[1.0, 1.1, 0.9, 1.0, 1.05]).unwrap();
        let wild = hodges_lehmann(&[1.0, 1.1, 0.9, 1.0, 100.0]).unwrap();
        assert!((calm - wild).abs() < 0.1, "{calm} {wild}");
    }
}
