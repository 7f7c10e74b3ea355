//! The affine quantiser: floats to codes, one group at a time.
//!
//! The rule is that of the MLX format: the end of the group's range that is larger in magnitude
//! gets code 0, and the step is fitted so that zero has a code of its own.

/// Smallest step: a group of equal values still has one.
const MIN_STEP: f32 = 1e-7;

/// Scale and bias of a group, and its codes.
///
/// `round` is what storing a scale does to it (to f16, say). It is applied before the codes are
/// chosen, so they make up for part of that error. `None` when a value is not finite, or a scale
/// or bias is not after rounding.
pub fn quantize_group(
    values: &[f32],
    max_code: u8,
    round: impl Fn(f32) -> f32,
    codes: &mut [u8],
) -> Option<(f32, f32)> {
    let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
    for &value in values {
        // min and max skip NaN, so it has to be looked for.
        if !value.is_finite() {
            return None;
        }
        low = low.min(value);
        high = high.max(value);
    }
    let steps = f32::from(max_code);
    let step = ((high - low) / steps).max(MIN_STEP);
    let (edge, step) = if low.abs() > high.abs() {
        (low, step)
    } else {
        (high, -step)
    };
    let zero = (edge / step).round();
    let (scale, bias) = if zero == 0.0 {
        (step, 0.0)
    } else {
        (edge / zero, edge)
    };
    let (scale, bias) = (round(scale), round(bias));
    if !(scale.is_finite() && bias.is_finite()) {
        return None;
    }
    for (code, &value) in codes.iter_mut().zip(values) {
        let exact = if scale == 0.0 {
            0.0
        } else {
            (value - bias) / scale
        };
        *code = exact.round().clamp(0.0, steps) as u8;
    }
    Some((scale, bias))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zero_is_exact_and_the_larger_edge_is_code_zero() {
        let values = [-1.0, 0.0, 0.25, 0.9];
        let mut codes = [0; 4];
        let (scale, bias) = quantize_group(&values, 15, |s| s, &mut codes).unwrap();
        assert_eq!((bias, codes[0]), (-1.0, 0));
        assert!(scale > 0.0);
        assert_eq!(scale * f32::from(codes[1]) + bias, 0.0);
        let negated = values.map(|v| -v);
        let (scale, bias) = quantize_group(&negated, 15, |s| s, &mut codes).unwrap();
        assert_eq!((bias, codes[0]), (1.0, 0));
        assert!(scale < 0.0);
    }

    #[test]
    fn a_group_of_zeros_and_one_with_infinity() {
        let mut codes = [7; 4];
        let (scale, bias) = quantize_group(&[0.0; 4], 15, |s| s, &mut codes).unwrap();
        assert!(codes.iter().all(|&c| scale * f32::from(c) + bias == 0.0));
        assert_eq!(
            quantize_group(&[f32::INFINITY], 15, |s| s, &mut codes),
            None
        );
        assert_eq!(quantize_group(&[f32::NAN], 15, |s| s, &mut codes), None);
        let overflow = |s: f32| half::f16::from_f32(s).to_f32();
        assert_eq!(quantize_group(&[1e6, 0.0], 15, overflow, &mut codes), None);
    }

    proptest! {
        /// The fitted step is at most 1 / (2 · zero code) away from the even one, so the far end
        /// of the range is missed by no more than half a step and a rounding adds another half.
        #[test]
        fn no_value_is_missed_by_more_than_a_step(
            values in prop::collection::vec(-3.0f32..3.0, 32),
            bits in prop::sample::select(vec![4u8, 5, 6, 8]),
        ) {
            let max_code = ((1u16 << bits) - 1) as u8;
            let mut codes = [0; 32];
            let (scale, bias) = quantize_group(&values, max_code, |s| s, &mut codes).unwrap();
            for (&value, &code) in values.iter().zip(&codes) {
                let back = scale * f32::from(code) + bias;
                prop_assert!((back - value).abs() <= scale.abs() * 1.001, "{value} {back} {scale}");
            }
        }
    }
}
