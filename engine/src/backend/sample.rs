//! The choice of a token from logits, as every device makes it.
//!
//! A draw counts in whole numbers, so that sums are the same in whatever order a device forms them,
//! and the same logits give the same token everywhere (ADR 0037). A token's *distance* is how often its
//! probability has to be doubled to be the likeliest token's, in steps of 2^-16; its *weight* is
//! 2^43 · 2^-distance, with 15 bits of mantissa: 64 bits hold the sum over the largest vocabulary
//! ([`MOST_TOKENS`](crate::backend::interface::MOST_TOKENS)). Tokens that are 29 doublings away or more
//! have none: a million of them would have 1/512 of the likeliest token's probability.
//! `engine/kernels/draw.h` is the same on a GPU.

use crate::backend::interface::Sampling;

/// Steps of a doubling.
const OCTAVE_STEPS: u32 = 1 << 16;
/// From here on a token has no weight.
const FARTHEST: u32 = 29 * OCTAVE_STEPS;
/// Steps of a bin of the coarse histogram.
const BIN_STEPS: u32 = 2048;
/// One in the units of [`Draw::keep`] and [`Draw::uniform`].
const ONE: u32 = 1 << 24;

/// Chooses a token; the same logits and `sampling` give the same token everywhere.
pub(crate) fn choose(logits: &[f32], sampling: Sampling) -> u32 {
    let likeliest = argmax(logits);
    let drawn = Draw::of(sampling).and_then(|draw| draw.token(logits, likeliest));
    drawn.unwrap_or(likeliest)
}

/// Index of the largest value, the first one among equals; NaN is never larger.
pub(crate) fn argmax(values: &[f32]) -> u32 {
    let mut best = 0;
    let mut best_value = f32::NEG_INFINITY;
    for (index, &value) in values.iter().enumerate() {
        if value > best_value {
            best = index;
            best_value = value;
        }
    }
    best as u32
}

/// A draw from the smallest set of likeliest tokens whose probabilities reach a share of all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Draw {
    /// Steps of distance to a difference of one between logits.
    pub(crate) scale: f32,
    /// The share, in 2^-24.
    pub(crate) keep: u32,
    /// Uniform in `0..2^24`.
    pub(crate) uniform: u32,
}

impl Draw {
    /// What `sampling` asks for; `None`: no draw.
    pub(crate) fn of(sampling: Sampling) -> Option<Self> {
        let Sampling::TopP {
            temperature,
            top_p,
            uniform,
        } = sampling
        else {
            return None;
        };
        Some(Self {
            scale: std::f32::consts::LOG2_E * OCTAVE_STEPS as f32 / temperature,
            keep: ((top_p * ONE as f32) as u32).clamp(1, ONE),
            uniform: ((uniform * ONE as f32) as u32).min(ONE - 1),
        })
    }

    /// Whether the set is all tokens.
    pub(crate) fn keeps_all(self) -> bool {
        self.keep == ONE
    }

    /// The token; `None` where no logit is a number.
    fn token(self, logits: &[f32], likeliest: u32) -> Option<u32> {
        let weighed = Weighed {
            draw: self,
            logits,
            largest: logits[likeliest as usize],
        };
        let coarse = weighed.coarse();
        let total: u64 = coarse.iter().sum();
        if total == 0 {
            return None;
        }
        let mut kept = total;
        if !self.keeps_all() {
            let wanted = share(total, self.keep, ONE - 1);
            let (distance, before) = weighed.place(&coarse, wanted - 1)?;
            let weight = weight(distance);
            kept = before + (wanted - before).div_ceil(weight) * weight;
        }
        let target = share(kept, self.uniform, 0);
        let (distance, before) = weighed.place(&coarse, target)?;
        let rank = (target - before) / weight(distance);
        let mut equals = weighed.distances().filter(|(d, _)| *d == distance);
        equals.nth(rank as usize).map(|(_, id)| id)
    }

    /// Of a logit that is not too far from the largest; NaN is.
    fn distance(self, logit: f32, largest: f32) -> Option<u32> {
        if logit == largest {
            return Some(0);
        }
        let steps = (largest - logit) * self.scale;
        (steps < FARTHEST as f32).then_some(steps as u32)
    }
}

/// Logits as a draw sees them.
struct Weighed<'a> {
    draw: Draw,
    logits: &'a [f32],
    largest: f32,
}

impl Weighed<'_> {
    /// Of the tokens that have a weight, by id.
    fn distances(&self) -> impl Iterator<Item = (u32, u32)> {
        let ids = self.logits.iter().zip(0u32..);
        ids.filter_map(|(&logit, id)| Some((self.draw.distance(logit, self.largest)?, id)))
    }

    /// Sums of weights, [`BIN_STEPS`] distances a bin.
    fn coarse(&self) -> Vec<u64> {
        let mut sums = vec![0; (FARTHEST / BIN_STEPS) as usize];
        for (distance, _) in self.distances() {
            sums[(distance / BIN_STEPS) as usize] += weight(distance);
        }
        sums
    }

    /// The distance of the token with which the sum of weights, nearest tokens first, passes `target`,
    /// and the sum of all that are nearer.
    fn place(&self, coarse: &[u64], target: u64) -> Option<(u32, u64)> {
        let (bin, before) = crossing(coarse.iter().copied(), target)?;
        let first = bin as u32 * BIN_STEPS;
        let mut counts = vec![0u64; BIN_STEPS as usize];
        for (distance, _) in self
            .distances()
            .filter(|(d, _)| d / BIN_STEPS == bin as u32)
        {
            counts[(distance - first) as usize] += 1;
        }
        let weights = counts.iter().zip(first..).map(|(n, d)| n * weight(d));
        let (step, nearer) = crossing(weights, target - before)?;
        Some((first + step as u32, before + nearer))
    }
}

/// 2^43 · 2^-distance.
fn weight(distance: u32) -> u64 {
    u64::from(mantissa(distance % OCTAVE_STEPS)) << (28 - distance / OCTAVE_STEPS)
}

/// 2^15 · 2^-fraction to the nearest, or next to it; a fraction is in steps.
///
/// A polynomial of degree four in 32 bits after the point, fitted for the least relative error (3e-6)
/// that is exact at both ends; it never rises.
fn mantissa(fraction: u32) -> u32 {
    let x = fraction << 16;
    let times = |y: u32| ((u64::from(x) * u64::from(y)) >> 32) as u32;
    let below = times(0xb16c_1bf9 - times(0x3d49_b07e - times(0x0d99_c653 - times(0x01bc_31ce))));
    32768 - ((below + (1 << 16)) >> 17)
}

/// `part` of `whole` in 2^-24; `rounding` of 2^24 - 1 rounds up.
fn share(whole: u64, part: u32, rounding: u32) -> u64 {
    let (high, low) = (whole >> 24, whole % u64::from(ONE));
    high * u64::from(part) + ((low * u64::from(part) + u64::from(rounding)) >> 24)
}

/// The first of `weights` with which their sum passes `target`, and the sum before it.
fn crossing(weights: impl Iterator<Item = u64>, target: u64) -> Option<(usize, u64)> {
    let mut before = 0;
    for (index, weight) in weights.enumerate() {
        if target - before < weight {
            return Some((index, before));
        }
        before += weight;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backend::interface::MOST_TOKENS;
    use crate::random::{SplitMix64, unit_float};

    fn draw(logits: &[f32], top_p: f32, uniform: f32) -> u32 {
        let sampling = Sampling::TopP {
            temperature: 1.0,
            top_p,
            uniform,
        };
        choose(logits, sampling)
    }

    /// The same by sorting, and sums of 128 bits.
    fn sorted(logits: &[f32], draw: Draw) -> u32 {
        let largest = logits[argmax(logits) as usize];
        let ids = logits.iter().zip(0u32..);
        let mut order: Vec<(u32, u32)> = ids
            .filter_map(|(&logit, id)| Some((draw.distance(logit, largest)?, id)))
            .collect();
        order.sort_unstable();
        let weights = order
            .iter()
            .map(|(distance, _)| u128::from(weight(*distance)));
        let ends: Vec<u128> = weights
            .scan(0, |sum, weight| {
                *sum += weight;
                Some(*sum)
            })
            .collect();
        let total = ends.last().copied().unwrap_or(0);
        let kept = ends
            .iter()
            .find(|end| **end << 24 >= total * u128::from(draw.keep));
        let target = (kept.copied().unwrap_or(0) * u128::from(draw.uniform)) >> 24;
        let place = ends.iter().position(|end| *end > target);
        place.map_or(argmax(logits), |place| order[place].1)
    }

    /// The same with exponentials in float64: how far `uniform` is from the part of `[0, 1)` that is the
    /// token's; `None` where the share of all ends so near a token that rounding says whether it is kept.
    fn distance_from_its_part(logits: &[f32], sampling: Sampling, token: u32) -> Option<f64> {
        let Sampling::TopP {
            temperature,
            top_p,
            uniform,
        } = sampling
        else {
            return None;
        };
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weight = |logit: f32| (f64::from(logit - largest) / f64::from(temperature)).exp();
        let ids = logits.iter().zip(0u32..);
        let mut order: Vec<(f64, u32)> = ids.map(|(&logit, id)| (weight(logit), id)).collect();
        order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let total: f64 = order.iter().map(|(weight, _)| weight).sum();
        let wanted = total * f64::from(top_p);
        let (mut kept, mut first, mut last) = (0.0, f64::INFINITY, f64::INFINITY);
        for (weight, id) in order {
            if (kept - wanted).abs() < 1e-4 * total && top_p < 1.0 {
                return None;
            }
            if kept >= wanted {
                break;
            }
            if id == token {
                (first, last) = (kept, kept + weight);
            }
            kept += weight;
        }
        let uniform = f64::from(uniform);
        Some((first / kept - uniform).max(uniform - last / kept).max(0.0))
    }

    #[test]
    fn greedy_takes_the_first_of_equals() {
        assert_eq!(choose(&[1.0, 3.0, 3.0, 2.0], Sampling::Greedy), 1);
    }

    #[test]
    fn draws_follow_the_probabilities() {
        // Probabilities 1/2, 1/4, 1/4 in the order of likelihood: ids 1, 0, 2.
        let logits = [0.0, 2.0f32.ln(), 0.0];
        assert_eq!(draw(&logits, 1.0, 0.49), 1);
        assert_eq!(draw(&logits, 1.0, 0.51), 0);
        assert_eq!(draw(&logits, 1.0, 0.76), 2);
    }

    #[test]
    fn unlikely_tokens_are_outside_top_p() {
        let logits = [0.0, 2.0f32.ln(), 0.0];
        assert_eq!(draw(&logits, 0.5, 0.99), 1);
        assert_eq!(draw(&logits, 0.7, 0.99), 0);
    }

    #[test]
    fn infinite_logits_and_those_that_are_no_numbers() {
        let (nan, infinity) = (f32::NAN, f32::INFINITY);
        assert_eq!(draw(&[nan, 1.0, nan], 1.0, 0.9), 1);
        assert_eq!(draw(&[nan, nan], 1.0, 0.9), 0, "as greedy");
        assert_eq!(draw(&[0.0, infinity, 9.0], 1.0, 0.9), 1);
        assert_eq!(draw(&[0.0, -infinity], 1.0, 0.9), 0);
        assert_eq!(draw(&[-infinity, -infinity], 1.0, 0.9), 1);
        let cold = Sampling::TopP {
            temperature: f32::MIN_POSITIVE,
            top_p: 1.0,
            uniform: 0.99,
        };
        assert_eq!(choose(&[0.0, 1.0, 0.9, 1.0], cold), 3);
    }

    #[test]
    fn mantissas_never_rise_and_are_exact_to_one() {
        assert_eq!(
            (mantissa(0), mantissa(OCTAVE_STEPS - 1)),
            (1 << 15, 1 << 14)
        );
        for fraction in 0..OCTAVE_STEPS {
            let exact = (-f64::from(fraction) / f64::from(OCTAVE_STEPS)).exp2() * 32768.0;
            let off = (f64::from(mantissa(fraction)) - exact).abs();
            assert!(off < 0.62, "{fraction}: {off}");
            assert!(fraction == 0 || mantissa(fraction) <= mantissa(fraction - 1));
        }
    }

    #[test]
    fn as_many_tokens_as_there_may_be_do_not_overflow() {
        let logits = vec![1.5; MOST_TOKENS];
        assert_eq!(draw(&logits, 1.0, 0.75), (MOST_TOKENS * 3 / 4) as u32);
        assert_eq!(draw(&logits, 0.5, 0.75), (MOST_TOKENS * 3 / 8) as u32);
    }

    proptest! {
        /// Few steps between logits make ties, many make weights that vanish.
        #[test]
        fn draws_are_what_sorting_gives_and_near_the_exact_probabilities(
            seed in any::<u64>(), count in 1usize..3000, steps in 1u32..2000, spread in 0.01f32..60.0,
            top_p in 0.0001f32..1.0, is_whole in any::<bool>(), uniform in 0.0f32..1.0,
        ) {
            let mut random = SplitMix64::new(seed);
            let mut logit = || (unit_float(random.next_bits()) * steps as f32).floor() / steps as f32;
            let logits: Vec<f32> = (0..count).map(|_| logit() * spread).collect();
            let top_p = if is_whole { 1.0 } else { top_p };
            let sampling = Sampling::TopP { temperature: 0.8, top_p, uniform };
            let token = choose(&logits, sampling);
            prop_assert_eq!(token, sorted(&logits, Draw::of(sampling).unwrap()));
            if let Some(off) = distance_from_its_part(&logits, sampling, token) {
                prop_assert!(off < 1e-3, "{}", off);
            }
        }
    }
}
