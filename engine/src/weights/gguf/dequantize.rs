//! The reference dequantiser: blocks to float32, one block at a time, written as the format is
//! defined. Slow on purpose; the repacking of `convert/` is tested against it.

use half::{bf16, f16};

use super::block::BlockType;

/// Elements of a group that shares one scale in the types with codes.
const GROUP: usize = 32;

/// Widens one row: `blocks` is its bytes, `out` its elements.
///
/// # Panics
/// When `blocks` is shorter than `out` needs; the file's shapes are checked when it is opened.
pub fn dequantize_row(kind: BlockType, blocks: &[u8], out: &mut [f32]) {
    let blocks = blocks.chunks_exact(kind.block_bytes());
    for (block, values) in blocks.zip(out.chunks_mut(kind.block_elements())) {
        match kind {
            BlockType::F32 => values[0] = f32::from_le_bytes(first(block)),
            BlockType::F16 => values[0] = f16::from_le_bytes(first(block)).to_f32(),
            BlockType::Bf16 => values[0] = bf16::from_le_bytes(first(block)).to_f32(),
            BlockType::Q4_0 => nibbles(&block[2..], values, |q| half(block, 0) * (q - 8.0)),
            BlockType::Q4_1 => {
                nibbles(&block[4..], values, |q| half(block, 0) * q + half(block, 2));
            }
            BlockType::Q5_0 => five_bits(&block[2..], values, |q| half(block, 0) * (q - 16.0)),
            BlockType::Q5_1 => {
                five_bits(&block[4..], values, |q| half(block, 0) * q + half(block, 2));
            }
            BlockType::Q8_0 => {
                for (value, &code) in values.iter_mut().zip(&block[2..]) {
                    *value = half(block, 0) * f32::from(code as i8);
                }
            }
            BlockType::Q4K | BlockType::Q5K => super_block(kind, block, values),
            BlockType::Q6K => q6_k(block, values),
        }
    }
}

fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    std::array::from_fn(|i| bytes[i])
}

fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Low nibbles are the first half of the block, high nibbles the second.
fn nibbles(codes: &[u8], values: &mut [f32], decode: impl Fn(f32) -> f32) {
    for (i, value) in values.iter_mut().enumerate() {
        let byte = codes[i % 16];
        let code = if i < 16 { byte & 15 } else { byte >> 4 };
        *value = decode(f32::from(code));
    }
}

/// Four bytes of fifth bits, then nibbles.
fn five_bits(codes: &[u8], values: &mut [f32], decode: impl Fn(f32) -> f32) {
    let high = u32::from_le_bytes(first(codes));
    for (i, value) in values.iter_mut().enumerate() {
        let byte = codes[4 + i % 16];
        let low = if i < 16 { byte & 15 } else { byte >> 4 };
        *value = decode(f32::from(low | (((high >> i) & 1) as u8) << 4));
    }
}

/// Scale and minimum of group `j` of a Q4_K or Q5_K block, six bits each: the first four groups
/// have theirs in the low bits of bytes 0..4 and 4..8; the others' low nibbles are in bytes 8..12
/// and their upper two bits on top of the first eight bytes.
pub(crate) fn six_bit_pair(scales: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (scales[j] & 63, scales[j + 4] & 63)
    } else {
        let low = scales[j + 4];
        (
            (low & 15) | ((scales[j - 4] >> 6) << 4),
            (low >> 4) | ((scales[j] >> 6) << 4),
        )
    }
}

/// Q4_K: d, e, 12 bytes of scales, 128 bytes of nibbles. Q5_K has 32 bytes of fifth bits before
/// the nibbles: bit j of byte i belongs to element i of group j.
fn super_block(kind: BlockType, block: &[u8], values: &mut [f32]) {
    let (d, e) = (half(block, 0), half(block, 2));
    let scales = &block[4..16];
    let (high, nibbles) = match kind {
        BlockType::Q5K => (Some(&block[16..48]), &block[48..176]),
        _ => (None, &block[16..144]),
    };
    for (j, group) in values.chunks_mut(GROUP).enumerate() {
        let (scale, minimum) = six_bit_pair(scales, j);
        let (scale, minimum) = (d * f32::from(scale), e * f32::from(minimum));
        for (i, value) in group.iter_mut().enumerate() {
            let byte = nibbles[j / 2 * GROUP + i];
            let low = if j % 2 == 0 { byte & 15 } else { byte >> 4 };
            let fifth = high.map_or(0, |high| (high[i] >> j) & 1);
            *value = scale * f32::from(low | (fifth << 4)) - minimum;
        }
    }
}

/// 128 bytes of low nibbles, 64 bytes of upper pairs of bits, 16 signed scales, d. Each half of
/// the block holds four runs of 32 elements that share 64 bytes of nibbles and 32 of pairs.
fn q6_k(block: &[u8], values: &mut [f32]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = half(block, 208);
    for (i, value) in values.iter_mut().enumerate() {
        let (half_index, run, lane) = (i / 128, i % 128 / 32, i % 32);
        let byte = low[half_index * 64 + run % 2 * 32 + lane];
        let nibble = if run < 2 { byte & 15 } else { byte >> 4 };
        let pair = (high[half_index * 32 + lane] >> (2 * run)) & 3;
        let code = i16::from(nibble | (pair << 4)) - 32;
        let scale = d * f32::from(scales[i / 16] as i8);
        *value = scale * f32::from(code);
    }
}
