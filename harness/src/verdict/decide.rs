//! ★ Complete rounds and a sealed rule in, judgements out.
//!
//! Two questions, never mixed. Direction: is δ different from 0, by the
//! Holm-adjusted test? Gate: is the upper bound of δ below τ (pass), or is it
//! slower with an estimate at or beyond τ (fail)? The verdict is the pair of
//! answers in one word. "No significant difference" is never a pass.
//!
//! Deciding comes first and uses nothing but the contrast; power, sentence and
//! other estimators are added to the decided judgement and cannot change it.

use super::control::{self, ControlCheck};
use super::foresight::Comparison;
use super::measure::{Found, Measured, measure, whole};
use super::permutation;
use super::rule::{CellData, Direction, Gate, Judgement, Permutation, Power, Rule, Verdict};
use super::sentence::{self, Facts};
use crate::experiment::model::Better;
use crate::stats::holm::holm;
use crate::stats::log_ratio::{rate_threshold, time_threshold};

/// Judges every candidate of every (cell, metric) against the base.
///
/// A candidate is an arm that is neither the base nor a null arm nor a control. The
/// judgements come in the order of `cells` and of their arms. Holm's family is
/// every gated (cell, candidate, metric), those included that turn out Invalid:
/// a lost cell never makes the others easier to reject. A candidate that is the
/// base again is known before the run, and no test of it is made.
#[must_use]
pub fn decide(cells: &[CellData], rule: &Rule) -> Vec<Judgement> {
    decide_all(cells, rule).judgements
}

/// Everything that was decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// What [`decide`] gives.
    pub judgements: Vec<Judgement>,
    /// One per control arm and gated metric that its slow-down moves, in the order of cells.
    pub controls: Vec<ControlCheck>,
}

/// As [`decide`], with what became of the positive controls. A control that was not found
/// makes every judgement Invalid.
#[must_use]
pub fn decide_all(cells: &[CellData], rule: &Rule) -> Decision {
    let mut decision = decide_raw(cells, rule);
    control::withdraw_if_missed(&mut decision.judgements, &decision.controls);
    decision
}

/// As [`decide_all`], but the judgements know nothing of the controls: at one look of
/// several a control may be found later.
pub(super) fn decide_raw(cells: &[CellData], rule: &Rule) -> Decision {
    let (weighed, controls) = weigh_all(cells, rule);
    let family = family(weighed.iter().map(|one| (one.data, &one.found)));
    let controls: Vec<ControlCheck> = controls
        .iter()
        .filter_map(|one| control::check(one, rule, family))
        .collect();
    let permutations = permutation::permutations(&weighed, rule);
    let judgements = weighed
        .iter()
        .zip(permutations)
        .map(|(one, permutation)| describe(one, permutation, rule, family))
        .collect();
    Decision {
        judgements,
        controls,
    }
}

/// What [`decide_raw`] decides, without what it adds for the reader: for simulations.
#[cfg(test)]
pub(super) fn decide_briefly(cells: &[CellData], rule: &Rule) -> Decision {
    let (weighed, controls) = weigh_all(cells, rule);
    let family = family(weighed.iter().map(|one| (one.data, &one.found)));
    let controls = controls.iter();
    Decision {
        judgements: weighed.iter().map(|one| bare(one, rule)).collect(),
        controls: controls
            .filter_map(|one| control::check(one, rule, family))
            .collect(),
    }
}

/// τ: the gate on the logarithmic scale. `None` for a threshold that makes no
/// sense (negative, not finite, or 100 % and more of a rate).
#[must_use]
pub fn tau(better: Better, threshold_pct: f64) -> Option<f64> {
    match better {
        Better::Higher => rate_threshold(threshold_pct),
        Better::Lower => time_threshold(threshold_pct),
    }
}

/// A decided comparison, before anything is added for the reader.
#[derive(Debug)]
pub(super) struct Weighed<'a> {
    pub(super) data: &'a CellData,
    pub(super) candidate: usize,
    pub(super) found: Found,
    pub(super) p_adjusted: Option<f64>,
    pub(super) direction: Direction,
    pub(super) gate: Gate,
    pub(super) verdict: Verdict,
}

/// A comparison with its numbers, before anything is decided.
type Compared<'a> = (&'a CellData, usize, Found);

/// The candidates and the controls, decided. A control takes nothing from the candidates'
/// α; it is tested as the hardest step of theirs is.
fn weigh_all<'a>(cells: &'a [CellData], rule: &Rule) -> (Vec<Weighed<'a>>, Vec<Weighed<'a>>) {
    let is_control = |(data, arm, _): &Compared<'_>| data.arms[*arm].injected.is_some();
    let (controls, measured): (Vec<_>, Vec<_>) =
        measure(cells, rule).into_iter().partition(is_control);
    let family = family(measured.iter().map(|(data, _, found)| (*data, found)));
    let gated_p: Vec<f64> = measured
        .iter()
        .filter(|(data, ..)| data.gated)
        .filter_map(|(.., found)| found.numbers().map(|numbers| numbers.p))
        .collect();
    let mut gated_adjusted = holm(&gated_p, family).into_iter();
    let candidates = measured.into_iter().map(|compared| {
        let p_adjusted = match compared.2.numbers() {
            Some(_) if compared.0.gated => gated_adjusted.next(),
            numbers => numbers.map(|numbers| numbers.p),
        };
        decided(compared, p_adjusted, rule)
    });
    let candidates = candidates.collect();
    let controls = controls.into_iter().map(|compared| {
        let first_step = |numbers: &Measured| holm(&[numbers.p], family).first().copied();
        let p_adjusted = compared.2.numbers().and_then(first_step);
        decided(compared, p_adjusted, rule)
    });
    (candidates, controls.collect())
}

fn decided<'a>(
    (data, candidate, found): Compared<'a>,
    p_adjusted: Option<f64>,
    rule: &Rule,
) -> Weighed<'a> {
    let (direction, gate, verdict) = answer(&found, p_adjusted, rule.alpha);
    Weighed {
        data,
        candidate,
        found,
        p_adjusted,
        direction,
        gate,
        verdict,
    }
}

/// The comparisons that share α.
fn family<'a>(found: impl Iterator<Item = (&'a CellData, &'a Found)>) -> usize {
    found
        .filter(|(data, found)| data.gated && !matches!(found, Found::Identical(_)))
        .count()
}

/// The table of verdicts.
fn answer(found: &Found, p_adjusted: Option<f64>, alpha: f64) -> (Direction, Gate, Verdict) {
    if matches!(found, Found::Identical(_)) {
        return (Direction::Undetermined, Gate::Pass, Verdict::Identical);
    }
    let (Some(found), Some(p)) = (found.numbers(), p_adjusted) else {
        return (Direction::Undetermined, Gate::Undecided, Verdict::Invalid);
    };
    let estimate = &found.estimate;
    let direction = match p <= alpha {
        true if estimate.delta > 0.0 => Direction::Slower,
        true if estimate.delta < 0.0 => Direction::Faster,
        _ => Direction::Undetermined,
    };
    let gate = if estimate.upper_bound < found.tau {
        Gate::Pass
    } else if direction == Direction::Slower && estimate.delta >= found.tau {
        Gate::Fail
    } else {
        Gate::Undecided
    };
    let verdict = match (direction, gate) {
        (_, Gate::Fail) => Verdict::Regressed,
        (Direction::Slower, Gate::Pass) => Verdict::SlowerWithinThreshold,
        (Direction::Slower, Gate::Undecided) => Verdict::SlowerSizeUndecided,
        (Direction::Faster, Gate::Pass) => Verdict::Improved,
        (Direction::Undetermined, Gate::Pass) if estimate.lower_bound > -found.tau => {
            Verdict::Equivalent
        }
        (Direction::Undetermined, Gate::Pass) => Verdict::NotSlower,
        // A proven gain lies below 0, hence below τ, unless the gate is 0 %.
        (Direction::Undetermined | Direction::Faster, Gate::Undecided) => Verdict::Unresolved,
    };
    (direction, gate, verdict)
}

/// What the power of a decided comparison follows from.
pub(super) fn comparison(one: &Weighed<'_>, family: usize) -> Option<Comparison> {
    one.found.numbers().map(|found| Comparison {
        rounds: whole(one.data.rounds.len()),
        growth: found.growth,
        tau: found.tau,
        family: if one.data.gated { family } else { 1 },
    })
}

/// Adds what the reader needs to a decided comparison.
fn describe(
    one: &Weighed<'_>,
    permutation: Option<Permutation>,
    rule: &Rule,
    family: usize,
) -> Judgement {
    let measured: Option<&Measured> = one.found.numbers();
    let comparison = comparison(one, family);
    let power: Option<Power> = comparison.and_then(|comparison| comparison.power(rule));
    let open = matches!(
        one.verdict,
        Verdict::Unresolved | Verdict::SlowerSizeUndecided
    );
    let rounds_if_as_estimated = match (comparison, measured) {
        (Some(comparison), Some(found)) if open => {
            comparison.rounds_to_decide(rule, found.estimate.delta)
        }
        _ => None,
    };
    let facts = Facts {
        one,
        rule,
        family,
        power,
        rounds_if_as_estimated,
    };
    Judgement {
        sentence: sentence::write(&facts),
        power,
        permutation,
        ..bare(one, rule)
    }
}

/// The decided comparison without what costs time and is only for the reader.
fn bare(one: &Weighed<'_>, rule: &Rule) -> Judgement {
    let data = one.data;
    let measured: Option<&Measured> = one.found.numbers();
    Judgement {
        cell: data.cell.clone(),
        candidate: data.arms[one.candidate].name.clone(),
        metric: data.metric.clone(),
        better: data.better,
        gated: data.gated,
        rounds: whole(data.rounds.len()),
        tau: tau(data.better, rule.threshold_pct).unwrap_or(0.0),
        estimate: measured.map(|found| found.estimate),
        p: measured.map(|found| found.p),
        p_adjusted: one.p_adjusted,
        direction: one.direction,
        gate: one.gate,
        verdict: one.verdict,
        sentence: String::new(),
        decided_at: None,
        power: None,
        noise: measured.map(|found| found.noise),
        others: measured.and_then(|found| found.others),
        permutation: None,
        nulls: match &one.found {
            Found::Numbers(found) => found.nulls.clone(),
            Found::Identical(nulls) => nulls.clone(),
            Found::Nothing(_) => Vec::new(),
        },
    }
}

#[cfg(test)]
mod tests;
