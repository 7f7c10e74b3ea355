//! The tables of one metric: values and verdicts, power, other estimators.

use indexmap::IndexMap;
use serde::Serialize;

use super::words::{self, Scale, Tone};
use crate::analysis::model::{Analysis, JudgedClaim};
use crate::experiment::model::{Better, Metric};
use crate::stats::quantile::{median, range};
use crate::unit;
use crate::verdict::control::ControlCheck;
use crate::verdict::rule::{CellData, Direction, Judgement, NullBand, OtherEstimators, SuiteMean};

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

/// One arm in one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The cell's id.
    pub cell: String,
    /// True in the first row of a cell.
    pub first: bool,
    /// The arm.
    pub arm: String,
    /// Complete rounds.
    pub rounds: usize,
    /// `median (min..max)`.
    pub value: String,
    /// Change against the base with its interval, or what the arm is instead.
    pub change: String,
    /// Null arms: median and range of the paired change; candidates: the range of all null arms.
    pub null: String,
    /// The smallest effect that the rule sees 9 times in 10.
    pub detectable: String,
    /// In one or a few words; empty for the base and null arms.
    pub verdict: &'static str,
    /// Claimed changes with what became of them, such as `−50.00 %: confirmed`; may be empty.
    pub claim: String,
    /// How the verdict is coloured, where there is one.
    #[serde(skip)]
    pub tone: Option<Tone>,
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
            let scale = scale(metrics, name, &data);
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
                    rows(&data, &judgements, &controls, &scale),
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

fn rows(
    data: &[&CellData],
    judgements: &[&Judgement],
    controls: &[&ControlCheck],
    scale: &Scale,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for cell in data {
        let here: Vec<&Judgement> = judgements
            .iter()
            .copied()
            .filter(|j| j.cell == cell.cell)
            .collect();
        let measured = cell.arms.len();
        for arm in 0..measured {
            let row = row(cell, arm, &here, scale);
            let is_of = |check: &&&ControlCheck| check.cell == cell.cell && check.arm == row.arm;
            rows.push(match controls.iter().find(is_of) {
                Some(check) => control_row(row, check),
                None => row,
            });
        }
        // An arm that never ran (its build failed) still has a verdict to show.
        let absent = here
            .iter()
            .filter(|j| cell.arms.iter().all(|arm| arm.name != j.candidate));
        rows.extend(absent.map(|j| absent_row(j, measured == 0)));
    }
    rows
}

/// Puts what was claimed about an arm in a cell into its row.
fn with_claims(mut rows: Vec<Row>, metric: &str, claims: &[JudgedClaim]) -> Vec<Row> {
    for row in &mut rows {
        let about = claims.iter().filter(|claim| {
            (claim.metric.as_str(), &claim.cell, &claim.candidate) == (metric, &row.cell, &row.arm)
        });
        let texts: Vec<String> = about
            .map(|claim| {
                let change = unit::signed_pct(claim.change_pct);
                format!("{change}: {}", words::claim(claim.verdict))
            })
            .collect();
        row.claim = texts.join("; ");
    }
    rows
}

fn row(cell: &CellData, arm: usize, judgements: &[&Judgement], scale: &Scale) -> Row {
    let copy = &cell.arms[arm];
    let values = values(cell, arm);
    let judgement = judgements.iter().find(|j| j.candidate == copy.name);
    let bands: &[NullBand] = judgements.first().map_or(&[], |j| &j.nulls);
    let own_band = bands.iter().find(|band| band.name == copy.name);
    Row {
        cell: cell.cell.clone(),
        first: arm == 0,
        arm: copy.name.clone(),
        rounds: values.len(),
        value: spread(&values, scale),
        change: match (judgement, &copy.null_of) {
            (
                Some(Judgement {
                    estimate: Some(estimate),
                    better,
                    ..
                }),
                _,
            ) => words::estimate(*better, estimate),
            (Some(_), None) => "n/a".to_owned(),
            (_, Some(of)) => format!("repeats {of}"),
            (None, None) if arm == cell.base => "base".into(),
            (None, None) if copy.injected.is_some() => "control".into(),
            (None, None) => String::new(),
        },
        null: match (own_band, judgement) {
            (Some(band), _) => words::null_band(cell.better, band),
            (None, Some(j)) => all_bands(cell.better, &j.nulls),
            (None, None) => String::new(),
        },
        detectable: judgement
            .and_then(|j| j.power)
            .map(|power| words::size_pct(power.detectable))
            .unwrap_or_default(),
        verdict: judgement.map_or("", |j| words::verdict(j.verdict)),
        claim: String::new(),
        tone: judgement.map(|j| words::tone(j.verdict)),
    }
}

/// The row of a control arm in a metric that must find it.
fn control_row(row: Row, check: &ControlCheck) -> Row {
    Row {
        change: check.estimate.as_ref().map_or_else(
            || "n/a".to_owned(),
            |estimate| words::estimate(check.better, estimate),
        ),
        verdict: words::control(check.found),
        tone: Some(words::control_tone(check.found)),
        ..row
    }
}

/// Whether any arm of a cell has a value.
pub(crate) fn has_values(cell: &CellData) -> bool {
    (0..cell.arms.len()).any(|arm| !values(cell, arm).is_empty())
}

/// The values of one arm in complete rounds; an arm that is out of a cell has none.
pub(crate) fn values(cell: &CellData, arm: usize) -> Vec<f64> {
    let rounds = cell.rounds.iter();
    rounds
        .filter_map(|round| round.get(arm).copied())
        .filter(|value| value.is_finite())
        .collect()
}

fn absent_row(judgement: &Judgement, first: bool) -> Row {
    Row {
        cell: judgement.cell.clone(),
        first,
        arm: judgement.candidate.clone(),
        rounds: 0,
        value: "none".into(),
        change: String::new(),
        null: String::new(),
        detectable: String::new(),
        verdict: words::verdict(judgement.verdict),
        claim: String::new(),
        tone: Some(words::tone(judgement.verdict)),
    }
}

fn spread(values: &[f64], scale: &Scale) -> String {
    let (Some(middle), Some((low, high))) = (median(values), range(values)) else {
        return "none".into();
    };
    match scale.show_alike(&[middle, low, high]).as_slice() {
        [middle, low, high] => format!("{middle} ({low}..{high})"),
        _ => String::new(),
    }
}

/// The range over all null arms.
fn all_bands(better: Better, bands: &[NullBand]) -> String {
    let lows: Vec<f64> = bands.iter().map(|band| band.low).collect();
    let highs: Vec<f64> = bands.iter().map(|band| band.high).collect();
    match (range(&lows), range(&highs)) {
        (Some((low, _)), Some((_, high))) => words::range(better, low, high),
        _ => "n/a".into(),
    }
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
