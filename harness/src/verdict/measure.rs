//! From one (cell, metric) to numbers: fits the linear model and reads off, for
//! every candidate, the contrast with the base, its bounds and its p.
//!
//! Nothing is decided here. Moderated variance and inflation by null contrasts
//! belong between the fit and the bounds.

use super::columns::{Columns, Fault, columns};
use super::decide::tau;
use super::rule::{CellData, Estimate, NullBand, OtherEstimators, Rule};
use crate::experiment::model::Better;
use crate::stats::hodges_lehmann::hodges_lehmann;
use crate::stats::linear_model::{Fit, Layout, fit};
use crate::stats::mde::Growth;
use crate::stats::null_contrast::{band, paired};
use crate::stats::quantile::median;
use crate::stats::student::{two_sided_p, upper_quantile};

/// What the linear model says about one candidate.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) estimate: Estimate,
    pub(super) tau: f64,
    pub(super) p: f64,
    pub(super) growth: Growth,
    pub(super) others: Option<OtherEstimators>,
    pub(super) nulls: Vec<NullBand>,
}

/// Every candidate of one (cell, metric), in the arms' order.
pub(super) fn measure_cell<'a>(
    data: &'a CellData,
    rule: &Rule,
) -> Vec<(&'a CellData, usize, Result<Measured, String>)> {
    let model = model_cell(data, rule);
    let candidates = data.arms.iter().enumerate();
    candidates
        .filter(|(index, arm)| *index != data.base && arm.null_of.is_none())
        .map(|(index, _)| {
            let measured = match &model {
                Ok(model) => measure(data, index, model, rule),
                // What befell this very arm says more than what is wrong with the cell.
                Err(reason) => Err(own_reason(data, index).unwrap_or(reason).to_owned()),
            };
            (data, index, measured)
        })
        .collect()
}

/// The reason outside the numbers why `candidate` itself cannot be judged.
fn own_reason(data: &CellData, candidate: usize) -> Option<&String> {
    let mut reasons = data.invalid.iter();
    reasons
        .find(|(arm, _)| *arm == candidate)
        .map(|(_, reason)| reason)
}

/// The fitted model of a cell with what is left out of it.
struct Model {
    columns: Columns,
    faults: Vec<Fault>,
    fit: Fit,
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
    let (columns, faults) = columns(data)?;
    let rounds = data.rounds.len();
    let needed = usize::try_from(rule.min_rounds).unwrap_or(usize::MAX);
    if rounds < needed {
        return Err(format!(
            "only {rounds} complete rounds, at least {needed} are needed"
        ));
    }
    let layout = Layout {
        treatments: &columns.treatments,
        slots: columns.slots.as_deref(),
    };
    let fit = fit(&columns.y, layout).map_err(|error| error.to_string())?;
    Ok(Model {
        columns,
        faults,
        fit,
        tau,
    })
}

fn measure(
    data: &CellData,
    candidate: usize,
    model: &Model,
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
    let missing = || "its numbers are missing".to_owned();
    let column = columns.of(candidate).ok_or_else(missing)?;
    let contrast = model
        .fit
        .contrast(0, columns.treatments[column])
        .ok_or_else(missing)?;
    let df = count(model.fit.df);
    let quantile =
        |tail| upper_quantile(tail, df).ok_or_else(|| format!("no quantile for {df} degrees"));
    let (two_sided, one_sided) = (quantile(rule.alpha / 2.0)?, quantile(rule.alpha)?);
    let (delta, error) = (contrast.estimate, contrast.standard_error);
    let p = if error > 0.0 {
        two_sided_p(delta / error, df)
    } else {
        // Without noise any difference is proven, and none is proven absent.
        f64::from(u8::from(delta == 0.0))
    };
    let rounds = columns.y.len();
    let arms = columns.arms.len();
    let parameters = columns.y.len() * arms - model.fit.df;
    Ok(Measured {
        estimate: Estimate {
            delta,
            standard_error: error,
            degrees_of_freedom: df,
            low: delta - two_sided * error,
            high: delta + two_sided * error,
            upper_bound: delta + one_sided * error,
            lower_bound: delta - one_sided * error,
        },
        tau: model.tau,
        p,
        growth: Growth {
            sigma: model.fit.variance.sqrt(),
            unscaled_variance_of_one_round: contrast.unscaled_variance * count(rounds),
            df_per_round: whole(arms.saturating_sub(1)),
            df_of_effects: whole(parameters - rounds),
        },
        others: other_estimators(data, columns, column),
        nulls: null_bands(data, columns),
    })
}

/// The usual estimators over the named arms alone, without their null copies.
fn other_estimators(data: &CellData, columns: &Columns, column: usize) -> Option<OtherEstimators> {
    let candidate = columns.values(column);
    let base = columns.values(columns.of(data.base)?);
    let differences = paired(&candidate, &base);
    Some(OtherEstimators {
        median_paired: median(&differences)?,
        ratio_of_medians: log_of_median(data, columns.arms[column])?
            - log_of_median(data, data.base)?,
        hodges_lehmann: hodges_lehmann(&differences)?,
    })
}

/// ln of the median of an arm's values, sign turned so that larger is slower.
/// The median is taken of the values and not of their logarithms, as others do;
/// for an even number of rounds the two differ. An arm of zeros counts as 1.
fn log_of_median(data: &CellData, arm: usize) -> Option<f64> {
    let values: Vec<f64> = data.rounds.iter().map(|row| row[arm]).collect();
    let middle = median(&values)?;
    let logarithm = if middle > 0.0 { middle.ln() } else { 0.0 };
    Some(match data.better {
        Better::Higher => -logarithm,
        Better::Lower => logarithm,
    })
}

fn null_bands(data: &CellData, columns: &Columns) -> Vec<NullBand> {
    let band_of = |null: usize| {
        let name = data.arms[null].null_of.as_ref()?;
        let original = data.arms.iter().position(|arm| arm.name == *name)?;
        let differences = paired(
            &columns.values(columns.of(null)?),
            &columns.values(columns.of(original)?),
        );
        let found = band(&differences)?;
        Some(NullBand {
            name: data.arms[null].name.clone(),
            median: found.median,
            low: found.low,
            high: found.high,
        })
    };
    (0..data.arms.len()).filter_map(band_of).collect()
}

fn count(n: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let count = n as f64;
    count
}

pub(super) fn whole(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
