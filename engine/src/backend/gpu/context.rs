//! The loaded model on its machine, and how each kernel is launched on it.

use std::sync::Arc;

use crate::backend::gpu::args::{
    MatrixArgs, OUT_BEST, OUT_GATED, OUT_STORE, PickArgs, PlainMatrixArgs, RowInput, VectorArgs,
};
use crate::backend::gpu::buffer::{Buffer, Plain, as_bytes};
use crate::backend::gpu::machine::{Launch, Machine};
use crate::backend::gpu::matrix::{self, MatrixUnits};
use crate::backend::gpu::routes::Routes;
use crate::backend::gpu::tiles::TILE_COLUMNS;
use crate::backend::gpu::vector_cut::{Neighbours, VectorCut, VectorKernel};
use crate::backend::gpu::weights::{Form, Linear, Matrix};
use crate::backend::interface::{Activation, Arithmetic, Norm};
use crate::error::BackendError;

/// Weights, and where they are.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) arithmetic: Arithmetic,
    pub(crate) linears: Vec<Linear>,
    pub(crate) gated: Vec<Linear>,
    pub(crate) vectors: Vec<Buffer>,
    pub(crate) units: usize,
    pub(crate) routes: Routes,
}

/// A matrix's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// As it is.
    Store,
    /// As the sum of two rows where [`Model::in_pieces`] says so; the second from this address on.
    Pieces(u64),
    /// Rows of gate and up alternate by eights.
    Gated(Activation),
    /// Each block also tells its largest, from this address on.
    Best(u64),
}

impl Output {
    /// Products of a model that one launch is.
    fn products(self) -> u64 {
        1 + u64::from(matches!(self, Self::Gated(_)))
    }
}

impl Model {
    /// Queues a kernel.
    pub(crate) fn launch<T: Plain>(
        &self,
        kernel: &'static str,
        launch: Launch,
        args: &T,
    ) -> Result<(), BackendError> {
        self.machine
            .launch(kernel, launch, as_bytes(std::slice::from_ref(args)))
    }

    /// A grid of blocks of the usual size.
    pub(crate) fn blocks(&self, grid: (usize, usize)) -> Launch {
        Launch {
            grid: (grid.0 as u32, grid.1 as u32),
            threads: self.machine.tuning().threads,
            shared_bytes: 0,
            overlaps: false,
            cluster: 1,
        }
    }

    /// Address and eps of a norm; 0 for none.
    pub(crate) fn norm(&self, norm: Option<Norm>) -> (u64, f32) {
        norm.map_or((0, 0.0), |norm| {
            (self.vectors[norm.weight.0].address(), norm.eps)
        })
    }

    /// Whether a product with one row may leave its result in two pieces.
    pub(crate) fn in_pieces(&self, linear: &Linear) -> bool {
        match linear.parts.as_slice() {
            [
                Matrix {
                    form: Form::Tiles(w),
                    ..
                },
            ] => VectorCut::of(w, self.units, true).in_pieces,
            _ => false,
        }
    }

    /// `y = W x` for one row; returns the blocks of the last matrix.
    pub(crate) fn vector_product(
        &self,
        linear: &Linear,
        input: RowInput,
        (y, output): (u64, Output),
        next_to: Neighbours,
    ) -> Result<usize, BackendError> {
        let in_pieces = self.in_pieces(linear);
        let mut at = y;
        let mut blocks = 0;
        for (index, part) in linear.parts.iter().enumerate() {
            let Form::Tiles(w) = part.form else {
                return Err(unexpected_form());
            };
            self.routes.count(&w, 1, output.products());
            let y_rest = match output {
                Output::Pieces(rest) if in_pieces => rest,
                _ => 0,
            };
            let cut = VectorCut::of(&w, self.units, y_rest != 0);
            let kernel = VectorKernel::of(&w, &cut, next_to, self.machine.tuning());
            let args = VectorArgs {
                w,
                input: RowInput {
                    // The row is brought up to date once.
                    x_out: if index == 0 { input.x_out } else { 0 },
                    one_over_columns: 1.0 / w.columns as f32,
                    ..input
                },
                y: at,
                y_rest,
                best: if let Output::Best(best) = output {
                    best
                } else {
                    0
                },
                shares: cut.shares(kernel.threads),
                output: match output {
                    Output::Store | Output::Pieces(_) => OUT_STORE,
                    Output::Gated(_) => OUT_GATED,
                    Output::Best(_) => OUT_BEST,
                },
                gate: gate_kind(output),
            };
            self.launch(kernel.name, kernel.launch(&cut), &args)?;
            at += 4 * part.rows as u64;
            blocks = cut.blocks;
        }
        Ok(blocks)
    }

    /// `Y = X Wᵀ` for `tokens` rows. Float32 `x` is `[token][columns]`, bf16 has the order of
    /// `activations.h`; `y` is `[token][y_stride]` in float32, or gated the next product's `x`.
    pub(crate) fn matrix_product(
        &self,
        linear: &Linear,
        x: u64,
        (y, y_stride): (u64, usize),
        tokens: usize,
        output: Output,
    ) -> Result<(), BackendError> {
        let mut at = y;
        for part in &linear.parts {
            match part.form {
                Form::Tiles(w) => {
                    self.routes.count(&w, tokens, output.products());
                    let machine = MatrixUnits {
                        units: self.units as u32,
                        warpgroups: self.machine.tuning().warpgroups,
                    };
                    let (kernel, launch) = matrix::cut(&w, tokens as u32, machine);
                    let args = MatrixArgs {
                        w,
                        x,
                        y: at,
                        tokens: tokens as i32,
                        y_stride: y_stride as i32,
                        gated: i32::from(matches!(output, Output::Gated(_))),
                        gate: gate_kind(output),
                    };
                    self.launch(kernel, launch, &args)?;
                }
                Form::Plain(w) => {
                    let args = PlainMatrixArgs {
                        w,
                        x,
                        y: at,
                        tokens: tokens as i32,
                        stride: w.columns,
                        y_stride: y_stride as i32,
                        padding: 0,
                    };
                    let warps = self.machine.tuning().threads as usize / 32;
                    let launch = self.blocks((part.rows.div_ceil(warps), tokens));
                    self.launch("plain_product", launch, &args)?;
                }
            }
            at += 4 * part.rows as u64;
        }
        Ok(())
    }

    /// Queues the choice of the largest of `blocks` blocks' best.
    pub(crate) fn pick(&self, args: &PickArgs) -> Result<(), BackendError> {
        let launch = Launch {
            overlaps: true,
            ..self.blocks((1, 1))
        };
        self.launch("pick", launch, args)
    }
}

/// Padded to whole tiles.
pub(crate) fn padded(columns: usize) -> usize {
    columns.next_multiple_of(TILE_COLUMNS)
}

/// What the kernels call an activation.
pub(crate) fn activation_kind(activation: Activation) -> i32 {
    match activation {
        Activation::Silu => 0,
        Activation::GeluTanh => 1,
    }
}

fn gate_kind(output: Output) -> i32 {
    match output {
        Output::Gated(activation) => activation_kind(activation),
        _ => 0,
    }
}

fn unexpected_form() -> BackendError {
    BackendError::Stopped {
        reason: "a matrix in the order of the file where tiles are expected".to_owned(),
    }
}
