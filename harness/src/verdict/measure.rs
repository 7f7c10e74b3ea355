//! From cells to numbers: fits the linear model of every (cell, metric), settles its
//! noise, and reads off, for every candidate, the contrast with the base, its bounds
//! and its p. Nothing is decided here.

use super::beside::{exchange, null_bands, other_estimators};
use super::change::own_pct;
use super::columns::{Columns, Fault, columns};
use super::decide::tau;
use super::noise::{self, Noise, Part};
use super::null_check;
use super::rule::{CellData, Estimate, NoiseModel, NullBand, OtherEstimators, Revision, Rule};
use super::unequal::Unequal;
use crate::stats::count::count;
use crate::stats::linear_model::{Fit, fit};
use crate::stats::mde::Growth;
use crate::stats::randomisation::Exchange;
use crate::stats::student::{two_sided_p, upper_quantile};
use crate::unit;

/// What the linear model says about one candidate.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) estimate: Estimate,
    pub(super) tau: f64,
    pub(super) p: f64,
    pub(super) growth: Growth,
    pub(super) noise: NoiseModel,
    pub(super) others: Option<OtherEstimators>,
    pub(super) nulls: Vec<NullBand>,
    pub(super) exchange: Exchange,
}

/// What was found about a candidate.
#[derive(Debug)]
pub(super) enum Found {
    /// Numbers.
    Numbers(Box<Measured>),
    /// The base's own program in the base's own environment; the null arms beside it.
    Identical(Vec<NullBand>),
    /// Why there are no numbers.
    Nothing(String),
}

impl Found {
    /// The numbers, if there are any.
    pub(super) fn numbers(&self) -> Option<&Measured> {
        match self {
            Found::Numbers(measured) => Some(measured),
            Found::Identical(_) | Found::Nothing(_) => None,
        }
    }
}

/// A candidate of a cell, by its arm's index, with what was found about it.
pub(super) type Candidate<'a> = (&'a CellData, usize, Found);

/// Every candidate of every (cell, metric), in the order of cells and arms.
pub(super) fn measure<'a>(cells: &'a [CellData], rule: &Rule) -> Vec<Candidate<'a>> {
    let mut models: Vec<Result<Model, String>> =
        cells.iter().map(|data| model_cell(data, rule)).collect();
    let parts = cells.iter().zip(&mut models).filter_map(|(data, model)| {
        let Model { columns, noise, .. } = model.as_mut().ok()?;
        Some(Part {
            metric: &data.metric,
            columns,
            noise,
        })
    });
    noise::settle(parts.collect(), rule);
    let unequal = Unequal::find(cells, &models, rule);
    let refuted = |model: Result<Model, String>| {
        let model = model?;
        match noise::refuted(&model.noise.model, rule) {
            Some(reason) => Err(reason),
            None => Ok(model),
        }
    };
    let models: Vec<Result<Model, String>> = models.into_iter().map(refuted).collect();
    cells
        .iter()
        .zip(&models)
        .enumerate()
        .flat_map(|(cell, (data, model))| measure_cell(data, model, (&unequal, cell), rule))
        .collect()
}

/// Every candidate of one (cell, metric), in the arms' order.
fn measure_cell<'a>(
    data: &'a CellData,
    model: &Result<Model, String>,
    unequal: (&Unequal<'_>, usize),
    rule: &Rule,
) -> Vec<Candidate<'a>> {
    (0..data.arms.len())
        .filter(|&arm| is_candidate(data, arm))
        .map(|arm| {
            let measured = match model {
                Ok(model) => compare(data, arm, (model, unequal), rule),
                // What befell this very arm says more than what is wrong with the cell.
                Err(reason) => Err(own_reason(data, arm).unwrap_or(reason).to_owned()),
            };
            let found = match measured {
                _ if is_identical(data, arm) => match unmeasured(data, rule) {
                    Some(reason) => Found::Nothing(reason),
                    None => Found::Identical(bands(data, model)),
                },
                Ok(measured) => Found::Numbers(Box::new(measured)),
                Err(reason) => Found::Nothing(reason),
            };
            (data, arm, found)
        })
        .collect()
}

fn bands(data: &CellData, model: &Result<Model, String>) -> Vec<NullBand> {
    let model = model.as_ref();
    model.map_or_else(|_| Vec::new(), |model| null_bands(data, &model.columns))
}

/// Every declared arm but the base; one that repeats another candidate is that candidate.
fn is_candidate(data: &CellData, arm: usize) -> bool {
    arm != data.base && (data.arms[arm].null_of.is_none() || is_identical(data, arm))
}

/// Whether a declared arm is, as the plan says, the base again.
fn is_identical(data: &CellData, arm: usize) -> bool {
    let copy = &data.arms[arm];
    copy.declared && copy.null_of.is_some() && data.is_copy_of_base(arm)
}

/// Why the program of the base, which an identical candidate is, was not seen to work: equal code
/// that crashes is no pass.
fn unmeasured(data: &CellData, rule: &Rule) -> Option<String> {
    let mut reasons = data.invalid.iter();
    let out = reasons.find(|(arm, _)| data.is_copy_of_base(*arm));
    match out {
        Some((_, reason)) => Some(reason.clone()),
        None => enough_rounds(data, rule).err(),
    }
}

/// The reason outside the numbers why `candidate` itself cannot be judged.
fn own_reason(data: &CellData, candidate: usize) -> Option<&String> {
    let mut reasons = data.invalid.iter();
    reasons
        .find(|(arm, _)| *arm == candidate)
        .map(|(_, reason)| reason)
}

/// The fitted model of a cell with what is left out of it.
pub(super) struct Model {
    pub(super) columns: Columns,
    faults: Vec<Fault>,
    pub(super) fit: Fit,
    pub(super) noise: Noise,
    tau: f64,
}

fn model_cell(data: &CellData, rule: &Rule) -> Result<Model, String> {
    if !(rule.alpha > 0.0 && rule.alpha <= 0.5) {
        return Err(format!(
            "alpha is {}, expected a number above 0 and up to 0.5",
            rule.alpha
        ));
    }
    let tau = tau(data.better, rule.threshold_pct).ok_or_else(|| {
        format!(
            "a threshold of {} % means nothing for this metric",
            rule.threshold_pct
        )
    })?;
    let (columns, faults) = columns(data, rule.revision)?;
    enough_rounds(data, rule)?;
    let fit = fit(&columns.y, columns.layout()).map_err(|error| error.to_string())?;
    if rule.revision >= Revision::Third
        && rule.null_check.is_some()
        && let Some(delta) = null_check::apart_without_noise(&columns)
    {
        return Err(format!(
            "copies of one program differ by {} in every round, without any noise: something but \
             the program tells them apart",
            unit::signed_pct(own_pct(data.better, delta))
        ));
    }
    Ok(Model {
        columns,
        faults,
        noise: Noise::of(&fit),
        fit,
        tau,
    })
}

fn enough_rounds(data: &CellData, rule: &Rule) -> Result<(), String> {
    let rounds = data.rounds.len();
    let needed = usize::try_from(rule.min_rounds).unwrap_or(usize::MAX);
    match rounds < needed {
        true => Err(format!(
            "only {rounds} complete rounds, at least {needed} are needed"
        )),
        false => Ok(()),
    }
}

fn compare(
    data: &CellData,
    candidate: usize,
    (model, (unequal, cell)): (&Model, (&Unequal<'_>, usize)),
    rule: &Rule,
) -> Result<Measured, String> {
    let treatment = data.arms[candidate].treatment;
    if let Some(fault) = model.faults.iter().find(|one| one.treatment == treatment) {
        return Err(fault.reason_for(data, candidate));
    }
    if treatment == data.arms[data.base].treatment {
        return Err("it is the same program in the same environment as the base".into());
    }
    let columns = &model.columns;
    let noise = unequal.noise(cell, model, &data.arms[candidate].name);
    let missing = || "its numbers are missing".to_owned();
    let column = columns.of(candidate).ok_or_else(missing)?;
    let contrast = model
        .fit
        .contrast(0, columns.treatments[column])
        .ok_or_else(missing)?;
    let delta = contrast.estimate;
    let error = (noise.variance * contrast.unscaled_variance).sqrt();
    let p = if error > 0.0 {
        two_sided_p(delta / error, noise.df)
    } else {
        // Without noise any difference is proven, and none is proven absent.
        f64::from(u8::from(delta == 0.0))
    };
    let rounds = columns.y.len();
    let arms = columns.arms.len();
    let parameters = columns.y.len() * arms - model.fit.df;
    Ok(Measured {
        estimate: bounded(delta, error, noise.df, rule.alpha)?,
        tau: model.tau,
        p,
        growth: Growth {
            sigma: noise.variance.sqrt(),
            unscaled_variance_of_one_round: contrast.unscaled_variance * count(rounds),
            df_per_round: whole(arms.saturating_sub(1)),
            df_of_effects: whole(parameters - rounds),
            df_of_prior: noise.df_of_prior,
        },
        noise: noise.model,
        others: other_estimators(data, columns, column),
        nulls: null_bands(data, columns),
        exchange: exchange(columns, columns.treatments[column]),
    })
}

/// An estimate with its bounds.
///
/// # Errors
/// One line, for degrees of freedom without a quantile.
pub(super) fn bounded(
    delta: f64,
    standard_error: f64,
    df: f64,
    alpha: f64,
) -> Result<Estimate, String> {
    let quantile =
        |tail| upper_quantile(tail, df).ok_or_else(|| format!("no quantile for {df} degrees"));
    let (two_sided, one_sided) = (quantile(alpha / 2.0)?, quantile(alpha)?);
    Ok(Estimate {
        delta,
        standard_error,
        degrees_of_freedom: df,
        low: delta - two_sided * standard_error,
        high: delta + two_sided * standard_error,
        upper_bound: delta + one_sided * standard_error,
        lower_bound: delta - one_sided * standard_error,
    })
}

pub(super) fn whole(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
