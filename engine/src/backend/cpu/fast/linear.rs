//! A linear module (or several, stacked) as the kernels read it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::backend::cpu::kernel::elementwise;
use crate::backend::cpu::kernel::{
    Activations, AffineSource, FloatKind, FloatSource, Gate, Kernels, PlainMatrix, PlainSource,
    QuantisedMatrix, RepackError, gated_product, plain_product, product_argmax,
};
use crate::backend::cpu::open::unavailable;
use crate::backend::cpu::routed::RoutedProducts;
use crate::backend::interface::{HostLinear, HostWeights};
use crate::error::LoadError;
use crate::weights::{Dtype, TensorView};

/// Rows of one or more modules with the same input.
#[derive(Debug)]
pub(super) struct FastLinear {
    segments: Vec<Matrix>,
    bias: Option<Vec<f32>>,
    /// Rows of all segments.
    pub(super) out_features: usize,
    /// Columns.
    pub(super) in_features: usize,
}

#[derive(Debug)]
enum Matrix {
    Quantised(Arc<QuantisedMatrix>),
    Plain(PlainMatrix),
}

/// What products are computed with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Device<'a> {
    /// Threads and instruction set.
    pub(super) kernels: &'a Kernels,
    /// Which route each product takes.
    pub(super) products: &'a RoutedProducts,
}

/// Buffers that products need, kept between calls.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    activations: Activations,
    segment: Vec<f32>,
}

impl FastLinear {
    /// Repacks `parts`, into one matrix where their formats allow it.
    ///
    /// # Errors
    /// When a part has a format or type without a kernel.
    pub(super) fn new(kernels: &Kernels, parts: &[HostLinear<'_>]) -> Result<Self, LoadError> {
        let mut segments = Vec::new();
        let mut rest = parts;
        while !rest.is_empty() {
            let alike = rest
                .iter()
                .take_while(|part| stackable(&rest[0], part))
                .count();
            let (stack, later) = rest.split_at(alike);
            segments.push(Matrix::repack(kernels, stack)?);
            rest = later;
        }
        let out_features = parts.iter().map(|part| part.out_features).sum();
        Ok(Self {
            segments,
            bias: stacked_bias(parts),
            out_features,
            in_features: parts.first().map_or(0, |part| part.in_features),
        })
    }

    /// `y = x Wᵀ + bias`; `x` is `[tokens, in]`, `y` `[tokens, out]`.
    pub(super) fn apply(
        &self,
        device: Device<'_>,
        x: &[f32],
        scratch: &mut Scratch,
        y: &mut [f32],
    ) {
        let tokens = x.len() / self.in_features;
        let mut first_row = 0;
        for matrix in &self.segments {
            let rows = matrix.rows();
            if rows == self.out_features {
                matrix.apply(device, x, &mut scratch.activations, y);
            } else {
                let values = sized(&mut scratch.segment, tokens * rows);
                matrix.apply(device, x, &mut scratch.activations, values);
                let targets = y.chunks_exact_mut(self.out_features);
                for (to, from) in targets.zip(values.chunks_exact(rows)) {
                    to[first_row..first_row + rows].copy_from_slice(from);
                }
            }
            first_row += rows;
        }
        if let Some(bias) = &self.bias {
            for row in y.chunks_exact_mut(self.out_features) {
                row.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
            }
        }
    }

    /// The index of the largest product with one token, where a kernel finds it on the way; `None`,
    /// and nothing done, elsewhere. The products are written to `y` if there is one.
    pub(super) fn argmax(
        &self,
        device: Device<'_>,
        x: &[f32],
        scratch: &mut Scratch,
        y: Option<&mut [f32]>,
    ) -> Option<u32> {
        let ([Matrix::Quantised(matrix)], None) = (self.segments.as_slice(), &self.bias) else {
            return None;
        };
        let route = device.products.route(matrix, 1);
        if x.len() != matrix.columns() || route.dequantises() {
            return None;
        }
        device.products.count(route);
        let (kernels, activations) = (device.kernels, &mut scratch.activations);
        activations.quantise(kernels, x, matrix.columns(), matrix.group());
        Some(product_argmax(kernels, matrix, activations, y) as u32)
    }

    /// Row `row` in float32, for embeddings.
    pub(super) fn copy_row(&self, mut row: usize, out: &mut [f32]) {
        for matrix in &self.segments {
            if row < matrix.rows() {
                match matrix {
                    Matrix::Quantised(matrix) => matrix.dequantise_row(row, out),
                    Matrix::Plain(matrix) => matrix.copy_row(row, out),
                }
                return;
            }
            row -= matrix.rows();
        }
        unreachable!("row beyond the matrix")
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = self.segments.iter().map(|matrix| match matrix {
            Matrix::Quantised(matrix) => matrix.bytes(),
            Matrix::Plain(matrix) => matrix.bytes(),
        });
        bytes.sum::<usize>() as u64
    }

    /// Adds this matrix's roles to a report: role → instruction set and arithmetic.
    pub(super) fn report(&self, kernels: &Kernels, roles: &mut BTreeMap<String, String>) {
        for matrix in &self.segments {
            let (role, arithmetic) = match matrix {
                Matrix::Quantised(matrix) => (
                    format!("affine {}-bit g{}", matrix.source_bits(), matrix.group()),
                    format!("{}-bit codes × int8", matrix.code_bits()),
                ),
                Matrix::Plain(matrix) => (
                    format!("{:?}", matrix.kind()).to_lowercase(),
                    "float32".to_owned(),
                ),
            };
            roles.insert(role, format!("{} {arithmetic}", kernels.isa()));
        }
    }
}

/// `act(G x) · (U x)`: fused where both are quantised alike, in three passes elsewhere.
#[derive(Debug)]
pub(super) struct FastGated {
    gate: FastLinear,
    up: FastLinear,
}

impl FastGated {
    /// Repacks both.
    ///
    /// # Errors
    /// When one has a format or type without a kernel.
    pub(super) fn new(
        kernels: &Kernels,
        gate: &HostLinear<'_>,
        up: &HostLinear<'_>,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            gate: FastLinear::new(kernels, std::slice::from_ref(gate))?,
            up: FastLinear::new(kernels, std::slice::from_ref(up))?,
        })
    }

    /// Rows of either matrix.
    pub(super) fn out_features(&self) -> usize {
        self.gate.out_features
    }

    /// The two matrices.
    pub(super) fn matrices(&self) -> [&FastLinear; 2] {
        [&self.gate, &self.up]
    }

    /// `x` is `[tokens, in]`, `y` `[tokens, out]`; `spare` is used when nothing fused fits.
    pub(super) fn apply(
        &self,
        device: Device<'_>,
        function: Gate,
        x: &[f32],
        (scratch, spare): (&mut Scratch, &mut Vec<f32>),
        y: &mut [f32],
    ) {
        if let ([Matrix::Quantised(gate)], None, [Matrix::Quantised(up)], None) = (
            self.gate.segments.as_slice(),
            &self.gate.bias,
            self.up.segments.as_slice(),
            &self.up.bias,
        ) && gate.group() == up.group()
            && let routes =
                [gate, up].map(|matrix| device.products.route(matrix, x.len() / matrix.columns()))
            && !routes.iter().any(|route| route.dequantises())
        {
            routes
                .iter()
                .for_each(|route| device.products.count(*route));
            let kernels = device.kernels;
            let activations = &mut scratch.activations;
            activations.quantise(kernels, x, gate.columns(), gate.group());
            gated_product(kernels, gate, up, function, activations, y);
            return;
        }
        let spare = sized(spare, 2 * y.len());
        let (gates, ups) = spare.split_at_mut(y.len());
        self.gate.apply(device, x, scratch, gates);
        self.up.apply(device, x, scratch, ups);
        elementwise::gate(device.kernels, function, gates, ups, y);
    }
}

impl Matrix {
    fn repack(kernels: &Kernels, parts: &[HostLinear<'_>]) -> Result<Self, LoadError> {
        let mut affine = Vec::new();
        let mut plain = Vec::new();
        for part in parts {
            let (rows, columns) = (part.out_features, part.in_features);
            match &part.weights {
                HostWeights::Plain(tensor) => plain.push(PlainSource {
                    rows,
                    columns,
                    values: float_source(tensor)?,
                }),
                HostWeights::Affine {
                    format,
                    codes,
                    scales,
                    biases,
                } => affine.push(AffineSource {
                    rows,
                    columns,
                    bits: usize::from(format.bits()),
                    group: format.group_size(),
                    codes: codes.bytes,
                    scales: float_source(scales)?,
                    biases: float_source(biases)?,
                }),
            }
        }
        let name = |error: RepackError| {
            let modules: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
            unavailable(format!("{}: {error}", modules.join(", ")))
        };
        if affine.is_empty() {
            PlainMatrix::repack(kernels, &plain)
                .map(Matrix::Plain)
                .map_err(name)
        } else {
            QuantisedMatrix::repack(kernels, &affine)
                .map(|matrix| Matrix::Quantised(Arc::new(matrix)))
                .map_err(name)
        }
    }

    fn rows(&self) -> usize {
        match self {
            Self::Quantised(matrix) => matrix.rows(),
            Self::Plain(matrix) => matrix.rows(),
        }
    }

    fn apply(&self, device: Device<'_>, x: &[f32], activations: &mut Activations, y: &mut [f32]) {
        match self {
            Self::Quantised(matrix) => {
                let products = device.products;
                products.product(device.kernels, matrix, activations, x, y);
            }
            Self::Plain(matrix) => plain_product(device.kernels, matrix, x, y),
        }
    }
}

/// Whether two modules can be one matrix: both plain, or the same group and width of code.
fn stackable(a: &HostLinear<'_>, b: &HostLinear<'_>) -> bool {
    match (&a.weights, &b.weights) {
        (HostWeights::Plain(_), HostWeights::Plain(_)) => true,
        (HostWeights::Affine { format: a, .. }, HostWeights::Affine { format: b, .. }) => {
            a.group_size() == b.group_size() && (a.bits() <= 4) == (b.bits() <= 4)
        }
        _ => false,
    }
}

fn stacked_bias(parts: &[HostLinear<'_>]) -> Option<Vec<f32>> {
    parts.iter().any(|part| part.bias.is_some()).then(|| {
        let biases = parts.iter().map(|part| {
            let zeros = || vec![0.0; part.out_features];
            part.bias.clone().unwrap_or_else(zeros)
        });
        biases.flatten().collect()
    })
}

fn float_source<'a>(tensor: &TensorView<'a>) -> Result<FloatSource<'a>, LoadError> {
    let kind = match tensor.dtype {
        Dtype::Bf16 => FloatKind::Bf16,
        Dtype::F16 => FloatKind::F16,
        Dtype::F32 => FloatKind::F32,
        _ => return Err(tensor.mismatch("F32, F16 or BF16 elements".to_owned())),
    };
    Ok(FloatSource {
        kind,
        bytes: tensor.bytes,
    })
}

/// The first `len` floats of a buffer that only grows.
pub(super) fn sized(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    &mut buffer[..len]
}
