//! An effect that somebody published, held against the interval that was measured. Pure;
//! ADR 0019 gives the rule and its error rates.
//!
//! On the claim's own axis the claimed direction is positive: c > 0 is the size of the
//! claim, \[L, U\] the two-sided 1 − α interval of the effect, both as logarithms.

use serde::{Deserialize, Serialize};

use super::rule::Estimate;
use crate::experiment::model::Better;

/// What became of a claim: is its direction proven, and is its size ruled out?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimVerdict {
    /// The direction is proven, the size is not ruled out (L > 0, U ≥ c).
    Confirmed,
    /// The direction is proven, the size is ruled out (L > 0, U < c).
    Smaller,
    /// The direction is not proven, the size is ruled out (L ≤ 0, U < c).
    Contradicted,
    /// Neither (L ≤ 0, U ≥ c), or nothing was estimated.
    NotResolvable,
}

/// A claimed change of a metric, in percent of the base, as δ: natural logarithm, larger
/// is slower. `None` for a change that no value can have (−100 % and below, or none).
#[must_use]
pub fn claimed_delta(better: Better, change_pct: f64) -> Option<f64> {
    let logarithm = (change_pct / 100.0).ln_1p();
    let sign = match better {
        Better::Higher => -1.0,
        Better::Lower => 1.0,
    };
    (logarithm.is_finite() && logarithm != 0.0).then_some(sign * logarithm)
}

/// The verdict on a claim of `claimed` (δ, not 0).
#[must_use]
pub fn judge(claimed: f64, estimate: Option<&Estimate>) -> ClaimVerdict {
    let Some(estimate) = estimate else {
        return ClaimVerdict::NotResolvable;
    };
    let (low, high) = if claimed > 0.0 {
        (estimate.low, estimate.high)
    } else {
        (-estimate.high, -estimate.low)
    };
    match (low > 0.0, high < claimed.abs()) {
        (true, false) => ClaimVerdict::Confirmed,
        (true, true) => ClaimVerdict::Smaller,
        (false, true) => ClaimVerdict::Contradicted,
        (false, false) => ClaimVerdict::NotResolvable,
    }
}

#[cfg(test)]
mod tests {
    use super::super::decide::decide;
    use super::super::example::{RULE, cell};
    use super::*;
    use crate::stats::random::SplitMix64;

    fn of(claimed: f64, low: f64, high: f64) -> ClaimVerdict {
        let middle = f64::midpoint(low, high);
        let estimate = Estimate {
            delta: middle,
            standard_error: (high - low) / 4.0,
            degrees_of_freedom: 9.0,
            low,
            high,
            upper_bound: high,
            lower_bound: low,
        };
        judge(claimed, Some(&estimate))
    }

    #[test]
    fn each_verdict_has_its_place_on_the_axis() {
        for (low, high, want) in [
            (0.02, 0.06, ClaimVerdict::Confirmed),
            (0.06, 0.09, ClaimVerdict::Confirmed),
            (0.01, 0.04, ClaimVerdict::Smaller),
            (-0.01, 0.04, ClaimVerdict::Contradicted),
            (-0.06, -0.01, ClaimVerdict::Contradicted),
            (-0.01, 0.06, ClaimVerdict::NotResolvable),
        ] {
            assert_eq!(of(0.05, low, high), want, "{low}..{high}");
            // A claim of the other direction is the mirror image.
            assert_eq!(of(-0.05, -high, -low), want, "{low}..{high} mirrored");
        }
        assert_eq!(judge(0.05, None), ClaimVerdict::NotResolvable);
    }

    #[test]
    fn a_change_is_turned_into_an_effect_of_the_right_sign() {
        let close = |a: Option<f64>, b: f64| (a.unwrap() - b).abs() < 1e-12;
        assert!(close(claimed_delta(Better::Higher, -50.0), 2.0_f64.ln()));
        assert!(close(claimed_delta(Better::Lower, -50.0), -(2.0_f64.ln())));
        for nothing in [0.0, -100.0, -150.0, f64::NAN, f64::INFINITY] {
            assert_eq!(claimed_delta(Better::Lower, nothing), None);
        }
    }

    /// How often each verdict falls on a claim of 3 % while the effect is `truth`, in runs
    /// of that many rounds with this noise per attempt: confirmed, smaller, contradicted,
    /// not resolvable.
    fn shares(truth: f64, rounds: usize, noise: f64, runs: u32) -> [f64; 4] {
        let mut random = SplitMix64::new(19);
        let mut counts = [0_u32; 4];
        for _ in 0..runs {
            let rows: Vec<[f64; 3]> = (0..rounds)
                .map(|_| {
                    let round = 0.01 * random.normal();
                    let mut value = |effect: f64| (round + effect + noise * random.normal()).exp();
                    [value(0.0), value(0.0), value(truth)]
                })
                .collect();
            let judged = decide(&[cell("wall_s", Better::Lower, &rows)], &RULE).remove(0);
            let verdict = judge(0.03, judged.estimate.as_ref());
            counts[verdict as usize] += 1;
        }
        counts.map(|count| f64::from(count) / f64::from(runs))
    }

    /// A share of `runs` that is at most `bound`, up to the one-sided 99 % binomial margin.
    fn at_most(share: f64, bound: f64, runs: u32) -> bool {
        share <= bound + 2.326 * (bound * (1.0 - bound) / f64::from(runs)).sqrt()
    }

    #[test]
    fn errors_stay_below_half_of_alpha_in_simulation() {
        const RUNS: u32 = 2000;
        for noise in [0.006, 0.02] {
            let [_, smaller, contradicted, _] = shares(0.03, 5, noise, RUNS);
            assert!(
                at_most(smaller + contradicted, 0.025, RUNS),
                "a true claim is called smaller in {smaller} and contradicted in {contradicted}"
            );
            for truth in [0.0, -0.01] {
                let [confirmed, ..] = shares(truth, 5, noise, RUNS);
                assert!(
                    at_most(confirmed, 0.025, RUNS),
                    "{truth}: {confirmed} of empty claims are confirmed"
                );
            }
        }
    }

    #[test]
    #[ignore = "prints the table of ADR 0019"]
    fn figures() {
        for (noise, rounds) in [(0.006, 5), (0.006, 10), (0.02, 5), (0.02, 10)] {
            for truth in [0.03, 0.015, 0.0, -0.015] {
                let shares = shares(truth, rounds, noise, 4000).map(|share| 100.0 * share);
                println!("noise {noise}, {rounds} rounds, true {truth:+.3}: {shares:.1?}");
            }
        }
    }
}
