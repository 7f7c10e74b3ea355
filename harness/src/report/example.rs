//! Analyses for tests, made by hand from the example run: what is tested is how
//! numbers are printed, so every kind of verdict is available on demand.

use std::path::Path;

use crate::analysis::model::{Analysis, ArmCounts, DroppedTry, GateOutcome};
use crate::experiment::model::Better;
use crate::record::format::{Attempt, Outcome, Plan};
use crate::record::reader::{self, Record};
use crate::record::{example, store};
use crate::stats::quantile::{median, range};
use crate::verdict::rule::{
    ArmCopy, CellData, Direction, Estimate, Gate, Judgement, NullBand, OtherEstimators,
    Permutation, Power, SuiteLine, SuiteMean, Verdict,
};

pub(crate) const STEM: &str = "window-epyc-2c-2026-03-01";

/// The example run, as it is read back.
pub(crate) fn record() -> Record {
    let plan = example::plan();
    let attempts = example::attempts(&plan);
    record_of(plan, attempts)
}

pub(crate) fn record_of(plan: Plan, attempts: Vec<Attempt>) -> Record {
    let plan_sha256 = store::seal(plan.clone()).unwrap().sha256;
    Record {
        dir: "results/2026-03-01-epyc-2c".into(),
        plan,
        plan_sha256,
        host: example::host(),
        attempts,
        sessions: vec![],
        notes: vec![],
    }
}

/// The example run with another seed, stored below `root` and read back.
pub(crate) fn stored(root: &Path, seed: u64) -> Record {
    let mut plan = example::plan();
    plan.experiment.seed = seed;
    let rows = example::attempts(&plan);
    let directory = example::store(&root.join("results"), &plan, &rows);
    reader::read(directory.path()).unwrap()
}

/// A plain analysis of undisturbed rows: δ is the mean paired log-ratio with a
/// fixed standard error, which is enough to be printed.
pub(crate) fn analysis(record: &Record) -> Analysis {
    let plan = &record.plan;
    let mut data = Vec::new();
    let mut judgements = Vec::new();
    for cell in &plan.cells {
        for metric in plan.experiment.metrics.keys() {
            let cell_data = cell_data(record, &cell.id, metric);
            for (arm, copy) in cell_data.arms.iter().enumerate() {
                if copy.null_of.is_none() && arm != cell_data.base {
                    judgements.push(judgement(&cell_data, arm));
                }
            }
            data.push(cell_data);
        }
    }
    Analysis {
        judgements,
        suite: suite_lines(plan),
        controls: vec![],
        data,
        stages: Vec::new(),
        claims: Vec::new(),
        counts: counts(record),
        dropped: dropped(record),
        gate: GateOutcome::Regressed,
        gate_sentence: "main and sync are slower than the gate allows.".into(),
        notes: vec!["the noise model was not checked: 1 null contrast".into()],
    }
}

/// One line that was estimated and one that could not be.
fn suite_lines(plan: &Plan) -> Vec<SuiteLine> {
    let line = |candidate: &str, mean| SuiteLine {
        metric: "decode_tok_s".into(),
        candidate: candidate.into(),
        better: Better::Higher,
        cells: u32::try_from(plan.cells.len()).unwrap(),
        rounds: plan.experiment.rounds,
        mean,
    };
    vec![
        line("main", SuiteMean::Estimate(estimate(0.012, 0.0025))),
        line(
            "sync",
            SuiteMean::Missing("cell 2048: exit status 3".into()),
        ),
    ]
}

fn counts(record: &Record) -> Vec<ArmCounts> {
    let mut counts: Vec<ArmCounts> = Vec::new();
    for arm in &record.plan.arms {
        let mut line = ArmCounts {
            arm: arm.name.clone(),
            ..ArmCounts::default()
        };
        let rows = record.attempts.iter();
        for row in rows.filter(|row| row.round > 0 && row.arm == arm.name) {
            match row.outcome {
                Outcome::Ok => line.ok += 1,
                Outcome::Rejected { .. } => line.rejected += 1,
                Outcome::Failed { .. } => line.failed += 1,
                Outcome::TimedOut { .. } => line.timed_out += 1,
                Outcome::Invalid { .. } => line.invalid += 1,
            }
        }
        counts.push(line);
    }
    counts
}

fn dropped(record: &Record) -> Vec<DroppedTry> {
    let bad = record
        .attempts
        .iter()
        .filter(|row| row.round > 0 && row.outcome != Outcome::Ok);
    bad.map(|row| DroppedTry {
        cell: row.cell.clone(),
        round: row.round,
        round_try: row.round_try,
        reason: row.arm.clone(),
    })
    .collect()
}

fn cell_data(record: &Record, cell: &str, metric: &str) -> CellData {
    let plan = &record.plan;
    let definition = &plan.experiment.metrics[metric];
    let arms: Vec<ArmCopy> = plan
        .arms
        .iter()
        .map(|arm| ArmCopy {
            name: arm.name.clone(),
            treatment: arm.treatment,
            null_of: arm.null_of.clone(),
            declared: arm.null_of.is_none(),
            injected: None,
        })
        .collect();
    let (mut rounds, mut slots) = (Vec::new(), Vec::new());
    for round in 1..=plan.experiment.rounds {
        for round_try in 1..=3 {
            let rows: Vec<&Attempt> = arms
                .iter()
                .filter_map(|arm| {
                    record.attempts.iter().find(|row| {
                        row.cell == cell
                            && row.arm == arm.name
                            && (row.round, row.round_try) == (round, round_try)
                            && row.outcome == Outcome::Ok
                    })
                })
                .collect();
            if rows.len() == arms.len() {
                rounds.push(rows.iter().map(|row| row.metrics[metric]).collect());
                slots.push(rows.iter().map(|row| row.slot as usize).collect());
            }
        }
    }
    CellData {
        cell: cell.into(),
        metric: metric.into(),
        unit: definition.unit_of(metric).into(),
        better: definition.better,
        gated: definition.gate,
        arms,
        base: 0,
        rounds,
        slots,
        balanced: plan.balanced,
        invalid: vec![],
    }
}

/// Paired δ per round, larger is slower.
fn paired(data: &CellData, arm: usize, reference: usize) -> Vec<f64> {
    let sign = match data.better {
        Better::Higher => -1.0,
        Better::Lower => 1.0,
    };
    let rounds = data.rounds.iter();
    rounds
        .map(|values| sign * (values[arm] / values[reference]).ln())
        .collect()
}

fn judgement(data: &CellData, arm: usize) -> Judgement {
    let deltas = paired(data, arm, data.base);
    let tau = match data.better {
        Better::Higher => -(0.99_f64).ln(),
        Better::Lower => (1.01_f64).ln(),
    };
    let middle = median(&deltas);
    let estimate = middle.map(|delta| estimate(delta, 0.002));
    let slower = middle.is_some_and(|delta| delta > 0.006);
    let nulls = data.arms.iter().enumerate().filter_map(|(null, copy)| {
        copy.null_of.as_ref()?;
        let deltas = paired(data, null, data.base);
        let (low, high) = range(&deltas)?;
        Some(NullBand {
            name: copy.name.clone(),
            median: median(&deltas)?,
            low,
            high,
        })
    });
    Judgement {
        cell: data.cell.clone(),
        candidate: data.arms[arm].name.clone(),
        metric: data.metric.clone(),
        better: data.better,
        gated: data.gated,
        rounds: u32::try_from(data.rounds.len()).unwrap(),
        tau,
        estimate,
        p: Some(0.001),
        p_adjusted: Some(0.002),
        direction: if slower {
            Direction::Slower
        } else {
            Direction::Undetermined
        },
        gate: if slower { Gate::Fail } else { Gate::Pass },
        verdict: if slower {
            Verdict::Regressed
        } else {
            Verdict::Equivalent
        },
        sentence: "What is proven and what is not.".into(),
        decided_at: None,
        power: Some(Power {
            sigma: 0.0025,
            detectable: 0.0061,
            fails_gate: 0.0135,
            pass_if_unchanged: 0.93,
            rounds_to_pass: Some(5),
        }),
        noise: None,
        others: middle.map(|delta| OtherEstimators {
            median_paired: delta,
            ratio_of_medians: delta * 0.98,
            hodges_lehmann: delta * 1.01,
        }),
        permutation: Some(Permutation {
            p_direction: Some(0.0015),
            floor_direction: 0.0005,
            p_gate: None,
            floor_gate: 0.25,
        }),
        nulls: nulls.collect(),
    }
}

pub(crate) fn estimate(delta: f64, standard_error: f64) -> Estimate {
    Estimate {
        delta,
        standard_error,
        degrees_of_freedom: 12.0,
        low: delta - 2.18 * standard_error,
        high: delta + 2.18 * standard_error,
        upper_bound: delta + 1.78 * standard_error,
        lower_bound: delta - 1.78 * standard_error,
    }
}
