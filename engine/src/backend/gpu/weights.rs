//! Matrices on the device: in tiles for the fast kernels, in the order of the file for their slow
//! twin.

use std::sync::Arc;

use crate::backend::gpu::args::{PlainMatrix, TileMatrix};
use crate::backend::gpu::arrange::{SourceRow, Staging, row_tile_bytes, scale_kind};
use crate::backend::gpu::buffer::Buffer;
use crate::backend::gpu::machine::Machine;
use crate::backend::gpu::tiles::{TILE_COLUMNS, TILE_ROWS};
use crate::backend::interface::{HostLinear, HostWeights};
use crate::error::{BackendError, LoadError};

/// Rows of a gate (and of an up matrix) that share a tile.
const GATED_ROWS: usize = TILE_ROWS / 2;

/// Bits of a weight that is no code.
const PLAIN_BITS: i32 = 16;

/// Modules with the same input, one matrix where their formats agree.
#[derive(Debug)]
pub(crate) struct Linear {
    /// The matrices, top to bottom.
    pub(crate) parts: Vec<Matrix>,
    /// Rows of all of them.
    pub(crate) out_features: usize,
}

/// One matrix.
#[derive(Debug)]
pub(crate) struct Matrix {
    /// Its rows.
    pub(crate) rows: usize,
    /// What it is in reports, e.g. `affine 4-bit g64`.
    pub(crate) format: String,
    /// Where it is.
    pub(crate) form: Form,
    _memory: Vec<Buffer>,
}

/// Where a matrix lies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// For the matrix units.
    Tiles(TileMatrix),
    /// For the slow twin.
    Plain(PlainMatrix),
}

impl Linear {
    /// Uploads in tiles.
    pub(crate) fn tiles(
        staging: &mut Staging,
        parts: &[HostLinear<'_>],
    ) -> Result<Self, LoadError> {
        let alike = parts.chunk_by(|a, b| format_of(a) == format_of(b));
        let stacked = alike.map(|parts| {
            let rows_of = |(module, part): (usize, &HostLinear<'_>)| {
                (0..part.out_features).map(move |row| Some((module, row)))
            };
            let rows: Vec<SourceRow> = parts.iter().enumerate().flat_map(rows_of).collect();
            tile_matrix(staging, parts, &rows)
        });
        Self::of(parts, stacked.collect::<Result<_, _>>()?)
    }

    /// Uploads a gate and an up matrix so that a tile has eight rows of each.
    ///
    /// # Errors
    /// When their formats differ.
    pub(crate) fn gated(
        staging: &mut Staging,
        gate: &HostLinear<'_>,
        up: &HostLinear<'_>,
    ) -> Result<Self, LoadError> {
        if format_of(gate) != format_of(up) {
            return Err(LoadError::Backend(BackendError::Unavailable {
                backend: staging.machine().profile().backend,
                reason: format!(
                    "fast arithmetic needs one format for `{}` and `{}`, got {} and {}; float32 \
                     arithmetic takes any",
                    gate.name,
                    up.name,
                    format_of(gate),
                    format_of(up)
                ),
            }));
        }
        let width = gate.out_features;
        let both = [gate.clone(), up.clone()];
        let rows: Vec<SourceRow> = (0..width.div_ceil(GATED_ROWS))
            .flat_map(|eight| [(0, eight), (1, eight)])
            .flat_map(|(module, eight)| {
                let rows = eight * GATED_ROWS..(eight + 1) * GATED_ROWS;
                rows.map(move |row| (row < width).then_some((module, row)))
            })
            .collect();
        let mut matrix = tile_matrix(staging, &both, &rows)?;
        matrix.rows = 2 * width;
        if let Form::Tiles(tiles) = &mut matrix.form {
            tiles.rows = 2 * width as i32;
        }
        Self::of(&both, vec![matrix])
    }

    /// Uploads as the file has it, scales in float32.
    pub(crate) fn plain(
        machine: &Arc<dyn Machine>,
        parts: &[HostLinear<'_>],
    ) -> Result<Self, LoadError> {
        let matrices = parts.iter().map(|part| plain_matrix(machine, part));
        Self::of(parts, matrices.collect::<Result<_, _>>()?)
    }

    fn of(parts: &[HostLinear<'_>], matrices: Vec<Matrix>) -> Result<Self, LoadError> {
        Ok(Self {
            parts: matrices,
            out_features: parts.iter().map(|part| part.out_features).sum(),
        })
    }
}

/// What has to agree for modules to share a matrix.
fn format_of(part: &HostLinear<'_>) -> String {
    match &part.weights {
        HostWeights::Plain(_) => "bf16".to_owned(),
        HostWeights::Affine {
            format,
            scales,
            biases,
            ..
        } => format!("{format} {:?} {:?}", scales.dtype, biases.dtype),
    }
}

/// A matrix of the given rows of `modules`, which have one format.
fn tile_matrix(
    staging: &mut Staging,
    modules: &[HostLinear<'_>],
    rows: &[SourceRow],
) -> Result<Matrix, LoadError> {
    let machine = Arc::clone(staging.machine());
    let (Some(first), false) = (modules.first(), rows.is_empty()) else {
        return Err(LoadError::Backend(BackendError::Unavailable {
            backend: machine.profile().backend,
            reason: "a matrix without rows".to_owned(),
        }));
    };
    let (mut args, format) = tiling(first, rows.len());
    let (code_bytes, scale_bytes) = row_tile_bytes(&args);
    let row_tiles = args.row_tiles as usize;
    let mut memory = vec![Buffer::zeroed(&machine, row_tiles * code_bytes)?];
    args.codes = memory[0].address();
    if args.bits != PLAIN_BITS {
        let scales = Buffer::zeroed(&machine, row_tiles * scale_bytes)?;
        args.scales = scales.address();
        memory.push(scales);
    }
    if let Some(bias) = stacked_bias(modules, rows) {
        let bias = Buffer::of(&machine, &bias)?;
        args.bias = bias.address();
        memory.push(bias);
    }
    staging.arrange(&args, modules, rows)?;
    Ok(Matrix {
        rows: rows.len(),
        format,
        form: Form::Tiles(args),
        _memory: memory,
    })
}

/// The shape of a matrix of `rows` rows like those of `module`, nowhere yet, and its format for
/// reports.
fn tiling(module: &HostLinear<'_>, rows: usize) -> (TileMatrix, String) {
    let shape = TileMatrix {
        rows: rows as i32,
        columns: module.in_features as i32,
        row_tiles: rows.div_ceil(TILE_ROWS) as i32,
        column_tiles: module.in_features.div_ceil(TILE_COLUMNS) as i32,
        bits: PLAIN_BITS,
        group: TILE_COLUMNS as i32,
        ..TileMatrix::default()
    };
    match &module.weights {
        HostWeights::Plain(_) => (shape, "bf16".to_owned()),
        HostWeights::Affine {
            format,
            scales,
            biases,
            ..
        } => {
            let shape = TileMatrix {
                bits: i32::from(format.bits()),
                group: format.group_size() as i32,
                scale_kind: scale_kind(scales.dtype, biases.dtype),
                ..shape
            };
            (shape, format.to_string())
        }
    }
}

/// `[row tiles * 16]`, zero where a module has none; `None` where no module has any.
fn stacked_bias(modules: &[HostLinear<'_>], rows: &[SourceRow]) -> Option<Vec<f32>> {
    if modules.iter().all(|module| module.bias.is_none()) {
        return None;
    }
    let of_row = |row: &SourceRow| {
        let (module, row) = (*row)?;
        modules[module].bias.as_ref().map(|bias| bias[row])
    };
    let mut bias: Vec<f32> = rows
        .iter()
        .map(|row| of_row(row).unwrap_or_default())
        .collect();
    bias.resize(rows.len().next_multiple_of(TILE_ROWS), 0.0);
    Some(bias)
}

fn plain_matrix(machine: &Arc<dyn Machine>, part: &HostLinear<'_>) -> Result<Matrix, LoadError> {
    let mut memory = Vec::new();
    let mut upload = |values: &[f32]| -> Result<u64, LoadError> {
        let buffer = Buffer::of(machine, values)?;
        let address = buffer.address();
        memory.push(buffer);
        Ok(address)
    };
    let mut args = PlainMatrix {
        rows: part.out_features as i32,
        columns: part.in_features as i32,
        group: 1,
        ..PlainMatrix::default()
    };
    if let Some(bias) = &part.bias {
        args.bias = upload(bias)?;
    }
    let format = match &part.weights {
        HostWeights::Plain(tensor) => {
            args.scales = upload(&tensor.to_f32()?)?;
            format!("{:?}", tensor.dtype).to_lowercase()
        }
        HostWeights::Affine {
            format,
            codes,
            scales,
            biases,
        } => {
            args.scales = upload(&scales.to_f32()?)?;
            args.biases = upload(&biases.to_f32()?)?;
            args.bits = i32::from(format.bits());
            args.group = format.group_size() as i32;
            let codes = Buffer::of(machine, codes.bytes)?;
            args.codes = codes.address();
            memory.push(codes);
            format.to_string()
        }
    };
    Ok(Matrix {
        rows: part.out_features,
        format,
        form: Form::Plain(args),
        _memory: memory,
    })
}
