//! SplitMix64 (Steele, Lea and Flood 2014): the engine's one source of pseudo-random numbers.

/// The odd constant by which the state moves on: 2^64 divided by the golden ratio.
const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// A stream of numbers; one seed gives the same stream everywhere.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The stream of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_bits(&mut self) -> u64 {
        let bits = at(self.0, 0);
        self.0 = self.0.wrapping_add(GAMMA);
        bits
    }
}

/// Number `index` of the stream of `seed`, from 0 on, without those before it.
#[must_use]
pub fn at(seed: u64, index: u64) -> u64 {
    mix(seed.wrapping_add(index.wrapping_add(1).wrapping_mul(GAMMA)))
}

/// The output function: each bit of the result depends on all bits of `z`.
#[must_use]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// 24 high bits as a number in [0, 1); the low bits stay free, for a sign for instance.
#[must_use]
pub fn unit_float(bits: u64) -> f32 {
    (bits >> 40) as f32 / (1u64 << 24) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First outputs for seed 1234567, as its authors' code prints them.
    const PUBLISHED: [u64; 3] = [
        6_457_827_717_110_365_317,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
    ];

    #[test]
    fn the_mixer_is_splitmix64() {
        let got: Vec<u64> = (0..3).map(|index| at(1_234_567, index)).collect();
        assert_eq!(got, PUBLISHED);
    }

    #[test]
    fn a_stream_is_its_numbers_one_after_the_other() {
        let mut stream = SplitMix64::new(1_234_567);
        assert_eq!([(); 3].map(|()| stream.next_bits()), PUBLISHED);
    }
}
