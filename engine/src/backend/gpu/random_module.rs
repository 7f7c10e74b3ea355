//! Random linear modules as a file has them, and the numbers that they are made of.

use std::path::Path;

use half::{bf16, f16};

use crate::backend::gpu::buffer::as_bytes;
use crate::backend::interface::{HostLinear, HostWeights};
use crate::quant::AffineFormat;
use crate::random::{SplitMix64, unit_float};
use crate::weights::{Dtype, TensorView};

/// Names of a module's tensors, in the order of its bytes and types.
const TENSORS: [&str; 3] = ["weight", "scales", "biases"];

/// What a random module is like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// None where the weights are floats and no codes.
    pub(super) format: Option<AffineFormat>,
    pub(super) columns: usize,
    /// Of the weights, where they are floats; of scales and of biases.
    pub(super) dtypes: [Dtype; 3],
}

impl Kind {
    pub(super) fn groups(&self) -> usize {
        self.format
            .map_or(0, |format| format.groups_per_row(self.columns))
    }
}

/// A module as a file has it.
pub(super) struct Module {
    pub(super) kind: Kind,
    pub(super) rows: usize,
    /// Weights, scales, biases.
    bytes: [Vec<u8>; 3],
    shapes: [[usize; 2]; 2],
}

impl Module {
    /// Floats and biases are uniform in ±1, and so are scales times the largest code.
    pub(super) fn new(kind: Kind, rows: usize, random: &mut Random) -> Self {
        let mut floats = |dtype, count: usize, most: f32| {
            let mut bytes = Vec::new();
            for _ in 0..count {
                put(dtype, random.uniform() * most, &mut bytes);
            }
            bytes
        };
        let [of_weights, of_scales, of_biases] = kind.dtypes;
        let largest_code = kind
            .format
            .map_or(1.0, |format| f32::from(format.max_code()));
        let scales = floats(of_scales, rows * kind.groups(), 1.0 / largest_code);
        let biases = floats(of_biases, rows * kind.groups(), 1.0);
        let weights = match kind.format {
            None => floats(of_weights, rows * kind.columns, 1.0),
            Some(format) => (0..rows * format.bytes_per_row(kind.columns))
                .map(|_| random.0.next_bits() as u8)
                .collect(),
        };
        Self {
            kind,
            rows,
            bytes: [weights, scales, biases],
            shapes: [[rows, kind.columns], [rows, kind.groups()]],
        }
    }

    fn tensor(&self, index: usize, dtype: Dtype) -> TensorView<'_> {
        TensorView {
            path: Path::new("random"),
            name: TENSORS[index],
            dtype,
            shape: &self.shapes[index.min(1)],
            bytes: &self.bytes[index],
        }
    }

    pub(super) fn linear(&self, name: &str, bias: Option<Vec<f32>>) -> HostLinear<'_> {
        let [weights, scales, biases] = self.kind.dtypes;
        HostLinear {
            name: name.to_owned(),
            out_features: self.rows,
            in_features: self.kind.columns,
            weights: match self.kind.format {
                None => HostWeights::Plain(self.tensor(0, weights)),
                Some(format) => HostWeights::Affine {
                    format,
                    codes: self.tensor(0, Dtype::U32),
                    scales: self.tensor(1, scales),
                    biases: self.tensor(2, biases),
                },
            },
            stored_as: None,
            bias,
        }
    }

    /// The stream of codes of a row in `format`, which is the module's.
    pub(super) fn codes(&self, row: usize, format: AffineFormat) -> &[u8] {
        let bytes = format.bytes_per_row(self.kind.columns);
        &self.bytes[0][row * bytes..(row + 1) * bytes]
    }

    /// A row of weights that are floats.
    pub(super) fn weights(&self, row: usize) -> Vec<f32> {
        self.floats(0, row, self.kind.columns)
    }

    /// Scales and biases of a row.
    pub(super) fn scales_and_biases(&self, row: usize) -> [Vec<f32>; 2] {
        [1, 2].map(|tensor| self.floats(tensor, row, self.kind.groups()))
    }

    fn floats(&self, tensor: usize, row: usize, count: usize) -> Vec<f32> {
        let dtype = self.kind.dtypes[tensor];
        let mut floats = vec![0.0; count];
        let from = row * count * dtype.size_bytes();
        dtype.widen(&self.bytes[tensor][from..], &mut floats);
        floats
    }
}

/// Stores `value` as a file does.
pub(super) fn put(dtype: Dtype, value: f32, out: &mut Vec<u8>) {
    match dtype {
        Dtype::Bf16 => out.extend(bf16::from_f32(value).to_le_bytes()),
        Dtype::F16 => out.extend(f16::from_f32(value).to_le_bytes()),
        _ => out.extend(as_bytes(&[value])),
    }
}

/// What random modules and inputs are made of.
pub(super) struct Random(SplitMix64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// From -1 to 1.
    pub(super) fn uniform(&mut self) -> f32 {
        2.0 * unit_float(self.0.next_bits()) - 1.0
    }

    /// From 1 to `most`.
    pub(super) fn up_to(&mut self, most: usize) -> usize {
        1 + (self.0.next_bits() % most as u64) as usize
    }
}
