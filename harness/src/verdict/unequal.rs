//! A candidate that is noisier than the base: the noise of its comparison is its own.

use super::measure::{Model, whole};
use super::noise::Noise;
use super::rule::{CellData, Revision, Rule};
use crate::stats::count::count;
use crate::stats::moderated::{Variance, moderate};
use crate::stats::noise_ratio::{Scatter, ratio, shared_ratio};

/// The noise of every comparison that scatters more than copies of one program do.
pub(super) struct Unequal<'a> {
    /// (cell, candidate, noise).
    settled: Vec<(usize, &'a str, Noise)>,
}

/// One candidate in one cell.
struct Member<'m> {
    cell: usize,
    model: &'m Model,
    scatter: Scatter,
}

impl<'a> Unequal<'a> {
    /// Looks at all cells of each metric together; finds nothing where the rule does not ask.
    pub(super) fn find(
        cells: &'a [CellData],
        models: &[Result<Model, String>],
        rule: &Rule,
    ) -> Self {
        let mut groups: Vec<(&str, &'a str, Vec<Member<'_>>)> = Vec::new();
        let fitted = cells.iter().zip(models).enumerate();
        for (cell, (data, model)) in fitted.filter(|_| rule.unequal_noise) {
            let Ok(model) = model else { continue };
            for (arm, copy) in data.arms.iter().enumerate() {
                let Some(scatter) = scatter(model, data, arm, rule.revision) else {
                    continue;
                };
                let member = Member {
                    cell,
                    model,
                    scatter,
                };
                let (metric, name) = (data.metric.as_str(), copy.name.as_str());
                match groups
                    .iter_mut()
                    .find(|one| (one.0, one.1) == (metric, name))
                {
                    Some((.., members)) => members.push(member),
                    None => groups.push((metric, name, vec![member])),
                }
            }
        }
        let settled = groups.iter().flat_map(|(_, name, members)| {
            let noises = match rule.revision {
                Revision::First => widened(members),
                Revision::Second | Revision::Third => settled(members, rule),
            };
            let members = members.iter().zip(noises);
            members.filter_map(|(member, noise)| Some((member.cell, *name, noise?)))
        });
        Unequal {
            settled: settled.collect(),
        }
    }

    /// The noise of `candidate`'s comparison in one cell.
    pub(super) fn noise(&self, cell: usize, model: &Model, candidate: &str) -> Noise {
        let mut settled = self.settled.iter();
        let own = settled.find(|one| (one.0, one.1) == (cell, candidate));
        own.map_or_else(|| model.noise.clone(), |(.., noise)| noise.clone())
    }
}

/// The first revision: what all arms settled together, widened.
fn widened(members: &[Member<'_>]) -> Vec<Option<Noise>> {
    let scatters: Vec<Scatter> = members.iter().map(|one| one.scatter).collect();
    let (kappa, worth) = ratio(&scatters);
    members
        .iter()
        .map(|one| Some(one.model.noise.widened(one.scatter.widening(kappa, worth))))
        .collect()
}

/// κ times the variance of one value, which is moderated over the cells after the candidate's
/// share of it was set right. None where κ is 1: then all arms have one noise.
fn settled(members: &[Member<'_>], rule: &Rule) -> Vec<Option<Noise>> {
    let scatters: Vec<Scatter> = members.iter().map(|one| one.scatter).collect();
    let kappa = shared_ratio(&scatters);
    let worth: f64 = scatters.iter().map(Scatter::worth).sum();
    if kappa <= 1.0 {
        return members.iter().map(|_| None).collect();
    }
    let own: Vec<Variance> = scatters
        .iter()
        .map(|scatter| Variance {
            value: scatter.variance(kappa),
            df: scatter.own_df(),
        })
        .collect();
    let noisy = own.iter().filter(|one| one.value > 0.0).count();
    let moderation = rule
        .moderation
        .filter(|rule| noisy >= rule.from_cells as usize);
    let moderated = match moderation {
        Some(moderation) => moderate(&own, moderation.largest_prior),
        None => own,
    };
    members
        .iter()
        .zip(moderated)
        .map(|(member, moderated)| {
            let Member { model, scatter, .. } = member;
            if !scatter.is_usable() {
                return None;
            }
            let noise = &model.noise;
            let df = scatter.df(moderated.df, worth - scatter.worth());
            let inflation = noise.model.inflation.unwrap_or(1.0);
            let mut settled = Noise {
                variance: kappa * moderated.value * inflation.powi(2),
                df,
                df_of_prior: df - count(model.fit.df),
                model: noise.model,
            };
            settled.model.moderated_cells = moderation.map_or(0, |_| whole(noisy));
            let pooled = model.fit.variance;
            settled.model.widening = (kappa * scatter.variance(kappa) / pooled).sqrt();
            Some(settled)
        })
        .collect()
}

/// The residuals of a cell, split by the rounds' differences candidate − base.
fn scatter(model: &Model, data: &CellData, arm: usize, revision: Revision) -> Option<Scatter> {
    let columns = &model.columns;
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
    let unit = 1.0 / count(bases.len()) + 1.0 / count(candidates.len());
    let differences = squares / unit;
    let df = count(model.fit.df);
    let df_of_differences = match revision {
        // Slot effects of a balanced square take one degree of freedom of each contrast.
        Revision::First if columns.has_slot_effects() => count(rounds) - 2.0,
        Revision::First => count(rounds) - 1.0,
        Revision::Second | Revision::Third => {
            let mut weights = vec![0.0; columns.arms.len()];
            let length = unit.sqrt();
            for &column in &bases {
                weights[column] = -1.0 / (count(bases.len()) * length);
            }
            for &column in &candidates {
                weights[column] = 1.0 / (count(candidates.len()) * length);
            }
            model.fit.df_of(&weights)
        }
    };
    Some(Scatter {
        differences,
        df_of_differences,
        rest: model.fit.variance * df - differences,
        df_of_rest: df - df_of_differences,
    })
}
