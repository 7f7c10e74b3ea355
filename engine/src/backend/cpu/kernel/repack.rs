//! Weight matrices in the order in which the kernels read them.
//!
//! Rows are taken in blocks of 16, one row a lane, so that a vector of codes
//! times one broadcast activation needs no sum over lanes. A quantised block
//! is a sequence of records, one a group of columns, each of them contiguous:
//!
//! ```text
//! codes    4-bit: for every 8 columns, 16 rows × 4 bytes; byte b of a row
//!                 holds column b in its low and column 4 + b in its high nibble
//!          8-bit: for every 4 columns, 16 rows × 4 bytes
//! scales   16, as bf16, f16 or f32, whatever the source has
//! biases   16, likewise
//! ```
//!
//! 2- and 3-bit codes are widened to 4 bits and 5- and 6-bit ones to 8: more
//! bytes than the source, the same values. Rows beyond the last are zeros.
//! Several matrices that read the same input (q, k, v) can be stacked into one.

use super::Kernels;
use super::huge_pages::AlignedBuffer;
use super::source::{
    AffineSource, FloatKind, FloatSource, RepackError, check_affine, locate, write_float,
};

/// Rows of a block.
pub const BLOCK_ROWS: usize = 16;

/// A quantised matrix in blocks of 16 rows.
#[derive(Debug)]
pub struct QuantisedMatrix {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) group: usize,
    pub(super) code_bits: usize,
    pub(super) source_bits: usize,
    pub(super) scale_kind: FloatKind,
    pub(super) data: AlignedBuffer<u8>,
}

impl QuantisedMatrix {
    /// Repacks `parts`, one below the other, on the pool of `kernels`.
    ///
    /// # Errors
    /// When a format has no kernel, a tensor's size contradicts its shape, or
    /// the parts differ in columns, group or width of code (4 or 8 bits).
    pub fn repack(kernels: &Kernels, parts: &[AffineSource<'_>]) -> Result<Self, RepackError> {
        let first = parts.first().ok_or(RepackError::Empty)?;
        let code_bits = code_bits(first.bits)?;
        for part in parts {
            check_affine(part)?;
            for (what, got, expected) in [
                ("columns", part.columns, first.columns),
                ("group", part.group, first.group),
                ("code bits", self::code_bits(part.bits)?, code_bits),
            ] {
                if got != expected {
                    return Err(RepackError::Stack {
                        what,
                        got,
                        expected,
                    });
                }
            }
        }
        let kind = first.scales.kind;
        let uniform = parts
            .iter()
            .all(|p| p.scales.kind == kind && p.biases.kind == kind);
        let rows = parts.iter().map(|part| part.rows).sum();
        let mut matrix = QuantisedMatrix {
            rows,
            columns: first.columns,
            group: first.group,
            code_bits,
            source_bits: parts
                .iter()
                .map(|part| part.bits)
                .max()
                .unwrap_or(first.bits),
            scale_kind: if uniform { kind } else { FloatKind::F32 },
            data: AlignedBuffer::zeroed(0),
        };
        let mut data = kernels
            .arena()
            .zeroed(matrix.blocks() * matrix.block_bytes());
        kernels
            .pool()
            .for_chunks(&mut data, matrix.block_bytes(), |block, bytes| {
                for lane in 0..BLOCK_ROWS.min(rows - block * BLOCK_ROWS) {
                    if let Some((part, row)) = locate(parts, block * BLOCK_ROWS + lane, |p| p.rows)
                    {
                        matrix.write_row(bytes, lane, part, row);
                    }
                }
            });
        matrix.data = data;
        Ok(matrix)
    }

    /// Outputs.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Columns that share a scale and a bias.
    #[must_use]
    pub fn group(&self) -> usize {
        self.group
    }

    /// Bits of a stored code: 4 or 8.
    #[must_use]
    pub fn code_bits(&self) -> usize {
        self.code_bits
    }

    /// Bits of a code in the source (the widest of the parts); where it
    /// differs from [`Self::code_bits`] the codes were widened.
    #[must_use]
    pub fn source_bits(&self) -> usize {
        self.source_bits
    }

    /// How scales and biases are stored.
    #[must_use]
    pub fn scale_kind(&self) -> FloatKind {
        self.scale_kind
    }

    /// Where the first code, scale and bias lie: what tells matrices apart that are alive.
    #[must_use]
    pub fn addresses(&self) -> [usize; 3] {
        let codes = self.data.as_ptr() as usize;
        let scales = codes + self.record_code_bytes();
        [codes, scales, scales + BLOCK_ROWS * self.scale_kind.bytes()]
    }

    /// Bytes that one product with a vector reads.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Bytes for which huge pages were asked and the request was accepted.
    #[must_use]
    pub fn advised_bytes(&self) -> usize {
        self.data.advised_bytes()
    }

    /// Writes row `row`, dequantised (scale · q, then + bias, each rounded to
    /// f32), to `out` of `columns` elements: a lookup in an embedding table.
    ///
    /// # Panics
    /// When `row` or the length of `out` does not fit.
    pub fn dequantise_row(&self, row: usize, out: &mut [f32]) {
        assert!(
            row < self.rows && out.len() == self.columns,
            "row or output does not fit"
        );
        let block = &self.data[row / BLOCK_ROWS * self.block_bytes()..][..self.block_bytes()];
        let lane = row % BLOCK_ROWS;
        for (record, out) in block
            .chunks_exact(self.record_bytes())
            .zip(out.chunks_exact_mut(self.group))
        {
            let (codes, floats) = record.split_at(self.record_code_bytes());
            let floats = FloatSource {
                kind: self.scale_kind,
                bytes: floats,
            };
            let (scale, bias) = (floats.get(lane), floats.get(BLOCK_ROWS + lane));
            for (column, out) in out.iter_mut().enumerate() {
                *out = f32::from(self.code(codes, lane, column)) * scale + bias;
            }
        }
    }

    pub(super) fn blocks(&self) -> usize {
        self.rows.div_ceil(BLOCK_ROWS)
    }

    pub(super) fn record_code_bytes(&self) -> usize {
        self.group * BLOCK_ROWS * self.code_bits / 8
    }

    pub(super) fn record_bytes(&self) -> usize {
        self.record_code_bytes() + 2 * BLOCK_ROWS * self.scale_kind.bytes()
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.columns / self.group * self.record_bytes()
    }

    /// The byte of a record and the shift at which a code lies.
    fn place(&self, lane: usize, column: usize) -> (usize, usize) {
        if self.code_bits == 4 {
            (column / 8 * 64 + lane * 4 + column % 4, column / 4 % 2 * 4)
        } else {
            (column / 4 * 64 + lane * 4 + column % 4, 0)
        }
    }

    fn code(&self, codes: &[u8], lane: usize, column: usize) -> u8 {
        let (byte, shift) = self.place(lane, column);
        if self.code_bits == 4 {
            (codes[byte] >> shift) & 15
        } else {
            codes[byte]
        }
    }

    fn write_row(&self, block: &mut [u8], lane: usize, part: &AffineSource<'_>, row: usize) {
        let row_bytes = part.columns * part.bits / 8;
        let source = &part.codes[row * row_bytes..(row + 1) * row_bytes];
        let groups = self.columns / self.group;
        for (group, record) in block.chunks_exact_mut(self.record_bytes()).enumerate() {
            let (codes, floats) = record.split_at_mut(self.record_code_bytes());
            let start = group * self.group * part.bits / 8;
            let source = &source[start..start + self.group * part.bits / 8];
            for (eight, packed) in source.chunks_exact(part.bits).enumerate() {
                let [low, high] = unpack_eight(packed, part.bits);
                if self.code_bits == 4 {
                    let to = &mut codes[eight * 64 + lane * 4..][..4];
                    to.copy_from_slice(&(low | high << 4).to_le_bytes());
                } else {
                    codes[eight * 128 + lane * 4..][..4].copy_from_slice(&low.to_le_bytes());
                    codes[eight * 128 + 64 + lane * 4..][..4].copy_from_slice(&high.to_le_bytes());
                }
            }
            let (scales, biases) = floats.split_at_mut(BLOCK_ROWS * self.scale_kind.bytes());
            let index = row * groups + group;
            write_float(scales, self.scale_kind, lane, part.scales.get(index));
            write_float(biases, self.scale_kind, lane, part.biases.get(index));
        }
    }
}

fn code_bits(bits: usize) -> Result<usize, RepackError> {
    match bits {
        2..=4 => Ok(4),
        5 | 6 | 8 => Ok(8),
        _ => Err(RepackError::Bits { bits }),
    }
}

/// Eight codes, which fill `bits` bytes, as bytes: the first four and the others.
fn unpack_eight(packed: &[u8], bits: usize) -> [u32; 2] {
    let word = packed
        .iter()
        .rev()
        .fold(0u64, |word, &byte| word << 8 | u64::from(byte));
    let mask = (1u64 << bits) - 1;
    let four = |first: usize| {
        let code = |index: usize| (word >> ((first + index) * bits) & mask) as u32;
        code(0) | code(1) << 8 | code(2) << 16 | code(3) << 24
    };
    [four(0), four(4)]
}
