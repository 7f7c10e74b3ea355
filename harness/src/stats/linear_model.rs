//! The linear model of one cell: `y[r,a] = round_r + treatment_t(a) (+ slot_s) + error`.
//!
//! One design matrix for any number of arms, least squares by QR. All copies of
//! one treatment share one effect, so null copies are data and not a yardstick
//! beside it. There are no hand-made special cases: estimate, standard error
//! and degrees of freedom all come from the matrix. For k copies of one
//! treatment and m of the other over R rounds of A arms with T treatments, and
//! without slots, that is SE = √(s²(1/k + 1/m)/R) and df = R(A − 1) − (T − 1);
//! the tests check it.
//!
//! Rounds have no columns of their own: each round's mean is taken out of the values
//! and of every other column, which gives the same effects and the same residuals
//! (Frisch and Waugh, "Partial time regressions as compared with individual trends",
//! Econometrica 1933). A thousand rounds would else make a matrix of a thousand
//! columns; the tests keep that one as the slow twin.
//!
//! Not here: moderation of s² over many cells ([`super::moderated`]) and inflation by
//! null contrasts ([`super::null_calibration`]). Both replace [`Fit::variance`] and
//! [`Fit::df`] and leave the matrix alone.

use nalgebra::{DMatrix, DVector};

use super::count::count;

/// A residual standard deviation below this share of the data's scale is
/// rounding, not noise: 10¹² steps is finer than any clock or counter, and
/// QR of values that agree exactly leaves about 10⁻¹⁵.
const ROUNDING: f64 = 1e-12;

/// A diagonal element of R below this share of a column's least length makes the
/// column a combination of the others. Before the rounds are taken out, columns hold
/// 0 and 1 only, with a 1 in every round.
const RANK_TOLERANCE: f64 = 1e-9;

/// Why a model cannot be fitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Rounds of different lengths, or none at all.
    #[error("expected {expected} values in round {round}, got {got}")]
    Shape {
        /// 1-based round.
        round: usize,
        /// Number of arms.
        expected: usize,
        /// Number of values.
        got: usize,
    },
    /// A value is not finite.
    #[error("the value of column {column} in round {round} is not finite")]
    NotFinite {
        /// 1-based round.
        round: usize,
        /// 0-based column.
        column: usize,
    },
    /// An effect cannot be told from the others.
    #[error("the design cannot tell its {parameters} effects apart")]
    RankDeficient {
        /// Columns of the design matrix.
        parameters: usize,
    },
    /// As many effects as observations: nothing is left to estimate noise from.
    #[error("{observations} values leave nothing to estimate the noise of {parameters} effects")]
    NoResidual {
        /// Rows of the design matrix.
        observations: usize,
        /// Columns of the design matrix.
        parameters: usize,
    },
}

/// What each column of the data is.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    /// `treatments[a]` of column `a`: 0, 1, … without gaps.
    pub treatments: &'a [usize],
    /// `slots[r][a]`, 0-based, when slot effects enter the model.
    pub slots: Option<&'a [Vec<usize>]>,
}

/// A fitted model.
#[derive(Debug, Clone)]
pub struct Fit {
    /// Residual variance of one value; exactly 0 when the model leaves only rounding.
    pub variance: f64,
    /// Residual degrees of freedom.
    pub df: usize,
    /// Values below this are rounding.
    pub rounding: f64,
    coefficients: DVector<f64>,
    triangle: DMatrix<f64>,
    residuals: DVector<f64>,
    columns: usize,
}

/// The difference of two treatments' effects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contrast {
    /// Effect of the second treatment minus effect of the first.
    pub estimate: f64,
    /// Variance of the estimate in units of the residual variance.
    pub unscaled_variance: f64,
    /// Standard error of the estimate.
    pub standard_error: f64,
}

/// Fits the model to `y[r][a]`.
///
/// # Errors
/// [`ModelError`] for data of the wrong shape or not finite, for a design that
/// cannot tell its effects apart, and for one that leaves no residual.
pub fn fit(y: &[Vec<f64>], layout: Layout<'_>) -> Result<Fit, ModelError> {
    check(y, layout)?;
    let (design, values) = without_round_means(y, layout);
    let (observations, effects) = design.shape();
    let parameters = y.len() + effects;
    if observations < parameters {
        return Err(ModelError::RankDeficient { parameters });
    }
    let (triangle, coefficients) =
        least_squares(&design, &values, y.len()).ok_or(ModelError::RankDeficient { parameters })?;
    if observations == parameters {
        return Err(ModelError::NoResidual {
            observations,
            parameters,
        });
    }
    let residuals = &values - &design * &coefficients;
    let df = observations - parameters;
    let variance = residuals.norm_squared() / count(df);
    let largest = y.iter().flatten().fold(1.0_f64, |max, v| max.max(v.abs()));
    let rounding = ROUNDING * largest;
    Ok(Fit {
        variance: if variance.sqrt() <= rounding {
            0.0
        } else {
            variance
        },
        df,
        rounding,
        coefficients,
        triangle,
        residuals,
        columns: layout.treatments.len(),
    })
}

/// R of the design's QR decomposition and the effects; `None` when the design cannot
/// tell its effects apart.
fn least_squares(
    design: &DMatrix<f64>,
    values: &DVector<f64>,
    rounds: usize,
) -> Option<(DMatrix<f64>, DVector<f64>)> {
    if design.ncols() == 0 {
        return Some((DMatrix::zeros(0, 0), DVector::zeros(0)));
    }
    let qr = design.clone().qr();
    let triangle = qr.r();
    if triangle.diagonal().abs().min() <= RANK_TOLERANCE * count(rounds).sqrt() {
        return None;
    }
    let coefficients = triangle.solve_upper_triangular(&(qr.q().transpose() * values))?;
    Some((triangle, coefficients))
}

impl Fit {
    /// What the model leaves of the value in `round` and `column`, both 0-based; 0 outside.
    #[must_use]
    pub fn residual(&self, round: usize, column: usize) -> f64 {
        let at = round * self.columns + column;
        self.residuals.get(at).copied().unwrap_or(0.0)
    }

    /// Effect of treatment `second` minus effect of treatment `first`.
    ///
    /// Without residual noise, a difference that is only rounding is exactly 0.
    /// `None` when a treatment does not exist.
    #[must_use]
    pub fn contrast(&self, first: usize, second: usize) -> Option<Contrast> {
        self.combination(&[(first, -1.0), (second, 1.0)])
    }

    /// The sum of `weight` times effect over (treatment, weight); the weights sum to 0.
    ///
    /// As for [`Fit::contrast`] otherwise.
    #[must_use]
    pub fn combination(&self, terms: &[(usize, f64)]) -> Option<Contrast> {
        let parameters = self.coefficients.len();
        let mut weights = DVector::zeros(parameters);
        for &(treatment, weight) in terms {
            // Treatment 0 is the reference: its effect is part of the rounds'.
            if treatment > 0 {
                *weights.get_mut(treatment - 1)? += weight;
            }
        }
        let mut estimate = weights.dot(&self.coefficients);
        if self.variance == 0.0 && estimate.abs() <= self.rounding {
            estimate = 0.0;
        }
        // c′(X′X)⁻¹c = |R⁻ᵀc|².
        let solved = self.triangle.tr_solve_upper_triangular(&weights)?;
        let unscaled_variance = solved.norm_squared();
        Some(Contrast {
            estimate,
            unscaled_variance,
            standard_error: (self.variance * unscaled_variance).sqrt(),
        })
    }
}

/// True when every column stands in every slot equally often, so that slot
/// effects can be told from treatments.
#[must_use]
pub fn slots_balanced(slots: &[Vec<usize>], arms: usize) -> bool {
    let mut counts = vec![vec![0_usize; arms]; arms];
    for round in slots {
        if round.len() != arms {
            return false;
        }
        for (arm, &slot) in round.iter().enumerate() {
            match counts[arm].get_mut(slot) {
                Some(count) => *count += 1,
                None => return false,
            }
        }
    }
    let first = counts.first().and_then(|row| row.first()).copied();
    first.is_some_and(|first| first > 0 && counts.iter().flatten().all(|&n| n == first))
}

fn check(y: &[Vec<f64>], layout: Layout<'_>) -> Result<(), ModelError> {
    let arms = layout.treatments.len();
    if y.is_empty() {
        return Err(ModelError::Shape {
            round: 1,
            expected: arms,
            got: 0,
        });
    }
    for (index, row) in y.iter().enumerate() {
        let round = index + 1;
        let slots = layout
            .slots
            .map_or(arms, |slots| slots.get(index).map_or(0, Vec::len));
        for got in [row.len(), slots] {
            if got != arms {
                return Err(ModelError::Shape {
                    round,
                    expected: arms,
                    got,
                });
            }
        }
        if let Some(column) = row.iter().position(|value| !value.is_finite()) {
            return Err(ModelError::NotFinite { round, column });
        }
    }
    Ok(())
}

/// Columns, one per treatment but the first and one per slot but the first, and the
/// values; each round's mean is taken out of all of them.
fn without_round_means(y: &[Vec<f64>], layout: Layout<'_>) -> (DMatrix<f64>, DVector<f64>) {
    let arms = layout.treatments.len();
    let effects_of_treatments = layout.treatments.iter().max().copied().unwrap_or(0);
    let effects_of_slots = layout.slots.map_or(0, |slots| {
        slots.iter().flatten().max().copied().unwrap_or(0)
    });
    let mut design = DMatrix::zeros(y.len() * arms, effects_of_treatments + effects_of_slots);
    let mut values = DVector::from_iterator(y.len() * arms, y.iter().flatten().copied());
    for round in 0..y.len() {
        for (arm, &treatment) in layout.treatments.iter().enumerate() {
            let row = round * arms + arm;
            if treatment > 0 {
                design[(row, treatment - 1)] = 1.0;
            }
            let slot = layout.slots.map_or(0, |slots| slots[round][arm]);
            if slot > 0 {
                design[(row, effects_of_treatments + slot - 1)] = 1.0;
            }
        }
        let mut of_round = values.rows_mut(round * arms, arms);
        let mean = of_round.mean();
        of_round.add_scalar_mut(-mean);
        for mut column in design.rows_mut(round * arms, arms).column_iter_mut() {
            let mean = column.mean();
            column.add_scalar_mut(-mean);
        }
    }
    (design, values)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::random::SplitMix64;
    use super::*;

    fn noise(rounds: usize, arms: usize, seed: u64) -> Vec<Vec<f64>> {
        let mut random = SplitMix64::new(seed);
        (0..rounds)
            .map(|_| (0..arms).map(|_| random.normal()).collect())
            .collect()
    }

    /// The slow twin for two treatments without slots: subtract each round's
    /// mean, then compare group means, by hand.
    fn by_hand(y: &[Vec<f64>], treatments: &[usize]) -> (f64, f64, f64) {
        let (rounds, arms) = (y.len() as f64, treatments.len() as f64);
        let group = |wanted: usize| -> f64 {
            let columns: Vec<usize> = (0..treatments.len())
                .filter(|&a| treatments[a] == wanted)
                .collect();
            y.iter()
                .flat_map(|row| columns.iter().map(|&a| row[a]))
                .sum::<f64>()
                / (rounds * columns.len() as f64)
        };
        let delta = group(1) - group(0);
        let k = treatments.iter().filter(|&&t| t == 0).count() as f64;
        let m = arms - k;
        let mut rss = 0.0;
        for row in y {
            let mean = row.iter().sum::<f64>() / arms;
            for (value, &t) in row.iter().zip(treatments) {
                let effect = if t == 1 { delta * k } else { -delta * m } / arms;
                rss += (value - mean - effect).powi(2);
            }
        }
        let df = rounds * (arms - 1.0) - 1.0;
        let se = (rss / df * (1.0 / k + 1.0 / m) / rounds).sqrt();
        (delta, se, df)
    }

    /// The slow twin for any design: one column per round, one per treatment and per
    /// slot but the first. Estimate of treatment `second` against the first, its
    /// unscaled variance, residual variance, degrees of freedom.
    fn with_round_columns(y: &[Vec<f64>], layout: Layout<'_>, second: usize) -> [f64; 4] {
        let (rounds, arms) = (y.len(), layout.treatments.len());
        let treatments = layout.treatments.iter().max().unwrap() + 1;
        let slots = layout.slots.map_or(1, |_| arms);
        let mut design = DMatrix::zeros(rounds * arms, rounds + treatments - 1 + slots - 1);
        for round in 0..rounds {
            for (arm, &treatment) in layout.treatments.iter().enumerate() {
                let row = round * arms + arm;
                design[(row, round)] = 1.0;
                if treatment > 0 {
                    design[(row, rounds + treatment - 1)] = 1.0;
                }
                let slot = layout.slots.map_or(0, |slots| slots[round][arm]);
                if slot > 0 {
                    design[(row, rounds + treatments - 1 + slot - 1)] = 1.0;
                }
            }
        }
        let values = DVector::from_iterator(rounds * arms, y.iter().flatten().copied());
        let inverse = (design.transpose() * &design).try_inverse().unwrap();
        let coefficients = &inverse * design.transpose() * &values;
        let residuals = &values - &design * &coefficients;
        let df = (design.nrows() - design.ncols()) as f64;
        let at = rounds + second - 1;
        [
            coefficients[at],
            inverse[(at, at)],
            residuals.norm_squared() / df,
            df,
        ]
    }

    #[test]
    fn taking_the_rounds_out_changes_nothing() {
        for (seed, treatments) in [(1, vec![0, 1, 2]), (2, vec![0, 0, 1, 2]), (3, vec![0, 1])] {
            let arms = treatments.len();
            let slots: Vec<Vec<usize>> = (0..2 * arms)
                .map(|round| (0..arms).map(|arm| (arm + round) % arms).collect())
                .collect();
            let y = noise(2 * arms, arms, seed);
            for slots in [None, Some(slots.as_slice())] {
                let layout = Layout {
                    treatments: &treatments,
                    slots,
                };
                let fitted = fit(&y, layout).unwrap();
                let last = *treatments.last().unwrap();
                let contrast = fitted.contrast(0, last).unwrap();
                let got = [
                    contrast.estimate,
                    contrast.unscaled_variance,
                    fitted.variance,
                    fitted.df as f64,
                ];
                for (got, want) in got.into_iter().zip(with_round_columns(&y, layout, last)) {
                    assert!((got - want).abs() < 1e-12, "{treatments:?}: {got} {want}");
                }
            }
        }
    }

    #[test]
    fn one_treatment_alone_leaves_the_noise_within_rounds() {
        let layout = Layout {
            treatments: &[0, 0],
            slots: None,
        };
        let fitted = fit(&[vec![1.0, 3.0], vec![7.0, 5.0]], layout).unwrap();
        // Each round leaves ±1 twice, over two degrees of freedom.
        assert!((fitted.variance - 2.0).abs() < 1e-12);
        assert_eq!((fitted.df, fitted.contrast(0, 1)), (2, None));
    }

    #[test]
    fn two_treatments_follow_the_closed_form() {
        for (k, m) in [(1, 1), (2, 1), (1, 2), (2, 2), (3, 1), (4, 3)] {
            for rounds in [3, 5, 10] {
                let treatments: Vec<usize> = (0..k + m).map(|a| usize::from(a >= k)).collect();
                let y = noise(rounds, k + m, (k * 100 + m * 10 + rounds) as u64);
                let layout = Layout {
                    treatments: &treatments,
                    slots: None,
                };
                let fitted = fit(&y, layout).unwrap();
                let contrast = fitted.contrast(0, 1).unwrap();
                let (delta, se, df) = by_hand(&y, &treatments);
                assert!((contrast.estimate - delta).abs() < 1e-12);
                assert!((contrast.standard_error - se).abs() < 1e-12);
                assert!((fitted.df as f64 - df).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn every_further_treatment_costs_one_degree_of_freedom() {
        let treatments = [0, 0, 1, 2, 2];
        let y = noise(6, 5, 3);
        let fitted = fit(
            &y,
            Layout {
                treatments: &treatments,
                slots: None,
            },
        )
        .unwrap();
        assert_eq!(fitted.df, 6 * 4 - 2);
        // 1/k + 1/m over R, for k = 2 copies of base, m = 2 of treatment 2.
        let contrast = fitted.contrast(0, 2).unwrap();
        assert!((contrast.unscaled_variance - 1.0 / 6.0).abs() < 1e-12);
        // Treatments 1 and 2 against each other: (1 + 1/2)/R.
        let contrast = fitted.contrast(1, 2).unwrap();
        assert!((contrast.unscaled_variance - 0.25).abs() < 1e-12);
    }

    #[test]
    fn slot_effects_of_a_balanced_square_are_taken_out() {
        let slots = vec![vec![0, 1, 2], vec![2, 0, 1], vec![1, 2, 0]];
        let slots: Vec<Vec<usize>> = slots.iter().chain(&slots).cloned().collect();
        let mut y = noise(6, 3, 9);
        let treatments = [0, 0, 1];
        let plain = fit(
            &y,
            Layout {
                treatments: &treatments,
                slots: Some(&slots),
            },
        )
        .unwrap();
        for (row, places) in y.iter_mut().zip(&slots) {
            for (value, &slot) in row.iter_mut().zip(places) {
                *value += [0.0, 5.0, -3.0][slot];
            }
        }
        let shifted = fit(
            &y,
            Layout {
                treatments: &treatments,
                slots: Some(&slots),
            },
        )
        .unwrap();
        let (a, b) = (
            plain.contrast(0, 1).unwrap(),
            shifted.contrast(0, 1).unwrap(),
        );
        assert!((a.estimate - b.estimate).abs() < 1e-12);
        assert!((a.standard_error - b.standard_error).abs() < 1e-12);
        // 18 values, 6 rounds, 1 treatment effect, 2 slot effects.
        assert_eq!(shifted.df, 18 - 9);
        assert!((b.unscaled_variance - 1.5 / 6.0).abs() < 1e-12);
    }

    #[test]
    fn a_design_that_cannot_tell_its_effects_apart_is_an_error() {
        // The candidate always runs last: slot 1 is treatment 1.
        let slots = vec![vec![0, 1]; 5];
        let y = noise(5, 2, 1);
        let layout = Layout {
            treatments: &[0, 1],
            slots: Some(&slots),
        };
        assert_eq!(
            fit(&y, layout).unwrap_err(),
            ModelError::RankDeficient { parameters: 7 }
        );
        let alone = Layout {
            treatments: &[0, 1],
            slots: None,
        };
        assert_eq!(
            fit(&y[..1], alone).unwrap_err(),
            ModelError::NoResidual {
                observations: 2,
                parameters: 2
            }
        );
    }

    #[test]
    fn data_of_the_wrong_shape_is_an_error() {
        let layout = Layout {
            treatments: &[0, 1],
            slots: None,
        };
        assert!(matches!(fit(&[], layout), Err(ModelError::Shape { .. })));
        let ragged = [vec![1.0, 2.0], vec![1.0]];
        assert_eq!(
            fit(&ragged, layout).unwrap_err().to_string(),
            "expected 2 values in round 2, got 1"
        );
        let infinite = [vec![1.0, f64::INFINITY], vec![1.0, 2.0]];
        assert_eq!(
            fit(&infinite, layout).unwrap_err(),
            ModelError::NotFinite {
                round: 1,
                column: 1
            }
        );
    }

    #[test]
    fn values_without_noise_have_a_variance_of_exactly_zero() {
        let layout = Layout {
            treatments: &[0, 0, 1],
            slots: None,
        };
        let different = vec![vec![0.0, 0.0, (1.1_f64).ln()]; 5];
        let fitted = fit(&different, layout).unwrap();
        let contrast = fitted.contrast(0, 1).unwrap();
        assert!(fitted.variance.abs() < f64::MIN_POSITIVE);
        assert!((contrast.estimate - (1.1_f64).ln()).abs() < 1e-14);
        assert!(contrast.standard_error.abs() < f64::MIN_POSITIVE);
        // Rounds may differ by anything: that is no noise of the comparison.
        let drifting: Vec<Vec<f64>> = (0..5).map(|r| vec![f64::from(r).ln_1p(); 3]).collect();
        let contrast = fit(&drifting, layout).unwrap().contrast(0, 1).unwrap();
        assert!(contrast.estimate.abs() < f64::MIN_POSITIVE);
        assert!(contrast.standard_error.abs() < f64::MIN_POSITIVE);
    }

    #[test]
    fn a_balanced_order_has_every_arm_in_every_slot_equally_often() {
        let square = vec![vec![0, 1], vec![1, 0]];
        assert!(slots_balanced(&square, 2));
        assert!(!slots_balanced(&square[..1], 2));
        assert!(!slots_balanced(&[], 2));
        assert!(!slots_balanced(&[vec![0, 5]], 2));
    }

    proptest! {
        #[test]
        fn adding_to_a_round_changes_nothing(
            seed in 0..1000_u64, rounds in 3..7_usize, shift in -9.0..9.0_f64,
        ) {
            let treatments = [0, 1, 0, 2];
            let layout = Layout { treatments: &treatments, slots: None };
            let mut y = noise(rounds, 4, seed);
            let before = fit(&y, layout).unwrap().contrast(0, 2).unwrap();
            y[1].iter_mut().for_each(|value| *value += shift);
            let after = fit(&y, layout).unwrap().contrast(0, 2).unwrap();
            prop_assert!((before.estimate - after.estimate).abs() < 1e-10);
            prop_assert!((before.standard_error - after.standard_error).abs() < 1e-10);
        }
    }
}
