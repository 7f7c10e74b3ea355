//! A candidate that is noisier than the base: the noise of its comparison is widened.

use super::columns::Columns;
use super::measure::Model;
use super::rule::{CellData, Rule};
use crate::stats::count::count;
use crate::stats::noise_ratio::{Scatter, Widening, ratio};

/// κ of every metric and candidate.
pub(super) struct Unequal<'a> {
    known: Vec<(&'a str, &'a str, f64, f64)>,
}

impl<'a> Unequal<'a> {
    /// Looks at all cells of each metric together; finds nothing where the rule does not ask.
    pub(super) fn find(
        cells: &'a [CellData],
        models: &[Result<Model, String>],
        rule: &Rule,
    ) -> Self {
        let mut known: Vec<(&str, &str, Vec<Scatter>)> = Vec::new();
        let fitted = cells.iter().zip(models).filter(|_| rule.unequal_noise);
        for (data, model) in fitted {
            let Ok(model) = model else { continue };
            for (arm, copy) in data.arms.iter().enumerate() {
                let Some(scatter) = scatter(model, data, arm) else {
                    continue;
                };
                let (metric, name) = (data.metric.as_str(), copy.name.as_str());
                let same = |one: &&mut (&str, &str, Vec<Scatter>)| (one.0, one.1) == (metric, name);
                match known.iter_mut().find(same) {
                    Some((.., list)) => list.push(scatter),
                    None => known.push((metric, name, vec![scatter])),
                }
            }
        }
        let known = known.into_iter().map(|(metric, name, list)| {
            let (kappa, cells) = ratio(&list);
            (metric, name, kappa, cells)
        });
        Unequal {
            known: known.collect(),
        }
    }

    /// What to make of the variance of `candidate`'s comparison in one cell.
    pub(super) fn widening(&self, model: &Model, data: &CellData, candidate: usize) -> Widening {
        let name = &data.arms[candidate].name;
        let mut known = self.known.iter();
        let found = known.find(|one| one.0 == data.metric && one.1 == name);
        match (found, scatter(model, data, candidate)) {
            (Some(&(.., kappa, cells)), Some(scatter)) => scatter.widening(kappa, cells),
            _ => Widening::NONE,
        }
    }
}

/// The residuals of a cell, split by the rounds' differences candidate − base.
fn scatter(model: &Model, data: &CellData, arm: usize) -> Option<Scatter> {
    let columns: &Columns = &model.columns;
    let treatment = columns.treatments[columns.of(arm)?];
    if treatment == 0 || data.arms[arm].null_of.is_some() {
        return None;
    }
    let copies = |wanted: usize| -> Vec<usize> {
        let all = 0..columns.arms.len();
        all.filter(|&column| columns.treatments[column] == wanted)
            .collect()
    };
    let (bases, candidates) = (copies(0), copies(treatment));
    let mean = |round: usize, chosen: &[usize]| {
        let residuals = chosen
            .iter()
            .map(|&column| model.fit.residual(round, column));
        residuals.sum::<f64>() / count(chosen.len())
    };
    let rounds = columns.y.len();
    let squares: f64 = (0..rounds)
        .map(|round| (mean(round, &candidates) - mean(round, &bases)).powi(2))
        .sum();
    let differences = squares / (1.0 / count(bases.len()) + 1.0 / count(candidates.len()));
    let df = count(model.fit.df);
    // Slot effects of a balanced square take one degree of freedom of each contrast.
    let taken = if columns.slots.is_some() { 2.0 } else { 1.0 };
    let df_of_differences = count(rounds) - taken;
    Some(Scatter {
        differences,
        df_of_differences,
        rest: model.fit.variance * df - differences,
        df_of_rest: df - df_of_differences,
    })
}
