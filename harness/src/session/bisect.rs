//! The experiment of one step of a bisection. Pure.

use crate::experiment::claim::Claims;
use crate::experiment::model::{Experiment, Identical, Nulls};

/// The commit `good` against `head`, a commit and its message, both as the base arm of
/// `experiment`; `number` is the step's, 1-based.
#[must_use]
pub fn step(experiment: &Experiment, good: &str, head: (&str, &str), number: usize) -> Experiment {
    let mut step = experiment.clone();
    let base = step.arms.get(&step.base).cloned().unwrap_or_default();
    let arm = |(rev, label): (&str, &str)| {
        let mut arm = base.clone();
        arm.rev = Some(rev.to_owned());
        arm.label = Some(label.to_owned());
        arm
    };
    step.arms.clear();
    step.arms.insert("good".into(), arm((good, "good")));
    step.arms.insert("head".into(), arm(head));
    step.base = "good".into();
    step.nulls = Nulls::Some(vec!["good".into()]);
    step.identical = Identical::AsNull;
    step.claim = Claims::default();
    step.control = None;
    // A step is one look: what stays open is measured again.
    step.rounds = step.looks.last().copied().unwrap_or(step.rounds);
    step.looks = Vec::new();
    step.confirm = false;
    // Every run at a commit is one of its own, also in order.
    step.seed = step.seed.wrapping_add(number as u64);
    step
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::example;

    #[test]
    fn both_arms_are_the_base_at_two_commits_and_no_two_steps_have_one_order() {
        let mut experiment = example::plan().experiment;
        experiment.looks = vec![3, 8];
        experiment.confirm = true;
        let first = step(&experiment, "aaa", ("bbb", "what it says"), 1);
        let names: Vec<&str> = first.arms.keys().map(String::as_str).collect();
        assert_eq!((names, first.base.as_str()), (vec!["good", "head"], "good"));
        let base = &experiment.arms["base"];
        for (name, rev) in [("good", "aaa"), ("head", "bbb")] {
            let arm = &first.arms[name];
            assert_eq!(arm.rev.as_deref(), Some(rev));
            assert_eq!((&arm.env, &arm.requires), (&base.env, &base.requires));
        }
        assert_eq!(
            (first.rounds, first.looks.len(), first.confirm),
            (8, 0, false)
        );
        let second = step(&experiment, "aaa", ("bbb", "what it says"), 2);
        assert_ne!(first.seed, second.seed);
    }
}
