//! Joins a record's rows with its plan into the numbers that a verdict needs.

use crate::experiment::control::clock;
use crate::experiment::model::{MIN_ROUNDS, Metric, OnUndecided};
use crate::plan::looks::{Stage, level};
use crate::record::format::{self, Attempt, Plan, PlannedArm, RuleRevision};
use crate::record::rounds::{self, CellRounds, OutOfStep};
use crate::stats::null_calibration::NullContrast;
use crate::verdict::control::withdraw;
use crate::verdict::decide::Decision;
use crate::verdict::rejections::{self, Rejections};
use crate::verdict::rule::{
    ArmCopy, CellData, Injected, Judgement, Moderation, NullCheck, Revision, Rule, Verdict,
};
use crate::verdict::suite::suite;

use super::looks::{Looks, Outcome};
use super::model::{Analysis, ArmCounts, DroppedTry};
use super::{claims, gate};

/// The rule of a plan at one of its stages: each has an equal part of α.
#[must_use]
pub fn rule(plan: &Plan) -> Rule {
    let verdict = &plan.experiment.verdict;
    let noise = plan.noise.as_ref();
    let history = noise.iter().flat_map(|noise| &noise.null_history);
    Rule {
        revision: match noise.map(|noise| noise.revision) {
            Some(RuleRevision::Third) => Revision::Third,
            Some(RuleRevision::Second) => Revision::Second,
            Some(RuleRevision::First) | None => Revision::First,
        },
        threshold_pct: verdict.threshold_pct,
        alpha: level(verdict.alpha, plan.stages().len()),
        min_rounds: MIN_ROUNDS,
        moderation: noise.map(|noise| Moderation {
            from_cells: noise.moderate_from_cells,
            largest_prior: noise.largest_prior,
        }),
        null_check: noise.map(|noise| NullCheck {
            from_contrasts: noise.check_from_contrasts,
            limit: noise.largest_inflation,
        }),
        unequal_noise: noise.is_some_and(|noise| noise.unequal_noise),
        null_history: history
            .map(|(metric, list)| (metric.clone(), list.iter().map(contrast).collect()))
            .collect(),
    }
}

fn contrast(stored: &format::NullContrast) -> NullContrast {
    NullContrast {
        t: stored.t,
        df: stored.df,
    }
}

/// Analyses the rows of a plan. The same rows give the same answer.
///
/// # Errors
/// Rows that do not follow from the plan.
pub fn analyse(plan: &Plan, attempts: &[Attempt]) -> Result<Analysis, OutOfStep> {
    let mut looks = Looks::new(plan);
    let progress = rounds::replay(plan, attempts, &mut |rows, cells, stage| {
        looks.judge(rows, cells, stage)
    })?;
    let cells = progress.cells();
    let counts = counts(plan, attempts);
    let unbalanced = unbalanced(plan, &counts);
    let Outcome {
        decision,
        looked,
        data,
        stages,
    } = looks.finish(attempts, &cells, progress.stage(), &unbalanced);
    let Decision {
        judgements,
        controls,
    } = decision;
    // Of one set of rounds: the last look's has every cell.
    let suite = suite(&looked, &judgements, &rule(plan));
    let claims = claims::judge(plan, &judgements);
    let finished = cells.iter().all(|cell| cell.finished);
    let pass_undecided = plan.experiment.verdict.undecided == OnUndecided::Pass;
    let (outcome, sentence) = match finished {
        true => gate::decide(&judgements, pass_undecided),
        false => gate::unfinished(cells.iter().map(|cell| cell.complete.len()).sum()),
    };
    let dropped = cells
        .iter()
        .flat_map(|rounds| dropped(plan, rounds))
        .collect();
    let mut notes = notes(plan, &cells, finished, &unbalanced);
    notes.extend(unchecked(plan, &judgements));
    Ok(Analysis {
        judgements,
        suite,
        controls,
        data,
        stages,
        claims,
        counts,
        dropped,
        gate: outcome,
        gate_sentence: sentence,
        notes,
    })
}

fn counts(plan: &Plan, attempts: &[Attempt]) -> Vec<ArmCounts> {
    let mut counts: Vec<ArmCounts> = plan
        .arms
        .iter()
        .map(|arm| ArmCounts {
            arm: arm.name.clone(),
            ..ArmCounts::default()
        })
        .collect();
    for row in attempts.iter().filter(|row| row.round > 0) {
        let Some(count) = counts.iter_mut().find(|count| count.arm == row.arm) else {
            continue;
        };
        match row.outcome {
            format::Outcome::Ok => count.ok += 1,
            format::Outcome::Rejected { .. } => count.rejected += 1,
            format::Outcome::Failed { .. } => count.failed += 1,
            format::Outcome::TimedOut { .. } => count.timed_out += 1,
            format::Outcome::Invalid { .. } => count.invalid += 1,
        }
    }
    counts
}

/// The numbers of one metric in one cell that are looked at together at the end of a
/// stage, a column per arm of the plan. An arm that is out has NaN, and stands in `invalid`.
pub(super) fn cell_data(
    plan: &Plan,
    attempts: &[Attempt],
    (rounds, stage): (&CellRounds, &Stage),
    (name, metric): (&str, &Metric),
    unbalanced: &[(usize, String)],
) -> CellData {
    let everyone_in = (0..plan.arms.len()).all(|arm| is_in(plan, rounds, arm));
    let mut values = Vec::new();
    let mut slots = Vec::new();
    let counted = stage.counted_from + 1..=stage.until;
    let complete = rounds.complete.iter();
    for round in complete.filter(|one| counted.contains(&one.round)) {
        let value = |arm: usize| {
            let row = attempts.get(round.attempts[arm]?)?;
            is_in(plan, rounds, arm).then(|| row.metrics.get(name).copied())?
        };
        values.push(
            (0..plan.arms.len())
                .map(|arm| value(arm).unwrap_or(f64::NAN))
                .collect(),
        );
        slots.push(
            round
                .slots
                .iter()
                .map(|slot| slot.map_or(usize::MAX, |slot| slot as usize))
                .collect(),
        );
    }
    CellData {
        cell: plan.cells[rounds.cell].id.clone(),
        metric: name.to_owned(),
        unit: metric.unit_of(name).to_owned(),
        better: metric.better,
        gated: metric.gate,
        base: plan
            .arms
            .iter()
            .position(|arm| arm.name == plan.experiment.base)
            .unwrap_or(0),
        balanced: plan.balanced && everyone_in && values.len() == plan.experiment.rounds as usize,
        invalid: invalid(plan, rounds, unbalanced),
        arms: plan
            .arms
            .iter()
            .map(|arm| copy(plan, arm, (name, metric)))
            .collect(),
        rounds: values,
        slots,
    }
}

fn copy(plan: &Plan, arm: &PlannedArm, (name, metric): (&str, &Metric)) -> ArmCopy {
    ArmCopy {
        declared: plan.experiment.arms.contains_key(&arm.name),
        name: arm.name.clone(),
        treatment: arm.treatment,
        null_of: arm.null_of.clone(),
        injected: arm.slow_down.map(|slow_down| Injected {
            delta: (slow_down.pct / 100.0).ln_1p(),
            reaches: clock(name, metric).is_some(),
        }),
    }
}

/// Built, and neither the arm nor its treatment has been taken out of the cell.
fn is_in(plan: &Plan, rounds: &CellRounds, arm: usize) -> bool {
    let treatment = plan.arms[arm].treatment;
    plan.arms[arm].build.is_some()
        && !rounds
            .out
            .iter()
            .any(|(out, _)| plan.arms[*out].treatment == treatment)
}

/// Takes back what was decided earlier about arms that cannot be judged any more.
pub(super) fn withdraw_invalid(judgements: &mut [Judgement], data: &[CellData]) {
    for judgement in judgements {
        let of = |data: &&CellData| data.cell == judgement.cell && data.metric == judgement.metric;
        let Some(cell) = data.iter().find(of) else {
            continue;
        };
        let name = |arm: usize| cell.arms.get(arm).map(|arm| arm.name.as_str());
        let mut reasons = cell.invalid.iter();
        // Of an identical candidate every copy tells, the base's own too.
        let is_its = |arm: usize| match judgement.verdict {
            Verdict::Identical => cell.is_copy_of_base(arm),
            _ => name(arm) == Some(judgement.candidate.as_str()),
        };
        let own = reasons.find(|(arm, _)| is_its(*arm));
        if let Some((_, reason)) = own
            && judgement.verdict != Verdict::Invalid
        {
            withdraw(judgement, reason);
        }
    }
}

/// Reasons outside the numbers why an arm, by its index, cannot be judged.
fn invalid(
    plan: &Plan,
    rounds: &CellRounds,
    unbalanced: &[(usize, String)],
) -> Vec<(usize, String)> {
    let mut reasons = unbuilt(plan);
    reasons.extend(rounds.invalid(plan));
    reasons.extend(unbalanced.iter().cloned());
    reasons
}

fn unbuilt(plan: &Plan) -> Vec<(usize, String)> {
    let reason = |log: &String| {
        let last = log.lines().rev().find(|line| !line.trim().is_empty());
        format!("it did not build: {}", last.unwrap_or("no log").trim())
    };
    let arms = plan.arms.iter().enumerate();
    arms.filter_map(|(index, arm)| Some((index, reason(arm.build_failure.as_ref()?))))
        .collect()
}

/// Arms whose treatment the guard rejected more often than the base's, with the reason.
fn unbalanced(plan: &Plan, counts: &[ArmCounts]) -> Vec<(usize, String)> {
    let rejections = |treatment: usize| {
        let copies = plan
            .arms
            .iter()
            .zip(counts)
            .filter(|(arm, _)| arm.treatment == treatment);
        copies.fold(
            Rejections {
                attempts: 0,
                rejected: 0,
            },
            |sum, (_, count)| Rejections {
                attempts: sum.attempts + count.ran(),
                rejected: sum.rejected + count.rejected,
            },
        )
    };
    let base = plan
        .arms
        .iter()
        .find(|arm| arm.name == plan.experiment.base);
    let Some(base) = base.map(|arm| arm.treatment) else {
        return Vec::new();
    };
    let arms = plan
        .arms
        .iter()
        .enumerate()
        // A control is slower on purpose: it may well meet more disturbances.
        .filter(|(_, arm)| arm.treatment != base && arm.slow_down.is_none());
    arms.filter_map(|(index, arm)| {
        let reason = rejections::unbalanced(rejections(base), rejections(arm.treatment))?;
        Some((index, reason))
    })
    .collect()
}

fn dropped(plan: &Plan, rounds: &CellRounds) -> Vec<DroppedTry> {
    rounds
        .dropped
        .iter()
        .map(|tried| DroppedTry {
            cell: plan.cells[rounds.cell].id.clone(),
            round: tried.round,
            round_try: tried.round_try,
            reason: tried.reason.clone(),
        })
        .collect()
}

fn notes(
    plan: &Plan,
    cells: &[CellRounds],
    finished: bool,
    unbalanced: &[(usize, String)],
) -> Vec<String> {
    let mut notes = Vec::new();
    if !finished {
        notes.push("this record is not finished: the same command resumes it".to_owned());
    }
    for rounds in cells {
        let cell = &plan.cells[rounds.cell].id;
        if let Some(reason) = &rounds.stopped {
            notes.push(format!("cell {cell} was ended early: {reason}"));
        }
        for (arm, reason) in &rounds.out {
            notes.push(format!(
                "arm {} is out of cell {cell}: {reason}",
                plan.arms[*arm].name
            ));
        }
        if !rounds.lost.is_empty() {
            notes.push(format!(
                "cell {cell} lost {} of {} rounds",
                rounds.lost.len(),
                plan.experiment.rounds
            ));
        }
    }
    for (arm, reason) in unbalanced {
        notes.push(format!("arm {}: {reason}", plan.arms[*arm].name));
    }
    notes
}

/// Gated metrics whose noise was taken on trust.
fn unchecked(plan: &Plan, judgements: &[Judgement]) -> Vec<String> {
    let needed = plan.noise.as_ref().map(|rule| rule.check_from_contrasts);
    let gated = plan.experiment.metrics.iter().filter(|(_, one)| one.gate);
    let gated = gated.map(|(name, _)| name.as_str());
    gated
        .filter_map(|name| unchecked_noise(name, needed, judgements))
        .collect()
}

/// Said where too few copies of one program were compared to check a metric's noise model;
/// `needed` is how many contrasts the rule asks for.
pub(crate) fn unchecked_noise(
    metric: &str,
    needed: Option<u32>,
    judgements: &[Judgement],
) -> Option<String> {
    let mut judged = judgements.iter().filter(|judged| judged.metric == metric);
    let noise = judged.find_map(|judged| judged.noise)?;
    let contrasts = noise.null_contrasts + noise.null_contrasts_before;
    let needed = needed.map_or(String::new(), |needed| format!(", {needed} are needed"));
    noise.inflation.is_none().then(|| {
        format!(
            "the noise model of {metric} is not checked: {contrasts} contrast{} between copies \
             of one program{needed}",
            if contrasts == 1 { "" } else { "s" }
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::example;

    #[test]
    fn a_plan_is_judged_by_the_revision_that_it_names_and_without_a_name_by_the_first() {
        let revision = |named: Option<u32>| {
            let mut plan = serde_json::to_value(example::plan()).unwrap();
            let noise = plan["noise"].as_object_mut().unwrap();
            noise.remove("revision");
            noise.extend(named.map(|number| ("revision".to_owned(), number.into())));
            serde_json::from_value(plan).map(|plan| rule(&plan).revision)
        };
        assert_eq!(revision(None).unwrap(), Revision::First);
        assert_eq!(revision(Some(1)).unwrap(), Revision::First);
        assert_eq!(revision(Some(2)).unwrap(), Revision::Second);
        assert_eq!(revision(Some(3)).unwrap(), Revision::CURRENT);
        let unknown = revision(Some(4)).unwrap_err().to_string();
        assert!(unknown.contains("expected revision 1, 2 or 3"), "{unknown}");
    }
}
