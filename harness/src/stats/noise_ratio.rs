//! Whether a comparison scatters more from round to round than copies of one program do.
//!
//! The linear model gives every arm the same noise. A candidate with more of its own
//! breaks that: the pooled variance is then too small for the very contrast that decides.
//! The residual sum of squares splits into what the rounds' differences candidate − base
//! contribute and an independent rest; the ratio κ of their mean squares is F if the noise
//! is equal (Snedecor and Cochran 1989, "Statistical methods", section 6.12). κ is
//! estimated over all cells of a metric and never taken below 1.

/// The larger of two variances was taken, so it is worth more than the differences' own
/// degrees of freedom: with this share of the rest's the levels hold (docs/adr/0016).
const KEPT: f64 = 0.25;

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
    fn df(&self) -> f64 {
        self.df_of_differences + self.df_of_rest
    }

    fn is_usable(&self) -> bool {
        self.rest > 0.0
            && self.differences >= 0.0
            && self.df_of_differences > 0.0
            && self.df_of_rest > 0.0
    }

    /// What a ratio `kappa`, estimated over `cells` cells, makes of this cell's variance.
    ///
    /// The variance becomes that of the differences, and keeps [`KEPT`] of the degrees of
    /// freedom that the rest has. What other cells say about κ makes it the surer.
    #[must_use]
    pub fn widening(&self, kappa: f64, cells: f64) -> Widening {
        if !self.is_usable() || kappa <= 1.0 {
            return Widening::NONE;
        }
        let alone = self.df_of_differences + KEPT * self.df_of_rest;
        Widening {
            factor: kappa * self.df() / (kappa * self.df_of_differences + self.df_of_rest),
            df_factor: 1.0 / (1.0 + (self.df() / alone - 1.0) / cells.max(1.0)),
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
    let variance = |cell: &Scatter| (cell.differences + cell.rest) / cell.df();
    let worth = sum(&variance).powi(2) / sum(&|cell| variance(cell).powi(2));
    ((differences / rest).max(1.0), worth)
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
