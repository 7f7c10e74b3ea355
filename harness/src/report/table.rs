//! The tables of one metric: values and verdicts, power, other estimators.

use indexmap::IndexMap;
use serde::Serialize;

use super::rows::{Row, has_values, rows, with_claims};
use super::words::{self, Scale};
use crate::analysis::model::Analysis;
use crate::analysis::stage_data::StageData;
use crate::experiment::model::Metric;
use crate::stats::quantile::range;
use crate::unit;
use crate::verdict::control::ControlCheck;
use crate::verdict::rule::{CellData, Direction, Judgement, OtherEstimators, SuiteMean};

/// One metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricSection {
    /// Its name.
    pub name: String,
    /// The unit of the values; may be empty.
    pub unit: String,
    /// Which way is better, in words.
    pub better: &'static str,
    /// Whether the gate decides on it.
    pub gated: bool,
    /// Whether somebody claimed an effect on it: rows then have a claim to show.
    pub claimed: bool,
    /// One row per cell and arm, in the plan's order.
    pub rows: Vec<Row>,
    /// What the rule could see; one row per judgement.
    pub power: Vec<PowerRow>,
    /// Estimators that decide nothing; one row per judgement.
    pub others: Vec<OthersRow>,
    /// The mean over all cells; one sentence per candidate.
    pub suite: Vec<String>,
    /// Where the estimators disagree.
    pub disagreements: Vec<String>,
    /// What the names of its plots begin with; `None` where there are no plots.
    pub plots: Option<String>,
    /// Whether one of them shows the session over time.
    pub drift: bool,
}

/// What the rule could see in one comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PowerRow {
    /// The cell's id.
    pub cell: String,
    /// The candidate.
    pub candidate: String,
    /// Residual standard deviation of one attempt.
    pub sigma: String,
    /// Smallest effect that is told from none 9 times in 10.
    pub detectable: String,
    /// Smallest slow-down that fails the gate 9 times in 10.
    pub fails_gate: String,
    /// How often an unchanged candidate passes.
    pub pass_if_unchanged: String,
    /// Rounds after which it passes 9 times in 10.
    pub rounds_to_pass: String,
}

/// Every estimate of one comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OthersRow {
    /// The cell's id.
    pub cell: String,
    /// The candidate.
    pub candidate: String,
    /// The estimate that decides.
    pub model: String,
    /// Median of the paired changes.
    pub median_paired: String,
    /// Ratio of the medians.
    pub ratio_of_medians: String,
    /// Hodges–Lehmann.
    pub hodges_lehmann: String,
    /// p of no change by exchanging labels.
    pub permutation: String,
    /// p of a loss beyond the gate by exchanging labels.
    pub permutation_gate: String,
}

/// One section per metric of the experiment, in its order.
pub(crate) fn sections(
    metrics: &IndexMap<String, Metric>,
    analysis: &Analysis,
) -> Vec<MetricSection> {
    metrics
        .iter()
        .map(|(name, metric)| {
            let data: Vec<&CellData> = analysis.data.iter().filter(|d| d.metric == *name).collect();
            let judgements: Vec<&Judgement> = analysis
                .judgements
                .iter()
                .filter(|j| j.metric == *name)
                .collect();
            let stages = analysis.stages.iter();
            let stages: Vec<&StageData> = stages.filter(|s| s.data.metric == *name).collect();
            let all = data.iter().copied().chain(stages.iter().map(|s| &s.data));
            let scale = scale(metrics, name, &all.collect::<Vec<_>>());
            let controls: Vec<&ControlCheck> = analysis
                .controls
                .iter()
                .filter(|check| check.metric == *name)
                .collect();
            MetricSection {
                name: name.clone(),
                unit: scale.unit.clone(),
                better: words::better(metric.better),
                gated: metric.gate,
                claimed: analysis.claims.iter().any(|claim| claim.metric == *name),
                rows: with_claims(
                    rows(&data, &stages, &judgements, &controls, &scale),
                    name,
                    &analysis.claims,
                ),
                power: judgements.iter().filter_map(|j| power_row(j)).collect(),
                others: judgements
                    .iter()
                    .filter(|_| at_length(metrics, name))
                    .filter_map(|j| others_row(j))
                    .collect(),
                suite: suite(analysis, name),
                disagreements: judgements.iter().filter_map(|j| disagreement(j)).collect(),
                plots: (at_length(metrics, name) && data.iter().any(|cell| has_values(cell)))
                    .then(|| slug(name)),
                drift: true,
            }
        })
        .collect()
}

/// Whether a metric is shown at length, with plots: the gated ones, or all where none is gated.
pub(crate) fn at_length(metrics: &IndexMap<String, Metric>, metric: &str) -> bool {
    metrics.get(metric).is_some_and(|metric| metric.gate)
        || metrics.values().all(|metric| !metric.gate)
}

/// A metric's name as part of a file name.
pub(crate) fn slug(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.chars()
        .map(|c| if plain(c) { c } else { '-' })
        .collect()
}

/// The unit of a metric's values, scaled to the largest of them.
pub(crate) fn scale(metrics: &IndexMap<String, Metric>, metric: &str, data: &[&CellData]) -> Scale {
    let given = metrics.get(metric);
    let unit = given.map_or_else(|| unit::metric_unit(metric), |given| given.unit_of(metric));
    let values: Vec<f64> = data
        .iter()
        .flat_map(|cell| cell.rounds.iter().flatten().copied())
        .filter(|value| value.is_finite())
        .collect();
    let largest = range(&values).map_or(0.0, |(_, high)| high);
    Scale::new(unit, largest)
}

fn power_row(judgement: &Judgement) -> Option<PowerRow> {
    let power = judgement.power.filter(|_| judgement.gated)?;
    Some(PowerRow {
        cell: judgement.cell.clone(),
        candidate: judgement.candidate.clone(),
        sigma: words::size_pct(power.sigma),
        detectable: words::size_pct(power.detectable),
        fails_gate: words::size_pct(power.fails_gate),
        pass_if_unchanged: words::share(power.pass_if_unchanged),
        rounds_to_pass: power
            .rounds_to_pass
            .map_or_else(|| "out of reach".into(), |rounds| rounds.to_string()),
    })
}

fn others_row(judgement: &Judgement) -> Option<OthersRow> {
    let others = judgement.others?;
    let (better, permutation) = (judgement.better, judgement.permutation);
    Some(OthersRow {
        cell: judgement.cell.clone(),
        candidate: judgement.candidate.clone(),
        model: judgement.estimate.as_ref().map_or_else(
            || "n/a".to_owned(),
            |estimate| words::change(better, estimate.delta),
        ),
        median_paired: words::change(better, others.median_paired),
        ratio_of_medians: words::change(better, others.ratio_of_medians),
        hodges_lehmann: words::change(better, others.hodges_lehmann),
        permutation: permutation.map_or_else(String::new, |one| {
            words::p_value(one.p_direction, one.floor_direction)
        }),
        permutation_gate: permutation.map_or_else(String::new, |one| {
            words::p_value(one.p_gate, one.floor_gate)
        }),
    })
}

fn suite(analysis: &Analysis, metric: &str) -> Vec<String> {
    let lines = analysis.suite.iter().filter(|line| line.metric == metric);
    lines
        .map(|line| match &line.mean {
            SuiteMean::Estimate(mean) => format!(
                "{} over all {} cells: {} in the mean of {} rounds.",
                line.candidate,
                line.cells,
                words::estimate(line.better, mean),
                line.rounds
            ),
            SuiteMean::Missing(reason) => {
                format!("{} has no mean over all cells: {reason}.", line.candidate)
            }
        })
        .collect()
}

/// A note when the usual estimators differ in sign or in their side of the gate.
fn disagreement(judgement: &Judgement) -> Option<String> {
    let OtherEstimators {
        median_paired,
        ratio_of_medians,
        hodges_lehmann,
    } = judgement.others?;
    let estimate = judgement.estimate?;
    let all = [
        ("linear model", estimate.delta),
        ("median of paired changes", median_paired),
        ("ratio of medians", ratio_of_medians),
        ("Hodges–Lehmann", hodges_lehmann),
    ];
    let differ = |side: &dyn Fn(f64) -> bool| {
        all.iter().any(|(_, delta)| side(*delta)) && all.iter().any(|(_, delta)| !side(*delta))
    };
    let what = match (
        differ(&|delta| delta >= judgement.tau),
        differ(&|delta| delta > 0.0),
    ) {
        (true, _) => "lie on both sides of the gate",
        // Around zero the sign says nothing unless the direction was proven.
        (false, true) if judgement.direction != Direction::Undetermined => "differ in sign",
        _ => return None,
    };
    let list: Vec<String> = all
        .iter()
        .map(|(name, delta)| format!("{name} {}", words::change(judgement.better, *delta)))
        .collect();
    Some(format!(
        "{} in cell {}: the estimators {what} ({}). The linear model decides.",
        judgement.candidate,
        judgement.cell,
        list.join(", ")
    ))
}
