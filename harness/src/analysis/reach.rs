//! Before a run: how little noise its gate needs, and what the noise that this host is
//! known for will let it see. Pure.

use crate::experiment::control::clock;
use crate::experiment::model::Metric;
use crate::history::known::{KnownCell, KnownNoise};
use crate::record::format::{Plan, PlannedArm};
use crate::stats::linear_model::SlotEffect;
use crate::stats::null_calibration::inflation;
use crate::verdict::decide::tau;
use crate::verdict::foresight::{Comparison, GATEABLE, PlannedShape, WANTED};
use crate::verdict::rule::{Power, Rule};

use super::from_record::rule;

/// What the gate needs to be reachable in one gated comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Reach {
    /// Metric name.
    pub metric: String,
    /// Candidate arm.
    pub candidate: String,
    /// Most noise per attempt (standard deviation, natural logarithm); `None` when even
    /// none would be too much.
    pub noise: Option<f64>,
}

/// One per gated metric and candidate that was built, in the plan's order; the same for
/// every cell.
#[must_use]
pub fn reach(plan: &Plan) -> Vec<Reach> {
    let rule = rule(plan);
    comparisons(plan, &rule)
        .into_iter()
        .map(|one| Reach {
            noise: one
                .comparison
                .and_then(|comparison| comparison.tolerable_noise(&rule)),
            metric: one.metric,
            candidate: one.candidate,
        })
        .collect()
}

/// What the rule will see in one gated comparison of one cell, if the noise is what it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// Cell id.
    pub cell: String,
    /// Metric name.
    pub metric: String,
    /// Candidate arm.
    pub candidate: String,
    /// The noise, and how often it was seen.
    pub noise: KnownNoise,
    /// What it lets the rule see; its σ holds the inflation that earlier contrasts ask for.
    pub power: Power,
    /// Whether an unchanged candidate passes often enough for the gate to make sense.
    pub gateable: bool,
}

/// One per cell with known noise, gated metric and candidate; `known` in the order of the
/// plan's cells.
#[must_use]
pub fn forecast(plan: &Plan, known: &[KnownCell]) -> Vec<Forecast> {
    let rule = rule(plan);
    let comparisons = comparisons(plan, &rule);
    let one = |cell: &str, known: &KnownCell, planned: &Planned| {
        let noise = *known.noise.get(&planned.metric)?;
        let mut comparison = planned.comparison?;
        comparison.growth.sigma = noise.sigma * known_inflation(&rule, &planned.metric);
        comparison.family = comparisons.len() * plan.cells.len();
        let power = comparison.power(&rule)?;
        Some(Forecast {
            cell: cell.to_owned(),
            metric: planned.metric.clone(),
            candidate: planned.candidate.clone(),
            noise,
            power,
            gateable: power.pass_if_unchanged >= GATEABLE,
        })
    };
    let cells = plan.cells.iter().zip(known);
    cells
        .flat_map(|(cell, known)| {
            comparisons
                .iter()
                .filter_map(|planned| one(&cell.id, known, planned))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Seconds that an undisturbed run takes, from the time that attempts of the same cells
/// took before; `None` while a cell is unknown.
#[must_use]
pub fn estimated_seconds(plan: &Plan, known: &[KnownCell]) -> Option<f64> {
    let mut treatments: Vec<usize> = built(plan).iter().map(|arm| arm.treatment).collect();
    treatments.sort_unstable();
    treatments.dedup();
    let cells = plan.order.iter().zip(known);
    let seconds = cells.map(|(order, known)| {
        let rounds = order.iter().take(plan.experiment.rounds as usize);
        let attempts: usize = rounds.map(Vec::len).sum();
        // A priming attempt per treatment comes first.
        Some(f64::from(whole(attempts + treatments.len())) * known.attempt_seconds?)
    });
    seconds.sum()
}

fn known_inflation(rule: &Rule, metric: &str) -> f64 {
    let before = rule.null_history.get(metric).map_or(&[][..], Vec::as_slice);
    match rule.null_check {
        Some(check) if before.len() >= check.from_contrasts as usize => inflation(before),
        _ => 1.0,
    }
}

/// A comparison before its noise is known.
struct Planned {
    metric: String,
    candidate: String,
    /// `None` for a threshold without meaning.
    comparison: Option<Comparison>,
}

fn built(plan: &Plan) -> Vec<&PlannedArm> {
    let arms = plan.arms.iter();
    arms.filter(|arm| arm.build.is_some()).collect()
}

/// One per gated metric and candidate that was built, in the plan's order.
fn comparisons(plan: &Plan, rule: &Rule) -> Vec<Planned> {
    let built = built(plan);
    let named = |arm: &&&PlannedArm| arm.name == plan.experiment.base;
    let Some(base) = built.iter().find(named).map(|arm| arm.treatment) else {
        return Vec::new();
    };
    let candidates = || built.iter().filter(move |arm| is_candidate(arm, base));
    let gated = plan.experiment.metrics.iter().filter(|(_, one)| one.gate);
    gated
        .flat_map(|(name, metric)| candidates().map(move |arm| (name, metric, arm)))
        .map(|(name, metric, arm)| Planned {
            metric: name.clone(),
            candidate: arm.name.clone(),
            comparison: tau(metric.better, rule.threshold_pct)
                .map(|tau| comparison(plan, &built, (base, arm.treatment), tau)),
        })
        .collect()
}

fn is_candidate(arm: &PlannedArm, base: usize) -> bool {
    arm.null_of.is_none() && arm.slow_down.is_none() && arm.treatment != base
}

/// How slow the control arm must be made, as δ, so that it is found in every cell and gated
/// metric together with probability [`WANTED`]. The noise is that of a noisy run, as far as
/// the cell is known: by the usual one every second run would see less than it promised. Where nothing is known, the most that the gate bears: with more an unchanged candidate would
/// hardly pass, and nothing is lost if the run is Invalid. `known` is in the order of the
/// plan's cells, or empty. `None` without a control arm, or where the gate cannot be
/// reached at all.
#[must_use]
pub fn control_needs(plan: &Plan, known: &[KnownCell]) -> Option<f64> {
    let rule = rule(plan);
    let built = built(plan);
    let base = built.iter().find(|arm| arm.name == plan.experiment.base)?;
    let control = built.iter().find(|arm| arm.slow_down.is_some())?;
    let treatments = (base.treatment, control.treatment);
    let metrics = plan.experiment.metrics.iter();
    let reached: Vec<(&String, &Metric)> = metrics
        .filter(|(name, metric)| metric.gate && clock(name, metric).is_some())
        .collect();
    let family = comparisons(plan, &rule).len() * plan.cells.len();
    let checks = whole(plan.cells.len() * reached.len()).max(1);
    let wanted = WANTED.powf(1.0 / f64::from(checks));
    let needed = |cell: usize, name: &str, metric: &Metric| {
        let tau = tau(metric.better, rule.threshold_pct)?;
        let mut comparison = comparison(plan, &built, treatments, tau);
        let seen = known.get(cell).and_then(|cell| cell.noise.get(name));
        comparison.growth.sigma = match seen {
            Some(seen) => seen.noisy * known_inflation(&rule, name),
            None => comparison.tolerable_noise(&rule)?,
        };
        comparison.family = family;
        comparison.fails_gate(&rule, wanted)
    };
    let all = (0..plan.cells.len()).flat_map(|cell| reached.iter().map(move |one| (cell, *one)));
    all.filter_map(|(cell, (name, metric))| needed(cell, name, metric))
        .reduce(f64::max)
}

fn comparison(
    plan: &Plan,
    built: &[&PlannedArm],
    (base, candidate): (usize, usize),
    tau: f64,
) -> Comparison {
    let copies = |treatment| {
        whole(
            built
                .iter()
                .filter(|arm| arm.treatment == treatment)
                .count(),
        )
    };
    let mut treatments: Vec<usize> = built.iter().map(|arm| arm.treatment).collect();
    treatments.sort_unstable();
    treatments.dedup();
    let shape = PlannedShape {
        rounds: plan.experiment.rounds,
        arms: whole(built.len()),
        treatments: whole(treatments.len()),
        base_copies: copies(base),
        candidate_copies: copies(candidate),
    };
    // A candidate's chance to pass does not depend on how many others there are.
    let mut comparison = Comparison::planned(shape, 0.0, tau, 1);
    let rounds = plan.experiment.rounds as usize;
    let slots = rule(plan)
        .revision
        .slot_effect(built.len(), rounds, plan.balanced);
    comparison.growth.df_of_effects += match slots {
        Some(SlotEffect::Each) => whole(built.len().saturating_sub(1)),
        Some(SlotEffect::Slope) => 1,
        None => 0,
    };
    comparison
}

fn whole(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::example;

    #[test]
    fn every_gated_comparison_is_told_and_more_rounds_bear_more_noise() {
        let mut plan = example::plan();
        let few = reach(&plan);
        let names: Vec<(&str, &str)> = few
            .iter()
            .map(|one| (one.metric.as_str(), one.candidate.as_str()))
            .collect();
        assert_eq!(names, [("decode_tok_s", "main"), ("decode_tok_s", "sync")]);
        plan.experiment.rounds = 50;
        assert!(reach(&plan)[0].noise > few[0].noise && few[0].noise.is_some());
    }

    fn known(sigma: f64) -> Vec<KnownCell> {
        let noise = KnownNoise {
            sigma,
            noisy: sigma,
            runs: 3,
        };
        vec![
            KnownCell::default(),
            KnownCell {
                attempt_seconds: Some(2.5),
                noise: [("decode_tok_s".to_owned(), noise)].into(),
            },
        ]
    }

    #[test]
    fn known_noise_tells_whether_the_gate_can_be_reached_and_with_how_many_rounds() {
        let plan = example::plan();
        let calm = forecast(&plan, &known(0.002));
        assert_eq!(calm.len(), 2);
        assert_eq!(
            (calm[0].cell.as_str(), calm[0].candidate.as_str()),
            ("2048", "main")
        );
        assert!(calm[0].gateable && calm[0].power.pass_if_unchanged > 0.99);
        let wild = forecast(&plan, &known(0.02));
        assert!(!wild[0].gateable && wild[0].power.rounds_to_pass > Some(20));
    }

    #[test]
    fn a_history_of_copies_that_lie_apart_counts_as_noise() {
        let mut plan = example::plan();
        let apart = crate::record::format::NullContrast { t: 2.0, df: 30.0 };
        let history = &mut plan.noise.as_mut().unwrap().null_history;
        history.insert("decode_tok_s".into(), vec![apart; 20]);
        let seen = forecast(&plan, &known(0.002))[0].power.sigma;
        assert!(seen > 0.0035 && seen < 0.0045, "{seen}");
    }

    #[test]
    fn time_is_estimated_once_every_cell_is_known() {
        let plan = example::plan();
        assert_eq!(estimated_seconds(&plan, &known(0.01)), None);
        let both = vec![known(0.01).remove(1); 2];
        // 2 cells of 5 rounds of 4 arms and 3 priming attempts, 2.5 s each.
        assert_eq!(estimated_seconds(&plan, &both), Some(2.0 * 23.0 * 2.5));
    }

    #[test]
    fn an_arm_that_did_not_build_needs_nothing() {
        let mut plan = example::plan();
        plan.arms[2].build = None;
        let names: Vec<String> = reach(&plan).into_iter().map(|one| one.candidate).collect();
        assert_eq!(names, ["sync"]);
    }
}
