//! mxfp4 (OCP Microscaling Formats v1.0) as the affine format that it is.
//!
//! An E2M1 value is a multiple of ½ in -6..=6, so `q = 2 · value + 12` is a whole number in 0..=24,
//! which five bits hold, and with the group's exponent `e`
//! `value · 2^(e-127) = 2^(e-128) · q - 6 · 2^(e-127)`.
//! Scale and bias have one and two significant bits: bf16 holds both exactly, the scales of the two
//! smallest exponents as subnormal numbers. The sum is exact in float32, with or without a fused
//! multiply-add; only the sign of -0 is lost.

use half::bf16;

/// Bits of a code.
pub const BITS: usize = 4;

/// Columns that share an exponent.
pub const GROUP: usize = 32;

/// The largest exponent: with it `2^(e-128) · 24` is still finite in float32. The format has three
/// more (252 leaves room for the weights but not for that product), for weights around 10^38, which
/// no model has; 255 is NaN.
pub const MAX_EXPONENT: u8 = 251;

/// What E2M1 codes stand for, by code: a sign, two bits of exponent, one of mantissa.
pub const E2M1: [f32; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

/// For each byte of two codes the ten bits of the two five-bit ones.
const PAIRS: [u16; 256] = {
    let mut pairs = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = five_bits(byte & 15) | five_bits(byte >> 4) << 5;
        byte += 1;
    }
    pairs
};

const fn five_bits(code: usize) -> u16 {
    (2.0 * E2M1[code] + 12.0) as u16
}

/// Widens a stream of four-bit codes to the five-bit codes of
/// [`AffineFormat::OF_MXFP4`](super::AffineFormat::OF_MXFP4), appended to `to`.
///
/// Both are little-endian streams of bits; eight codes go from four bytes to five. Bytes past the
/// last whole eight codes are left out; a row of groups has none.
pub fn widen_codes(from: &[u8], to: &mut Vec<u8>) {
    let (eights, _) = from.as_chunks::<4>();
    to.reserve(eights.len() * 5);
    for eight in eights {
        let bits = (0..4).fold(0u64, |bits, pair| {
            bits | u64::from(PAIRS[usize::from(eight[pair])]) << (10 * pair)
        });
        to.extend_from_slice(&bits.to_le_bytes()[..5]);
    }
}

/// Scale and bias of a group with the exponent `exponent`; `None` above [`MAX_EXPONENT`].
#[must_use]
pub fn affine_scale(exponent: u8) -> Option<(bf16, bf16)> {
    if exponent > MAX_EXPONENT {
        return None;
    }
    // 2^(exponent-127); its lowest one is subnormal, so the shift starts one place further down.
    let unit = f32::from_bits(match exponent {
        0 => 1 << 22,
        exponent => u32::from(exponent) << 23,
    });
    Some((bf16::from_f32(0.5 * unit), bf16::from_f32(-6.0 * unit)))
}

#[cfg(test)]
mod tests {
    use super::super::{AffineFormat, dequantize_row};
    use super::*;

    /// 2^(exponent-127) from the definition, in float64, which has no edge near.
    fn unit(exponent: u8) -> f64 {
        2f64.powi(i32::from(exponent) - 127)
    }

    #[test]
    fn every_code_under_every_exponent_is_the_same_weight() {
        let codes: Vec<u8> = (0..16)
            .map(|pair: u8| (pair * 2 % 16) | ((pair * 2 + 1) % 16) << 4)
            .collect();
        let mut stream = Vec::new();
        widen_codes(&codes, &mut stream);
        for exponent in 0..=MAX_EXPONENT {
            let (scale, bias) = affine_scale(exponent).unwrap();
            let (scale, bias) = (scale.to_f32(), bias.to_f32());
            let mut got = [0.0; GROUP];
            dequantize_row(AffineFormat::OF_MXFP4, &stream, &[scale], &[bias], &mut got);
            for (column, got) in got.into_iter().enumerate() {
                let wanted = f64::from(E2M1[column % 16]) * unit(exponent);
                assert_eq!(f64::from(got), wanted, "code {column} exponent {exponent}");
                let q = 2.0 * E2M1[column % 16] + 12.0;
                assert_eq!(scale.mul_add(q, bias), got, "fused, exponent {exponent}");
                assert!(got != 0.0 || got.is_sign_positive());
            }
        }
    }

    #[test]
    fn exponents_without_room_in_float32_are_none() {
        assert!((252..=255).all(|exponent| affine_scale(exponent).is_none()));
        let (scale, bias) = (0.5 * unit(252), -6.0 * unit(252));
        assert!((scale * 24.0) as f32 == f32::INFINITY && (bias as f32).is_finite());
    }

    #[test]
    fn a_rest_of_less_than_eight_codes_is_left_out() {
        let mut to = Vec::new();
        widen_codes(&[0; 7], &mut to);
        assert_eq!(to.len(), 5);
    }
}
