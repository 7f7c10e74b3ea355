//! Matrices on the device: in tiles for the fast kernels, in the order of the file for their slow
//! twin.

use std::sync::Arc;

use half::bf16;

use crate::backend::gpu::args::{PlainMatrix, TileMatrix};
use crate::backend::gpu::buffer::Buffer;
use crate::backend::gpu::machine::Machine;
use crate::backend::gpu::tiles::{Layout, TILE_COLUMNS, TILE_ROWS, pack_bf16_tile, pack_tile};
use crate::backend::interface::{HostLinear, HostWeights};
use crate::error::{BackendError, LoadError};
use crate::quant::pack::unpack_row;
use crate::weights::{Dtype, TensorView};

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
        machine: &Arc<dyn Machine>,
        parts: &[HostLinear<'_>],
    ) -> Result<Self, LoadError> {
        let alike = parts.chunk_by(|a, b| format_of(a) == format_of(b));
        let stacked = alike.map(|parts| {
            let rows = parts
                .iter()
                .flat_map(|part| (0..part.out_features).map(move |row| Some((part, row))));
            tile_matrix(machine, &rows.collect::<Vec<_>>())
        });
        Self::of(parts, stacked.collect::<Result<_, _>>()?)
    }

    /// Uploads a gate and an up matrix so that a tile has eight rows of each.
    ///
    /// # Errors
    /// When their formats differ.
    pub(crate) fn gated(
        machine: &Arc<dyn Machine>,
        gate: &HostLinear<'_>,
        up: &HostLinear<'_>,
    ) -> Result<Self, LoadError> {
        if format_of(gate) != format_of(up) {
            return Err(LoadError::Backend(BackendError::Unavailable {
                backend: machine.profile().backend,
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
        let rows = (0..width.div_ceil(GATED_ROWS)).flat_map(|eight| {
            let row = move |matrix, row| (row < width).then_some((matrix, row));
            let first = eight * GATED_ROWS;
            let of = move |matrix| (first..first + GATED_ROWS).map(move |r| row(matrix, r));
            of(gate).chain(of(up))
        });
        let mut matrix = tile_matrix(machine, &rows.collect::<Vec<_>>())?;
        matrix.rows = 2 * width;
        if let Form::Tiles(tiles) = &mut matrix.form {
            tiles.rows = 2 * width as i32;
        }
        Self::of(&[gate.clone(), up.clone()], vec![matrix])
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
        HostWeights::Affine { format, scales, .. } => format!("{format} {:?}", scales.dtype),
    }
}

type PackedRow<'a> = Option<(&'a HostLinear<'a>, usize)>;

/// A matrix of the given rows; `None` is a row of zeros.
fn tile_matrix(machine: &Arc<dyn Machine>, rows: &[PackedRow<'_>]) -> Result<Matrix, LoadError> {
    let Some(&(first, _)) = rows.iter().flatten().next() else {
        return Err(LoadError::Backend(BackendError::Unavailable {
            backend: machine.profile().backend,
            reason: "a matrix without rows".to_owned(),
        }));
    };
    let columns = first.in_features;
    let shape = Tiling {
        layout: machine.layout(),
        columns,
        row_tiles: rows.len().div_ceil(TILE_ROWS),
        column_tiles: columns.div_ceil(TILE_COLUMNS),
    };
    let bias = rows
        .iter()
        .any(|row| row.is_some_and(|(m, _)| m.bias.is_some()));
    let bias: Vec<f32> = match bias {
        true => (0..shape.row_tiles * TILE_ROWS)
            .map(|row| {
                let (matrix, row) = (*rows.get(row)?)?;
                matrix.bias.as_ref().map(|bias| bias[row])
            })
            .map(Option::unwrap_or_default)
            .collect(),
        false => Vec::new(),
    };
    let codes = Buffer::of(machine, &pack_codes(shape, rows, first)?)?;
    let (scale_kind, scales) = pack_scales(shape, rows, first)?;
    let scales = Buffer::of(machine, &scales)?;
    let bias = match bias.is_empty() {
        true => None,
        false => Some(Buffer::of(machine, &bias)?),
    };
    let (bits, group) = match first.weights {
        HostWeights::Plain(_) => (PLAIN_BITS, TILE_COLUMNS as i32),
        HostWeights::Affine { format, .. } => {
            (i32::from(format.bits()), format.group_size() as i32)
        }
    };
    let args = TileMatrix {
        codes: codes.address(),
        scales: scales.address(),
        bias: bias.as_ref().map_or(0, Buffer::address),
        rows: rows.len() as i32,
        columns: columns as i32,
        row_tiles: shape.row_tiles as i32,
        column_tiles: shape.column_tiles as i32,
        bits,
        group,
        scale_kind,
        padding: 0,
    };
    Ok(Matrix {
        rows: rows.len(),
        format: match first.weights {
            HostWeights::Plain(_) => "bf16".to_owned(),
            HostWeights::Affine { format, .. } => format.to_string(),
        },
        form: Form::Tiles(args),
        _memory: [codes, scales].into_iter().chain(bias).collect(),
    })
}

#[derive(Clone, Copy)]
struct Tiling {
    layout: Layout,
    columns: usize,
    row_tiles: usize,
    column_tiles: usize,
}

/// Tiles one after the other, `[row tile][column tile]`; cores share the work.
fn pack_codes(
    shape: Tiling,
    rows: &[PackedRow<'_>],
    first: &HostLinear<'_>,
) -> Result<Vec<u32>, LoadError> {
    if let HostWeights::Plain(tensor) = &first.weights
        && !tensor.dtype.is_float()
    {
        return Err(tensor.mismatch("F32, F16 or BF16 elements".to_owned()));
    }
    let bits = match first.weights {
        HostWeights::Plain(_) => PLAIN_BITS as usize,
        HostWeights::Affine { format, .. } => usize::from(format.bits()),
    };
    let row_tile_words = shape.column_tiles * TILE_ROWS * TILE_COLUMNS * bits / 32;
    let mut words = vec![0u32; shape.row_tiles * row_tile_words];
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let share = shape.row_tiles.div_ceil(workers).max(1);
    let order = shape.layout.order();
    std::thread::scope(|scope| {
        let shares = words.chunks_mut(share * row_tile_words);
        for (out, rows) in shares.zip(rows.chunks(share * TILE_ROWS)) {
            let order = &order;
            scope.spawn(move || {
                let tiles = out.chunks_exact_mut(row_tile_words);
                for (out, rows) in tiles.zip(rows.chunks(TILE_ROWS)) {
                    out.copy_from_slice(&pack_row_tile(shape, order, rows));
                }
            });
        }
    });
    Ok(words)
}

fn pack_row_tile(shape: Tiling, order: &[(usize, usize)], rows: &[PackedRow<'_>]) -> Vec<u32> {
    let padded = shape.column_tiles * TILE_COLUMNS;
    let mut words = Vec::new();
    let plain = rows
        .iter()
        .flatten()
        .next()
        .map(|(matrix, _)| &matrix.weights);
    if let Some(HostWeights::Affine { format, .. }) = plain {
        let mut codes = vec![0u8; TILE_ROWS * padded];
        for (codes, row) in codes.chunks_exact_mut(padded).zip(rows) {
            if let Some((
                HostLinear {
                    weights: HostWeights::Affine { codes: file, .. },
                    ..
                },
                row,
            )) = row
            {
                let stream = format.bytes_per_row(shape.columns);
                let bytes = &file.bytes[row * stream..(row + 1) * stream];
                unpack_row(bytes, format.bits(), &mut codes[..shape.columns]);
            }
        }
        for tile in 0..shape.column_tiles {
            let code =
                |row: usize, column: usize| codes[row * padded + tile * TILE_COLUMNS + column];
            pack_tile(shape.layout, order, format.bits(), code, &mut words);
        }
        return words;
    }
    let mut weights = vec![0u16; TILE_ROWS * padded];
    let mut wide = vec![0f32; shape.columns];
    for (weights, row) in weights.chunks_exact_mut(padded).zip(rows) {
        if let Some((
            HostLinear {
                weights: HostWeights::Plain(file),
                ..
            },
            row,
        )) = row
        {
            let at = row * shape.columns * file.dtype.size_bytes();
            file.dtype.widen(&file.bytes[at..], &mut wide);
            for (weight, wide) in weights.iter_mut().zip(&wide) {
                *weight = bf16::from_f32(*wide).to_bits();
            }
        }
    }
    for tile in 0..shape.column_tiles {
        let weight =
            |row: usize, column: usize| weights[row * padded + tile * TILE_COLUMNS + column];
        pack_bf16_tile(order, weight, &mut words);
    }
    words
}

/// Pairs of scale and bias, `[row tile][group][16]`, and how they are stored (`args.h`, ScaleKind).
fn pack_scales(
    shape: Tiling,
    rows: &[PackedRow<'_>],
    first: &HostLinear<'_>,
) -> Result<(i32, Vec<u8>), LoadError> {
    let HostWeights::Affine {
        format,
        scales,
        biases,
        ..
    } = &first.weights
    else {
        return Ok((0, Vec::new()));
    };
    let kind = match (scales.dtype, biases.dtype) {
        (Dtype::Bf16, Dtype::Bf16) => 0,
        (Dtype::F16, Dtype::F16) => 1,
        _ => 2,
    };
    let element = if kind == 2 { 4 } else { 2 };
    let groups = shape.column_tiles * TILE_COLUMNS / format.group_size();
    let file_groups = format.groups_per_row(shape.columns);
    let mut out = vec![0u8; shape.row_tiles * groups * TILE_ROWS * 2 * element];
    for (index, row) in rows.iter().enumerate() {
        let Some((
            HostLinear {
                weights: HostWeights::Affine { scales, biases, .. },
                ..
            },
            row,
        )) = row
        else {
            continue;
        };
        let range = |tensor: &TensorView<'_>| -> Result<Vec<u8>, LoadError> {
            let bytes = tensor.dtype.size_bytes();
            let at = row * file_groups * bytes;
            let raw = &tensor.bytes[at..at + file_groups * bytes];
            if kind < 2 {
                return Ok(raw.to_vec());
            }
            let mut wide = vec![0f32; file_groups];
            tensor.dtype.widen(raw, &mut wide);
            Ok(wide.iter().flat_map(|value| value.to_le_bytes()).collect())
        };
        let (scales, biases) = (range(scales)?, range(biases)?);
        let pairs = scales
            .chunks_exact(element)
            .zip(biases.chunks_exact(element));
        for (group, (scale, bias)) in pairs.enumerate() {
            let pair = (index / TILE_ROWS * groups + group) * TILE_ROWS + index % TILE_ROWS;
            let out = &mut out[pair * 2 * element..(pair + 1) * 2 * element];
            out[..element].copy_from_slice(scale);
            out[element..].copy_from_slice(bias);
        }
    }
    Ok((kind, out))
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
