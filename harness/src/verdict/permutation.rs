//! The permutation test of all gated comparisons together, shown beside the verdicts.

use super::decide::Weighed;
use super::measure::Measured;
use super::rule::{Permutation, Rule};
use crate::stats::randomisation::{Exchange, randomise};

/// Seed of the labellings: fixed, so that a record gives the same p for ever.
const SEED: u64 = 0x6c61_6265_6c73;

/// One per decided comparison, in their order.
pub(super) fn permutations(weighed: &[Weighed<'_>], rule: &Rule) -> Vec<Option<Permutation>> {
    let gated = |one: &Weighed<'_>| one.data.gated;
    let tested: Vec<Option<&Measured>> = weighed
        .iter()
        .map(|one| one.found.numbers().filter(|_| gated(one)))
        .collect();
    let family: Vec<(Exchange, f64)> = tested
        .iter()
        .flatten()
        .filter(|found| found.estimate.standard_error > 0.0)
        .map(|found| (found.exchange.clone(), found.tau))
        .collect();
    let mut answers = randomise(&family, SEED).into_iter();
    tested
        .into_iter()
        .map(|found| {
            found.filter(|found| found.estimate.standard_error > 0.0)?;
            let answer = answers.next()??;
            let enough = |p: f64, floor: f64| (floor <= rule.alpha).then_some(p);
            Some(Permutation {
                p_direction: enough(answer.p_direction, answer.floor_direction),
                floor_direction: answer.floor_direction,
                p_gate: enough(answer.p_gate, answer.floor_gate),
                floor_gate: answer.floor_gate,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::decide::decide;
    use super::super::example::{RULE, cell, noisy};
    use crate::experiment::model::Better;

    #[test]
    fn a_proven_loss_and_a_proven_pass_are_seen_by_relabelling_too() {
        let of = |candidate| {
            let cells = [noisy("wall_s", Better::Lower, 100.0, candidate)];
            decide(&cells, &RULE)[0].permutation.unwrap()
        };
        let slower = of(103.0);
        assert!(slower.p_direction.unwrap() < 0.02 && slower.p_gate.unwrap() > 0.9);
        let equal = of(100.0);
        assert!(equal.p_direction.unwrap() > 0.05 && equal.p_gate.unwrap() < 0.02);
    }

    #[test]
    fn too_few_rounds_cannot_say_and_tell_their_floor() {
        let rounds = [
            [100.0, 101.0, 103.0],
            [101.0, 100.0, 104.0],
            [100.5, 100.2, 103.5],
        ];
        let mut data = cell("wall_s", Better::Lower, &rounds);
        data.arms.remove(1);
        for row in data.rounds.iter_mut() {
            row.remove(1);
        }
        let found = decide(&[data], &RULE)[0].permutation.unwrap();
        assert_eq!((found.p_direction, found.floor_direction), (None, 0.25));
        assert_eq!((found.p_gate, found.floor_gate), (None, 0.125));
    }

    #[test]
    fn what_is_not_gated_or_shows_no_noise_is_not_relabelled() {
        let mut shown = noisy("wall_s", Better::Lower, 100.0, 100.0);
        shown.gated = false;
        let exact = cell("peak_bytes", Better::Lower, &[[7.0, 7.0, 8.0]; 4]);
        let gated = noisy("cpu_s", Better::Lower, 100.0, 103.0);
        let judged = decide(&[shown, exact, gated], &RULE);
        assert_eq!((judged[0].permutation, judged[1].permutation), (None, None));
        assert!(judged[2].permutation.unwrap().p_direction.unwrap() < 0.02);
    }
}
