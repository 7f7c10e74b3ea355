//! Whether a comparison scatters more from round to round than copies of one program do.
//!
//! The linear model gives every arm the same noise. A candidate with more of its own
//! breaks that: the pooled variance is then too small for the very contrast that decides.
//! The residual sum of squares splits into what the rounds' differences candidate − base
//! contribute and an independent rest; the ratio κ of their mean squares is F if the noise
//! is equal (Snedecor and Cochran 1989, "Statistical methods", section 6.12). κ is
//! estimated over all cells of a metric and never taken below 1.

use super::halving::halved;

/// The larger of two variances was taken, so it is worth more than the differences' own
/// degrees of freedom: with this share of the rest's the levels hold (docs/adr/0030).
const KEPT: f64 = 0.1;

/// The same in the first revision of the rule (docs/adr/0016).
const KEPT_AT_FIRST: f64 = 0.25;

/// Halvings of an interval of ln κ: far finer than κ is known.
const BISECTIONS: u32 = 60;

/// A comparison's residual sums of squares in one cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scatter {
    /// Of the rounds' differences, in units of one value's variance.
    pub differences: f64,
    /// Degrees of freedom of that.
    pub df_of_differences: f64,
    /// Of everything else.
    pub rest: f64,
    /// Degrees of freedom of that.
    pub df_of_rest: f64,
}

/// What unequal noise makes of a variance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Widening {
    /// Factor of the variance, at least 1.
    pub factor: f64,
    /// Factor of its degrees of freedom, at most 1.
    pub df_factor: f64,
}

impl Widening {
    /// Equal noise.
    pub const NONE: Self = Widening {
        factor: 1.0,
        df_factor: 1.0,
    };
}

impl Scatter {
    /// All of its degrees of freedom.
    #[must_use]
    pub fn own_df(&self) -> f64 {
        self.df_of_differences + self.df_of_rest
    }

    /// Whether a ratio can be told from it.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.rest > 0.0
            && self.differences >= 0.0
            && self.df_of_differences > 0.0
            && self.df_of_rest > 0.0
    }

    /// Variance of one value, if the differences scatter `kappa` times as much as the rest.
    #[must_use]
    pub fn variance(&self, kappa: f64) -> f64 {
        (self.differences / kappa + self.rest) / self.own_df()
    }

    /// Degrees of freedom of κ times a variance that has `moderated` of them, this cell's own
    /// included, if κ was estimated over this cell and others that are worth `others` cells.
    ///
    /// ln κ and the logarithm of the variance add up. Where the cell's own data have the share
    /// w of its variance, and the differences the share f of its own degrees of freedom, the
    /// error of κ adds (1 − w²f)/(1 − f) times what it adds to a cell by itself: there κ times
    /// the variance is the mean square of the differences, with no degrees of freedom but
    /// theirs and what the rest is still worth.
    #[must_use]
    pub fn df(&self, moderated: f64, others: f64) -> f64 {
        let own = self.own_df();
        let alone = self.df_of_differences + KEPT * self.df_of_rest;
        let (share, differences) = (own / moderated, self.df_of_differences / own);
        let kappas = (alone.recip() - own.recip()) / (1.0 + others);
        let reach = (1.0 - share.powi(2) * differences) / (1.0 - differences);
        (moderated.recip() + kappas * reach).recip()
    }

    /// What this cell is worth to the κ of another one. To first order that would be
    /// d/(d + 2); with so few degrees of freedom shares are skewed, and the levels hold with
    /// two less (docs/adr/0030).
    #[must_use]
    pub fn worth(&self) -> f64 {
        let df = self.own_df();
        if self.is_usable() {
            ((df - 2.0) / (df + 2.0)).max(0.0)
        } else {
            0.0
        }
    }

    /// What a ratio `kappa`, estimated over `cells` cells, makes of this cell's variance.
    ///
    /// The variance becomes that of the differences, and keeps [`KEPT_AT_FIRST`] of the
    /// degrees of freedom that the rest has. What other cells say about κ makes it the surer.
    #[must_use]
    pub fn widening(&self, kappa: f64, cells: f64) -> Widening {
        if !self.is_usable() || kappa <= 1.0 {
            return Widening::NONE;
        }
        let alone = self.df_of_differences + KEPT_AT_FIRST * self.df_of_rest;
        Widening {
            factor: kappa * self.own_df() / (kappa * self.df_of_differences + self.df_of_rest),
            df_factor: 1.0 / (1.0 + (self.own_df() / alone - 1.0) / cells.max(1.0)),
        }
    }
}

/// κ ≥ 1 over the cells of a metric, and how many cells it is worth: (Σ s²)²/Σ s⁴, fewer
/// where some are much noisier than others.
#[must_use]
pub fn ratio(cells: &[Scatter]) -> (f64, f64) {
    let usable = || cells.iter().filter(|cell| cell.is_usable());
    let sum = |of: &dyn Fn(&Scatter) -> f64| usable().map(of).sum::<f64>();
    if usable().next().is_none() {
        return (1.0, 0.0);
    }
    let differences = sum(&|cell| cell.differences) / sum(&|cell| cell.df_of_differences);
    let rest = sum(&|cell| cell.rest) / sum(&|cell| cell.df_of_rest);
    let variance = |cell: &Scatter| (cell.differences + cell.rest) / cell.own_df();
    let worth = sum(&variance).powi(2) / sum(&|cell| variance(cell).powi(2));
    ((differences / rest).max(1.0), worth)
}

/// κ ≥ 1 over the cells of a metric, in which no cell outweighs another however noisy it is:
/// the differences' shares of each cell's squares, D/κ of D/κ + rest, add up to what their
/// degrees of freedom say. At the true κ each share has that mean (a beta distribution); in one
/// cell κ is the ratio of its mean squares.
#[must_use]
pub fn shared_ratio(cells: &[Scatter]) -> f64 {
    let usable = || cells.iter().filter(|cell| cell.is_usable());
    let excess = |log: f64| -> f64 {
        let shrunk = (-log).exp();
        let cell = |cell: &Scatter| {
            let differences = shrunk * cell.differences;
            cell.own_df() * differences / (differences + cell.rest) - cell.df_of_differences
        };
        usable().map(cell).sum()
    };
    // No share is left of the differences at a ratio of 10²⁰.
    let ends = (0.0, 46.0);
    if excess(ends.0) <= 0.0 {
        return 1.0;
    }
    let (low, high) = halved(ends, BISECTIONS, |log| excess(log) > 0.0);
    f64::midpoint(low, high).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scatter(differences: f64, rest: f64) -> Scatter {
        Scatter {
            differences,
            df_of_differences: 4.0,
            rest,
            df_of_rest: 5.0,
        }
    }

    #[test]
    fn one_cell_takes_the_variance_of_its_differences_where_that_is_larger() {
        let one = scatter(12.0, 5.0);
        let (kappa, cells) = ratio(&[one]);
        assert!((kappa - 3.0).abs() < 1e-12);
        let widened = one.widening(kappa, cells);
        let pooled = 17.0 / 9.0;
        assert!((pooled * widened.factor - 3.0).abs() < 1e-12);
        // 4 and a quarter of 5.
        assert!((9.0 * widened.df_factor - 5.25).abs() < 1e-12);
    }

    /// By itself a cell has the mean square of its differences; among many that are known
    /// for certain it keeps what moderation gave it.
    #[test]
    fn the_second_revision_counts_the_error_of_the_ratio() {
        let one = scatter(12.0, 5.0);
        assert!((shared_ratio(&[one]) - 3.0).abs() < 1e-9);
        assert!((3.0 * one.variance(3.0) - 3.0).abs() < 1e-12);
        assert!((one.df(9.0, 0.0) - 4.5).abs() < 1e-12);
        // 1/27 and, of 20 cells, (1/4.5 − 1/9)/20 · (1 − (9/27)²·4/9)/(1 − 4/9).
        let want = 1.0 / (1.0 / 27.0 + (1.0 / 4.5 - 1.0 / 9.0) / 20.0 * (77.0 / 81.0) * 9.0 / 5.0);
        assert!((one.df(27.0, 19.0) - want).abs() < 1e-12);
        assert!((one.df(27.0, 1e12) - 27.0).abs() < 1e-6);
    }

    #[test]
    fn a_cell_of_much_noise_counts_no_more_than_a_calm_one() {
        let calm = [scatter(8.0, 5.0); 9];
        let with_loud = [&calm[..], &[scatter(800.0, 5000.0)]].concat();
        let (alone, kappa) = (shared_ratio(&calm), shared_ratio(&with_loud));
        assert!((alone - 2.0).abs() < 1e-9);
        assert!(kappa > 1.7, "{kappa}");
        assert!(ratio(&with_loud).0 < 1.1);
        assert_eq!(shared_ratio(&[scatter(2.0, 5.0)]), 1.0);
        assert_eq!(shared_ratio(&[]), 1.0);
        assert!((calm[0].worth() - 7.0 / 11.0).abs() < 1e-12);
    }

    #[test]
    fn differences_that_scatter_less_change_nothing() {
        let one = scatter(2.0, 5.0);
        assert_eq!(ratio(&[one]).0, 1.0);
        assert_eq!(one.widening(1.0, 1.0), Widening::NONE);
    }

    #[test]
    fn many_cells_agree_on_one_ratio_and_cost_hardly_any_degrees_of_freedom() {
        let cells = [scatter(8.0, 5.0)].repeat(20);
        let (kappa, worth) = ratio(&cells);
        assert!((kappa - 2.0).abs() < 1e-12 && (worth - 20.0).abs() < 1e-9);
        assert!(cells[0].widening(kappa, worth).df_factor > 0.95);
        // One cell that drowns the others is worth little more than one.
        let (kappa, worth) = ratio(&[scatter(8.0, 5.0), scatter(800.0, 500.0)]);
        assert!((kappa - 2.0).abs() < 1e-12 && worth < 1.1, "{worth}");
    }

    #[test]
    fn without_a_rest_there_is_nothing_to_compare_with() {
        let alone = Scatter {
            df_of_rest: 0.0,
            ..scatter(4.0, 0.0)
        };
        assert_eq!(ratio(&[alone]), (1.0, 0.0));
        assert_eq!(alone.widening(5.0, 1.0), Widening::NONE);
    }
}
