//! Products with random modules in float64, by way of the reference dequantiser.

use half::bf16;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::backend::gpu::random_module::{Kind, Module, Random};
use crate::backend::interface::{Activation, HostLinear};
use crate::quant::{AffineFormat, dequantize_row};
use crate::weights::Dtype;

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

impl Format {
    fn kind(&self) -> Kind {
        Kind {
            format: AffineFormat::new(self.bits, self.group as u64).ok(),
            columns: self.columns,
            dtypes: [Dtype::Bf16, self.scales, self.scales],
        }
    }
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

/// A module, and its weights in the open.
pub(super) struct HostMatrix {
    module: Module,
    bias: Option<Vec<f32>>,
    /// By the reference dequantiser.
    weights: Vec<f32>,
    /// What a code's share in a sum may be at most before the offset is taken off again.
    weight_sizes: Vec<f64>,
}

impl HostMatrix {
    pub(super) fn new(format: Format, random: &mut Random) -> Self {
        let rows = format.rows;
        let bias = format
            .bias
            .then(|| (0..rows).map(|_| random.uniform()).collect());
        let mut matrix = Self {
            module: Module::new(format.kind(), rows, random),
            bias,
            weights: Vec::new(),
            weight_sizes: Vec::new(),
        };
        for row in 0..rows {
            match matrix.module.kind.format {
                None => matrix.add_plain_row(row),
                Some(affine) => matrix.add_affine_row(row, affine),
            }
        }
        matrix
    }

    fn add_plain_row(&mut self, row: usize) {
        let weights = self.module.weights(row);
        let sizes = weights.iter().map(|weight| f64::from(weight.abs()));
        self.weight_sizes.extend(sizes);
        self.weights.extend(weights);
    }

    fn add_affine_row(&mut self, row: usize, format: AffineFormat) {
        let [scales, biases] = self.module.scales_and_biases(row);
        let mut weights = vec![0.0; self.module.kind.columns];
        let codes = self.module.codes(row, format);
        dequantize_row(format, codes, &scales, &biases, &mut weights);
        self.weights.extend(weights);
        let most = 128.0 + f32::from(format.max_code());
        for (scale, bias) in scales.iter().zip(&biases) {
            let size = f64::from(most * scale.abs() + bias.abs());
            let sizes = std::iter::repeat_n(size, format.group_size());
            self.weight_sizes.extend(sizes);
        }
    }

    pub(super) fn linear(&self, name: &str) -> HostLinear<'_> {
        self.module.linear(name, self.bias.clone())
    }

    /// `x Wᵀ` by tokens, weights as they are or `rounded` to bf16.
    pub(super) fn times(&self, x: &[f32], rounded: bool) -> Vec<Sum> {
        let (rows, columns) = (self.module.rows, self.module.kind.columns);
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
