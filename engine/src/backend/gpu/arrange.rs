//! Weights as the file has them into tiles, on the device: rows go up as they are, a piece of the
//! matrix at a time, and kernels put them where the matrix units want them
//! (`engine/kernels/arrange.h`).

use std::ops::Range;
use std::sync::Arc;

use crate::backend::gpu::args::{ArrangeArgs, FileMatrix, FileRow, TileMatrix};
use crate::backend::gpu::buffer::{Buffer, as_bytes};
use crate::backend::gpu::machine::{Launch, Machine};
use crate::backend::gpu::tiles::{TILE_COLUMNS, TILE_ROWS};
use crate::backend::interface::{HostLinear, HostWeights};
use crate::error::{BackendError, LoadError};
use crate::weights::{Dtype, TensorView};

/// Bytes of a file that go up at a time: long beside what a copy and a launch cost, and little beside
/// a model.
const PIECE_BYTES: usize = 64 << 20;

/// Tensors of a piece begin at multiples of this: kernels read whole words.
const ALIGNMENT: usize = 16;

/// A row of a matrix in tiles: index of its module and row there; `None` is a row of zeros.
pub(crate) type SourceRow = Option<(usize, usize)>;

/// Device memory through which files go up.
#[derive(Debug)]
pub(crate) struct Staging {
    machine: Arc<dyn Machine>,
    piece_bytes: usize,
    memory: Option<Buffer>,
}

impl Staging {
    /// No memory yet; it is as large as the largest piece needs.
    pub(crate) fn new(machine: &Arc<dyn Machine>) -> Self {
        Self::of_pieces(machine, PIECE_BYTES)
    }

    /// Pieces of about `piece_bytes`, of one row tile at least.
    pub(crate) fn of_pieces(machine: &Arc<dyn Machine>, piece_bytes: usize) -> Self {
        Self {
            machine: Arc::clone(machine),
            piece_bytes,
            memory: None,
        }
    }

    /// Where weights go.
    pub(crate) fn machine(&self) -> &Arc<dyn Machine> {
        &self.machine
    }

    /// Queues the filling of `to` with `rows` of `modules`, which have one format.
    ///
    /// # Errors
    /// When a tensor has no numbers, or the device has no room or has stopped.
    pub(crate) fn arrange(
        &mut self,
        to: &TileMatrix,
        modules: &[HostLinear<'_>],
        rows: &[SourceRow],
    ) -> Result<(), LoadError> {
        let files = modules
            .iter()
            .map(FileModule::of)
            .collect::<Result<Vec<_>, _>>()?;
        let row_bytes = files.iter().map(FileModule::row_bytes).max().unwrap_or(0);
        let row_tiles = (self.piece_bytes / (TILE_ROWS * row_bytes.max(1))).max(1);
        for (index, rows) in rows.chunks(row_tiles * TILE_ROWS).enumerate() {
            self.arrange_piece(&part_of(to, index * row_tiles, rows.len()), &files, rows)?;
        }
        Ok(())
    }

    fn arrange_piece(
        &mut self,
        to: &TileMatrix,
        files: &[FileModule<'_>],
        rows: &[SourceRow],
    ) -> Result<(), BackendError> {
        let ranges = ranges(files.len(), rows);
        let places = Places::of(files, &ranges, to.row_tiles as usize * TILE_ROWS);
        let base = self.room(places.bytes)?;
        let machine = self.machine.as_ref();
        let at = |offset: usize| base + offset as u64;
        let mut matrices = Vec::new();
        for ((file, range), tensors) in files.iter().zip(&ranges).zip(&places.tensors) {
            let addresses: Vec<u64> = tensors.iter().map(|offset| at(*offset)).collect();
            for (tensor, address) in file.tensors.iter().zip(&addresses) {
                if !range.is_empty() {
                    machine.write(*address, tensor.rows(range))?;
                }
            }
            matrices.push(file.on_device(range, &addresses));
        }
        let mut table: Vec<FileRow> = rows.iter().map(file_row).collect();
        table.resize(to.row_tiles as usize * TILE_ROWS, file_row(&None));
        machine.write(at(places.matrices), as_bytes(&matrices))?;
        machine.write(at(places.rows), as_bytes(&table))?;
        self.launch(to, at(places.matrices), at(places.rows))
    }

    /// Address of `bytes` bytes; the kernels of the piece before are done with them when the next
    /// copy is made, since all of it is in one order.
    fn room(&mut self, bytes: usize) -> Result<u64, BackendError> {
        match &mut self.memory {
            Some(memory) => {
                memory.reserve(bytes)?;
                Ok(memory.address())
            }
            None => {
                let memory = Buffer::zeroed(&self.machine, bytes)?;
                Ok(self.memory.insert(memory).address())
            }
        }
    }

    fn launch(&self, to: &TileMatrix, matrices: u64, rows: u64) -> Result<(), BackendError> {
        let args = ArrangeArgs {
            matrices,
            rows,
            codes: to.codes,
            scales: to.scales,
            columns: to.columns,
            row_tiles: to.row_tiles,
            column_tiles: to.column_tiles,
            bits: to.bits,
            group: to.group,
            scale_kind: to.scale_kind,
        };
        let launch = |kernel, threads: usize| {
            let block = self.machine.tuning().threads;
            let launch = Launch {
                grid: (threads.div_ceil(block as usize) as u32, 1),
                threads: block,
                shared_bytes: 0,
                overlaps: false,
                cluster: 1,
            };
            self.machine
                .launch(kernel, launch, as_bytes(std::slice::from_ref(&args)))
        };
        let row_tiles = to.row_tiles as usize;
        let lanes = TILE_ROWS * TILE_COLUMNS / self.machine.layout().lane_codes();
        launch(
            "arrange_codes",
            row_tiles * to.column_tiles as usize * lanes,
        )?;
        match to.scales {
            0 => Ok(()),
            _ => launch("arrange_scales", row_tiles * TILE_ROWS * groups(to)),
        }
    }
}

/// Groups of a row in tiles.
fn groups(matrix: &TileMatrix) -> usize {
    matrix.column_tiles as usize * TILE_COLUMNS / matrix.group as usize
}

/// Bytes of a row tile's codes, and of its pairs of scale and bias.
pub(crate) fn row_tile_bytes(matrix: &TileMatrix) -> (usize, usize) {
    let codes = TILE_ROWS * TILE_COLUMNS * matrix.bits as usize / 8;
    let pair_bytes = if matrix.scale_kind == SCALE_F32 { 8 } else { 4 };
    (
        matrix.column_tiles as usize * codes,
        groups(matrix) * TILE_ROWS * pair_bytes,
    )
}

/// Pairs of scale and bias of any other types (`args.h`, ScaleKind).
const SCALE_F32: i32 = 2;

/// How pairs of scales and biases of these types are stored.
pub(crate) fn scale_kind(scales: Dtype, biases: Dtype) -> i32 {
    match (scales, biases) {
        (Dtype::Bf16, Dtype::Bf16) => 0,
        (Dtype::F16, Dtype::F16) => 1,
        _ => SCALE_F32,
    }
}

/// The row tiles of `rows` rows from `first_tile` on.
fn part_of(matrix: &TileMatrix, first_tile: usize, rows: usize) -> TileMatrix {
    let (codes, scales) = row_tile_bytes(matrix);
    let behind = |address: u64, bytes: usize| match address {
        0 => 0,
        address => address + (first_tile * bytes) as u64,
    };
    TileMatrix {
        codes: behind(matrix.codes, codes),
        scales: behind(matrix.scales, scales),
        row_tiles: rows.div_ceil(TILE_ROWS) as i32,
        ..*matrix
    }
}

/// A module's tensors, each with as many rows.
struct FileModule<'a> {
    /// Codes, scales and biases; or floats alone.
    tensors: Vec<FileTensor<'a>>,
}

struct FileTensor<'a> {
    bytes: &'a [u8],
    row_bytes: usize,
    /// Of floats (`args.h`, FloatKind); codes have none.
    kind: i32,
}

impl<'a> FileTensor<'a> {
    fn floats(tensor: &TensorView<'a>, rows: usize) -> Result<Self, LoadError> {
        let kind = match tensor.dtype {
            Dtype::Bf16 => 0,
            Dtype::F16 => 1,
            Dtype::F32 => 2,
            _ => return Err(tensor.mismatch("F32, F16 or BF16 elements".to_owned())),
        };
        Ok(Self {
            kind,
            ..Self::codes(tensor, rows)
        })
    }

    fn codes(tensor: &TensorView<'a>, rows: usize) -> Self {
        Self {
            bytes: tensor.bytes,
            row_bytes: tensor.bytes.len() / rows.max(1),
            kind: 0,
        }
    }

    fn rows(&self, range: &Range<usize>) -> &'a [u8] {
        &self.bytes[range.start * self.row_bytes..range.end * self.row_bytes]
    }
}

impl<'a> FileModule<'a> {
    fn of(module: &HostLinear<'a>) -> Result<Self, LoadError> {
        let rows = module.out_features;
        let tensors = match &module.weights {
            HostWeights::Plain(tensor) => vec![FileTensor::floats(tensor, rows)?],
            HostWeights::Affine {
                codes,
                scales,
                biases,
                ..
            } => vec![
                FileTensor::codes(codes, rows),
                FileTensor::floats(scales, rows)?,
                FileTensor::floats(biases, rows)?,
            ],
        };
        Ok(Self { tensors })
    }

    fn row_bytes(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.row_bytes).sum()
    }

    /// What the kernels are told: `range` of its rows lies at `addresses`, tensor by tensor.
    fn on_device(&self, range: &Range<usize>, addresses: &[u64]) -> FileMatrix {
        let address = |index: usize| addresses.get(index).copied().unwrap_or(0);
        let kind = |index: usize| self.tensors.get(index).map_or(0, |tensor| tensor.kind);
        FileMatrix {
            weights: address(0),
            scales: address(1),
            biases: address(2),
            first_row: range.start as i32,
            weight_kind: kind(0),
            scale_kind: kind(1),
            bias_kind: kind(2),
        }
    }
}

fn file_row(row: &SourceRow) -> FileRow {
    match *row {
        Some((module, row)) => FileRow {
            matrix: module as i32,
            row: row as i32,
        },
        None => FileRow { matrix: -1, row: 0 },
    }
}

/// For each of `modules` modules the least range of its rows that holds all of `rows`.
fn ranges(modules: usize, rows: &[SourceRow]) -> Vec<Range<usize>> {
    let mut ranges = vec![0..0; modules];
    for &(module, row) in rows.iter().flatten() {
        let range = &mut ranges[module];
        *range = match range.end {
            0 => row..row + 1,
            end => range.start.min(row)..end.max(row + 1),
        };
    }
    ranges
}

/// Where the parts of a piece lie in the staging memory.
#[derive(Debug, PartialEq, Eq)]
struct Places {
    /// The array of [`FileMatrix`].
    matrices: usize,
    /// The array of [`FileRow`].
    rows: usize,
    /// Tensors, by module.
    tensors: Vec<Vec<usize>>,
    /// All of it.
    bytes: usize,
}

impl Places {
    fn of(files: &[FileModule<'_>], ranges: &[Range<usize>], rows: usize) -> Self {
        let mut bytes = 0;
        let mut place = |length: usize| {
            let at = bytes;
            bytes = (at + length).next_multiple_of(ALIGNMENT);
            at
        };
        let matrices = place(size_of::<FileMatrix>() * files.len());
        let rows = place(size_of::<FileRow>() * rows);
        let tensors = files.iter().zip(ranges).map(|(file, range)| {
            let lengths = file.tensors.iter().map(|tensor| tensor.rows(range).len());
            lengths.map(&mut place).collect()
        });
        let tensors = tensors.collect();
        Self {
            matrices,
            rows,
            tensors,
            bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_takes_the_rows_that_it_needs_and_no_others() {
        let gate_and_up = [Some((0, 8)), Some((0, 9)), Some((2, 8)), None, Some((2, 7))];
        assert_eq!(ranges(3, &gate_and_up), [8..10, 0..0, 7..9]);
    }

    #[test]
    fn a_part_of_a_matrix_begins_behind_the_tiles_before_it() {
        let whole = TileMatrix {
            codes: 1 << 20,
            scales: 1 << 30,
            columns: 130,
            row_tiles: 9,
            column_tiles: 3,
            bits: 3,
            group: 32,
            scale_kind: SCALE_F32,
            ..TileMatrix::default()
        };
        let part = part_of(&whole, 4, 17);
        // 1024 codes of three bits a tile; 16 pairs of two floats for each of six groups.
        assert_eq!(part.codes - whole.codes, 4 * 3 * 1024 * 3 / 8);
        assert_eq!(part.scales - whole.scales, 4 * 6 * 16 * 8);
        assert_eq!(part.row_tiles, 2);
        let plain = TileMatrix { scales: 0, ..whole };
        assert_eq!(part_of(&plain, 4, 17).scales, 0);
    }

    #[test]
    fn tensors_of_a_piece_lie_apart_and_on_whole_words() {
        let bytes = [0; 60];
        let tensor = |row_bytes| FileTensor {
            bytes: &bytes,
            row_bytes,
            kind: 0,
        };
        let files = [FileModule {
            tensors: vec![tensor(6), tensor(2)],
        }];
        let places = Places::of(&files, std::slice::from_ref(&(1..6)), 16);
        let rows = size_of::<FileMatrix>().next_multiple_of(ALIGNMENT);
        assert_eq!((places.matrices, places.rows), (0, rows));
        let first = rows + 16 * size_of::<FileRow>();
        assert_eq!(places.tensors, [[first, first + 32]]);
        assert_eq!(places.bytes, first + 32 + 16);
    }
}
