//! How likely a rule of t-bounds says what, given the true effect and the noise.
//!
//! The estimate is normal around the true effect with standard error SE = σ·√v,
//! and the estimated σ̂ = σ·u is independent of it, with df·u² chi-squared. Each
//! question of the rule is, for a given u, a bound on a normal variable; its
//! probability is the mean of that over u. (For a single bound this is the
//! noncentral t distribution: Johnson, Kotz and Balakrishnan, Continuous
//! Univariate Distributions 2, 1995, chapter 31.)
//!
//! The mean over u is Simpson's rule over ten standard deviations of u, in
//! [`INTERVALS`] steps. The tests hold it to 10⁻⁵ against closed forms, and to
//! 5·10⁻⁴ plus its own error against a simulation, where the integrand has a kink.

use statrs::function::gamma::ln_gamma;

use super::count::count;
use super::student::{normal_cdf, upper_quantile};

/// Steps of Simpson's rule; even.
const INTERVALS: usize = 128;

/// Nodes of less weight than this are left out: all together they hold less than 10⁻⁸.
const NEGLIGIBLE: f64 = 1e-10;

/// What one comparison is asked, as bounds in units of the estimated standard error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Questions {
    /// Two-sided level of the test of direction, after any correction.
    pub direction_level: f64,
    /// One-sided level of the bound that must stay below the gate.
    pub gate_level: f64,
    /// The gate on the scale of the effect.
    pub tau: f64,
}

/// How well a comparison is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Precision {
    /// Residual standard deviation of one value.
    pub sigma: f64,
    /// Variance of the estimate in units of σ².
    pub unscaled_variance: f64,
    /// Residual degrees of freedom.
    pub df: f64,
}

/// The probabilities of one comparison under one rule.
#[derive(Debug, Clone)]
pub struct Power {
    standard_error: f64,
    tau: f64,
    /// The estimate must exceed this many estimated standard errors to be `slower`.
    direction_bound: f64,
    /// The upper bound lies this many estimated standard errors above the estimate.
    gate_bound: f64,
    /// Nodes u and weights (sum 1) of the distribution of σ̂/σ.
    scales: Vec<(f64, f64)>,
}

impl Power {
    /// `None` when a level or the degrees of freedom have no quantile, or σ,
    /// the variance or τ is negative or not finite.
    #[must_use]
    pub fn new(questions: Questions, precision: Precision) -> Option<Self> {
        let standard_error = precision.sigma * precision.unscaled_variance.sqrt();
        let sane = |x: f64| x.is_finite() && x >= 0.0;
        if !sane(standard_error) || !sane(questions.tau) {
            return None;
        }
        Some(Power {
            standard_error,
            tau: questions.tau,
            direction_bound: upper_quantile(questions.direction_level / 2.0, precision.df)?,
            gate_bound: upper_quantile(questions.gate_level, precision.df)?,
            scales: scale_nodes(precision.df),
        })
    }

    /// True standard error of the estimate.
    #[must_use]
    pub fn standard_error(&self) -> f64 {
        self.standard_error
    }

    /// P(direction is `slower`) when the true effect is `delta`.
    #[must_use]
    pub fn slower(&self, delta: f64) -> f64 {
        if self.standard_error == 0.0 {
            return certain(delta > 0.0);
        }
        self.mean(|u| self.exceeds(delta, self.direction_bound * u * self.standard_error))
    }

    /// P(the gate fails: `slower`, and the estimate is at or beyond τ).
    #[must_use]
    pub fn fails(&self, delta: f64) -> f64 {
        if self.standard_error == 0.0 {
            return certain(delta > 0.0 && delta >= self.tau);
        }
        self.mean(|u| {
            let slower_from = self.direction_bound * u * self.standard_error;
            self.exceeds(delta, slower_from.max(self.tau))
        })
    }

    /// P(the gate passes: the upper bound is below τ).
    #[must_use]
    pub fn passes(&self, delta: f64) -> f64 {
        if self.standard_error == 0.0 {
            return certain(delta < self.tau);
        }
        self.mean(|u| {
            1.0 - self.exceeds(delta, self.tau - self.gate_bound * u * self.standard_error)
        })
    }

    /// P(the gate passes and the lower bound is above −τ: equal within the gate).
    #[must_use]
    pub fn equivalent(&self, delta: f64) -> f64 {
        self.mean(|u| {
            let room = self.tau - self.gate_bound * u * self.standard_error;
            let inside = self.exceeds(delta, -room) - self.exceeds(delta, room);
            if room > 0.0 { inside.max(0.0) } else { 0.0 }
        })
    }

    /// P(estimate ≥ limit); without noise the estimate is the true effect.
    fn exceeds(&self, delta: f64, limit: f64) -> f64 {
        if self.standard_error > 0.0 {
            normal_cdf((delta - limit) / self.standard_error)
        } else {
            certain(delta >= limit)
        }
    }

    fn mean(&self, probability: impl Fn(f64) -> f64) -> f64 {
        let sum: f64 = self.scales.iter().map(|&(u, w)| w * probability(u)).sum();
        sum.clamp(0.0, 1.0)
    }
}

fn certain(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// Nodes and weights for means over u = √(χ²_df / df).
fn scale_nodes(df: f64) -> Vec<(f64, f64)> {
    let spread = 10.0 / (2.0 * df).sqrt();
    let low = (1.0 - spread).max(0.0);
    let width = 1.0 + spread - low;
    let half = df / 2.0;
    let constant = std::f64::consts::LN_2 + half * half.ln() - ln_gamma(half);
    let mut nodes: Vec<(f64, f64)> = (0..=INTERVALS)
        .map(|index| {
            // Steps grow with u: for few degrees of freedom the bounds are many
            // standard errors wide, and all that matters happens near u = 0.
            let x = count(index) / count(INTERVALS);
            let u = low + width * x * x;
            let density = if u > 0.0 {
                (constant + (df - 1.0) * u.ln() - half * u * u).exp()
            } else if df <= 1.0 {
                constant.exp()
            } else {
                0.0
            };
            let simpson = match index {
                0 | INTERVALS => 1.0,
                odd if odd % 2 == 1 => 4.0,
                _ => 2.0,
            };
            (u, density * simpson * x)
        })
        .collect();
    let total: f64 = nodes.iter().map(|&(_, weight)| weight).sum();
    nodes.retain(|&(_, weight)| weight > NEGLIGIBLE * total);
    let total: f64 = nodes.iter().map(|&(_, weight)| weight).sum();
    for node in &mut nodes {
        node.1 /= total;
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::super::random::SplitMix64;
    use super::super::student::two_sided_p;
    use super::*;

    const QUESTIONS: Questions = Questions {
        direction_level: 0.05,
        gate_level: 0.05,
        tau: 0.01,
    };

    fn power(sigma: f64, unscaled_variance: f64, df: f64) -> Power {
        let precision = Precision {
            sigma,
            unscaled_variance,
            df,
        };
        Power::new(QUESTIONS, precision).unwrap()
    }

    /// Without an effect the test says `slower` at half its level, and a
    /// candidate exactly at the gate passes at the gate's level: both by construction.
    #[test]
    fn the_levels_come_out_exactly() {
        for df in [1.0, 2.0, 3.0, 5.0, 9.0, 40.0, 500.0] {
            let power = power(0.006, 0.3, df);
            let slack = 1e-5;
            assert!(
                (power.slower(0.0) - 0.025).abs() < slack,
                "{df}: {}",
                power.slower(0.0)
            );
            assert!(
                (power.passes(0.01) - 0.05).abs() < slack,
                "{df}: {}",
                power.passes(0.01)
            );
        }
    }

    /// With df = 1, u is |N(0,1)|, and P(Z + x > c·u) is an angle: for x = 0
    /// it is the tail of the Cauchy distribution.
    #[test]
    fn one_degree_of_freedom_is_a_cauchy_tail() {
        let power = power(1.0, 1.0, 1.0);
        let tail = power.mean(|u| normal_cdf(-2.0 * u));
        assert!((tail - two_sided_p(2.0, 1.0) / 2.0).abs() < 1e-5, "{tail}");
    }

    /// The twin that shares no code with the integral: draw estimate and
    /// estimated noise, apply the rule, count.
    #[test]
    fn probabilities_agree_with_simulation() {
        let draws = 40_000_u32;
        for (seed, df, sigma, unscaled, delta) in [
            (1, 4_usize, 0.006, 0.5, 0.012),
            (2, 9, 0.006, 0.3, 0.010),
            (3, 9, 0.010, 0.3, 0.000),
            (4, 2, 0.004, 0.5, 0.020),
            (5, 30, 0.014, 0.1, 0.015),
        ] {
            let power = power(sigma, unscaled, df as f64);
            let mut random = SplitMix64::new(seed);
            let (mut slower, mut fails, mut passes, mut equal) = (0_u32, 0_u32, 0_u32, 0_u32);
            for _ in 0..draws {
                let estimate = delta + power.standard_error * random.normal();
                let chi: f64 = (0..df).map(|_| random.normal().powi(2)).sum();
                let error = power.standard_error * (chi / df as f64).sqrt();
                let is_slower = estimate > power.direction_bound * error;
                slower += u32::from(is_slower);
                fails += u32::from(is_slower && estimate >= power.tau);
                let bound = power.gate_bound * error;
                passes += u32::from(estimate + bound < power.tau);
                equal += u32::from(estimate.abs() + bound < power.tau);
            }
            for (got, hits) in [
                (power.slower(delta), slower),
                (power.fails(delta), fails),
                (power.passes(delta), passes),
                (power.equivalent(delta), equal),
            ] {
                let share = f64::from(hits) / f64::from(draws);
                // Four standard errors of the simulation, plus the stated accuracy.
                let margin = 4.0 * (share * (1.0 - share) / f64::from(draws)).sqrt() + 5e-4;
                assert!((got - share).abs() < margin, "df {df}: {got} {share}");
            }
        }
    }

    #[test]
    fn without_noise_the_true_effect_decides() {
        let power = power(0.0, 0.3, 9.0);
        for (delta, slower, fails, passes) in [
            (0.0, 0.0, 0.0, 1.0),
            (0.005, 1.0, 0.0, 1.0),
            (0.01, 1.0, 1.0, 0.0),
            (0.02, 1.0, 1.0, 0.0),
            (-0.02, 0.0, 0.0, 1.0),
        ] {
            let near = |got: f64, want: f64| (got - want).abs() < 1e-12;
            assert!(near(power.slower(delta), slower), "slower at {delta}");
            assert!(near(power.fails(delta), fails), "fails at {delta}");
            assert!(near(power.passes(delta), passes), "passes at {delta}");
        }
    }

    #[test]
    fn a_gate_of_nothing_is_never_passed_for_certain() {
        let questions = Questions {
            tau: 0.0,
            ..QUESTIONS
        };
        let precision = Precision {
            sigma: 0.0,
            unscaled_variance: 0.3,
            df: 9.0,
        };
        let power = Power::new(questions, precision).unwrap();
        assert_eq!((power.passes(0.0), power.fails(0.0)), (0.0, 0.0));
    }

    #[test]
    fn nonsense_has_no_power() {
        let precision = Precision {
            sigma: 0.01,
            unscaled_variance: 0.3,
            df: 0.0,
        };
        assert!(Power::new(QUESTIONS, precision).is_none());
        let precision = Precision {
            sigma: f64::NAN,
            unscaled_variance: 0.3,
            df: 3.0,
        };
        assert!(Power::new(QUESTIONS, precision).is_none());
    }
}
