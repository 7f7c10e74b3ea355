//! Random modules of every format put into tiles on the device, bit for bit as the host does it.

use std::sync::Arc;

use half::bf16;

use crate::backend::gpu::args::TileMatrix;
use crate::backend::gpu::arrange::{SourceRow, Staging};
use crate::backend::gpu::host_tiles::{pack_bf16_tile, pack_tile};
use crate::backend::gpu::machine::Machine;
use crate::backend::gpu::random_module::{Kind, Module, Random, put};
use crate::backend::gpu::tiles::{TILE_COLUMNS, TILE_ROWS};
use crate::backend::gpu::weights::{Form, Linear};
use crate::backend::interface::HostLinear;
use crate::quant::AffineFormat;
use crate::quant::pack::unpack_row;
use crate::weights::Dtype;

/// Most rows of a module, and most groups (or pieces of 32 columns) of a row.
const MOST: (usize, usize) = (70, 5);

/// Pieces so small that a matrix has many of them.
const PIECE_BYTES: usize = 3000;

/// Runs `cases` cases on `machine`; the same ones at every call.
pub(crate) fn check(machine: &Arc<dyn Machine>, cases: u64) {
    for seed in 0..cases {
        let mut random = Random::new(seed);
        let kind = random_kind(&mut random);
        let mut staging = Staging::of_pieces(machine, PIECE_BYTES);
        let gated = random.up_to(2) == 1;
        let modules = match gated {
            true => {
                let rows = random.up_to(MOST.0);
                vec![
                    Module::new(kind, rows, &mut random),
                    Module::new(kind, rows, &mut random),
                ]
            }
            false => (0..random.up_to(3))
                .map(|_| {
                    let rows = random.up_to(MOST.0);
                    Module::new(kind, rows, &mut random)
                })
                .collect(),
        };
        let linears: Vec<HostLinear<'_>> = modules
            .iter()
            .map(|module| module.linear("random", None))
            .collect();
        let (linear, rows) = match gated {
            true => (
                Linear::gated(&mut staging, &linears[0], &linears[1]),
                by_eights(modules[0].rows),
            ),
            false => (Linear::tiles(&mut staging, &linears), stacked(&modules)),
        };
        let linear = linear.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let [part] = linear.parts.as_slice() else {
            panic!("seed {seed}: {} matrices", linear.parts.len());
        };
        let Form::Tiles(tiles) = part.form else {
            panic!("seed {seed}: no tiles");
        };
        let wanted = Wanted {
            machine: machine.as_ref(),
            modules: &modules,
            rows: &rows,
            kind,
        };
        wanted.check(&tiles, &format!("seed {seed}, {kind:?}, gated: {gated}"));
    }
}

/// Modules one below the other, and rows of zeros to fill the last tile.
fn stacked(modules: &[Module]) -> Vec<SourceRow> {
    let of_module =
        |(index, module): (usize, &Module)| (0..module.rows).map(move |row| Some((index, row)));
    let mut rows: Vec<SourceRow> = modules.iter().enumerate().flat_map(of_module).collect();
    rows.resize(rows.len().next_multiple_of(TILE_ROWS), None);
    rows
}

/// Eight rows of the first module and eight of the second in every tile.
fn by_eights(rows: usize) -> Vec<SourceRow> {
    (0..rows.div_ceil(8) * TILE_ROWS)
        .map(|place| {
            let row = place / TILE_ROWS * 8 + place % 8;
            (row < rows).then_some((place % TILE_ROWS / 8, row))
        })
        .collect()
}

/// What all modules of a case are like.
fn random_kind(random: &mut Random) -> Kind {
    let floats = [Dtype::Bf16, Dtype::F16, Dtype::F32];
    let bits = [2, 3, 4, 5, 6, 8, 16][random.up_to(7) - 1];
    let group = [32, 64, 128][random.up_to(3) - 1];
    let mut dtypes = [0; 3].map(|_| floats[random.up_to(3) - 1]);
    // Mostly alike, as in files.
    if random.up_to(4) > 1 {
        dtypes[2] = dtypes[1];
    }
    Kind {
        format: AffineFormat::new(bits, group).ok(),
        columns: group as usize * random.up_to(MOST.1),
        dtypes,
    }
}

/// Codes of a row, or its weights as bf16.
fn row_of(module: &Module, row: usize) -> Vec<u16> {
    if let Some(format) = module.kind.format {
        let mut codes = vec![0; module.kind.columns];
        unpack_row(module.codes(row, format), format.bits(), &mut codes);
        return codes.into_iter().map(u16::from).collect();
    }
    let weights = module.weights(row).into_iter();
    weights
        .map(|value| bf16::from_f32(value).to_bits())
        .collect()
}

/// What the tiles have to hold.
struct Wanted<'a> {
    machine: &'a dyn Machine,
    modules: &'a [Module],
    rows: &'a [SourceRow],
    kind: Kind,
}

impl Wanted<'_> {
    fn check(&self, tiles: &TileMatrix, case: &str) {
        let codes = self.codes();
        let bytes: Vec<u8> = codes.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert!(
            self.read(tiles.codes, bytes.len()) == bytes,
            "codes, {case}"
        );
        let scales = self.scales();
        assert_eq!(tiles.scales == 0, scales.is_empty(), "{case}");
        assert!(
            self.read(tiles.scales, scales.len()) == scales,
            "scales, {case}"
        );
    }

    fn read(&self, address: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        if count > 0 {
            self.machine.read(address, &mut bytes).unwrap();
        }
        bytes
    }

    fn codes(&self) -> Vec<u32> {
        let (layout, column_tiles) = (
            self.machine.layout(),
            self.kind.columns.div_ceil(TILE_COLUMNS),
        );
        let order = layout.order();
        let mut words = Vec::new();
        for rows in self.rows.chunks(TILE_ROWS) {
            let of_row = |row: &SourceRow| {
                let mut codes = row.map_or(Vec::new(), |(module, row)| {
                    row_of(&self.modules[module], row)
                });
                codes.resize(column_tiles * TILE_COLUMNS, 0);
                codes
            };
            let rows: Vec<Vec<u16>> = rows.iter().map(of_row).collect();
            for tile in 0..column_tiles {
                let at = |row: usize, column: usize| rows[row][tile * TILE_COLUMNS + column];
                match self.kind.format {
                    None => pack_bf16_tile(&order, at, &mut words),
                    Some(format) => {
                        let code = |row, column| at(row, column) as u8;
                        pack_tile(layout, &order, format.bits(), code, &mut words);
                    }
                }
            }
        }
        words
    }

    /// `[row tile][group][16]` pairs, in 16 bits where both have the same 16, else in float32.
    fn scales(&self) -> Vec<u8> {
        let Some(format) = self.kind.format else {
            return Vec::new();
        };
        let [_, scale_dtype, bias_dtype] = self.kind.dtypes;
        let narrow = scale_dtype == bias_dtype && scale_dtype != Dtype::F32;
        let dtype = if narrow { scale_dtype } else { Dtype::F32 };
        let padded = self.kind.columns.next_multiple_of(TILE_COLUMNS) / format.group_size();
        let mut bytes = Vec::new();
        for rows in self.rows.chunks(TILE_ROWS) {
            let of_row =
                |(module, row): (usize, usize)| self.modules[module].scales_and_biases(row);
            let of_rows: Vec<[Vec<f32>; 2]> = rows
                .iter()
                .map(|row| row.map(of_row).unwrap_or_default())
                .collect();
            for group in 0..padded {
                for value in of_rows.iter().flatten() {
                    put(dtype, value.get(group).copied().unwrap_or(0.0), &mut bytes);
                }
            }
        }
        bytes
    }
}
