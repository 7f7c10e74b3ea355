//! Random matrices as a file has them, and products with them in float64 by way of the reference
//! dequantiser.

use std::path::Path;

use half::{bf16, f16};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::backend::gpu::buffer::as_bytes;
use crate::backend::interface::{Activation, HostLinear, HostWeights};
use crate::quant::{AffineFormat, dequantize_row};
use crate::random::{SplitMix64, unit_float};
use crate::weights::{Dtype, TensorView};

/// Bits of a matrix whose weights are bf16 and no codes.
pub(super) const PLAIN: u64 = 16;

/// What a random matrix is like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    pub(super) bits: u64,
    pub(super) group: usize,
    pub(super) columns: usize,
    pub(super) scales: Dtype,
    pub(super) rows: usize,
    pub(super) bias: bool,
}

/// A sum and how far a result may be from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sum {
    value: f64,
    tolerance: f64,
    vector_tolerance: f64,
}

impl Sum {
    pub(super) fn of_vector(self) -> Self {
        Self {
            tolerance: self.vector_tolerance,
            ..self
        }
    }

    /// Stored as bf16.
    pub(super) fn rounded(self) -> Self {
        Self {
            tolerance: self.tolerance + self.value.abs() / 256.0,
            ..self
        }
    }

    pub(super) fn expect(self, got: f64, row: usize, token: usize) -> Result<(), TestCaseError> {
        let off = (got - self.value).abs();
        prop_assert!(
            off <= self.tolerance,
            "row {row} of token {token}: expected {} ± {}, got {got}",
            self.value,
            self.tolerance
        );
        Ok(())
    }
}

pub(super) fn gated(kind: Activation, gate: Sum, up: Sum) -> Sum {
    let g = gate.value;
    let act = match kind {
        Activation::Silu => g / (1.0 + (-g).exp()),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g * g * g);
            0.5 * g * (1.0 + inner.tanh())
        }
    };
    // Neither activation is steeper than 1.2; exponentials are approximate.
    let through_gate =
        (1.2 * gate.tolerance + 1e-5 * (1.0 + g.abs())) * (up.value.abs() + up.tolerance);
    Sum {
        value: act * up.value,
        tolerance: through_gate + act.abs() * up.tolerance,
        vector_tolerance: f64::NAN,
    }
}

/// A matrix as a file has it.
pub(super) struct HostMatrix {
    format: Format,
    codes: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
    bias: Option<Vec<f32>>,
    /// By the reference dequantiser.
    weights: Vec<f32>,
    /// What a code's share in a sum may be at most before the offset is taken off again.
    weight_sizes: Vec<f64>,
    shapes: [Vec<usize>; 2],
}

impl HostMatrix {
    pub(super) fn new(format: Format, random: &mut Random) -> Self {
        let Format { rows, columns, .. } = format;
        let groups = columns / format.group;
        let mut matrix = Self {
            format,
            codes: Vec::new(),
            scales: Vec::new(),
            biases: Vec::new(),
            bias: format
                .bias
                .then(|| (0..rows).map(|_| random.uniform()).collect()),
            weights: vec![0.0; rows * columns],
            weight_sizes: vec![0.0; rows * columns],
            shapes: [vec![rows, columns], vec![rows, groups]],
        };
        let Ok(affine) = AffineFormat::new(format.bits, format.group as u64) else {
            for (weight, size) in matrix.weights.iter_mut().zip(&mut matrix.weight_sizes) {
                let value = bf16::from_f32(random.uniform());
                *weight = value.to_f32();
                *size = f64::from(weight.abs());
                matrix.codes.extend(value.to_le_bytes());
            }
            return matrix;
        };
        matrix.codes = (0..rows * affine.bytes_per_row(columns))
            .map(|_| random.0.next_bits() as u8)
            .collect();
        let most = f32::from(affine.max_code());
        let stream = affine.bytes_per_row(columns);
        for row in 0..rows {
            let mut scales = vec![0.0; groups];
            let mut biases = vec![0.0; groups];
            for group in 0..groups {
                scales[group] = put(format.scales, random.uniform() / most, &mut matrix.scales);
                biases[group] = put(format.scales, random.uniform(), &mut matrix.biases);
            }
            let codes = &matrix.codes[row * stream..(row + 1) * stream];
            let range = row * columns..(row + 1) * columns;
            dequantize_row(
                affine,
                codes,
                &scales,
                &biases,
                &mut matrix.weights[range.clone()],
            );
            for (column, size) in matrix.weight_sizes[range].iter_mut().enumerate() {
                let group = column / format.group;
                *size = f64::from((128.0 + most) * scales[group].abs() + biases[group].abs());
            }
        }
        matrix
    }

    pub(super) fn linear(&self, name: &'static str) -> HostLinear<'_> {
        let view = |dtype, shape: &'static str, bytes| TensorView {
            path: Path::new("random"),
            name: shape,
            dtype,
            shape: &self.shapes[usize::from(shape != "weight")],
            bytes,
        };
        let weights = match AffineFormat::new(self.format.bits, self.format.group as u64) {
            Err(_) => HostWeights::Plain(view(Dtype::Bf16, "weight", &self.codes)),
            Ok(format) => HostWeights::Affine {
                format,
                codes: view(Dtype::U32, "weight", &self.codes),
                scales: view(self.format.scales, "scales", &self.scales),
                biases: view(self.format.scales, "biases", &self.biases),
            },
        };
        HostLinear {
            name: name.to_owned(),
            out_features: self.format.rows,
            in_features: self.format.columns,
            weights,
            bias: self.bias.clone(),
        }
    }

    /// `x Wᵀ` by tokens, weights as they are or `rounded` to bf16.
    pub(super) fn times(&self, x: &[f32], rounded: bool) -> Vec<Sum> {
        let (rows, columns) = (self.format.rows, self.format.columns);
        let weight = |value: &f32| match rounded {
            true => bf16::from_f32(*value).to_f64(),
            false => f64::from(*value),
        };
        let exact: Vec<f64> = self.weights.iter().map(weight).collect();
        let sizes: Vec<f64> = exact.iter().map(|weight| weight.abs()).collect();
        let inputs: Vec<f64> = x.iter().map(|value| f64::from(*value)).collect();
        let input_sizes: Vec<f64> = inputs.iter().map(|value| value.abs()).collect();
        let tokens = x.len() / columns;
        let values = transposed_product(&inputs, &exact, tokens, columns, rows);
        let sums = transposed_product(&input_sizes, &sizes, tokens, columns, rows);
        let shares = match tokens {
            1 => transposed_product(&input_sizes, &self.weight_sizes, 1, columns, rows),
            _ => sums.clone(),
        };
        // A weight in the middle of two bf16 numbers may become the other one: two of the largest of a row, by
        // inputs of at most 1, may be off by 2^-7 of themselves.
        let flips: Vec<f64> = sizes
            .chunks_exact(columns)
            .map(|row| match rounded {
                true => row.iter().fold(0.0, |most: f64, size| most.max(*size)) / 64.0,
                false => 0.0,
            })
            .collect();
        (0..tokens * rows)
            .map(|at| {
                let bias = self.bias.as_ref().map_or(0.0, |b| f64::from(b[at % rows]));
                Sum {
                    value: values[at] + bias,
                    tolerance: sums[at] * 1e-5 + flips[at % rows] + 1e-6,
                    vector_tolerance: shares[at] * 4e-6 + 1e-6,
                }
            })
            .collect()
    }
}

/// `a bᵀ`, `a` `[m, k]`, `b` `[n, k]`.
fn transposed_product(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    let rows = a.chunks_exact(k);
    let sums: Vec<f64> = rows
        .flat_map(|x| b.chunks_exact(k).map(move |y| dot(x, y)))
        .collect();
    assert_eq!(sums.len(), m * n);
    sums
}

/// In eight sums, which the compiler makes vectors of; `x` is as long as a multiple of eight.
fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    for (x, y) in x.as_chunks::<8>().0.iter().zip(y.as_chunks::<8>().0) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    sums.iter().sum()
}

/// Stores `value` and returns what it has become.
pub(super) fn put(dtype: Dtype, value: f32, out: &mut Vec<u8>) -> f32 {
    match dtype {
        Dtype::Bf16 => {
            out.extend(bf16::from_f32(value).to_le_bytes());
            bf16::from_f32(value).to_f32()
        }
        Dtype::F16 => {
            out.extend(f16::from_f32(value).to_le_bytes());
            f16::from_f32(value).to_f32()
        }
        _ => {
            out.extend(as_bytes(&[value]));
            value
        }
    }
}

/// What random matrices and inputs are made of.
pub(super) struct Random(pub(super) SplitMix64);

impl Random {
    /// From -1 to 1.
    pub(super) fn uniform(&mut self) -> f32 {
        2.0 * unit_float(self.0.next_bits()) - 1.0
    }

    /// From 1 to `most`.
    pub(super) fn up_to(&mut self, most: usize) -> usize {
        1 + (self.0.next_bits() % most as u64) as usize
    }
}
