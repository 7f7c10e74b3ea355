//! What a finished run leaves for later ones. Pure.

use indexmap::IndexMap;

use super::from_record::rule;
use super::looks;
use super::model::Analysis;
use crate::history::format::{PastCell, PastMetric, PastRun, SCHEMA, workload};
use crate::record::format::{Attempt, NullContrast, Plan};
use crate::record::rounds::Next;
use crate::stats::quantile::median;
use crate::verdict::null_check::{CellNoise, cell_noise};
use crate::verdict::rule::{CellData, Verdict};

/// The run as a line of the history; `tag` are the first digits of the plan's hash.
///
/// `None` for a run that is not finished or not valid. A metric of which every verdict in
/// a cell is Invalid leaves nothing of that cell.
#[must_use]
pub fn past(plan: &Plan, tag: &str, attempts: &[Attempt], analysis: &Analysis) -> Option<PastRun> {
    if !matches!(looks::next(plan, attempts), Ok(Next::Done)) {
        return None;
    }
    let cells: Vec<PastCell> = (0..plan.cells.len())
        .filter_map(|cell| past_cell(plan, cell, attempts, analysis))
        .collect();
    (!cells.is_empty()).then(|| PastRun {
        schema: SCHEMA,
        plan: tag.to_owned(),
        sealed_at: plan.sealed_at.clone(),
        experiment: plan.experiment.name.clone(),
        cells,
    })
}

fn past_cell(
    plan: &Plan,
    cell: usize,
    attempts: &[Attempt],
    analysis: &Analysis,
) -> Option<PastCell> {
    let id = &plan.cells[cell].id;
    let valid = |data: &&CellData| {
        data.cell == *id
            && analysis.judgements.iter().any(|judged| {
                judged.cell == *id
                    && judged.metric == data.metric
                    && judged.verdict != Verdict::Invalid
            })
    };
    let revision = rule(plan).revision;
    let metrics: IndexMap<String, PastMetric> = analysis
        .data
        .iter()
        .filter(valid)
        .filter_map(|data| {
            Some((
                data.metric.clone(),
                past_metric(cell_noise(data, revision)?),
            ))
        })
        .collect();
    let rows: Vec<&Attempt> = attempts
        .iter()
        .filter(|row| row.cell == *id && row.round > 0)
        .collect();
    let seconds: Vec<f64> = rows
        .iter()
        .filter(|row| row.outcome.is_ok())
        .filter_map(|row| Some(seconds(row.usage?.wall_ns)))
        .collect();
    let waited: f64 = rows.iter().map(|row| row.guard.waited_seconds).sum();
    #[expect(clippy::cast_precision_loss, reason = "rows are far below 2^52")]
    let number = rows.len() as f64;
    let attempt_seconds = median(&seconds)?;
    (!metrics.is_empty()).then(|| PastCell {
        cell: id.clone(),
        workload: workload(plan, cell),
        attempt_seconds,
        waited_seconds: waited / number,
        metrics,
    })
}

fn past_metric(noise: CellNoise) -> PastMetric {
    let contrasts = noise.contrasts.into_iter();
    PastMetric {
        sigma: noise.sigma,
        df: noise.df,
        contrasts: contrasts
            .map(|one| NullContrast {
                t: one.t,
                df: one.df,
            })
            .collect(),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a duration for a forecast; 2^53 ns are 104 days"
)]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::super::from_record::analyse;
    use super::*;
    use crate::record::example;

    #[test]
    fn a_finished_run_leaves_noise_contrasts_and_time_of_every_cell() {
        let plan = example::plan();
        let attempts = example::attempts(&plan);
        let analysis = analyse(&plan, &attempts).unwrap();
        let left = past(&plan, "0123456789abcdef", &attempts, &analysis).unwrap();
        assert_eq!((left.cells.len(), left.plan.len()), (2, 16));
        let cell = &left.cells[1];
        assert_eq!(cell.cell, "2048");
        assert!(cell.attempt_seconds > 0.0);
        let decode = &cell.metrics["decode_tok_s"];
        // One null arm is one contrast; df = 5 rounds · 3 − 2 effects − the drift over slots.
        assert_eq!(decode.contrasts.len(), 1);
        assert!((decode.df - 12.0).abs() < 1e-12 && decode.sigma > 0.0);
    }

    #[test]
    fn an_unfinished_run_and_invalid_verdicts_leave_nothing() {
        let plan = example::plan();
        let attempts = example::attempts(&plan);
        let part = &attempts[..attempts.len() - 1];
        let analysis = analyse(&plan, part).unwrap();
        assert_eq!(past(&plan, "a", part, &analysis), None);
        let mut analysis = analyse(&plan, &attempts).unwrap();
        for judged in &mut analysis.judgements {
            judged.verdict = Verdict::Invalid;
        }
        assert_eq!(past(&plan, "a", &attempts, &analysis), None);
    }
}
