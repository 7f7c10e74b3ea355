//! Whether the noise model holds: contrasts between copies of one program, whose
//! true value is 0.
//!
//! Each contrast is divided by its own standard error, from which it was left
//! out, so it is Student's t with known degrees of freedom if the model is right.
//! If copies differ λ times as much as the model says, it is λ·t. λ is estimated
//! by maximum likelihood: the scale of a t sample with known degrees of freedom
//! solves Σ (d + 1)·t²/(d·λ² + t²) = n (Lange, Little and Taylor 1989, "Robust
//! statistical modeling using the t distribution", JASA 84, section 3). Large
//! values have bounded weight, and contrasts of different precision combine.

use super::count::count;
use super::halving::halved;

/// Halvings of an interval of ln λ: far finer than λ is known.
const BISECTIONS: u32 = 50;

/// ln of the largest λ that is told apart from infinity.
const LARGEST_LOG: f64 = 20.0;

/// A contrast between copies of one program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NullContrast {
    /// The contrast in units of its own standard error.
    pub t: f64,
    /// Degrees of freedom of that standard error.
    pub df: f64,
}

/// λ ≥ 1: how much further copies lie apart than the noise model says. 1 for none.
///
/// Contrasts that are not finite or have no degrees of freedom are passed over.
#[must_use]
pub fn inflation(contrasts: &[NullContrast]) -> f64 {
    let usable: Vec<NullContrast> = contrasts
        .iter()
        .copied()
        .filter(|one| one.t.is_finite() && one.df.is_finite() && one.df > 0.0)
        .collect();
    let number = count(usable.len());
    // Falls in λ, from above n at 0 to 0 at infinity: one root.
    let score = |log: f64| -> f64 {
        let scale = (2.0 * log).exp();
        let terms = usable.iter().map(|NullContrast { t, df }| {
            let square = t * t;
            (df + 1.0) * square / (df * scale + square)
        });
        terms.sum()
    };
    if usable.is_empty() || score(0.0) <= number {
        return 1.0;
    }
    let (low, high) = halved((0.0, LARGEST_LOG), BISECTIONS, |log| score(log) > number);
    f64::midpoint(low, high).exp()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::random::SplitMix64;
    use super::*;

    /// t with `df` degrees of freedom, times `scale`.
    fn draw(random: &mut SplitMix64, df: u32, scale: f64) -> NullContrast {
        let chi: f64 = (0..df).map(|_| random.normal().powi(2)).sum();
        let df = f64::from(df);
        NullContrast {
            t: scale * random.normal() / (chi / df).sqrt(),
            df,
        }
    }

    #[test]
    fn the_scale_of_many_contrasts_is_found_whatever_their_precision() {
        let mut random = SplitMix64::new(3);
        for scale in [1.2, 1.5, 3.0] {
            let contrasts: Vec<NullContrast> = (0..20_000)
                .map(|index| draw(&mut random, [2, 4, 18][index % 3], scale))
                .collect();
            let found = inflation(&contrasts);
            // Three standard errors of ln λ for so many contrasts are about 2 %.
            assert!((found / scale - 1.0).abs() < 0.02, "{scale}: {found}");
        }
    }

    #[test]
    fn copies_that_agree_better_than_expected_never_deflate() {
        let mut random = SplitMix64::new(4);
        let contrasts: Vec<NullContrast> = (0..100).map(|_| draw(&mut random, 4, 0.5)).collect();
        assert_eq!(inflation(&contrasts), 1.0);
        assert_eq!(inflation(&[]), 1.0);
    }

    /// One contrast of df = 1: (1 + 1)·t²/(λ² + t²) = 1 has the root λ = |t|.
    #[test]
    fn a_single_cauchy_contrast_is_its_own_scale() {
        let found = inflation(&[NullContrast { t: -3.0, df: 1.0 }]);
        assert!((found - 3.0).abs() < 1e-9, "{found}");
    }

    #[test]
    fn one_wild_contrast_among_many_is_not_the_noise_model() {
        let mut random = SplitMix64::new(5);
        let mut contrasts: Vec<NullContrast> = (0..30).map(|_| draw(&mut random, 4, 1.0)).collect();
        let before = inflation(&contrasts);
        contrasts.push(NullContrast { t: 1e6, df: 4.0 });
        let after = inflation(&contrasts);
        assert!(after < before * 1.3, "{before} {after}");
    }

    #[test]
    fn nonsense_is_passed_over() {
        let contrasts = [f64::NAN, f64::INFINITY].map(|t| NullContrast { t, df: 4.0 });
        assert_eq!(inflation(&contrasts), 1.0);
        assert_eq!(inflation(&[NullContrast { t: 9.0, df: 0.0 }]), 1.0);
    }

    proptest! {
        #[test]
        fn scaling_every_contrast_scales_the_inflation(
            seed: u64, factor in 1.0..4.0_f64, number in 10..40_usize,
        ) {
            let mut random = SplitMix64::new(seed);
            let contrasts: Vec<NullContrast> =
                (0..number).map(|_| draw(&mut random, 6, 2.5)).collect();
            let before = inflation(&contrasts);
            prop_assume!(before > 1.0);
            let scaled: Vec<NullContrast> = contrasts
                .iter()
                .map(|one| NullContrast { t: one.t * factor, ..*one })
                .collect();
            prop_assert!((inflation(&scaled) / (before * factor) - 1.0).abs() < 1e-9);
        }
    }
}
