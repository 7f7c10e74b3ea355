//! The positive control: an injected slow-down that the very rule must find.
//!
//! A rule that always says "unresolved" never errs, and a metric that does not follow the
//! program's speed never shows a regression. So a run may carry an arm that is known to be
//! slower. It is judged as a candidate is; found means that its gate fails. Where it is not
//! found, nothing else that the run says can be trusted.

use serde::Serialize;

use super::decide::{Weighed, comparison};
use super::foresight::WANTED;
use super::measure::Found;
use super::rule::{DecidedAt, Direction, Estimate, Gate, Judgement, Rule, Verdict};
use super::sentence::metric_change;
use crate::experiment::model::Better;
use crate::unit;

/// What became of the control in one (cell, metric).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ControlCheck {
    /// Cell id.
    pub cell: String,
    /// The control arm.
    pub arm: String,
    /// Metric name.
    pub metric: String,
    /// Which way is better.
    pub better: Better,
    /// δ that was injected.
    pub injected: f64,
    /// δ that was measured; `None` when nothing could be estimated.
    pub estimate: Option<Estimate>,
    /// Smallest δ that fails the gate with probability 90 %, with the noise that was measured.
    pub fails_gate: Option<f64>,
    /// Whether it failed the gate.
    pub found: bool,
    /// The stage that it was looked for in, where the run had several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looked_at: Option<DecidedAt>,
    /// What became of it, in one sentence.
    pub sentence: String,
}

/// `None` where the gate does not look or the slow-down does not reach.
pub(super) fn check(one: &Weighed<'_>, rule: &Rule, family: usize) -> Option<ControlCheck> {
    let data = one.data;
    let arm = &data.arms[one.candidate];
    let injected = arm
        .injected
        .filter(|injected| data.gated && injected.reaches)?;
    let found = one.gate == Gate::Fail;
    let estimate = one.found.numbers().map(|numbers| numbers.estimate);
    let fails_gate = comparison(one, family).and_then(|it| it.fails_gate(rule, WANTED));
    let mut check = ControlCheck {
        cell: data.cell.clone(),
        arm: arm.name.clone(),
        metric: data.metric.clone(),
        better: data.better,
        injected: injected.delta,
        estimate,
        fails_gate,
        found,
        looked_at: None,
        sentence: String::new(),
    };
    let why = match &one.found {
        Found::Nothing(reason) => reason,
        Found::Identical(_) | Found::Numbers(_) => "no numbers",
    };
    check.sentence = sentence(&check, why);
    Some(check)
}

fn sentence(check: &ControlCheck, why_not: &str) -> String {
    let size = |delta: f64| {
        let change = unit::signed_pct(unit::percent_of(delta));
        change.trim_start_matches('+').to_owned()
    };
    let injected = size(check.injected);
    let ControlCheck { arm, metric, .. } = check;
    let Some(estimate) = check.estimate else {
        return format!(
            "The positive control `{arm}` (slowed down by {injected}) could not be judged: {why_not}."
        );
    };
    let shown = shown(&estimate, check.better);
    if check.found {
        return format!(
            "The positive control was found: `{arm}` was slowed down by {injected}, and {metric} shows {shown}.",
        );
    }
    let needed = check.fails_gate.map_or_else(String::new, |needed| {
        let needed = size(needed);
        format!("; with the noise of this run {needed} is found nine times in ten")
    });
    format!(
        "The positive control was missed: `{arm}` was slowed down by {injected}, but {metric} shows {shown}{needed}.",
    )
}

/// `−2.91 % (−3.20 % to −2.62 %)`: the metric's own change, the smaller end first.
fn shown(estimate: &Estimate, better: Better) -> String {
    let (from, to) = match better {
        Better::Higher => (estimate.high, estimate.low),
        Better::Lower => (estimate.low, estimate.high),
    };
    let [delta, from, to] = [estimate.delta, from, to].map(|delta| metric_change(delta, better));
    format!("{delta} ({from} to {to})")
}

/// Makes every judgement Invalid where a control was missed, and says why.
pub(super) fn withdraw_if_missed(judgements: &mut [Judgement], controls: &[ControlCheck]) {
    let missed: Vec<&ControlCheck> = controls.iter().filter(|check| !check.found).collect();
    let Some(first) = missed.first() else {
        return;
    };
    let more = match missed.len() - 1 {
        0 => String::new(),
        more => format!(", nor in {more} more"),
    };
    let reason = format!(
        "the positive control, known to be slower, was not found by {} in cell {}{more}",
        first.metric, first.cell
    );
    for judgement in judgements.iter_mut() {
        // What is Invalid for a reason of its own keeps that.
        if judgement.verdict != Verdict::Invalid {
            withdraw(judgement, &reason);
        }
    }
}

/// The estimate stays for the reader; it decides nothing any more.
pub fn withdraw(judgement: &mut Judgement, reason: &str) {
    judgement.direction = Direction::Undetermined;
    judgement.gate = Gate::Undecided;
    judgement.verdict = Verdict::Invalid;
    judgement.sentence = format!(
        "No verdict on {} of `{}`: {reason}.",
        judgement.metric, judgement.candidate
    );
}

#[cfg(test)]
mod tests {
    use super::super::decide::{decide, decide_all};
    use super::super::example::{RULE, noisy};
    use super::super::rule::{ArmCopy, CellData, Injected};
    use super::*;

    /// `main` at `candidate`, and a control at `control`, which claims to be 3 % slower.
    fn with_control(candidate: f64, control: f64) -> CellData {
        let mut cell = noisy("wall_s", Better::Lower, 100.0, candidate);
        let other = noisy("wall_s", Better::Lower, 100.0, control);
        cell.arms.push(ArmCopy {
            name: "base-control".into(),
            treatment: 2,
            null_of: None,
            declared: false,
            injected: Some(Injected {
                delta: 0.03_f64.ln_1p(),
                reaches: true,
            }),
        });
        for ((row, slots), other) in cell
            .rounds
            .iter_mut()
            .zip(&mut cell.slots)
            .zip(other.rounds)
        {
            row.push(other[2]);
            slots.push(3);
        }
        cell
    }

    #[test]
    fn a_control_that_is_found_leaves_the_verdicts_alone() {
        let decision = decide_all(&[with_control(100.0, 103.0)], &RULE);
        assert_eq!(decision.judgements.len(), 1, "a control is no candidate");
        assert_eq!(decision.judgements[0].verdict, Verdict::Equivalent);
        assert!(decision.controls[0].found);
        insta::assert_snapshot!(decision.controls[0].sentence, @"The positive control was found: `base-control` was slowed down by 3.00 %, and wall_s shows +3.00 % (+2.93 % to +3.08 %).");
    }

    #[test]
    fn a_missed_control_makes_every_verdict_invalid() {
        let missed = with_control(103.0, 100.2);
        let other = noisy("cpu_s", Better::Lower, 100.0, 97.0);
        let decision = decide_all(&[missed, other], &RULE);
        for judgement in &decision.judgements {
            assert_eq!(judgement.verdict, Verdict::Invalid);
            assert_eq!(judgement.gate, Gate::Undecided);
        }
        insta::assert_snapshot!(decision.judgements[0].sentence, @"No verdict on wall_s of `main`: the positive control, known to be slower, was not found by wall_s in cell 2048.");
        insta::assert_snapshot!(decision.controls[0].sentence, @"The positive control was missed: `base-control` was slowed down by 3.00 %, but wall_s shows +0.20 % (+0.13 % to +0.28 %); with the noise of this run 1.04 % is found nine times in ten.");
    }

    #[test]
    fn the_interval_of_a_rate_has_its_smaller_end_first() {
        let estimate = Estimate {
            delta: 0.03,
            standard_error: 0.01,
            degrees_of_freedom: 9.0,
            low: 0.01,
            high: 0.05,
            upper_bound: 0.048,
            lower_bound: 0.012,
        };
        let rate = shown(&estimate, Better::Higher);
        assert_eq!(rate, "−2.96 % (−4.88 % to −1.00 %)");
        assert_eq!(
            shown(&estimate, Better::Lower),
            "+3.05 % (+1.01 % to +5.13 %)"
        );
    }

    #[test]
    fn a_control_takes_no_part_of_alpha_and_is_tested_as_hard_as_the_first_step() {
        let cells = [with_control(100.5, 103.0), with_control(100.0, 103.0)];
        let mut without = cells.clone();
        for cell in &mut without {
            cell.arms[3].injected.as_mut().unwrap().reaches = false;
        }
        let (with, without) = (decide(&cells, &RULE), decide(&without, &RULE));
        assert_eq!(with, without);
        assert_eq!(with[0].p_adjusted, with[0].p.map(|p| (2.0 * p).min(1.0)));
    }

    #[test]
    fn a_metric_that_a_slow_down_cannot_move_needs_no_control() {
        let mut cell = with_control(100.0, 100.0);
        cell.arms[3].injected = Some(Injected {
            delta: 0.03,
            reaches: false,
        });
        let decision = decide_all(&[cell], &RULE);
        assert_eq!(decision.controls, vec![]);
        assert_eq!(decision.judgements[0].verdict, Verdict::Equivalent);
    }

    #[test]
    fn a_control_without_numbers_is_missed() {
        let mut cell = with_control(100.0, 103.0);
        cell.invalid.push((3, "it printed nothing".into()));
        let decision = decide_all(&[cell], &RULE);
        assert_eq!(decision.judgements[0].verdict, Verdict::Invalid);
        insta::assert_snapshot!(decision.controls[0].sentence, @"The positive control `base-control` (slowed down by 3.00 %) could not be judged: it printed nothing.");
    }
}
