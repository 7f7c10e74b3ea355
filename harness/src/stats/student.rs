//! Tails and quantiles of Student's t and of the normal distribution.
//!
//! A thin layer over `statrs`: quantiles are always asked for by their tail, so
//! that small levels lose no digits, and nonsense gives NaN-free answers.

use statrs::distribution::{Continuous, ContinuousCDF, StudentsT};
use statrs::function::erf::{erfc, erfc_inv};

/// Enough for a tail of 10⁻¹⁵ at one degree of freedom, where each step doubles t.
const NEWTON_STEPS: usize = 80;

/// Two-sided p-value of `t` with `df` degrees of freedom.
///
/// An infinite `t` gives 0. `df` must be positive; otherwise 1 (nothing is known).
#[must_use]
pub fn two_sided_p(t: f64, df: f64) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    match standard(df) {
        Some(distribution) if !t.is_nan() => (2.0 * distribution.sf(t.abs())).min(1.0),
        _ => 1.0,
    }
}

/// The value that t with `df` degrees of freedom exceeds with probability `tail`.
///
/// `tail` in (0, 0.5]. `None` for a level or a `df` that has no quantile.
#[must_use]
pub fn upper_quantile(tail: f64, df: f64) -> Option<f64> {
    if !(tail > 0.0 && tail <= 0.5) {
        return None;
    }
    let distribution = standard(df)?;
    // statrs inverts only to a few digits, and not at all far out. For t > 0 the
    // tail falls and is convex, so Newton's method lands left of the root after
    // one step and climbs from there; it needs more steps the heavier the tail.
    let mut t = near_quantile(tail, df);
    for _ in 0..NEWTON_STEPS {
        let density = distribution.pdf(t);
        let step = (distribution.sf(t) - tail) / density;
        if !step.is_finite() {
            return None;
        }
        t = (t + step).max(0.0);
        if step.abs() <= 1e-12 * t {
            break;
        }
    }
    Some(t)
}

/// The quantile's expansion around the normal one (Abramowitz and Stegun 1964, 26.7.5):
/// two digits from three degrees of freedom on, a place to begin below.
fn near_quantile(tail: f64, df: f64) -> f64 {
    let z = std::f64::consts::SQRT_2 * erfc_inv(2.0 * tail);
    let square = z * z;
    let first = z * (square + 1.0) / 4.0;
    let second = z * (5.0 * square * square + 16.0 * square + 3.0) / 96.0;
    let near = z + (first + second / df) / df;
    if near.is_finite() { near.max(0.0) } else { 0.0 }
}

/// Φ(x), the standard normal distribution function.
#[must_use]
pub fn normal_cdf(x: f64) -> f64 {
    0.5 * erfc(-x / std::f64::consts::SQRT_2)
}

fn standard(df: f64) -> Option<StudentsT> {
    if !df.is_finite() || df <= 0.0 {
        return None;
    }
    StudentsT::new(0.0, 1.0, df).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed tables of t at 0.95 and 0.975 one-sided.
    #[test]
    fn quantiles_agree_with_printed_tables() {
        for (tail, df, want) in [
            (0.05, 1.0, 6.313_752),
            (0.05, 5.0, 2.015_048),
            (0.025, 5.0, 2.570_582),
            (0.025, 9.0, 2.262_157),
            (0.05, 30.0, 1.697_261),
            (0.025, 120.0, 1.979_930),
            (0.0005, 9.0, 4.780_913),
        ] {
            let got = upper_quantile(tail, df).unwrap();
            assert!((got - want).abs() < 1e-5, "{tail} {df}: {got} {want}");
        }
    }

    /// df = 1 and 2 have closed forms: tan(π(½ − p)) and (1 − 2p)·√(2/(4p(1 − p))).
    #[test]
    fn small_levels_keep_their_digits() {
        for tail in [0.4, 0.05, 1e-3, 1e-6, 1e-9] {
            let one = upper_quantile(tail, 1.0).unwrap();
            let exact = (std::f64::consts::PI * tail).tan().recip();
            assert!((one / exact - 1.0).abs() < 1e-8, "{tail}: {one} {exact}");
            let two = upper_quantile(tail, 2.0).unwrap();
            let exact = (1.0 - 2.0 * tail) * (2.0 / (4.0 * tail * (1.0 - tail))).sqrt();
            assert!((two / exact - 1.0).abs() < 1e-8, "{tail}: {two} {exact}");
        }
    }

    #[test]
    fn quantile_and_tail_undo_each_other() {
        for df in [1.0, 2.0, 3.0, 7.0, 9.0, 50.0, 999.0, 20_000.0] {
            for tail in [0.5, 0.2, 0.05, 0.025, 0.05 / 40.0, 1e-5] {
                let t = upper_quantile(tail, df).unwrap();
                let back = two_sided_p(t, df) / 2.0;
                assert!((back / tail - 1.0).abs() < 1e-6, "{df} {tail}: {back}");
            }
        }
    }

    #[test]
    fn nonsense_gives_no_nan() {
        assert_eq!(upper_quantile(0.0, 5.0), None);
        assert_eq!(upper_quantile(0.6, 5.0), None);
        assert_eq!(upper_quantile(0.05, 0.0), None);
        assert_eq!(upper_quantile(0.05, f64::NAN), None);
        assert!((two_sided_p(f64::NAN, 5.0) - 1.0).abs() < 1e-15);
        assert!(two_sided_p(f64::INFINITY, 5.0).abs() < 1e-15);
        assert!((two_sided_p(2.0, -1.0) - 1.0).abs() < 1e-15);
    }

    #[test]
    fn the_normal_distribution_has_its_known_values() {
        assert!((normal_cdf(0.0) - 0.5).abs() < 1e-15);
        assert!((normal_cdf(1.959_963_985) - 0.975).abs() < 1e-9);
        assert!((normal_cdf(-1.281_551_566) - 0.1).abs() < 1e-9);
    }
}
