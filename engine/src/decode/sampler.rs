//! How tokens are drawn: options, and the random numbers that the host adds to each step.

use crate::backend::interface::Sampling;
use crate::random::{SplitMix64, unit_float};

/// Options of the command line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SamplerOptions {
    /// Divides the logits; 0 means the most likely token.
    pub temperature: f32,
    /// Smallest total probability to draw from, in `(0, 1]`.
    pub top_p: f32,
    /// Of the random numbers.
    pub seed: u64,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_p: 1.0,
            seed: 0,
        }
    }
}

/// A stream of draws: the same seed gives the same texts.
#[derive(Debug, Clone)]
pub struct Sampler {
    options: SamplerOptions,
    random: SplitMix64,
}

impl Sampler {
    /// Starts the stream.
    pub fn new(options: SamplerOptions) -> Self {
        Self {
            options,
            random: SplitMix64::new(options.seed),
        }
    }

    /// The next step's way of choosing.
    pub fn next_sampling(&mut self) -> Sampling {
        if self.options.temperature <= 0.0 {
            return Sampling::Greedy;
        }
        Sampling::TopP {
            temperature: self.options.temperature,
            top_p: self.options.top_p,
            uniform: self.uniform(),
        }
    }

    /// Uniform in `[0, 1)`.
    fn uniform(&mut self) -> f32 {
        unit_float(self.random.next_bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_numbers_and_another_does_not() {
        let draw = |seed| {
            let mut sampler = Sampler::new(SamplerOptions {
                temperature: 1.0,
                top_p: 0.9,
                seed,
            });
            (0..8).map(|_| sampler.uniform()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(3).iter().all(|u| (0.0..1.0).contains(u)));
    }

    #[test]
    fn no_temperature_means_greedy() {
        let mut sampler = Sampler::new(SamplerOptions::default());
        assert_eq!(sampler.next_sampling(), Sampling::Greedy);
    }
}
