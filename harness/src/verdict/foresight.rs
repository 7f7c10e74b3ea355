//! What a rule can see: from the noise of one attempt to detectable effects,
//! chances and rounds. Used after a run with the measured noise; before one, to say
//! how little noise the gate needs.

use super::rule::{Power, Rule};
use crate::stats::halving::halved;
use crate::stats::mde::{self, Growth};
use crate::stats::power::{self, Precision, Questions};

/// Probability with which an effect must be found, or an unchanged candidate pass.
pub const WANTED: f64 = 0.9;

/// Below this chance that an unchanged candidate passes, a gate is not gateable.
pub const GATEABLE: f64 = 0.8;

/// Halvings of an interval: enough for six digits of the noise.
const BISECTIONS: u32 = 30;

/// A comparison inside a design.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Rounds run or planned.
    pub rounds: u32,
    /// How its precision depends on the rounds.
    pub growth: Growth,
    /// τ of the metric.
    pub tau: f64,
    /// How many gated comparisons share α; 1 for one that is not gated.
    pub family: usize,
}

impl Comparison {
    /// The comparison of a planned cell without slot effects: `base_copies` and
    /// `candidate_copies` of the two treatments among `arms` arms of
    /// `treatments` treatments, with noise `sigma` (natural logarithm, per attempt).
    #[must_use]
    pub fn planned(shape: PlannedShape, sigma: f64, tau: f64, family: usize) -> Self {
        Comparison {
            rounds: shape.rounds,
            growth: Growth {
                sigma,
                unscaled_variance_of_one_round: 1.0 / f64::from(shape.base_copies.max(1))
                    + 1.0 / f64::from(shape.candidate_copies.max(1)),
                df_per_round: shape.arms.saturating_sub(1),
                df_of_effects: shape.treatments.saturating_sub(1),
                df_of_prior: 0.0,
            },
            tau,
            family,
        }
    }

    /// The rule's questions for this comparison.
    ///
    /// Holm's first step tests at α divided by the whole family; later steps are
    /// easier. What is promised here is the first step, the hardest.
    fn questions(&self, rule: &Rule) -> Questions {
        #[expect(clippy::cast_precision_loss, reason = "families are far below 2^52")]
        let family = self.family.max(1) as f64;
        Questions {
            direction_level: rule.alpha / family,
            gate_level: rule.alpha,
            tau: self.tau,
        }
    }

    /// What the rule can see; `None` when the design leaves no estimate of noise.
    #[must_use]
    pub fn power(&self, rule: &Rule) -> Option<Power> {
        let questions = self.questions(rule);
        let precision: Precision = self.growth.after(self.rounds)?;
        let now = power::Power::new(questions, precision)?;
        Some(Power {
            sigma: self.growth.sigma,
            detectable: mde::detectable(&now, WANTED),
            fails_gate: mde::fails_gate(&now, self.tau, WANTED),
            pass_if_unchanged: now.passes(0.0),
            rounds_to_pass: mde::rounds_until(
                questions,
                self.growth,
                self.looked_for(rule, 0.0),
                |power| power.passes(0.0) >= WANTED,
            ),
        })
    }

    /// The chance that an effect is called slower; `None` when the design leaves no estimate
    /// of noise.
    #[must_use]
    pub fn finds(&self, rule: &Rule, delta: f64) -> Option<f64> {
        let precision = self.growth.after(self.rounds)?;
        let power = power::Power::new(self.questions(rule), precision)?;
        Some(power.slower(delta))
    }

    /// The smallest effect that fails the gate with probability `wanted`; `None` when the
    /// design leaves no estimate of noise.
    #[must_use]
    pub fn fails_gate(&self, rule: &Rule, wanted: f64) -> Option<f64> {
        let precision = self.growth.after(self.rounds)?;
        let power = power::Power::new(self.questions(rule), precision)?;
        Some(mde::fails_gate(&power, self.tau, wanted))
    }

    /// The most noise per attempt (standard deviation, natural logarithm) with which the
    /// gate is reachable: an unchanged candidate passes with probability [`WANTED`].
    /// The noise of `self` is not looked at. `None` when no noise is little enough: the
    /// design leaves no estimate of it, or τ is 0.
    #[must_use]
    pub fn tolerable_noise(&self, rule: &Rule) -> Option<f64> {
        let questions = self.questions(rule);
        let passes = |sigma: f64| {
            let growth = Growth {
                sigma,
                ..self.growth
            };
            growth
                .after(self.rounds)
                .and_then(|precision| power::Power::new(questions, precision))
                .is_some_and(|power| power.passes(0.0) >= WANTED)
        };
        // More noise never helps; at 100 times τ no number of rounds is of use.
        let (good, _) = halved((0.0, 100.0 * self.tau), BISECTIONS, passes);
        (good > 0.0).then_some(good)
    }

    /// The fewest rounds of the rule, and those after which an effect `delta` is about
    /// three standard errors from τ: near the answer, whichever it is.
    fn looked_for(&self, rule: &Rule, delta: f64) -> (u32, u32) {
        let distance = (self.tau - delta).abs() / 3.0;
        let rounds =
            self.growth.unscaled_variance_of_one_round * (self.growth.sigma / distance).powi(2);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a guess: the cast saturates"
        )]
        let near = rounds as u32;
        (rule.min_rounds, near)
    }

    /// Rounds of a fresh run that decide the gate with probability [`WANTED`] if
    /// the true effect is `delta`: pass below τ, fail from τ on. `None` when no
    /// realistic number does.
    #[must_use]
    pub fn rounds_to_decide(&self, rule: &Rule, delta: f64) -> Option<u32> {
        let enough = |power: &power::Power| {
            if delta < self.tau {
                power.passes(delta) >= WANTED
            } else {
                power.fails(delta) >= WANTED
            }
        };
        let looked_for = self.looked_for(rule, delta);
        mde::rounds_until(self.questions(rule), self.growth, looked_for, enough)
    }
}

/// The arms of a planned cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedShape {
    /// Rounds.
    pub rounds: u32,
    /// Arms and null arms.
    pub arms: u32,
    /// Distinct treatments.
    pub treatments: u32,
    /// The base and the null arms of it.
    pub base_copies: u32,
    /// The candidate and the null arms of it.
    pub candidate_copies: u32,
}

#[cfg(test)]
mod tests {
    use super::super::example::RULE;
    use super::*;

    fn rule() -> Rule {
        RULE
    }

    fn shape(rounds: u32) -> PlannedShape {
        PlannedShape {
            rounds,
            arms: 3,
            treatments: 2,
            base_copies: 2,
            candidate_copies: 1,
        }
    }

    #[test]
    fn more_rounds_see_smaller_effects() {
        let at = |rounds| {
            Comparison::planned(shape(rounds), 0.01, 0.01, 1)
                .power(&rule())
                .unwrap()
        };
        let (few, many) = (at(5), at(20));
        assert!(many.detectable < few.detectable);
        assert!(many.fails_gate < few.fails_gate);
        assert!(many.pass_if_unchanged > few.pass_if_unchanged);
        assert_eq!(many.rounds_to_pass, few.rounds_to_pass);
    }

    #[test]
    fn a_larger_family_sees_less_but_passes_as_easily() {
        let of = |family| {
            Comparison::planned(shape(5), 0.006, 0.01, family)
                .power(&rule())
                .unwrap()
        };
        assert!(of(20).detectable > of(1).detectable);
        assert!((of(20).pass_if_unchanged - of(1).pass_if_unchanged).abs() < 1e-12);
    }

    #[test]
    fn tolerable_noise_is_where_the_chance_to_pass_is_the_wanted_one() {
        let of = |rounds, sigma| Comparison::planned(shape(rounds), sigma, 0.01, 1);
        let few = of(5, 0.0).tolerable_noise(&rule()).unwrap();
        let power = of(5, few).power(&rule()).unwrap();
        assert!((power.pass_if_unchanged - WANTED).abs() < 1e-4);
        assert!(of(20, 0.0).tolerable_noise(&rule()).unwrap() > few);
        let without_gate = Comparison {
            tau: 0.0,
            ..of(5, 0.0)
        };
        assert_eq!(without_gate.tolerable_noise(&rule()), None);
    }

    #[test]
    fn an_effect_at_the_gate_itself_is_never_decided() {
        let comparison = Comparison::planned(shape(5), 0.006, 0.01, 1);
        assert_eq!(comparison.rounds_to_decide(&rule(), 0.01), None);
        let clear = comparison.rounds_to_decide(&rule(), 0.03).unwrap();
        let close = comparison.rounds_to_decide(&rule(), 0.005).unwrap();
        assert!(clear <= 5 && close > 10, "{clear} {close}");
    }

    #[test]
    fn a_single_round_of_two_arms_sees_nothing() {
        let alone = PlannedShape {
            rounds: 1,
            arms: 2,
            candidate_copies: 1,
            base_copies: 1,
            treatments: 2,
        };
        assert_eq!(
            Comparison::planned(alone, 0.01, 0.01, 1).power(&rule()),
            None
        );
    }
}
