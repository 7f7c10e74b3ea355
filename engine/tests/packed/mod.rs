//! Random affine matrices as files hold them.

use half::{bf16, f16};
use mlxcel_engine::backend::cpu::kernel::{AffineSource, FloatKind, FloatSource};

/// SplitMix64, so that a matrix is the same wherever it is made.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in `-1..1`.
    pub(crate) fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// `count` activations.
pub(crate) fn activations(count: usize, seed: u64) -> Vec<f32> {
    let mut random = Random(seed);
    (0..count).map(|_| 4.0 * random.signed()).collect()
}

/// A quantised matrix `[rows, columns]`.
pub(crate) struct Packed {
    rows: usize,
    columns: usize,
    bits: usize,
    group: usize,
    kind: FloatKind,
    codes: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
}

impl Packed {
    pub(crate) fn random(
        shape: (usize, usize),
        bits: usize,
        group: usize,
        kind: FloatKind,
    ) -> Self {
        let seed = shape.0 * 31 + shape.1 * 7 + bits * 3 + group;
        Self::seeded(shape, bits, group, kind, seed as u64)
    }

    pub(crate) fn seeded(
        (rows, columns): (usize, usize),
        bits: usize,
        group: usize,
        kind: FloatKind,
        seed: u64,
    ) -> Self {
        let mut random = Random(seed);
        let codes = (0..rows * columns * bits / 8).map(|_| random.next() as u8);
        let codes = codes.collect();
        // Scales of both signs occur in real files.
        let mut floats = |size: f32| {
            let values = (0..rows * columns / group).map(|_| size * random.signed());
            stored(kind, &values.collect::<Vec<f32>>())
        };
        let (scales, biases) = (floats(0.05), floats(0.4));
        Self {
            rows,
            columns,
            bits,
            group,
            kind,
            codes,
            scales,
            biases,
        }
    }

    pub(crate) fn source(&self) -> AffineSource<'_> {
        let float = |bytes| FloatSource {
            kind: self.kind,
            bytes,
        };
        AffineSource {
            rows: self.rows,
            columns: self.columns,
            bits: self.bits,
            group: self.group,
            codes: &self.codes,
            scales: float(&self.scales),
            biases: float(&self.biases),
        }
    }
}

fn stored(kind: FloatKind, values: &[f32]) -> Vec<u8> {
    let bytes = values.iter().flat_map(|value| match kind {
        FloatKind::Bf16 => bf16::from_f32(*value).to_le_bytes().to_vec(),
        FloatKind::F16 => f16::from_f32(*value).to_le_bytes().to_vec(),
        FloatKind::F32 => value.to_le_bytes().to_vec(),
    });
    bytes.collect()
}
