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
    /// Where in its round each value was measured, when that enters the model.
    pub slots: Option<Slots<'a>>,
}

/// Positions within rounds.
#[derive(Debug, Clone, Copy)]
pub struct Slots<'a> {
    /// `places[r][a]`, 0-based.
    pub places: &'a [Vec<usize>],
    /// What they do.
    pub effect: SlotEffect,
}

/// What the position in a round does to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotEffect {
    /// Every slot has an effect of its own.
    Each,
    /// One slope over all slots: a machine that drifts with time.
    Slope,
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
    basis: DMatrix<f64>,
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
    let (basis, triangle, coefficients) =
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
        basis,
        residuals,
        columns: layout.treatments.len(),
    })
}

/// Q and R of the design's decomposition, and the effects; `None` when the design cannot
/// tell its effects apart.
fn least_squares(
    design: &DMatrix<f64>,
    values: &DVector<f64>,
    rounds: usize,
) -> Option<(DMatrix<f64>, DMatrix<f64>, DVector<f64>)> {
    if design.ncols() == 0 {
        let nothing = DMatrix::zeros(design.nrows(), 0);
        return Some((nothing, DMatrix::zeros(0, 0), DVector::zeros(0)));
    }
    let qr = design.clone().qr();
    let triangle = qr.r();
    if triangle.diagonal().abs().min() <= RANK_TOLERANCE * count(rounds).sqrt() {
        return None;
    }
    let basis = qr.q();
    let coefficients = triangle.solve_upper_triangular(&(basis.transpose() * values))?;
    Some((basis, triangle, coefficients))
}

impl Fit {
    /// What the model leaves of the value in `round` and `column`, both 0-based; 0 outside.
    #[must_use]
    pub fn residual(&self, round: usize, column: usize) -> f64 {
        let at = round * self.columns + column;
        self.residuals.get(at).copied().unwrap_or(0.0)
    }

    /// Degrees of freedom that the model leaves of one contrast within rounds: what the sum
    /// over rounds of (Σ weight · residual)² is expected to be, in units of the variance.
    /// `weights` is one per column; they sum to 0, and their squares to 1.
    #[must_use]
    pub fn df_of(&self, weights: &[f64]) -> f64 {
        let weights = DVector::from_column_slice(weights);
        let rounds = self.residuals.len() / self.columns.max(1);
        let explained = |round: usize| {
            let rows = self.basis.rows(round * self.columns, self.columns);
            rows.tr_mul(&weights).norm_squared()
        };
        count(rounds) - (0..rounds).map(explained).sum::<f64>()
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

/// By how much the appearances of a column in a slot differ at most: 0 where every column stands
/// in every slot equally often, so that slot effects can be told from treatments. `None` for what
/// is no order of so many arms.
#[must_use]
pub fn slot_spread(slots: &[Vec<usize>], arms: usize) -> Option<usize> {
    let mut counts = vec![vec![0_usize; arms]; arms];
    for round in slots {
        if round.len() != arms {
            return None;
        }
        for (arm, &slot) in round.iter().enumerate() {
            *counts[arm].get_mut(slot)? += 1;
        }
    }
    let counts = || counts.iter().flatten();
    Some(counts().max()? - counts().min()?)
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
            .map_or(arms, |slots| slots.places.get(index).map_or(0, Vec::len));
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

/// Columns, one per treatment but the first and one per slot but the first or one for their
/// slope, and the values; each round's mean is taken out of all of them.
fn without_round_means(y: &[Vec<f64>], layout: Layout<'_>) -> (DMatrix<f64>, DVector<f64>) {
    let arms = layout.treatments.len();
    let effects_of_treatments = layout.treatments.iter().max().copied().unwrap_or(0);
    let effects_of_slots = layout.slots.map_or(0, |slots| match slots.effect {
        SlotEffect::Each => slots.places.iter().flatten().max().copied().unwrap_or(0),
        SlotEffect::Slope => 1,
    });
    let mut design = DMatrix::zeros(y.len() * arms, effects_of_treatments + effects_of_slots);
    let mut values = DVector::from_iterator(y.len() * arms, y.iter().flatten().copied());
    for round in 0..y.len() {
        for (arm, &treatment) in layout.treatments.iter().enumerate() {
            let row = round * arms + arm;
            if treatment > 0 {
                design[(row, treatment - 1)] = 1.0;
            }
            let Some(slots) = layout.slots else { continue };
            match (slots.effect, slots.places[round][arm]) {
                (SlotEffect::Each, 0) => {}
                (SlotEffect::Each, slot) => design[(row, effects_of_treatments + slot - 1)] = 1.0,
                (SlotEffect::Slope, slot) => design[(row, effects_of_treatments)] = count(slot),
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
mod tests;
