//! What is shown beside the deciding estimate: the usual estimators, and what null arms
//! differ by. Nothing here decides.

use super::columns::Columns;
use super::rule::{CellData, NullBand, OtherEstimators};
use crate::experiment::model::Better;
use crate::stats::hodges_lehmann::hodges_lehmann;
use crate::stats::null_contrast::{band, paired};
use crate::stats::quantile::median;
use crate::stats::randomisation::Exchange;

/// The usual estimators over the named arms alone, without their null copies.
pub(super) fn other_estimators(
    data: &CellData,
    columns: &Columns,
    column: usize,
) -> Option<OtherEstimators> {
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

/// The rounds of a candidate's copies and the base's, for exchanging their labels.
pub(super) fn exchange(columns: &Columns, treatment: usize) -> Exchange {
    let copies = |wanted: usize| -> Vec<usize> {
        let all = columns.treatments.iter().enumerate();
        all.filter(|(_, treatment)| **treatment == wanted)
            .map(|(column, _)| column)
            .collect()
    };
    let (bases, candidates) = (copies(0), copies(treatment));
    let chosen = [bases, candidates.clone()].concat();
    Exchange {
        rounds: columns
            .y
            .iter()
            .map(|row| chosen.iter().map(|&column| row[column]).collect())
            .collect(),
        candidates: candidates.len(),
    }
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

/// Every null arm against the arm that it repeats.
pub(super) fn null_bands(data: &CellData, columns: &Columns) -> Vec<NullBand> {
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
