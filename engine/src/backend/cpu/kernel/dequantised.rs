//! Weights dequantised as a whole, and the dense product with them.
//!
//! The weights are rounded to the type of their scales, as a device without a fused kernel would
//! hold them. The product is float32: a panel of rows is widened, then a library's matrix product
//! does the work (ADR 0021). Panels do not depend on the number of threads, so results do not either;
//! they do depend on the library's choice of instructions, which is the processor's.

#![expect(unsafe_code, reason = "hands checked slices to the library's product")]

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

use super::Kernels;
use super::pool::Disjoint;
use super::repack::{BLOCK_ROWS, QuantisedMatrix};
use super::source::FloatKind;

/// Rows of weights that a task widens and multiplies by.
const PANEL_ROWS: usize = 128;

/// A matrix in row-major order, in the type of its scales.
#[derive(Debug)]
pub struct DequantisedMatrix {
    rows: usize,
    columns: usize,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Half { kind: HalfKind, bits: Vec<u16> },
    Single(Vec<f32>),
}

#[derive(Debug, Clone, Copy)]
enum HalfKind {
    Bf16,
    F16,
}

impl HalfKind {
    fn round(self, from: &[f32], to: &mut [u16]) {
        match self {
            Self::Bf16 => to
                .reinterpret_cast_mut::<bf16>()
                .convert_from_f32_slice(from),
            Self::F16 => to
                .reinterpret_cast_mut::<f16>()
                .convert_from_f32_slice(from),
        }
    }

    fn widen(self, from: &[u16], to: &mut [f32]) {
        match self {
            Self::Bf16 => from.reinterpret_cast::<bf16>().convert_to_f32_slice(to),
            Self::F16 => from.reinterpret_cast::<f16>().convert_to_f32_slice(to),
        }
    }
}

impl DequantisedMatrix {
    /// Dequantises `matrix` on the pool of `kernels`.
    #[must_use]
    pub fn new(kernels: &Kernels, matrix: &QuantisedMatrix) -> Self {
        let (rows, columns) = (matrix.rows(), matrix.columns());
        let chunk = BLOCK_ROWS * columns;
        let pool = kernels.pool();
        let half = |kind: HalfKind| {
            let mut bits = vec![0u16; rows * columns];
            pool.for_chunks(&mut bits, chunk, |block, out| {
                let mut row = vec![0.0; columns];
                for (lane, out) in out.chunks_exact_mut(columns).enumerate() {
                    matrix.dequantise_row(block * BLOCK_ROWS + lane, &mut row);
                    kind.round(&row, out);
                }
            });
            Values::Half { kind, bits }
        };
        let values = match matrix.scale_kind() {
            FloatKind::Bf16 => half(HalfKind::Bf16),
            FloatKind::F16 => half(HalfKind::F16),
            FloatKind::F32 => {
                let mut values = vec![0.0; rows * columns];
                pool.for_chunks(&mut values, columns, |row, out| {
                    matrix.dequantise_row(row, out);
                });
                Values::Single(values)
            }
        };
        Self {
            rows,
            columns,
            values,
        }
    }

    /// Bytes that a matrix of `rows` × `columns` takes in `kind`.
    #[must_use]
    pub fn bytes_of(rows: usize, columns: usize, kind: FloatKind) -> u64 {
        (rows * columns * kind.bytes()) as u64
    }

    /// Rows `first..` as far as `out` reaches, widened.
    fn widen(&self, first: usize, out: &mut [f32]) {
        let range = first * self.columns..first * self.columns + out.len();
        match &self.values {
            Values::Half { kind, bits } => kind.widen(&bits[range], out),
            Values::Single(values) => out.copy_from_slice(&values[range]),
        }
    }
}

/// `y = x Wᵀ`: `x` is `[tokens][columns]`, `y` `[tokens][rows]`.
///
/// # Panics
/// When the length of `x` or `y` does not fit.
pub fn dense_product(kernels: &Kernels, matrix: &DequantisedMatrix, x: &[f32], y: &mut [f32]) {
    let (rows, columns) = (matrix.rows, matrix.columns);
    assert!(
        x.len().is_multiple_of(columns),
        "whole tokens of {columns} columns"
    );
    let tokens = x.len() / columns;
    assert_eq!(y.len(), tokens * rows, "length of the output");
    let y = Disjoint::new(y);
    kernels.pool().run_tasks(rows.div_ceil(PANEL_ROWS), |task| {
        let first = task * PANEL_ROWS;
        let panel_rows = PANEL_ROWS.min(rows - first);
        let mut panel = vec![0.0; panel_rows * columns];
        matrix.widen(first, &mut panel);
        // SAFETY: `x` is tokens × columns, `panel` panel_rows × columns and read transposed; the
        // output's rows are `rows` floats apart, of which this task alone writes panel_rows from
        // `first` on. With a beta of 0 the output is not read.
        unsafe {
            matrixmultiply::sgemm(
                tokens,
                columns,
                panel_rows,
                1.0,
                x.as_ptr(),
                columns as isize,
                1,
                panel.as_ptr(),
                1,
                columns as isize,
                0.0,
                y.as_ptr().add(first),
                rows as isize,
                1,
            );
        }
    });
}
