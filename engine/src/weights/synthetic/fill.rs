//! The bytes of a synthetic tensor: a pure function of its key and a position.
//!
//! Counter-based, so any range of any tensor can be made alone, in any order
//! and on any thread, with the same bytes: number `index` of the random stream that
//! the key begins.

use half::{bf16, f16};

use super::catalogue::Half;
use crate::random::{at, mix, unit_float};

/// A scale lies in `step * [SPREAD_LOW, SPREAD_LOW + SPREAD_WIDTH)`, up to sign.
const SPREAD_LOW: f32 = 0.75;
const SPREAD_WIDTH: f32 = 0.5;

/// The code that stands for zero: biases are `-ZERO_CODE * scale`, so weights
/// lie in `scale * -8..=7` and zero is exact, as in real 4-bit files.
const ZERO_CODE: f32 = 8.0;

/// Root mean square of a weight divided by the tensor's step: that of
/// `-8..=7` (√21.5) times that of the spread of the scales.
pub const RMS_OVER_STEP: f64 = 4.636_809_247_747_852 * 1.010_362_971_081_845;

/// What a tensor holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content {
    /// Packed 4-bit codes, all equally likely.
    Codes,
    /// Scales of random sign around `step`.
    Scales {
        /// Centre of the magnitudes.
        step: f32,
        /// How they are stored.
        half: Half,
    },
    /// Biases, `-8 * scale`; made with the key of the scales.
    Biases {
        /// The same step as in the scales.
        step: f32,
        /// How they are stored.
        half: Half,
    },
    /// Norm weights, evenly spread in `centre ± NORM_SPREAD`.
    Norm {
        /// Middle of the range.
        centre: f32,
        /// How they are stored.
        half: Half,
    },
}

/// Half the width of the range of norm weights.
const NORM_SPREAD: f32 = 0.1;

/// The key of a tensor: FNV-1a of its name, started from the model's seed.
pub fn tensor_key(seed: u64, name: &str) -> u64 {
    let start = mix(seed ^ 0xCBF2_9CE4_8422_2325);
    let hash = name.bytes().fold(start, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    mix(hash)
}

/// Fills `out` with bytes `offset..offset + out.len()` of the tensor.
///
/// `offset` must be a multiple of 8, so that ranges split between elements.
pub fn fill(content: Content, key: u64, offset: u64, out: &mut [u8]) {
    debug_assert!(offset.is_multiple_of(8), "ranges start at whole words");
    match content {
        Content::Codes => fill_words(key, offset, out),
        Content::Scales { step, half } => {
            fill_half(half, offset, out, |index| scale(key, index, step));
        }
        Content::Biases { step, half } => fill_half(half, offset, out, |index| {
            // Exact: a power of two only moves the exponent.
            -ZERO_CODE * half.round(scale(key, index, step))
        }),
        Content::Norm { centre, half } => fill_half(half, offset, out, |index| {
            let unit = unit_float(at(key, index));
            centre + NORM_SPREAD * (2.0 * unit - 1.0)
        }),
    }
}

impl Half {
    fn round(self, value: f32) -> f32 {
        match self {
            Self::Bf16 => bf16::from_f32(value).to_f32(),
            Self::F16 => f16::from_f32(value).to_f32(),
        }
    }

    fn bytes(self, value: f32) -> [u8; 2] {
        match self {
            Self::Bf16 => bf16::from_f32(value).to_le_bytes(),
            Self::F16 => f16::from_f32(value).to_le_bytes(),
        }
    }
}

fn fill_words(key: u64, offset: u64, out: &mut [u8]) {
    let mut index = offset / 8;
    let mut words = out.chunks_exact_mut(8);
    for word in &mut words {
        word.copy_from_slice(&at(key, index).to_le_bytes());
        index += 1;
    }
    let rest = words.into_remainder();
    let last = at(key, index).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

fn fill_half(half: Half, offset: u64, out: &mut [u8], value: impl Fn(u64) -> f32) {
    for (element, index) in out.chunks_exact_mut(2).zip(offset / 2..) {
        element.copy_from_slice(&half.bytes(value(index)));
    }
}

fn scale(key: u64, index: u64, step: f32) -> f32 {
    let random = at(key, index);
    let magnitude = step * (SPREAD_LOW + SPREAD_WIDTH * unit_float(random));
    if random & 1 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BF16: Half = Half::Bf16;

    const CONTENTS: [Content; 5] = [
        Content::Codes,
        Content::Scales {
            step: 0.01,
            half: BF16,
        },
        Content::Biases {
            step: 0.01,
            half: BF16,
        },
        Content::Norm {
            centre: 1.0,
            half: BF16,
        },
        Content::Scales {
            step: 0.01,
            half: Half::F16,
        },
    ];

    fn bf16s(bytes: &[u8]) -> Vec<f32> {
        bytes
            .chunks_exact(2)
            .map(|pair| bf16::from_le_bytes([pair[0], pair[1]]).to_f32())
            .collect()
    }

    proptest! {
        #[test]
        fn a_range_made_in_pieces_equals_the_whole(
            key: u64,
            length in 1usize..200,
            cut in 0usize..25,
        ) {
            for content in CONTENTS {
                let mut whole = vec![0u8; length * 2];
                fill(content, key, 0, &mut whole);
                let cut = (cut * 8).min(whole.len() / 8 * 8);
                let mut pieces = vec![0u8; whole.len()];
                let (left, right) = pieces.split_at_mut(cut);
                fill(content, key, 0, left);
                fill(content, key, cut as u64, right);
                prop_assert_eq!(&whole, &pieces);
            }
        }
    }

    #[test]
    fn scales_have_both_signs_and_biases_make_code_eight_zero() {
        let (mut scales, mut biases) = (vec![0u8; 4000], vec![0u8; 4000]);
        fill(
            Content::Scales {
                step: 0.02,
                half: BF16,
            },
            7,
            0,
            &mut scales,
        );
        fill(
            Content::Biases {
                step: 0.02,
                half: BF16,
            },
            7,
            0,
            &mut biases,
        );
        let (scales, biases) = (bf16s(&scales), bf16s(&biases));
        let negative = scales.iter().filter(|&&scale| scale < 0.0).count();
        assert!((800..1200).contains(&negative), "{negative} of 2000");
        for (scale, bias) in scales.iter().zip(&biases) {
            assert_eq!(8.0 * scale + bias, 0.0);
            assert!((0.0149..0.0251).contains(&scale.abs()), "{scale}");
        }
    }

    #[test]
    fn the_same_model_in_f16_has_the_same_values_but_for_rounding() {
        let (mut wide, mut narrow) = (vec![0u8; 4000], vec![0u8; 4000]);
        let (step, half) = (0.02, Half::F16);
        fill(Content::Biases { step, half }, 7, 0, &mut narrow);
        let half = BF16;
        fill(Content::Biases { step, half }, 7, 0, &mut wide);
        for (pair, wide) in narrow.chunks_exact(2).zip(bf16s(&wide)) {
            let narrow = f16::from_le_bytes([pair[0], pair[1]]).to_f32();
            // Half a unit in the last of bf16's 8 bits.
            assert!(
                (narrow / wide - 1.0).abs() <= 1.0 / 256.0,
                "{narrow} {wide}"
            );
        }
    }

    #[test]
    fn the_stated_rms_is_the_rms_of_the_weights() {
        let (mut codes, mut scales) = (vec![0u8; 32 * 5000], vec![0u8; 2 * 5000]);
        fill(Content::Codes, 1, 0, &mut codes);
        fill(
            Content::Scales {
                step: 1.0,
                half: BF16,
            },
            2,
            0,
            &mut scales,
        );
        let scales = bf16s(&scales);
        let mut sum = 0.0f64;
        for (group, scale) in codes.chunks_exact(32).zip(&scales) {
            for byte in group {
                for code in [byte & 15, byte >> 4] {
                    let weight = scale * (f32::from(code) - ZERO_CODE);
                    sum += f64::from(weight * weight);
                }
            }
        }
        let rms = (sum / (5000.0 * 64.0)).sqrt();
        assert!((rms / RMS_OVER_STEP - 1.0).abs() < 0.01, "{rms}");
    }

    #[test]
    fn keys_differ_by_seed_and_by_name() {
        assert_ne!(tensor_key(1, "a"), tensor_key(2, "a"));
        assert_ne!(tensor_key(1, "a"), tensor_key(1, "b"));
    }
}
