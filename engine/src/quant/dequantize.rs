//! The reference dequantiser: one row at a time, in the order of the definition.

use super::format::AffineFormat;
use super::pack::unpack_row;

/// `out[i] = scales[i / g] * q[i] + biases[i / g]` in float32.
///
/// `stream` is the row's bytes as the file has them, `scales` and `biases` one a group. With
/// bf16 or f16 scales the product is exact in float32, so a fused multiply-add gives the same bits.
///
/// # Panics
/// When a slice is shorter than the row needs; callers check shapes when they load a file.
pub fn dequantize_row(
    format: AffineFormat,
    stream: &[u8],
    scales: &[f32],
    biases: &[f32],
    out: &mut [f32],
) {
    let group = format.group_size();
    let bytes_per_group = format.bytes_per_row(group);
    let mut codes = [0u8; 128];
    let codes = &mut codes[..group];
    for (g, values) in out.chunks_mut(group).enumerate() {
        unpack_row(&stream[g * bytes_per_group..], format.bits(), codes);
        for (value, &code) in values.iter_mut().zip(codes.iter()) {
            *value = scales[g] * f32::from(code) + biases[g];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pack::pack_row;
    use super::*;

    #[test]
    fn a_negative_scale_counts_down_from_the_bias() {
        let format = AffineFormat::new(2, 32).unwrap();
        let codes: Vec<u8> = (0..32).map(|i| i % 4).collect();
        let stream: Vec<u8> = pack_row(&codes, 2)
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        let mut out = [0.0; 32];
        dequantize_row(format, &stream, &[-0.5], &[1.0], &mut out);
        assert_eq!(out[..4], [1.0, 0.5, 0.0, -0.5]);
        assert_eq!(out[28..], [1.0, 0.5, 0.0, -0.5]);
    }
}
