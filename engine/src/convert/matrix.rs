//! Blocks of a GGUF tensor to affine groups.
//!
//! Every block type with one scale (and minimum) for 32 codes *is* an affine format under another
//! name: `d (q - 8)` is scale d and bias -8 d. Q4_K and Q5_K are too, once the product of their two
//! scales is written out; that takes 17 bits, so it is stored as float32. All these keep every
//! weight. Q6_K has groups of 16, which no affine format has: it is quantised anew.

use half::{bf16, f16};

use crate::quant::AffineFormat;
use crate::quant::pack::pack_row;
use crate::quant::quantize::quantize_group;
use crate::weights::Dtype;
use crate::weights::gguf::dequantize::six_bit_pair;
use crate::weights::gguf::{BlockType, GgufTensor, dequantize_row};

/// Elements of a group in every type that is repacked.
const GROUP: usize = 32;

/// What types without an affine form become. Eight bits in groups of 32 have a quarter of the step
/// of Q6_K.
const REQUANTISED_BITS: u64 = 8;

/// How a matrix is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    /// Codes as they are; every weight keeps its value.
    Repacked(AffineFormat, ScaleType),
    /// New codes.
    Requantised(AffineFormat, ScaleType),
    /// No codes: the elements as they are.
    Plain(ScaleType),
}

/// A floating-point type of a safetensors file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum ScaleType {
    F32,
    F16,
    Bf16,
}

impl ScaleType {
    /// The type in the file.
    pub fn dtype(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::Bf16,
        }
    }

    fn round(self, value: f32) -> f32 {
        match self {
            Self::F32 => value,
            Self::F16 => f16::from_f32(value).to_f32(),
            Self::Bf16 => bf16::from_f32(value).to_f32(),
        }
    }

    /// Appends the bytes of `values`.
    pub fn write(self, values: &[f32], out: &mut Vec<u8>) {
        for &value in values {
            match self {
                Self::F32 => out.extend(value.to_le_bytes()),
                Self::F16 => out.extend(f16::from_f32(value).to_le_bytes()),
                Self::Bf16 => out.extend(bf16::from_f32(value).to_le_bytes()),
            }
        }
    }
}

impl std::fmt::Display for Encoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Repacked(format, ScaleType::F32) => {
                write!(f, "{format} with float32 scales")
            }
            Self::Repacked(format, _) | Self::Requantised(format, _) => write!(f, "{format}"),
            Self::Plain(kind) => write!(f, "{:?}", kind.dtype()),
        }
    }
}

/// What to do with matrices that have no codes.
pub type PlainFormat = Option<AffineFormat>;

/// Chooses how `tensor` is written.
///
/// # Errors
/// The index of the first group whose scale is not finite, as a text.
pub fn encoding(tensor: &GgufTensor<'_>, plain: PlainFormat) -> Result<Encoding, String> {
    let kept = |kind: ScaleType| match plain {
        Some(format) if tensor.row_elements().is_multiple_of(format.group_size()) => {
            Encoding::Requantised(format, kind)
        }
        _ => Encoding::Plain(kind),
    };
    let bits = match tensor.kind {
        BlockType::F32 => return Ok(kept(ScaleType::F32)),
        BlockType::F16 => return Ok(kept(ScaleType::F16)),
        BlockType::Bf16 => return Ok(kept(ScaleType::Bf16)),
        BlockType::Q6K => {
            let format = affine(REQUANTISED_BITS)?;
            return Ok(Encoding::Requantised(format, ScaleType::F32));
        }
        BlockType::Q4_0 | BlockType::Q4_1 | BlockType::Q4K => 4,
        BlockType::Q5_0 | BlockType::Q5_1 | BlockType::Q5K => 5,
        BlockType::Q8_0 => 8,
    };
    Ok(Encoding::Repacked(affine(bits)?, narrowest(tensor)?))
}

fn affine(bits: u64) -> Result<AffineFormat, String> {
    AffineFormat::new(bits, GROUP as u64).map_err(|error| error.to_string())
}

/// f16 where it holds all scales and biases exactly, else float32.
fn narrowest(tensor: &GgufTensor<'_>) -> Result<ScaleType, String> {
    let mut kind = ScaleType::F16;
    for (index, block) in tensor
        .bytes
        .chunks_exact(tensor.kind.block_bytes())
        .enumerate()
    {
        for group in 0..tensor.kind.block_elements() / GROUP {
            let (scale, bias) = scale_and_bias(tensor.kind, block, group);
            if !(scale.is_finite() && bias.is_finite()) {
                return Err(format!("block {index} has scale {scale} and bias {bias}"));
            }
            let exact = |value: f32| ScaleType::F16.round(value) == value;
            if !(exact(scale) && exact(bias)) {
                kind = ScaleType::F32;
            }
        }
    }
    Ok(kind)
}

/// One row as it is written.
#[derive(Debug, Default)]
pub struct AffineRow {
    /// Codes as words of the file.
    pub words: Vec<u32>,
    /// One a group.
    pub scales: Vec<f32>,
    /// One a group.
    pub biases: Vec<f32>,
    /// Sum of the squares of what quantising anew changed, and of the weights.
    pub squares: [f64; 2],
}

/// Rewrites one row of blocks with the codes that it has.
pub fn repack_row(kind: BlockType, format: AffineFormat, blocks: &[u8]) -> AffineRow {
    let mut row = AffineRow::default();
    let mut codes = Vec::new();
    for block in blocks.chunks_exact(kind.block_bytes()) {
        for group in 0..kind.block_elements() / GROUP {
            let (scale, bias) = scale_and_bias(kind, block, group);
            row.scales.push(scale);
            row.biases.push(bias);
            codes.extend((0..GROUP).map(|i| code(kind, block, group, i)));
        }
    }
    row.words = pack_row(&codes, format.bits());
    row
}

/// Quantises one row of blocks anew.
///
/// # Errors
/// When a weight is not finite or a scale does not fit its type, as a text.
pub fn requantise_row(
    kind: BlockType,
    format: AffineFormat,
    scales: ScaleType,
    blocks: &[u8],
) -> Result<AffineRow, String> {
    let mut values = vec![0.0; blocks.len() / kind.block_bytes() * kind.block_elements()];
    dequantize_row(kind, blocks, &mut values);
    let mut row = AffineRow::default();
    let mut codes = vec![0; values.len()];
    let groups = values.chunks(format.group_size());
    for (group, codes) in groups.zip(codes.chunks_mut(format.group_size())) {
        let round = |value| scales.round(value);
        let (scale, bias) = quantize_group(group, format.max_code(), round, codes)
            .ok_or("holds a value that is not finite or too large for its scale")?;
        row.scales.push(scale);
        row.biases.push(bias);
        for (&value, &code) in group.iter().zip(codes.iter()) {
            let error = f64::from(scale * f32::from(code) + bias - value);
            row.squares[0] += error * error;
            row.squares[1] += f64::from(value) * f64::from(value);
        }
    }
    row.words = pack_row(&codes, format.bits());
    Ok(row)
}

/// `w = scale * code + bias` for group `group` of a block. All products are exact: 11 bits of an
/// f16 times a power of two or six bits of a second scale.
fn scale_and_bias(kind: BlockType, block: &[u8], group: usize) -> (f32, f32) {
    let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    let d = half(0);
    match kind {
        BlockType::Q4_0 => (d, -8.0 * d),
        BlockType::Q5_0 => (d, -16.0 * d),
        BlockType::Q8_0 => (d, -128.0 * d),
        BlockType::Q4K | BlockType::Q5K => {
            let (scale, minimum) = six_bit_pair(&block[4..16], group);
            (d * f32::from(scale), -(half(2) * f32::from(minimum)))
        }
        // Q4_1 and Q5_1, which are affine already; types without codes never come here.
        _ => (d, half(2)),
    }
}

/// Code `i` of group `group`, from 0 up.
fn code(kind: BlockType, block: &[u8], group: usize, i: usize) -> u8 {
    let nibble = |at: usize, high: bool| {
        let byte = block[at];
        if high { byte >> 4 } else { byte & 15 }
    };
    let fifth = |at: usize, bit: usize| ((block[at] >> bit) & 1) << 4;
    match kind {
        BlockType::Q4_0 => nibble(2 + i % 16, i >= 16),
        BlockType::Q4_1 => nibble(4 + i % 16, i >= 16),
        BlockType::Q5_0 => nibble(6 + i % 16, i >= 16) | fifth(2 + i / 8, i % 8),
        BlockType::Q5_1 => nibble(8 + i % 16, i >= 16) | fifth(4 + i / 8, i % 8),
        BlockType::Q4K => nibble(16 + group / 2 * GROUP + i, group % 2 == 1),
        BlockType::Q5K => nibble(48 + group / 2 * GROUP + i, group % 2 == 1) | fifth(16 + i, group),
        // Q8_0: signed codes move up by 128, which the bias takes back.
        _ => block[2 + i].wrapping_add(128),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::dequantize_row as dequantize_affine_row;
    use proptest::prelude::*;

    const REPACKED: [BlockType; 7] = [
        BlockType::Q4_0,
        BlockType::Q4_1,
        BlockType::Q5_0,
        BlockType::Q5_1,
        BlockType::Q8_0,
        BlockType::Q4K,
        BlockType::Q5K,
    ];

    fn tensor<'a>(kind: BlockType, shape: &'a [usize], bytes: &'a [u8]) -> GgufTensor<'a> {
        GgufTensor {
            name: "t",
            kind,
            shape,
            bytes,
        }
    }

    /// A row as a loader of the folder sees it: scales pass through their type.
    fn read_back(format: AffineFormat, scales: ScaleType, row: &AffineRow) -> Vec<f32> {
        let stored = |values: &[f32]| {
            let mut bytes = Vec::new();
            scales.write(values, &mut bytes);
            let mut out = vec![0.0; values.len()];
            scales.dtype().widen(&bytes, &mut out);
            out
        };
        let stream: Vec<u8> = row.words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut out = vec![0.0; row.scales.len() * format.group_size()];
        let (scales, biases) = (stored(&row.scales), stored(&row.biases));
        dequantize_affine_row(format, &stream, &scales, &biases, &mut out);
        out
    }

    /// Random blocks whose scales are finite: every bit pattern but those of infinity and NaN.
    fn blocks(kind: BlockType, raw: &[u8], count: usize) -> Vec<u8> {
        let mut bytes = raw[..count * kind.block_bytes()].to_vec();
        for block in bytes.chunks_mut(kind.block_bytes()) {
            let halves: &[usize] = match kind {
                BlockType::Q6K => &[208],
                BlockType::Q4_0 | BlockType::Q5_0 | BlockType::Q8_0 => &[0],
                _ => &[0, 2],
            };
            for at in halves {
                if block[at + 1] & 0x7c == 0x7c {
                    block[at + 1] ^= 0x40;
                }
            }
        }
        bytes
    }

    proptest! {
        /// Equal by `==`: a weight of zero may lose its sign.
        #[test]
        fn repacked_blocks_hold_the_very_same_weights(
            raw in prop::collection::vec(any::<u8>(), 3 * 176),
        ) {
            for kind in REPACKED {
                let bytes = blocks(kind, &raw, 3);
                let shape = [1, 3 * kind.block_elements()];
                let mut expected = vec![0.0; shape[1]];
                dequantize_row(kind, &bytes, &mut expected);
                let Encoding::Repacked(format, scales) =
                    encoding(&tensor(kind, &shape, &bytes), None).unwrap()
                else {
                    panic!("{kind} is not repacked");
                };
                let row = repack_row(kind, format, &bytes);
                prop_assert_eq!(&read_back(format, scales, &row), &expected, "{}", kind);
            }
        }

        #[test]
        fn quantising_anew_misses_no_weight_by_more_than_a_step(
            raw in prop::collection::vec(any::<u8>(), 210),
        ) {
            let bytes = blocks(BlockType::Q6K, &raw, 1);
            let shape = [1, 256];
            let mut expected = vec![0.0; 256];
            dequantize_row(BlockType::Q6K, &bytes, &mut expected);
            let Encoding::Requantised(format, scales) =
                encoding(&tensor(BlockType::Q6K, &shape, &bytes), None).unwrap()
            else {
                panic!("Q6_K is repacked");
            };
            let row = requantise_row(BlockType::Q6K, format, scales, &bytes).unwrap();
            for (i, (got, expected)) in read_back(format, scales, &row).iter().zip(&expected).enumerate() {
                let step = row.scales[i / 32].abs();
                prop_assert!((got - expected).abs() <= 1.001 * step, "{got} {expected} {step}");
            }
        }
    }

    fn q8_block(scale: f16) -> Vec<u8> {
        let mut block = scale.to_le_bytes().to_vec();
        block.extend(0..32u8);
        block
    }

    #[test]
    fn a_bias_beyond_f16_is_stored_as_float32() {
        let shape = [1, 32];
        let chosen = |scale: f32| {
            let block = q8_block(f16::from_f32(scale));
            encoding(&tensor(BlockType::Q8_0, &shape, &block), None).unwrap()
        };
        let format = AffineFormat::new(8, 32).unwrap();
        assert_eq!(chosen(0.01), Encoding::Repacked(format, ScaleType::F16));
        assert_eq!(chosen(600.0), Encoding::Repacked(format, ScaleType::F32));
    }

    #[test]
    fn a_scale_that_is_not_finite_is_refused() {
        let shape = [1, 64];
        let block = [q8_block(f16::ONE), q8_block(f16::NAN)].concat();
        let error = encoding(&tensor(BlockType::Q8_0, &shape, &block), None).unwrap_err();
        assert!(error.starts_with("block 1 has scale NaN"), "{error}");
        let mut block = vec![0; 210];
        block[208..].copy_from_slice(&f16::INFINITY.to_le_bytes());
        block[192..208].fill(1);
        let format = AffineFormat::new(8, 32).unwrap();
        assert!(requantise_row(BlockType::Q6K, format, ScaleType::F32, &block).is_err());
    }

    #[test]
    fn plain_matrices_stay_unless_bits_are_asked_for_and_groups_fit() {
        let format = AffineFormat::new(4, 64).unwrap();
        let bytes = vec![0; 2 * 96];
        let (fits, not) = ([1, 64], [1, 96]);
        let chosen =
            |shape, plain| encoding(&tensor(BlockType::Bf16, shape, &bytes), plain).unwrap();
        let kept = Encoding::Plain(ScaleType::Bf16);
        assert_eq!(chosen(&fits, None), kept);
        assert_eq!(chosen(&not, Some(format)), kept);
        let anew = Encoding::Requantised(format, ScaleType::Bf16);
        assert_eq!(chosen(&fits, Some(format)), anew);
    }
}
