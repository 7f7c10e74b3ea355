//! Holm's step-down correction for many tests (Holm 1979): the chance of any
//! false rejection stays at α whatever the tests' dependence.

/// Adjusted p-values, in the order given, for a family of `family` tests.
///
/// `family` may exceed `p.len()`: tests that could not be made still count, as
/// if their p were 1, so that losing a cell never makes the others easier.
/// A smaller `family` is raised to `p.len()`.
#[must_use]
pub fn holm(p: &[f64], family: usize) -> Vec<f64> {
    let family = family.max(p.len());
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut largest = 0.0_f64;
    for (rank, &index) in order.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "families are far below 2^52")]
        let factor = (family - rank) as f64;
        largest = largest.max((p[index] * factor).min(1.0));
        adjusted[index] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_textbook_example_comes_out() {
        // 0.01·4, then max(0.02·3, …), 0.03·2 → 0.06, 0.04·1 → 0.06.
        let adjusted = holm(&[0.04, 0.01, 0.03, 0.02], 4);
        for (got, want) in adjusted.iter().zip([0.06, 0.04, 0.06, 0.06]) {
            assert!((got - want).abs() < 1e-15, "{adjusted:?}");
        }
    }

    #[test]
    fn one_test_alone_is_left_as_it_is() {
        assert_eq!(holm(&[0.03], 1), vec![0.03]);
    }

    #[test]
    fn tests_that_could_not_be_made_still_count() {
        assert_eq!(holm(&[0.01], 5), vec![0.05]);
    }

    proptest! {
        /// The slow twin: a hypothesis is rejected at α exactly when it and all
        /// smaller ones pass their own step.
        #[test]
        fn adjusted_values_reject_what_the_steps_reject(
            p in proptest::collection::vec(0.0..1.0_f64, 1..8), alpha in 0.001..0.5_f64,
        ) {
            let adjusted = holm(&p, p.len());
            let mut sorted: Vec<usize> = (0..p.len()).collect();
            sorted.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
            let mut open = true;
            for (rank, &index) in sorted.iter().enumerate() {
                let factor = (p.len() - rank) as f64;
                open = open && p[index] * factor <= alpha;
                prop_assert_eq!(adjusted[index] <= alpha, open);
            }
        }
    }
}
