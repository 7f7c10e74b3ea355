//! What calibration runs show: how often the rule errs on two copies of one program, and how
//! often it finds a slow-down of known size. Pure.
//!
//! Every run holds, beside the base and its null arm, the same program once more as a
//! candidate, a positive control, and one arm per size of injected slow-down. For each
//! question the arms that an ordinary run would not have are left out, so that the answer
//! is that of an ordinary run: base, null arm, candidate, and the control where it is asked for.

use serde::Serialize;

use crate::record::format::{Attempt, Plan};
use crate::record::rounds::OutOfStep;
use crate::stats::quantile::median;
use crate::verdict::decide::{Decision, decide_all};
use crate::verdict::foresight::{Comparison, PlannedShape};
use crate::verdict::rule::{CellData, Direction, Gate, Judgement, Rule};

use super::from_record::{analyse, rule};

/// The injected slow-downs, in units of the detectable effect that the pilot runs printed.
pub const MULTIPLES: [f64; 4] = [0.5, 1.0, 2.0, 4.0];

/// The candidate that is the base's own program.
pub const SAME: &str = "same";

/// The name of the arm with an injected slow-down.
#[must_use]
pub fn injected_name(multiple: f64) -> String {
    format!("x{multiple}")
}

/// One comparison of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Estimate of the slow-down, δ.
    pub delta: f64,
    /// What was said about its direction.
    pub direction: Direction,
    /// What the gate said.
    pub gate: Gate,
    /// Noise of one attempt, natural logarithm.
    pub sigma: f64,
    /// The effect that the run called detectable nine times in ten.
    pub detectable: f64,
    /// The effect that the run said would fail the gate nine times in ten.
    pub fails_gate: f64,
}

/// What one run showed, over all its cells and gated metrics.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunFigures {
    /// Copies of one program compared; `None` where nothing could be judged.
    pub same: Vec<Option<Seen>>,
    /// Whether the control was found.
    pub control: Vec<bool>,
    /// Per entry of [`MULTIPLES`], the injected slow-downs.
    pub injected: Vec<Vec<Option<Seen>>>,
}

/// Reads the figures off the rows of one run.
///
/// # Errors
/// Rows that do not follow from the plan.
pub fn figures(plan: &Plan, attempts: &[Attempt]) -> Result<RunFigures, OutOfStep> {
    let data = analyse(plan, attempts)?.data;
    let rule = rule(plan);
    let gated = || data.iter().filter(|data| data.gated);
    let judge = |data: &CellData, candidate: &str| {
        decide_all(&[as_run_with(data, candidate, false)], &rule)
    };
    let seen = |data: &CellData, candidate: &str| {
        judge(data, candidate).judgements.first().and_then(seen_in)
    };
    Ok(RunFigures {
        same: gated().map(|data| seen(data, SAME)).collect(),
        control: gated().flat_map(|data| found(data, &rule)).collect(),
        injected: MULTIPLES
            .iter()
            .map(|multiple| {
                let name = injected_name(*multiple);
                gated().map(|data| seen(data, &name)).collect()
            })
            .collect(),
    })
}

fn found(data: &CellData, rule: &Rule) -> Vec<bool> {
    let Decision { controls, .. } = decide_all(&[as_run_with(data, SAME, true)], rule);
    controls.iter().map(|check| check.found).collect()
}

fn seen_in(judgement: &Judgement) -> Option<Seen> {
    let power = judgement.power?;
    Some(Seen {
        delta: judgement.estimate?.delta,
        direction: judgement.direction,
        gate: judgement.gate,
        sigma: power.sigma,
        detectable: power.detectable,
        fails_gate: power.fails_gate,
    })
}

/// The cell as an ordinary run with this candidate would have measured it.
fn as_run_with(data: &CellData, candidate: &str, with_control: bool) -> CellData {
    let is_control = |name: &str| name.ends_with("-control");
    let keep: Vec<usize> = (0..data.arms.len())
        .filter(|&arm| {
            let copy = &data.arms[arm];
            arm == data.base
                || copy.null_of.is_some()
                || copy.name == candidate
                || with_control && is_control(&copy.name)
        })
        .collect();
    let pick = |row: &Vec<f64>| keep.iter().map(|&arm| row[arm]).collect();
    let place = |arm: usize| keep.iter().position(|&kept| kept == arm);
    let mut arms: Vec<_> = keep.iter().map(|&arm| data.arms[arm].clone()).collect();
    for arm in arms.iter_mut().filter(|arm| arm.name == candidate) {
        arm.declared = true;
        arm.injected = None;
    }
    CellData {
        base: place(data.base).unwrap_or(0),
        rounds: data.rounds.iter().map(pick).collect(),
        // Slots are not 0 to n any more, and enter no unbalanced model.
        slots: Vec::new(),
        balanced: false,
        invalid: data
            .invalid
            .iter()
            .filter_map(|(arm, reason)| Some((place(*arm)?, reason.clone())))
            .collect(),
        arms,
        ..data.clone()
    }
}

/// What the pilot runs settle before the others begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sizes {
    /// The detectable effect that they printed, δ; the median.
    pub detectable: f64,
    /// The effect that fails the gate nine times in ten in the noisiest of them, δ: a control is
    /// to be found in noisy runs as well.
    pub fails_gate: f64,
}

/// The sizes that pilot runs give; `None` when none of them could be judged.
#[must_use]
pub fn sizes(pilots: &[RunFigures]) -> Option<Sizes> {
    let seen: Vec<Seen> = pilots
        .iter()
        .flat_map(|run| run.same.iter().flatten().copied())
        .collect();
    let middle = |of: &dyn Fn(&Seen) -> f64| median(&seen.iter().map(of).collect::<Vec<_>>());
    Some(Sizes {
        detectable: middle(&|seen| seen.detectable)?,
        fails_gate: seen.iter().map(|seen| seen.fails_gate).reduce(f64::max)?,
    })
}

/// All runs together: what the page and its JSON say.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// Runs, pilots left out.
    pub runs: usize,
    /// Rounds of each.
    pub rounds: u32,
    /// Error level.
    pub alpha: f64,
    /// The gate in percent.
    pub threshold_pct: f64,
    /// Median noise of one attempt in percent.
    pub noise_pct: f64,
    /// The effect that the pilot runs called detectable, as a slow-down in percent.
    pub detectable_pct: f64,
    /// The same as the later runs printed it, the median.
    pub detectable_later_pct: f64,
    /// Two copies of one program.
    pub same: Answers,
    /// Slow-down of the control in percent.
    pub control_pct: f64,
    /// Controls that were found.
    pub control_found: usize,
    /// Controls that could have been.
    pub control_of: usize,
    /// One per [`MULTIPLES`].
    pub injected: Vec<Injected>,
}

/// An injected slow-down over all runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Injected {
    /// In units of the detectable effect.
    pub multiple: f64,
    /// In percent.
    pub pct: f64,
    /// Share that the rule promises to call slower, with the median noise.
    pub promised: Option<f64>,
    /// What came of it.
    pub answers: Answers,
}

/// What the rule said about one thing, run after run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Answers {
    /// Comparisons that could be judged.
    pub judged: usize,
    /// Those that could not.
    pub invalid: usize,
    /// Called slower.
    pub slower: usize,
    /// Called faster.
    pub faster: usize,
    /// Failed the gate.
    pub fails: usize,
    /// Passed the gate.
    pub passes: usize,
    /// The estimates as slow-downs in percent, in the order of the runs.
    pub changes_pct: Vec<f64>,
}

fn answers<'a>(seen: impl Iterator<Item = &'a Option<Seen>>) -> Answers {
    let mut sum = Answers::default();
    for one in seen {
        let Some(one) = one else {
            sum.invalid += 1;
            continue;
        };
        sum.judged += 1;
        sum.slower += usize::from(one.direction == Direction::Slower);
        sum.faster += usize::from(one.direction == Direction::Faster);
        sum.fails += usize::from(one.gate == Gate::Fail);
        sum.passes += usize::from(one.gate == Gate::Pass);
        sum.changes_pct.push(percent(one.delta));
    }
    sum
}

/// Sums up the runs of `plan`, which is the sealed plan of any of them.
#[must_use]
pub fn summary(plan: &Plan, sizes: Sizes, runs: &[RunFigures]) -> Calibration {
    let rule = rule(plan);
    let seen: Vec<Seen> = runs
        .iter()
        .flat_map(|run| run.same.iter().flatten().copied())
        .collect();
    let middle = |of: &dyn Fn(&Seen) -> f64| {
        median(&seen.iter().map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    };
    let sigma = middle(&|seen| seen.sigma);
    let slow_down = |name: &str| {
        let arm = plan.arms.iter().find(|arm| arm.name == name);
        arm.and_then(|arm| arm.slow_down).map_or(0.0, |it| it.pct)
    };
    let controls = || runs.iter().flat_map(|run| &run.control);
    let injected = MULTIPLES.iter().enumerate().map(|(index, multiple)| {
        let pct = slow_down(&injected_name(*multiple));
        let of_run = |run: &'_ RunFigures| run.injected.get(index).cloned().unwrap_or_default();
        let all: Vec<Option<Seen>> = runs.iter().flat_map(of_run).collect();
        Injected {
            multiple: *multiple,
            pct,
            promised: promised(plan, &rule, sigma, (pct / 100.0).ln_1p()),
            answers: answers(all.iter()),
        }
    });
    let control = plan.arms.iter().find(|arm| arm.name.ends_with("-control"));
    Calibration {
        runs: runs.len(),
        rounds: plan.experiment.rounds,
        alpha: rule.alpha,
        threshold_pct: rule.threshold_pct,
        noise_pct: percent(sigma),
        detectable_pct: percent(sizes.detectable),
        detectable_later_pct: percent(middle(&|seen| seen.detectable)),
        same: answers(runs.iter().flat_map(|run| &run.same)),
        control_pct: control
            .and_then(|arm| arm.slow_down)
            .map_or(0.0, |it| it.pct),
        control_found: controls().filter(|found| **found).count(),
        control_of: controls().count(),
        injected: injected.collect(),
    }
}

/// How often an effect is called slower in a run of base, null arm and candidate.
fn promised(plan: &Plan, rule: &Rule, sigma: f64, delta: f64) -> Option<f64> {
    let shape = PlannedShape {
        rounds: plan.experiment.rounds,
        arms: 3,
        treatments: 2,
        base_copies: 2,
        candidate_copies: 1,
    };
    let gated = plan.experiment.metrics.values().filter(|one| one.gate);
    let family = plan.cells.len() * gated.count();
    Comparison::planned(shape, sigma, 0.0, family).finds(rule, delta)
}

fn percent(delta: f64) -> f64 {
    100.0 * delta.exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::example;
    use crate::session::calibrate;

    const SIZES: Sizes = Sizes {
        detectable: 0.02,
        fails_gate: 0.06,
    };

    fn base() -> Plan {
        let mut plan = example::plan();
        plan.experiment.arms.retain(|name, _| name == "base");
        plan.arms.truncate(2);
        plan
    }

    /// Rows of a run in which every slow-down does what it should, times `strength`.
    fn rows(plan: &Plan, strength: f64) -> Vec<Attempt> {
        let mut rows = example::attempts(plan);
        for (number, row) in rows.iter_mut().enumerate() {
            let arm = plan.arms.iter().find(|arm| arm.name == row.arm).unwrap();
            let pct = arm.slow_down.map_or(0.0, |slow_down| slow_down.pct);
            let wobble = ((number * 37 + 11) % 17) as f64 / 17.0 - 0.5;
            let rate = 100.0 * (1.0 + 0.004 * wobble) / (1.0 + strength * pct / 100.0);
            row.metrics.insert("decode_tok_s".into(), rate);
        }
        rows
    }

    #[test]
    fn every_arm_is_judged_as_if_it_were_the_only_candidate() {
        let plan = calibrate::plan(&base(), Some(SIZES), 1);
        let found = figures(&plan, &rows(&plan, 1.0)).unwrap();
        // Two cells.
        assert_eq!(found.same.len(), 2);
        assert_eq!(found.control, [true, true]);
        for (seen, multiple) in found.injected.iter().zip(MULTIPLES) {
            let seen = seen[0].unwrap();
            assert!((seen.delta - multiple * 0.02).abs() < 0.003, "{seen:?}");
            assert_eq!(seen.direction, Direction::Slower);
        }
        assert_eq!(found.same[0].unwrap().direction, Direction::Undetermined);
    }

    #[test]
    fn the_summary_counts_what_was_found_and_what_was_missed() {
        let plan = calibrate::plan(&base(), Some(SIZES), 1);
        let of = |strength| figures(&plan, &rows(&plan, strength)).unwrap();
        let all = summary(&plan, SIZES, &[of(1.0), of(0.0)]);
        assert_eq!((all.runs, all.control_found, all.control_of), (2, 2, 4));
        assert_eq!((all.same.judged, all.same.slower), (4, 0));
        let twice = &all.injected[2];
        assert_eq!((twice.answers.slower, twice.answers.judged), (2, 4));
        assert!((twice.pct - 100.0 * 0.04_f64.exp_m1()).abs() < 1e-9);
        assert!(twice.promised.unwrap() > 0.99);
        assert!((all.detectable_pct - 100.0 * 0.02_f64.exp_m1()).abs() < 1e-9);
    }

    #[test]
    fn pilots_settle_the_sizes_and_pilots_without_numbers_settle_nothing() {
        let plan = calibrate::plan(&base(), None, 1);
        let pilot = figures(&plan, &rows(&plan, 1.0)).unwrap();
        assert_eq!(pilot.control, Vec::<bool>::new());
        let calm = sizes(std::slice::from_ref(&pilot)).unwrap();
        assert!(0.0 < calm.detectable && calm.detectable < calm.fails_gate);

        let mut noisy = pilot.clone();
        for seen in noisy.same.iter_mut().flatten() {
            seen.fails_gate *= 3.0;
        }
        let all = sizes(&[pilot.clone(), noisy, pilot]).unwrap();
        assert!((all.fails_gate / calm.fails_gate - 3.0).abs() < 1e-9);
        assert_eq!(super::sizes(&[RunFigures::default()]), None);
    }
}
