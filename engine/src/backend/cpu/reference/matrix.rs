//! A matrix as the file has it, dequantised one row at a time.

use crate::backend::interface::{HostLinear, HostWeights};
use crate::error::LoadError;
use crate::quant::{AffineFormat, dequantize_row};
use crate::weights::Dtype;

/// Modules stacked by rows.
#[derive(Debug)]
pub(super) struct Matrix {
    parts: Vec<Part>,
    /// Rows of all parts.
    pub(super) out_features: usize,
    /// Columns.
    pub(super) in_features: usize,
}

#[derive(Debug)]
struct Part {
    rows: usize,
    weights: Weights,
    bias: Option<Vec<f32>>,
}

#[derive(Debug)]
enum Weights {
    Plain {
        dtype: Dtype,
        bytes: Vec<u8>,
    },
    Affine {
        format: AffineFormat,
        codes: Vec<u8>,
        scales: Vec<f32>,
        biases: Vec<f32>,
    },
}

impl Matrix {
    /// Copies the parts out of the file.
    pub(super) fn new(parts: &[HostLinear<'_>]) -> Result<Self, LoadError> {
        let copied = parts.iter().map(Part::new).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            out_features: copied.iter().map(|part| part.rows).sum(),
            in_features: parts.first().map_or(0, |part| part.in_features),
            parts: copied,
        })
    }

    /// Row `row` in float32; returns the module's own bias there.
    pub(super) fn read_row(&self, mut row: usize, out: &mut [f32]) -> f32 {
        for part in &self.parts {
            if row < part.rows {
                part.weights.read_row(row, out);
                return part.bias.as_ref().map_or(0.0, |bias| bias[row]);
            }
            row -= part.rows;
        }
        unreachable!("row beyond the matrix")
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = self.parts.iter().map(|part| match &part.weights {
            Weights::Plain { bytes, .. } => bytes.len(),
            Weights::Affine {
                codes,
                scales,
                biases,
                ..
            } => codes.len() + 4 * (scales.len() + biases.len()),
        });
        bytes.sum::<usize>() as u64
    }
}

impl Part {
    fn new(part: &HostLinear<'_>) -> Result<Self, LoadError> {
        let weights = match &part.weights {
            HostWeights::Plain(tensor) => Weights::Plain {
                dtype: tensor.dtype,
                bytes: tensor.bytes.to_vec(),
            },
            HostWeights::Affine {
                format,
                codes,
                scales,
                biases,
            } => Weights::Affine {
                format: *format,
                codes: codes.bytes.to_vec(),
                scales: scales.to_f32()?,
                biases: biases.to_f32()?,
            },
        };
        Ok(Self {
            rows: part.out_features,
            weights,
            bias: part.bias.clone(),
        })
    }
}

impl Weights {
    fn read_row(&self, row: usize, out: &mut [f32]) {
        match self {
            Self::Plain { dtype, bytes } => {
                dtype.widen(&bytes[row * out.len() * dtype.size_bytes()..], out)
            }
            Self::Affine {
                format,
                codes,
                scales,
                biases,
            } => {
                let stream = format.bytes_per_row(out.len());
                let groups = format.groups_per_row(out.len());
                dequantize_row(
                    *format,
                    &codes[row * stream..(row + 1) * stream],
                    &scales[row * groups..(row + 1) * groups],
                    &biases[row * groups..(row + 1) * groups],
                    out,
                );
            }
        }
    }
}
