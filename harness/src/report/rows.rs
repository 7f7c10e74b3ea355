//! The rows of one metric: per cell and arm its values, its change and its verdict.

use serde::Serialize;

use super::words::{self, Scale, Tone};
use crate::analysis::model::JudgedClaim;
use crate::analysis::stage_data::{self, StageData, check_beside, stage_of};
use crate::experiment::model::Better;
use crate::stats::quantile::{median, range};
use crate::unit;
use crate::verdict::control::ControlCheck;
use crate::verdict::rule::{CellData, Judgement, NullBand};

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
    /// Of which stage they are, where the rows of the cell are of several; else empty.
    pub stage: String,
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

/// One row per arm of every cell in `data`, in its order.
pub(super) fn rows(
    data: &[&CellData],
    stages: &[&StageData],
    judgements: &[&Judgement],
    controls: &[&ControlCheck],
    scale: &Scale,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for cell in data {
        let here = |name: &str| name == cell.cell;
        let of_cell = OfCell {
            latest: cell,
            stages: filtered(stages, |stage| here(&stage.data.cell)),
            judgements: filtered(judgements, |j| here(&j.cell)),
            controls: filtered(controls, |check| here(&check.cell)),
        };
        let measured = cell.arms.len();
        rows.extend((0..measured).map(|arm| of_cell.row(arm, scale)));
        // An arm that never ran (its build failed) still has a verdict to show.
        let absent = of_cell
            .judgements
            .iter()
            .filter(|j| cell.arms.iter().all(|arm| arm.name != j.candidate));
        rows.extend(absent.map(|j| absent_row(j, measured == 0)));
    }
    rows
}

fn filtered<'a, T>(all: &[&'a T], keep: impl Fn(&T) -> bool) -> Vec<&'a T> {
    all.iter().copied().filter(|one| keep(one)).collect()
}

/// Puts what was claimed about an arm in a cell into its row.
pub(super) fn with_claims(mut rows: Vec<Row>, metric: &str, claims: &[JudgedClaim]) -> Vec<Row> {
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

/// One cell of a metric.
struct OfCell<'a> {
    latest: &'a CellData,
    /// The numbers of every stage, where several judged it.
    stages: Vec<&'a StageData>,
    judgements: Vec<&'a Judgement>,
    controls: Vec<&'a ControlCheck>,
}

impl OfCell<'_> {
    /// The row of an arm, with the numbers of the stage that its answer stems from.
    fn row(&self, arm: usize, scale: &Scale) -> Row {
        let name = &self.latest.arms[arm].name;
        let latest = stage_data::latest(self.judgements.iter().copied());
        let checks = self.controls.iter().copied();
        let checks = checks.filter(|check| check.arm == *name);
        let check = latest.map_or(checks.clone().next(), |latest| check_beside(checks, latest));
        let judgement = self.judgements.iter().find(|j| j.candidate == *name);
        let looked_at = check.map(|check| check.looked_at);
        let answer = judgement.map(|j| j.decided_at).or(looked_at);
        let of = |stage: &&&StageData| Some(stage.kind) == answer.map(stage_of);
        let stage = self.stages.iter().find(of).or(self.stages.last());
        let data = stage.map_or(self.latest, |stage| &stage.data);
        let row = Row {
            stage: stage.map_or_else(String::new, |stage| words::of_stage(stage.kind)),
            ..row(data, arm, &self.judgements, scale)
        };
        match check {
            Some(check) => control_row(row, check),
            None => row,
        }
    }
}

fn row(cell: &CellData, arm: usize, judgements: &[&Judgement], scale: &Scale) -> Row {
    let copy = &cell.arms[arm];
    let values = values(cell, arm);
    let judgement = judgements.iter().find(|j| j.candidate == copy.name);
    let latest = judgements.iter().max_by_key(|j| stage_of(j.decided_at));
    let bands: &[NullBand] = latest.map_or(&[], |j| &j.nulls);
    let own_band = bands.iter().find(|band| band.name == copy.name);
    Row {
        cell: cell.cell.clone(),
        first: arm == 0,
        arm: copy.name.clone(),
        rounds: values.len(),
        stage: String::new(),
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
        stage: String::new(),
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

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;
    use crate::analysis::{from_record, looks};
    use crate::record::example;
    use crate::record::format::{Attempt, Plan};

    /// A run of the example plan with `keys` changed; `level` gives an arm's value in a round.
    fn shown(change: fn(&mut Plan), level: fn(&str, u32) -> f64) -> Vec<String> {
        let mut plan = example::plan();
        change(&mut plan);
        plan.cells.truncate(1);
        plan.order.truncate(1);
        let first = plan.order[0].clone();
        plan.order[0].extend(first);
        let mut rows: Vec<Attempt> = Vec::new();
        loop {
            let next = looks::next(&plan, &rows).unwrap();
            let Some(mut row) = example::row(&plan, next, rows.len()) else {
                break;
            };
            let wobble = ((rows.len() * 37 + 11) % 17) as f64 / 17.0 - 0.5;
            let value = level(&row.arm, row.round) * (1.0 + wobble * 0.002);
            row.metrics.insert("decode_tok_s".into(), value);
            rows.push(row);
        }
        let analysis = from_record::analyse(&plan, &rows).unwrap();
        let sections = table::sections(&plan.experiment.metrics, &analysis);
        let row = |row: &Row| {
            let value: &str = row.value.split(' ').next().unwrap();
            let shown = [
                &row.arm,
                &format!("{}{}", row.rounds, row.stage),
                value,
                row.verdict,
            ];
            shown.join(" ").trim_end().to_owned()
        };
        let mut lines: Vec<String> = sections[0].rows.iter().map(row).collect();
        lines.push(format!(
            "{}{}",
            sections[1].rows[0].rounds, sections[1].rows[0].stage
        ));
        lines
    }

    #[test]
    fn what_did_not_fail_is_shown_with_its_own_rounds_beside_what_was_run_again() {
        let rows = shown(
            |plan| plan.experiment.confirm = true,
            // Everything is twice as fast in the fresh rounds.
            |arm, round| match (arm, round > 5) {
                ("main", false) => 95.0,
                ("main", true) => 190.0,
                (_, fresh) => {
                    if fresh {
                        200.0
                    } else {
                        100.0
                    }
                }
            },
        );
        insta::assert_snapshot!(rows.join("\n"), @r"
        base 5, fresh 200.01
        base-null 5, fresh 200.06
        main 5, fresh 189.94 regressed
        sync 5, look 1 100.01 equivalent
        5
        ");
    }

    #[test]
    fn what_was_decided_at_an_earlier_look_is_shown_with_the_rounds_of_that_look() {
        let rows = shown(
            |plan| plan.experiment.looks = vec![3, 5],
            // The candidate that stays open has the cell go on, in which all get faster.
            |arm, round| match (arm, round > 3) {
                ("main", false) => 99.08,
                ("main", true) => 198.16,
                (_, late) => {
                    if late {
                        200.0
                    } else {
                        100.0
                    }
                }
            },
        );
        insta::assert_snapshot!(rows.join("\n"), @r"
        base 5, look 2 100.09
        base-null 5, look 2 100.08
        main 5, look 2 99.097 slower, within threshold
        sync 3, look 1 100.04 equivalent
        5
        ");
    }
}
