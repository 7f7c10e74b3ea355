//! The other way round: how large an effect, or how many rounds, for a given
//! probability. Root finding on the monotone probabilities of [`super::power`].

use super::power::{Power, Precision, Questions};

/// Nobody runs more rounds than this; beyond it the answer is "not reachable".
pub const MOST_ROUNDS: u32 = 10_000;

/// How the precision of a comparison depends on the number of rounds.
///
/// Holds for any design whose rounds all look alike: the variance falls as 1/R
/// and every further round adds the same degrees of freedom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Growth {
    /// Residual standard deviation of one value.
    pub sigma: f64,
    /// Variance of the estimate of a single round, in units of σ².
    pub unscaled_variance_of_one_round: f64,
    /// Degrees of freedom that a round brings: arms − 1.
    pub df_per_round: u32,
    /// Degrees of freedom that the effects take: treatments − 1, and slots − 1.
    pub df_of_effects: u32,
    /// Degrees of freedom that other cells lend, or unequal noise takes (below 0),
    /// however many rounds there are.
    pub df_of_prior: f64,
}

impl Growth {
    /// The precision after `rounds` rounds; `None` while nothing is left to estimate noise from.
    #[must_use]
    pub fn after(&self, rounds: u32) -> Option<Precision> {
        let df = i64::from(rounds) * i64::from(self.df_per_round) - i64::from(self.df_of_effects);
        let df = u32::try_from(df).ok().filter(|&df| df > 0)?;
        let df = f64::from(df) + self.df_of_prior;
        (df > 0.0).then(|| Precision {
            sigma: self.sigma,
            unscaled_variance: self.unscaled_variance_of_one_round / f64::from(rounds),
            df,
        })
    }
}

/// Smallest true effect at which `slower` is said with probability `wanted`.
#[must_use]
pub fn detectable(power: &Power, wanted: f64) -> f64 {
    smallest_effect(power.standard_error(), 0.0, |delta| {
        power.slower(delta) - wanted
    })
}

/// Smallest true effect at which the gate fails with probability `wanted`; at least `tau`.
#[must_use]
pub fn fails_gate(power: &Power, tau: f64, wanted: f64) -> f64 {
    smallest_effect(power.standard_error(), tau, |delta| {
        power.fails(delta) - wanted
    })
}

/// Smallest number of rounds, from `at_least` on, after which `enough` holds.
///
/// `enough` must stay true once it is true. `near` is where the answer is looked for
/// first; a wrong one costs time only. `None` when [`MOST_ROUNDS`] are not enough.
#[must_use]
pub fn rounds_until(
    questions: Questions,
    growth: Growth,
    (at_least, near): (u32, u32),
    enough: impl Fn(&Power) -> bool,
) -> Option<u32> {
    let holds = |rounds: u32| {
        growth
            .after(rounds)
            .and_then(|precision| Power::new(questions, precision))
            .is_some_and(|power| enough(&power))
    };
    let least = at_least.max(1);
    // `short` is not enough, `high` is; the step doubles until both are known.
    let (mut short, mut high, mut step) = (least - 1, near.min(MOST_ROUNDS).max(least), 1);
    if holds(high) {
        while high > least && high - short > 1 {
            let lower = high.saturating_sub(step).max(least);
            if !holds(lower) {
                short = lower;
                break;
            }
            high = lower;
            step *= 2;
        }
    } else {
        loop {
            short = high;
            if short >= MOST_ROUNDS {
                return None;
            }
            high = short.saturating_add(step).min(MOST_ROUNDS);
            if holds(high) {
                break;
            }
            step *= 2;
        }
    }
    while high - short > 1 {
        let middle = short + (high - short) / 2;
        if holds(middle) {
            high = middle;
        } else {
            short = middle;
        }
    }
    Some(high)
}

/// The smallest effect at or above `floor` where the rising `excess` reaches 0, to a
/// thousandth of a standard error, from above.
fn smallest_effect(standard_error: f64, floor: f64, excess: impl Fn(f64) -> f64) -> f64 {
    if standard_error <= 0.0 {
        return floor;
    }
    let (mut low, mut below) = (floor, excess(floor));
    if below >= 0.0 {
        return floor;
    }
    let mut width = standard_error;
    let (mut high, mut above) = (floor + width, excess(floor + width));
    // Each doubling moves the effect by as many standard errors as all before
    // it: sixty of them reach any bound a finite t can set.
    for _ in 0..60 {
        if above >= 0.0 {
            break;
        }
        (low, below) = (high, above);
        width *= 2.0;
        high = floor + width;
        above = excess(high);
    }
    // Regula falsi; an end that stays is halved (Dowell and Jarratt 1971, "Illinois"),
    // and a last step to the right makes the answer one from above.
    let close = 1e-3 * standard_error;
    for _ in 0..60 {
        if high - low <= close || above < 0.0 {
            break;
        }
        let chord = high - above * (high - low) / (above - below);
        let next = chord.clamp(low + 0.25 * close, high - 0.25 * close);
        let found = excess(next);
        if found < 0.0 {
            (low, below) = (next, found);
            above *= 0.5;
        } else {
            (high, above) = (next, found);
            below *= 0.5;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn questions() -> Questions {
        Questions {
            direction_level: 0.05,
            gate_level: 0.05,
            tau: -(0.99_f64.ln()),
        }
    }

    /// Base, one null arm of it, one candidate.
    fn growth(sigma: f64) -> Growth {
        Growth {
            sigma,
            unscaled_variance_of_one_round: 1.5,
            df_per_round: 2,
            df_of_effects: 1,
            df_of_prior: 0.0,
        }
    }

    fn rounds_to_pass(sigma: f64) -> Option<u32> {
        rounds_until(questions(), growth(sigma), (3, 5), |power| {
            power.passes(0.0) >= 0.9
        })
    }

    /// The figures of docs/METHODOLOGY.md, section "How many rounds".
    #[test]
    fn an_unchanged_candidate_needs_the_stated_rounds() {
        let noise = [0.005, 0.01, 0.014, 0.04];
        assert_eq!(noise.map(rounds_to_pass), [4, 14, 26, 205].map(Some));
        // Equal both ways needs about a quarter more.
        let equal = noise.map(|sigma| {
            rounds_until(questions(), growth(sigma), (3, 5), |power| {
                power.equivalent(0.0) >= 0.9
            })
        });
        assert_eq!(equal, [5, 17, 33, 258].map(Some));
    }

    #[test]
    fn hopeless_noise_is_said_to_be_hopeless() {
        assert_eq!(rounds_to_pass(2.0), None);
        assert_eq!(rounds_to_pass(0.0), Some(3));
    }

    #[test]
    fn the_effects_found_have_the_wanted_probability() {
        for rounds in [3, 5, 10, 50] {
            let power = Power::new(questions(), growth(0.006).after(rounds).unwrap()).unwrap();
            let seen = detectable(&power, 0.9);
            assert!((power.slower(seen) - 0.9).abs() < 1e-3, "{rounds}");
            let failing = fails_gate(&power, questions().tau, 0.9);
            assert!((power.fails(failing) - 0.9).abs() < 1e-3, "{rounds}");
            assert!(failing >= questions().tau);
        }
    }

    #[test]
    fn without_noise_anything_is_seen_and_the_gate_is_the_limit() {
        let power = Power::new(questions(), growth(0.0).after(5).unwrap()).unwrap();
        assert!(detectable(&power, 0.9).abs() < f64::MIN_POSITIVE);
        assert_eq!(fails_gate(&power, questions().tau, 0.9), questions().tau);
    }

    #[test]
    fn too_few_rounds_have_no_precision() {
        let two_arms = Growth {
            df_per_round: 1,
            df_of_effects: 1,
            ..growth(0.01)
        };
        assert_eq!(two_arms.after(1), None);
        assert_eq!(two_arms.after(0), None);
        assert!(two_arms.after(2).is_some());
    }
}
