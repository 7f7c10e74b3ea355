//! Rotation frequencies: radians per position for each pair of elements.
//!
//! Pair `i` of a head is elements `i` and `i + head_dim / 2` in all families here.

use std::f64::consts::TAU;

use crate::model::config::{RopeConfig, RopeScaling};

/// `theta^(-2i/d)` for `i` in `0..d/2`, scaled as the configuration says.
///
/// Computed in float64 and rounded once.
pub fn inverse_frequencies(config: &RopeConfig, head_dim: usize) -> Vec<f32> {
    (0..head_dim / 2)
        .map(|i| {
            let exponent = (2 * i) as f64 / head_dim as f64;
            let plain = f64::from(config.theta).powf(-exponent);
            scale(plain, config.scaling) as f32
        })
        .collect()
}

fn scale(frequency: f64, scaling: RopeScaling) -> f64 {
    match scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / f64::from(factor),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_context_tokens,
        } => {
            // How many turns the original context holds decides: few turns are divided by the
            // factor, many are kept, and between the two bounds the share moves linearly.
            let (low, high) = (f64::from(low_freq_factor), f64::from(high_freq_factor));
            let turns = f64::from(original_context_tokens) * frequency / TAU;
            let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
            frequency * ((1.0 - kept) / f64::from(factor) + kept)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_frequencies_fall_from_one_by_the_base() {
        let config = RopeConfig {
            theta: 10_000.0,
            scaling: RopeScaling::None,
        };
        assert_eq!(inverse_frequencies(&config, 4), [1.0, 0.01]);
    }

    #[test]
    fn a_linear_factor_divides_every_frequency() {
        let config = RopeConfig {
            theta: 10_000.0,
            scaling: RopeScaling::Linear { factor: 8.0 },
        };
        assert_eq!(inverse_frequencies(&config, 4), [0.125, 0.00125]);
    }

    #[test]
    fn llama3_keeps_fast_turns_and_divides_slow_ones() {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context_tokens: 8192.0,
        };
        assert_eq!(scale(1.0, scaling), 1.0);
        assert_eq!(scale(1e-5, scaling), 1e-5 / 8.0);
        let middle = 2.5 * TAU / 8192.0;
        assert!((scale(middle, scaling) / middle - (0.5 + 0.5 / 8.0)).abs() < 1e-12);
    }
}
