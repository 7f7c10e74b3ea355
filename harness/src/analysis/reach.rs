//! Before a run: how little noise its gate needs. Pure.

use crate::record::format::{Plan, PlannedArm};
use crate::verdict::decide::tau;
use crate::verdict::foresight::{Comparison, PlannedShape};

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
    let built: Vec<&PlannedArm> = plan.arms.iter().filter(|arm| arm.build.is_some()).collect();
    let named = |arm: &&&PlannedArm| arm.name == plan.experiment.base;
    let Some(base) = built.iter().find(named).map(|arm| arm.treatment) else {
        return Vec::new();
    };
    let candidates = || {
        built
            .iter()
            .filter(move |arm| arm.null_of.is_none() && arm.treatment != base)
    };
    let gated = plan.experiment.metrics.iter().filter(|(_, one)| one.gate);
    gated
        .flat_map(|(name, metric)| candidates().map(move |arm| (name, metric, arm)))
        .map(|(name, metric, arm)| Reach {
            metric: name.clone(),
            candidate: arm.name.clone(),
            noise: tau(metric.better, rule.threshold_pct).and_then(|tau| {
                comparison(plan, &built, (base, arm.treatment), tau).tolerable_noise(&rule)
            }),
        })
        .collect()
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
    if plan.balanced {
        comparison.growth.df_of_effects += whole(built.len().saturating_sub(1));
    }
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

    #[test]
    fn an_arm_that_did_not_build_needs_nothing() {
        let mut plan = example::plan();
        plan.arms[2].build = None;
        let names: Vec<String> = reach(&plan).into_iter().map(|one| one.candidate).collect();
        assert_eq!(names, ["sync"]);
    }
}
