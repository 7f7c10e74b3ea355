//! Variances of many cells, each drawn towards what all of them have in common.
//!
//! Five rounds tell little about one cell's noise, twenty cells tell a good deal
//! about the noise of a cell. Empirical Bayes: a variance s² with d degrees of
//! freedom is σ²·χ²_d/d, and 1/σ² varies over cells as χ²_d₀/(d₀·s₀²). Then
//! (d·s² + d₀·s₀²)/(d + d₀) estimates σ² with d + d₀ degrees of freedom
//! (Smyth 2004, "Linear models and empirical Bayes methods for assessing
//! differential expression in microarray experiments", sections 3 and 6.2).
//!
//! d₀ and s₀² are estimated by the moments of ln s² with each cell's own d. Two
//! limits stand above the paper's formula. The degrees of freedom of a cell stay
//! at or below the pooled ones: all cells together hold no more. And a prior
//! weighs at most `largest_prior` times a cell's own data: with eight cells of
//! three rounds the estimate of d₀ is infinite too often, and the noisiest cell
//! then takes its neighbours' calm for its own (docs/adr/0016).

use statrs::function::gamma::digamma;

use super::count::count;
use super::halving::halved;

/// Halvings of an interval of length 1: to the last bit of a double.
const BISECTIONS: u32 = 60;

/// A variance and the degrees of freedom behind it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Variance {
    /// s², above 0.
    pub value: f64,
    /// d, above 0; infinite where nothing is left to estimate.
    pub df: f64,
}

/// The common part: s₀² with d₀ degrees of freedom; d₀ is infinite when the cells
/// differ by no more than chance.
///
/// `None` for fewer than two usable variances. One that is 0, not finite, or without
/// degrees of freedom is passed over: it has no logarithm.
#[must_use]
pub fn prior(cells: &[Variance]) -> Option<Variance> {
    let usable: Vec<Variance> = cells.iter().copied().filter(is_usable).collect();
    if usable.len() < 2 {
        return None;
    }
    let number = count(usable.len());
    let mean = |value: &dyn Fn(&Variance) -> f64| usable.iter().map(value).sum::<f64>() / number;
    // E ln s² = ln s₀² + [ψ(d/2) − ln(d/2)] − [ψ(d₀/2) − ln(d₀/2)].
    let level = |cell: &Variance| cell.value.ln() - log_bias(cell.df);
    let centre = mean(&level);
    let spread = mean(&|cell| (level(cell) - centre).powi(2)) * number / (number - 1.0);
    // Var ln s² = ψ′(d/2) + ψ′(d₀/2).
    let excess = spread - mean(&|cell| trigamma(cell.df / 2.0));
    Some(match trigamma_inverse(excess) {
        Some(half) => Variance {
            value: (centre + log_bias(2.0 * half)).exp(),
            df: 2.0 * half,
        },
        // One variance for all: its best estimate is the pooled one.
        None => Variance {
            value: usable.iter().map(|cell| cell.df * cell.value).sum::<f64>() / pooled_df(&usable),
            df: f64::INFINITY,
        },
    })
}

/// The variances of `cells`, moderated; one that [`prior`] passes over stays as it is.
///
/// `largest_prior` is the most degrees of freedom that the prior may bring to a cell, in
/// units of the cell's own; infinity is the paper's formula.
#[must_use]
pub fn moderate(cells: &[Variance], largest_prior: f64) -> Vec<Variance> {
    let Some(prior) = prior(cells) else {
        return cells.to_vec();
    };
    let usable: Vec<Variance> = cells.iter().copied().filter(is_usable).collect();
    let pooled = pooled_df(&usable);
    cells
        .iter()
        .map(|cell| {
            if !is_usable(cell) {
                return *cell;
            }
            let lent = prior.df.min(largest_prior * cell.df);
            let share = if lent.is_finite() {
                lent / (cell.df + lent)
            } else {
                1.0
            };
            Variance {
                value: (1.0 - share) * cell.value + share * prior.value,
                df: (cell.df + lent).min(pooled),
            }
        })
        .collect()
}

fn is_usable(cell: &Variance) -> bool {
    let positive = |x: f64| x.is_finite() && x > 0.0;
    positive(cell.value) && positive(cell.df)
}

fn pooled_df(cells: &[Variance]) -> f64 {
    cells.iter().map(|cell| cell.df).sum()
}

/// ψ(d/2) − ln(d/2): what the mean of ln s² lies below ln σ² by.
fn log_bias(df: f64) -> f64 {
    digamma(df / 2.0) - (df / 2.0).ln()
}

/// ψ′(x) for x > 0: the asymptotic series (Abramowitz and Stegun 1964, 6.4.12), which
/// has 14 digits from 10 on, reached by ψ′(x) = ψ′(x + 1) + 1/x² (6.4.6).
fn trigamma(mut x: f64) -> f64 {
    let mut below = 0.0;
    while x < 10.0 {
        below += 1.0 / (x * x);
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    // Bernoulli numbers B₂ … B₁₂.
    let series = [
        1.0 / 6.0,
        -1.0 / 30.0,
        1.0 / 42.0,
        -1.0 / 30.0,
        5.0 / 66.0,
        -691.0 / 2730.0,
    ];
    let tail = series
        .iter()
        .rev()
        .fold(0.0, |sum, bernoulli| square * (bernoulli + sum));
    below + (1.0 + 0.5 / x + tail) / x
}

/// The x at which ψ′ is `value`; `None` unless that is positive and large enough to tell
/// x from infinity.
fn trigamma_inverse(value: f64) -> Option<f64> {
    // At 10¹² degrees of freedom a prior is as good as certain.
    if !(value > 1e-12 && value.is_finite()) {
        return None;
    }
    // 1/x < ψ′(x) < 1/x + 1/x² puts the answer between 1/value and that plus 1.
    let ends = (value.recip(), value.recip() + 1.0);
    let (low, high) = halved(ends, BISECTIONS, |x| trigamma(x) > value);
    Some(f64::midpoint(low, high))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::random::SplitMix64;
    use super::*;

    const PAPER: f64 = f64::INFINITY;
    const SPREAD: [f64; 8] = [0.2, 0.5, 1.0, 1.5, 2.0, 4.0, 9.0, 0.05];
    const ALIKE: [f64; 8] = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.2, 0.8];

    fn cells(values: &[f64], df: &[f64]) -> Vec<Variance> {
        let pairs = values.iter().zip(df);
        pairs.map(|(&value, &df)| Variance { value, df }).collect()
    }

    #[track_caller]
    fn assert_near(got: f64, want: f64) {
        assert!((got / want - 1.0).abs() < 1e-9, "{got} {want}");
    }

    /// Printed by harness/tests/oracle/moderated.py.
    #[test]
    fn equal_precision_gives_the_oracles_answer() {
        let cells = cells(&SPREAD, &[9.0; 8]);
        let found = prior(&cells).unwrap();
        assert_near(found.df, 1.507_710_293_59);
        assert_near(found.value, 0.469_840_251_873);
        let want = [
            0.238_718_323_403,
            0.495_672_495_584,
            0.923_929_449_217,
            1.352_186_402_851,
            1.780_443_356_485,
            3.493_471_171_02,
            7.776_040_707_359,
            0.110_241_237_313,
        ];
        for (got, want) in moderate(&cells, PAPER).iter().zip(want) {
            assert_near(got.value, want);
            assert_near(got.df, 10.507_710_293_59);
        }
        assert_eq!(moderate(&cells, 2.0), moderate(&cells, PAPER));
    }

    /// Printed by harness/tests/oracle/moderated.py.
    #[test]
    fn unequal_precision_gives_the_oracles_answer() {
        let cells = cells(&SPREAD, &[5.0, 9.0, 9.0, 7.0, 4.0, 9.0, 19.0, 3.0]);
        let found = prior(&cells).unwrap();
        assert_near(found.df, 1.688_204_871_66);
        assert_near(found.value, 0.548_767_024_843);
        let moderated = moderate(&cells, PAPER);
        assert_near(moderated[0].value, 0.288_034_114_043);
        assert_near(moderated[6].value, 8.310_360_044_832);
        assert_near(moderated[7].value, 0.229_604_122_306);
        assert_near(moderated[7].df, 4.688_204_871_66);
    }

    /// Printed by harness/tests/oracle/moderated.py.
    #[test]
    fn cells_that_differ_by_chance_only_share_one_variance_up_to_the_limit() {
        let cells = cells(&ALIKE, &[5.0, 9.0, 9.0, 7.0, 5.0, 9.0, 9.0, 9.0]);
        assert!(prior(&cells).unwrap().df.is_infinite());
        for one in moderate(&cells, PAPER) {
            assert_near(one.value, 1.001_612_903_226);
            assert_near(one.df, 62.0);
        }
        let limited = moderate(&cells, 2.0);
        assert_near(limited[1].value, 1.034_408_602_151);
        assert_near(limited[7].value, 0.934_408_602_151);
        assert_near(limited[0].df, 15.0);
        assert_near(limited[1].df, 27.0);
    }

    /// ψ′(1) = π²/6, ψ′(½) = π²/2, ψ′(x) ≈ 1/x far out (Abramowitz and Stegun, 6.4).
    #[test]
    fn trigamma_has_its_known_values_and_its_inverse_undoes_it() {
        let square = std::f64::consts::PI.powi(2);
        assert_near(trigamma(1.0), square / 6.0);
        assert_near(trigamma(0.5), square / 2.0);
        assert_near(trigamma(1e8), 1e-8 + 0.5e-16);
        for x in [1e-3, 0.1, 0.5, 1.0, 2.5, 9.9, 10.1, 1e3, 1e9] {
            assert_near(trigamma_inverse(trigamma(x)).unwrap(), x);
        }
        assert_eq!(trigamma_inverse(0.0), None);
        assert_eq!(trigamma_inverse(f64::NAN), None);
    }

    #[test]
    fn a_cell_without_noise_neither_lends_nor_borrows() {
        let mut with = cells(&SPREAD, &[9.0; 8]);
        let without = moderate(&with, 2.0);
        with.push(Variance {
            value: 0.0,
            df: 9.0,
        });
        let moderated = moderate(&with, 2.0);
        assert_eq!(moderated[..8], without);
        assert_eq!(moderated[8], with[8]);
    }

    #[test]
    fn one_cell_alone_stays_as_it_is() {
        let alone = cells(&[0.3], &[9.0]);
        assert_eq!(prior(&alone), None);
        assert_eq!(moderate(&alone, 2.0), alone);
        assert_eq!(moderate(&[], 2.0), []);
    }

    /// What it is for: the noise of a cell is known better.
    #[test]
    fn moderated_variances_are_nearer_to_the_true_ones() {
        let mut random = SplitMix64::new(9);
        let (mut plain, mut better) = (0.0, 0.0);
        for _ in 0..200 {
            let truth: Vec<f64> = (0..20).map(|_| (0.6 * random.normal()).exp()).collect();
            let drawn: Vec<Variance> = truth
                .iter()
                .map(|sigma2| {
                    let chi: f64 = (0..5).map(|_| random.normal().powi(2)).sum();
                    let value = sigma2 * chi / 5.0;
                    Variance { value, df: 5.0 }
                })
                .collect();
            let error = |cells: &[Variance]| -> f64 {
                let pairs = cells.iter().zip(&truth);
                pairs
                    .map(|(cell, truth)| (cell.value / truth).ln().powi(2))
                    .sum()
            };
            plain += error(&drawn);
            better += error(&moderate(&drawn, 2.0));
        }
        assert!(better < 0.5 * plain, "{better} {plain}");
    }

    proptest! {
        #[test]
        fn a_moderated_variance_lies_between_its_own_and_the_common_one(
            values in proptest::collection::vec(1e-6..1e3_f64, 2..20),
            df in 1.0..40.0_f64, largest in 0.0..5.0_f64,
        ) {
            let cells = cells(&values, &vec![df; values.len()]);
            let prior = prior(&cells).unwrap();
            let pooled = df * count(values.len());
            for (got, cell) in moderate(&cells, largest).iter().zip(&cells) {
                let (low, high) = (cell.value.min(prior.value), cell.value.max(prior.value));
                prop_assert!(got.value >= low * (1.0 - 1e-12) && got.value <= high * (1.0 + 1e-12));
                prop_assert!(got.df >= df - 1e-9 && got.df <= pooled.min((1.0 + largest) * df) + 1e-9);
            }
        }

        #[test]
        fn the_unit_of_measurement_does_not_matter(
            values in proptest::collection::vec(0.01..10.0_f64, 3..12), unit in 1e-6..1e6_f64,
        ) {
            let df = vec![7.0; values.len()];
            let scaled: Vec<f64> = values.iter().map(|value| value * unit).collect();
            let (a, b) = (moderate(&cells(&values, &df), 2.0), moderate(&cells(&scaled, &df), 2.0));
            for (a, b) in a.iter().zip(&b) {
                // ln of the unit cancels but for its rounding.
                prop_assert!((a.value * unit / b.value - 1.0).abs() < 1e-6);
                prop_assert!((a.df - b.df).abs() <= 1e-6 * a.df);
            }
        }
    }
}
