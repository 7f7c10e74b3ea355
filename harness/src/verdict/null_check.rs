//! Contrasts between copies of one program: what the noise model is checked by, and what
//! a run leaves for later ones.
//!
//! Their true value is 0, and the model that yields them gives every copy an effect of
//! its own, so that none of them is part of the error it is divided by.

use super::columns::{Columns, columns};
use super::rule::{CellData, Revision};
use crate::stats::count::count;
use crate::stats::linear_model::{Contrast, fit};
use crate::stats::null_calibration::NullContrast;

/// The noise of one (cell, metric) by itself: neither moderated nor inflated.
#[derive(Debug, Clone, PartialEq)]
pub struct CellNoise {
    /// Residual standard deviation of one attempt, natural logarithm.
    pub sigma: f64,
    /// Its degrees of freedom.
    pub df: f64,
    /// The contrasts between copies of one program.
    pub contrasts: Vec<NullContrast>,
}

/// What can be said about the noise of a cell; `None` where nothing can be fitted.
#[must_use]
pub fn cell_noise(data: &CellData, revision: Revision) -> Option<CellNoise> {
    let (columns, _) = columns(data, revision).ok()?;
    let fit = fit(&columns.y, columns.layout()).ok()?;
    Some(CellNoise {
        sigma: fit.variance.sqrt(),
        df: count(fit.df),
        contrasts: contrasts(&columns),
    })
}

/// The largest contrast between copies of one program where every copy by itself has no noise at
/// all, natural logarithm; none where they agree. No test is needed: it is not 0.
pub(super) fn apart_without_noise(columns: &Columns) -> Option<f64> {
    let (found, _) = estimates(columns)?;
    let apart = found
        .into_iter()
        .filter(|one| one.standard_error == 0.0 && one.estimate != 0.0);
    apart
        .map(|one| one.estimate)
        .max_by(|a, b| a.abs().total_cmp(&b.abs()))
}

/// The contrasts of one (cell, metric), independent of each other but for their common
/// error: the second copy of a treatment against the first, the third against both, ….
///
/// None where the values leave no noise to divide by.
pub(super) fn contrasts(columns: &Columns) -> Vec<NullContrast> {
    let Some((found, df)) = estimates(columns) else {
        return Vec::new();
    };
    let noisy = found.into_iter().filter(|one| one.standard_error > 0.0);
    noisy
        .map(|one| NullContrast {
            t: one.estimate / one.standard_error,
            df,
        })
        .collect()
}

/// Them and the degrees of freedom of their common error.
fn estimates(columns: &Columns) -> Option<(Vec<Contrast>, f64)> {
    let each_its_own: Vec<usize> = (0..columns.arms.len()).collect();
    let fit = fit(&columns.y, columns.layout_with(&each_its_own)).ok()?;
    let treatments = columns.treatments.iter().max().map_or(0, |last| last + 1);
    let contrasts = (0..treatments)
        .flat_map(|treatment| {
            let copies: Vec<usize> = each_its_own
                .iter()
                .copied()
                .filter(|&column| columns.treatments[column] == treatment)
                .collect();
            (1..copies.len()).map(move |later| helmert(&copies, later))
        })
        .filter_map(|terms| fit.combination(&terms))
        .collect();
    Some((contrasts, count(fit.df)))
}

/// Copy number `later` against the mean of those before it.
fn helmert(copies: &[usize], later: usize) -> Vec<(usize, f64)> {
    let before = copies[..later].iter();
    let mut terms: Vec<(usize, f64)> = before.map(|&copy| (copy, -1.0 / count(later))).collect();
    terms.push((copies[later], 1.0));
    terms
}

#[cfg(test)]
mod tests {
    use super::super::example::{cell, noisy};
    use super::super::rule::ArmCopy;
    use super::*;
    use crate::experiment::model::Better;

    fn of(data: &CellData) -> Vec<NullContrast> {
        contrasts(&columns(data, Revision::CURRENT).unwrap().0)
    }

    /// By hand for three arms: the mean paired difference of the copies over its error,
    /// from what is left of each round when every arm has its own mean.
    #[test]
    fn one_null_arm_is_one_contrast_with_an_error_that_leaves_it_out() {
        let data = noisy("wall_s", Better::Lower, 100.0, 150.0);
        let y: Vec<Vec<f64>> = data
            .rounds
            .iter()
            .map(|row| row.iter().map(|value| value.ln()).collect())
            .collect();
        let mean = |arm: usize| y.iter().map(|row| row[arm]).sum::<f64>() / 5.0;
        let grand = (mean(0) + mean(1) + mean(2)) / 3.0;
        let residual = |row: &Vec<f64>, arm: usize| {
            row[arm] - row.iter().sum::<f64>() / 3.0 - mean(arm) + grand
        };
        let rss: f64 = y
            .iter()
            .flat_map(|row| (0..3).map(move |arm| residual(row, arm).powi(2)))
            .sum();
        let [found] = of(&data)[..] else {
            panic!("one contrast")
        };
        // df = (5 − 1)(3 − 1); variance of the difference of two means is 2σ²/5.
        let want = (mean(1) - mean(0)) / (rss / 8.0 * 2.0 / 5.0).sqrt();
        assert!((found.t - want).abs() < 1e-9, "{found:?} {want}");
        assert!((found.df - 8.0).abs() < 1e-12);
    }

    #[test]
    fn a_difference_of_the_candidate_is_no_part_of_it() {
        let near = of(&noisy("wall_s", Better::Lower, 100.0, 100.0));
        let far = of(&noisy("wall_s", Better::Lower, 100.0, 250.0));
        assert!((near[0].t - far[0].t).abs() < 1e-9);
    }

    #[test]
    fn three_copies_are_two_contrasts_and_no_copy_is_none() {
        let mut data = noisy("wall_s", Better::Lower, 100.0, 100.0);
        data.arms.push(ArmCopy {
            name: "base-null-2".into(),
            treatment: 0,
            null_of: Some("base".into()),
            declared: false,
            injected: None,
        });
        for (row, factor) in data
            .rounds
            .iter_mut()
            .zip([1.0004, 0.9997, 1.0002, 0.9999, 1.0006])
        {
            let value = row[0] * factor;
            row.push(value);
        }
        data.slots = vec![vec![0, 1, 2, 3]; 5];
        assert_eq!(of(&data).len(), 2);
        data.arms[1].treatment = 5;
        data.arms[3].treatment = 6;
        assert_eq!(of(&data), []);
    }

    #[test]
    fn values_without_noise_check_nothing() {
        assert_eq!(
            of(&cell("peak_bytes", Better::Lower, &[[7.0, 7.0, 8.0]; 4])),
            []
        );
    }
}
