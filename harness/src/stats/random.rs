//! Seeded pseudo-random numbers that stay the same for ever.
//!
//! SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", OOPSLA 2014): a counter stepped by the golden ratio and mixed.
//! A sealed plan stores its seed, and its order must come out equal on every
//! later version of this program. General-purpose random crates reserve the
//! right to change the stream or the shuffle between releases; thirty lines
//! that are tested against known values do not.

/// SplitMix64. Good for shuffles and simulations; not for secrets.
#[derive(Debug, Clone)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator whose whole stream follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        SplitMix64 { state: seed }
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A whole number in 0..`bound`, each equally likely; 0 when `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = bound as u64;
        if bound == 0 {
            return 0;
        }
        // Values under 2^64 mod bound are drawn again: without that, small remainders would
        // be a little more likely. That is less than `bound`, so the division is hardly ever
        // needed to tell.
        loop {
            let bits = self.next_u64();
            if bits >= bound || bits >= bound.wrapping_neg() % bound {
                return usize::try_from(remainder(bits, bound)).unwrap_or(0);
            }
        }
    }

    /// A number in [0, 1) with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double exactly")]
        let bits = (self.next_u64() >> 11) as f64;
        bits / 9_007_199_254_740_992.0
    }

    /// A standard normal number (Box and Muller 1958, the cosine half).
    pub fn normal(&mut self) -> f64 {
        // 1 − unit() is never 0, so the logarithm is finite.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Orders `items` at random, every order equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// `bits % bound`; a division by a small number that the compiler knows is a multiplication.
fn remainder(bits: u64, bound: u64) -> u64 {
    match bound {
        2 => bits % 2,
        3 => bits % 3,
        4 => bits % 4,
        5 => bits % 5,
        6 => bits % 6,
        bound => bits % bound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs for seed 1234567, as published with several independent
    /// implementations of the algorithm.
    #[test]
    fn the_stream_is_the_published_one() {
        let mut random = SplitMix64::new(1_234_567);
        let got: Vec<u64> = (0..5).map(|_| random.next_u64()).collect();
        assert_eq!(
            got,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
    }

    /// Guards sealed plans: changing the shuffle would change every order.
    #[test]
    fn the_shuffle_never_changes() {
        let mut items: Vec<usize> = (0..8).collect();
        SplitMix64::new(42).shuffle(&mut items);
        assert_eq!(items, [3, 1, 6, 2, 4, 0, 7, 5]);
    }

    #[test]
    fn every_order_of_three_is_equally_likely() {
        let mut random = SplitMix64::new(7);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..6000 {
            let mut items = [0, 1, 2];
            random.shuffle(&mut items);
            *counts.entry(items).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), 6);
        // 1000 expected, standard deviation 29: five of them either way.
        assert!(
            counts.values().all(|&n| (855..=1145).contains(&n)),
            "{counts:?}"
        );
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let mut random = SplitMix64::new(11);
        let draws: Vec<f64> = (0..20_000).map(|_| random.normal()).collect();
        let mean = draws.iter().sum::<f64>() / 20_000.0;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.035, "{mean}");
        assert!((variance - 1.0).abs() < 0.05, "{variance}");
    }

    #[test]
    fn a_bound_of_zero_is_harmless() {
        assert_eq!(SplitMix64::new(1).below(0), 0);
        assert_eq!(SplitMix64::new(1).below(1), 0);
    }
}
