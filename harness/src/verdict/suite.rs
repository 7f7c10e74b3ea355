//! The suite line: what a candidate does to the mean over all cells of a metric.
//!
//! The logarithms of a round are averaged over cells, arm by arm, and the means go through
//! the same linear model. Shown beside the cells; it decides nothing, since a loss in one
//! cell is none the better for a gain in another.

use super::columns::{Columns, columns};
use super::measure::{bounded, whole};
use super::noise;
use super::rule::{
    CellData, Estimate, Judgement, NoiseModel, Revision, Rule, SuiteLine, SuiteMean, Verdict,
};
use crate::stats::count::count;
use crate::stats::linear_model::{Layout, fit};

/// One line per metric of two cells or more and candidate, in the order of `cells` and
/// their arms. `judgements` are what [`super::decide::decide`] made of the same cells.
#[must_use]
pub fn suite(cells: &[CellData], judgements: &[Judgement], rule: &Rule) -> Vec<SuiteLine> {
    let mut lines = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for data in cells {
        if seen.contains(&data.metric.as_str()) {
            continue;
        }
        seen.push(&data.metric);
        let of_metric = cells.iter().filter(|cell| cell.metric == data.metric);
        let of_metric: Vec<&CellData> = of_metric.collect();
        if of_metric.len() < 2 {
            continue;
        }
        let judged = judgements.iter().filter(|one| one.metric == data.metric);
        let noise = judged.clone().find_map(|one| one.noise);
        let here = judged.filter(|one| one.cell == data.cell);
        for judged in here.filter(|one| one.verdict != Verdict::Identical) {
            let rounds = of_metric.iter().map(|cell| cell.rounds.len()).min();
            lines.push(SuiteLine {
                metric: data.metric.clone(),
                candidate: judged.candidate.clone(),
                better: data.better,
                cells: whole(of_metric.len()),
                rounds: whole(rounds.unwrap_or(0)),
                mean: mean(&of_metric, &judged.candidate, noise, rule)
                    .map_or_else(SuiteMean::Missing, SuiteMean::Estimate),
            });
        }
    }
    lines
}

fn mean(
    cells: &[&CellData],
    candidate: &str,
    noise: Option<NoiseModel>,
    rule: &Rule,
) -> Result<Estimate, String> {
    if let Some(reason) = noise.and_then(|noise| noise::refuted(&noise, rule)) {
        return Err(reason);
    }
    let all = cells
        .iter()
        .map(|data| usable(data, candidate, rule.revision))
        .collect::<Result<Vec<Columns>, String>>()?;
    let Some(first) = all.first() else {
        return Err("there are no cells".into());
    };
    if let Some(other) = all.iter().position(|one| one.arms != first.arms) {
        return Err(format!(
            "cells {} and {} do not have the same arms left",
            cells[0].cell, cells[other].cell
        ));
    }
    let rounds = all.iter().map(|one| one.y.len()).min().unwrap_or(0);
    if rounds < rule.min_rounds as usize {
        return Err(format!("a cell has only {rounds} complete rounds"));
    }
    let y: Vec<Vec<f64>> = (0..rounds)
        .map(|round| {
            (0..first.arms.len())
                .map(|column| {
                    let values = all.iter().map(|one| one.y[round][column]);
                    values.sum::<f64>() / count(all.len())
                })
                .collect()
        })
        .collect();
    let layout = Layout {
        treatments: &first.treatments,
        slots: None,
    };
    let fit = fit(&y, layout).map_err(|error| error.to_string())?;
    let arm = cells[0].arms.iter().position(|arm| arm.name == candidate);
    let contrast = arm
        .and_then(|arm| first.of(arm))
        .and_then(|column| fit.contrast(0, first.treatments[column]))
        .ok_or("its numbers are missing")?;
    let inflation = noise.and_then(|noise| noise.inflation).unwrap_or(1.0);
    let error = inflation * contrast.standard_error;
    bounded(contrast.estimate, error, count(fit.df), rule.alpha)
}

/// The columns of a cell in which the candidate can be judged.
fn usable(data: &CellData, candidate: &str, revision: Revision) -> Result<Columns, String> {
    let in_cell = |reason: String| format!("cell {}: {reason}", data.cell);
    let (columns, faults) = columns(data, revision).map_err(in_cell)?;
    let arm = data.arms.iter().position(|arm| arm.name == candidate);
    let arm = arm.ok_or_else(|| in_cell("the candidate is missing".into()))?;
    let treatment = data.arms[arm].treatment;
    match faults.iter().find(|fault| fault.treatment == treatment) {
        Some(fault) => Err(in_cell(fault.reason_for(data, arm))),
        None => Ok(columns),
    }
}

#[cfg(test)]
mod tests {
    use super::super::decide::decide;
    use super::super::example::{RULE, noisy};
    use super::*;
    use crate::experiment::model::Better;

    fn cells(candidates: &[f64]) -> Vec<CellData> {
        candidates
            .iter()
            .enumerate()
            .map(|(index, &candidate)| {
                let mut data = noisy("wall_s", Better::Lower, 100.0, candidate);
                data.cell = format!("cell-{index}");
                // Other cells have other noise of about the same size.
                data.rounds.rotate_left(index);
                data
            })
            .collect()
    }

    fn lines(cells: &[CellData]) -> Vec<SuiteLine> {
        suite(cells, &decide(cells, &RULE), &RULE)
    }

    #[test]
    fn the_mean_over_cells_is_the_mean_of_their_estimates() {
        let cells = cells(&[102.0, 100.0, 101.0]);
        let [line] = &lines(&cells)[..] else {
            panic!("one line")
        };
        let judged = decide(&cells, &RULE);
        let mean = judged
            .iter()
            .map(|one| one.estimate.unwrap().delta)
            .sum::<f64>()
            / 3.0;
        let SuiteMean::Estimate(found) = line.mean else {
            panic!("{line:?}")
        };
        assert!((found.delta - mean).abs() < 1e-12);
        assert!(found.standard_error < judged[0].estimate.unwrap().standard_error);
        assert_eq!((line.cells, line.rounds), (3, 5));
    }

    #[test]
    fn a_cell_with_fewer_rounds_shortens_all() {
        let mut cells = cells(&[100.0, 100.0]);
        cells[1].rounds.truncate(4);
        cells[1].slots.truncate(4);
        assert_eq!(lines(&cells)[0].rounds, 4);
        cells[1].rounds.truncate(2);
        let line = &lines(&cells)[0];
        let missing = "a cell has only 2 complete rounds";
        assert_eq!(line.mean, SuiteMean::Missing(missing.into()));
    }

    #[test]
    fn a_cell_that_cannot_be_judged_is_named_and_never_left_out() {
        let mut cells = cells(&[100.0, 100.0]);
        cells[1].invalid = vec![(2, "exit status 3".into())];
        let line = &lines(&cells)[0];
        let missing = "cell cell-1: exit status 3";
        assert_eq!(line.mean, SuiteMean::Missing(missing.into()));
    }

    #[test]
    fn one_cell_alone_has_no_suite() {
        assert_eq!(lines(&cells(&[100.0])), []);
        let mut other = cells(&[100.0, 100.0]);
        other[1].metric = "cpu_s".into();
        assert_eq!(lines(&other), []);
    }
}
