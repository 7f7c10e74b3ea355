//! How a product with one row is cut into blocks.

use crate::backend::gpu::args::{Divisor, TileMatrix, UnitShares};
use crate::backend::gpu::machine::{Launch, Tuning};
use crate::backend::gpu::matrix::is_usual;

/// Tiles that are one unit of work, of codes and of bf16 weights (`weight_units.h`).
const UNIT_TILES: [usize; 2] = [4, 1];

/// Bits of weights that are no codes.
const PLAIN_BITS: i32 = 16;

/// Bytes that a block keeps of a tile's inputs: the inputs, and what is known of them (`row_input.h`).
const TILE_INPUT_BYTES: usize = 128 + 16;

/// Zeros, and room for the sums of warps.
const FIXED_BYTES: usize = 64 + 256;

/// Bytes of a row tile's sums.
const ROW_TILE_SUMS: usize = 16 * 4;

/// Below this share of busy multiprocessors a row tile may have two blocks, at the price of one more
/// row for whoever reads the result.
const BUSY_SHARE: f64 = 0.9;

/// Units that a warp of `queued_product_4` and of `queued_beside_4` has on their way, and bytes of each
/// (`linear_vector.h`, `weight_units.h`).
const QUEUED_UNITS: u32 = 3;
const QUEUED_BESIDE_UNITS: u32 = 2;
const QUEUED_UNIT_BYTES: u32 = 4 * (512 + 64);

/// A warp asks for so many units before it asks for its inputs; with none or all that it has on their way a step is
/// 0 to 5 % slower (docs/speed-diary.md).
const FIRST_UNITS: i32 = 1;

/// Shared memory that the device keeps of each block's.
const RESERVED_BYTES: u32 = 1 << 10;

/// A warp with more units than that has its weights in registers: the start of a long product matters little,
/// and a unit takes fewer instructions there. Queued, gate, up and down of at most 12 units a warp made a step
/// 3 to 6 % faster, the head's 49 and 63 made none (docs/speed-diary.md); between them nothing was measured.
const MOST_QUEUED_UNITS: i32 = 32;

/// What runs before and behind a product with one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Neighbours {
    /// A decode attention: a block leaves room for one of its.
    Attention,
    /// A decode attention in clusters ahead, whose blocks have so much shared memory: a block fits beside one.
    BehindClusters { shared_bytes: u32 },
    /// Products: a block has a multiprocessor for itself.
    Products,
}

/// The kernel of a product with one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VectorKernel {
    pub(crate) name: &'static str,
    /// Of a block.
    pub(crate) threads: u32,
    /// Bytes of shared memory for weights on their way.
    queue_bytes: u32,
}

impl VectorKernel {
    /// For `w` that is cut so. What a queue leaves too little shared memory for has its weights in registers.
    pub(crate) fn of(w: &TileMatrix, cut: &VectorCut, next_to: Neighbours, tuning: Tuning) -> Self {
        // The kernel with a queue, and shared memory that others have beside it.
        let (threads, queued) = match next_to {
            Neighbours::Attention => (tuning.beside_threads, None),
            Neighbours::BehindClusters { shared_bytes } => {
                let threads = tuning.beside_threads;
                let queued = Self::queued("queued_beside_4", QUEUED_BESIDE_UNITS, threads);
                (threads, Some((queued, shared_bytes + RESERVED_BYTES)))
            }
            Neighbours::Products => {
                let queued = Self::queued_between_products(cut, tuning);
                (tuning.vector_threads, Some((queued, 0)))
            }
        };
        let whole_units = (w.column_tiles as usize).is_multiple_of(UNIT_TILES[0]);
        let short = cut.shares(threads).warp_units.value <= MOST_QUEUED_UNITS;
        let takes_queues = tuning.queues && is_usual(w) && whole_units && short;
        if let Some((queued, others)) = queued.filter(|_| takes_queues)
            && queued.launch(cut).shared_bytes + others <= tuning.shared_bytes
        {
            return queued;
        }
        let name = match w.bits {
            2 => "vector_product_2",
            3 => "vector_product_3",
            4 => "vector_product_4",
            5 => "vector_product_5",
            6 => "vector_product_6",
            8 => "vector_product_8",
            _ => "vector_product_16",
        };
        Self {
            name,
            threads,
            queue_bytes: 0,
        }
    }

    fn queued(name: &'static str, units: u32, threads: u32) -> Self {
        Self {
            name,
            threads,
            queue_bytes: threads / 32 * units * QUEUED_UNIT_BYTES,
        }
    }

    /// With four fifths of the threads where the queues of all would hold every unit: the down projection of Gemma 3 4B
    /// is such a product, and a step is 1 to 2 % faster with fewer warps (docs/speed-diary.md). But a block is never so
    /// small that a multiprocessor has room for two, while another one stands empty.
    fn queued_between_products(cut: &VectorCut, tuning: Tuning) -> Self {
        let of = |threads| Self::queued("queued_product_4", QUEUED_UNITS, threads);
        let threads = tuning.vector_threads;
        let fewer = of((threads / 32 * 4 / 5).max(1) * 32);
        let all_on_their_way = cut.shares(threads).warp_units.value <= QUEUED_UNITS as i32;
        let two = 2 * (fewer.launch(cut).shared_bytes + RESERVED_BYTES);
        match all_on_their_way && two > tuning.shared_bytes + RESERVED_BYTES {
            true => fewer,
            false => of(threads),
        }
    }

    /// The launch of the product that is cut so.
    pub(crate) fn launch(self, cut: &VectorCut) -> Launch {
        Launch {
            grid: (cut.blocks as u32, 1),
            threads: self.threads,
            shared_bytes: cut.shared_bytes(self.threads) + self.queue_bytes,
            overlaps: true,
            cluster: 1,
        }
    }
}

/// The blocks of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VectorCut {
    /// How many.
    pub(crate) blocks: usize,
    /// Row tiles may have two blocks, which leave a piece of the result each.
    pub(crate) in_pieces: bool,
    /// Units of a row tile.
    row_tile_units: usize,
    row_tiles: usize,
    /// Bytes of shared memory, but for what depends on the threads.
    shared_bytes: usize,
}

impl VectorCut {
    /// For `w` on at most `most_blocks`; in pieces only if that is allowed.
    pub(crate) fn of(w: &TileMatrix, most_blocks: usize, pieces_allowed: bool) -> Self {
        let (row_tiles, column_tiles) = (w.row_tiles as usize, w.column_tiles as usize);
        let blocks = most_blocks.min(row_tiles);
        let most_row_tiles = row_tiles.div_ceil(blocks);
        let busy = row_tiles as f64 / (most_row_tiles * blocks) as f64;
        let in_pieces = pieces_allowed && busy < BUSY_SHARE;
        let units = column_tiles.div_ceil(UNIT_TILES[usize::from(w.bits == PLAIN_BITS)]);
        let row_tiles_of_block = match in_pieces {
            // A block that begins inside a row tile ends inside one more than its share holds.
            true => (row_tiles * units).div_ceil(blocks).div_ceil(units) + 1,
            false => most_row_tiles,
        };
        let inputs = column_tiles.next_multiple_of(UNIT_TILES[0]) * TILE_INPUT_BYTES;
        Self {
            blocks,
            in_pieces,
            row_tile_units: units,
            row_tiles,
            shared_bytes: inputs + FIXED_BYTES + row_tiles_of_block * ROW_TILE_SUMS,
        }
    }

    /// Who has which units, with `threads` a block.
    pub(crate) fn shares(&self, threads: u32) -> UnitShares {
        let (steps, step_units) = match self.in_pieces {
            true => (self.row_tiles * self.row_tile_units, 1),
            false => (self.row_tiles, self.row_tile_units),
        };
        let most_units = steps.div_ceil(self.blocks) * step_units;
        UnitShares {
            row_tile_units: Divisor::by(self.row_tile_units),
            warp_units: Divisor::by(most_units.div_ceil(threads as usize / 32)),
            step_units: step_units as i32,
            block_steps: (steps / self.blocks) as i32,
            larger_blocks: (steps % self.blocks) as i32,
            first_units: FIRST_UNITS,
        }
    }

    /// Bytes of shared memory of a block of `threads`, but for what is queued.
    fn shared_bytes(&self, threads: u32) -> u32 {
        (self.shared_bytes + threads as usize / 32 * ROW_TILE_SUMS) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::gpu::attention_cut::cluster_shared_bytes;
    use crate::backend::gpu::machine::CLUSTER_BLOCKS;

    fn cut(rows: usize, columns: usize, pieces_allowed: bool) -> VectorCut {
        let w = TileMatrix {
            row_tiles: rows.div_ceil(16) as i32,
            column_tiles: columns.div_ceil(64) as i32,
            bits: 4,
            ..TileMatrix::default()
        };
        VectorCut::of(&w, 132, pieces_allowed)
    }

    #[test]
    fn whole_row_tiles_are_kept_where_they_keep_the_machine_busy() {
        // Gate and up of Gemma 3 4B: 1280 row tiles, at most 10 a block.
        let cut = cut(20480, 2560, true);
        assert_eq!((cut.blocks, cut.in_pieces), (132, false));
    }

    #[test]
    fn row_tiles_are_cut_where_a_few_blocks_would_have_twice_the_work() {
        // 160 row tiles on 132 multiprocessors.
        assert!(cut(2560, 10240, true).in_pieces);
        assert!(!cut(2560, 10240, false).in_pieces);
    }

    #[test]
    fn a_row_tile_never_has_more_than_two_blocks() {
        // There are no more blocks than row tiles, so a block's share is at least a row tile.
        let cut = cut(64, 10240, true);
        assert_eq!((cut.blocks, cut.in_pieces), (4, false));
    }

    const H200: Tuning = Tuning {
        vector_threads: 640,
        beside_threads: 384,
        queues: true,
        shared_bytes: 227 << 10,
        attention_warps: 0,
        cluster_warps: 0,
        split_rows: 0,
        threads: 0,
        warpgroups: false,
        clusters: [0; CLUSTER_BLOCKS.len()],
    };

    fn usual(rows: i32, columns: i32) -> TileMatrix {
        TileMatrix {
            row_tiles: rows / 16,
            column_tiles: columns / 64,
            bits: 4,
            group: 64,
            ..TileMatrix::default()
        }
    }

    /// Name, threads and shared memory of the product with `w`.
    fn kernel(w: TileMatrix, next_to: Neighbours, tuning: Tuning) -> (&'static str, u32, u32) {
        let cut = VectorCut::of(&w, 132, true);
        let kernel = VectorKernel::of(&w, &cut, next_to, tuning);
        let launch = kernel.launch(&cut);
        (kernel.name, launch.threads, launch.shared_bytes)
    }

    /// The same, of 640 threads and rows of `columns`, where a block touches so many row tiles.
    fn held(columns: u32, row_tiles: u32) -> (&'static str, u32, u32) {
        let bytes = columns / 64 * 144 + 320 + (20 + row_tiles) * 64;
        ("vector_product_4", 640, bytes)
    }

    fn queued(columns: u32, row_tiles: u32) -> (&'static str, u32, u32) {
        let (_, threads, bytes) = held(columns, row_tiles);
        ("queued_product_4", threads, bytes + 20 * 3 * 2304)
    }

    /// Of Gemma 3 4B and Llama 3.1 8B.
    #[test]
    fn short_products_next_to_products_are_queued() {
        let of = |w| kernel(w, Neighbours::Products, H200);
        assert_eq!(of(usual(20480, 2560)), queued(2560, 10));
        assert_eq!(of(usual(28672, 4096)), queued(4096, 14));
        assert_eq!(of(usual(4096, 14336)), queued(14336, 2));
        // The head.
        assert_eq!(of(usual(262_144, 2560)), held(2560, 125));
    }

    #[test]
    fn a_queue_that_would_hold_all_units_has_fewer_warps() {
        // Down of Gemma 3 4B: 49 units a block, three a warp.
        let (name, threads, _) = kernel(usual(2560, 10240), Neighbours::Products, H200);
        assert_eq!((name, threads), ("queued_product_4", 512));
        // Gate and up of Qwen3 0.6B: two blocks of so few threads would fit on a multiprocessor.
        let (name, threads, _) = kernel(usual(6144, 1024), Neighbours::Products, H200);
        assert_eq!((name, threads), ("queued_product_4", 640));
    }

    #[test]
    fn the_product_behind_an_attention_is_queued_where_both_have_room() {
        let ahead = kernel(usual(4096, 2560), Neighbours::Attention, H200);
        assert_eq!((ahead.0, ahead.1), ("vector_product_4", 384));
        let w = usual(4096, 4096);
        let behind = |shared_bytes| {
            let next_to = Neighbours::BehindClusters { shared_bytes };
            let (name, threads, bytes) = kernel(w, next_to, H200);
            (name, threads, bytes + shared_bytes)
        };
        let room = H200.shared_bytes - RESERVED_BYTES;
        let (name, threads, bytes) = behind(cluster_shared_bytes(128, 8));
        assert_eq!((name, threads), ("queued_beside_4", 384));
        assert!(bytes <= room, "{bytes}");
        let spare = room - bytes;
        let most = cluster_shared_bytes(128, 8) + spare;
        assert_eq!(behind(most), ("queued_beside_4", 384, room));
        assert_eq!(behind(most + 1).0, "vector_product_4");
    }

    #[test]
    fn what_no_queue_takes_is_held_in_registers() {
        let of = |w| kernel(w, Neighbours::Products, H200).0;
        // The last unit is not whole.
        assert_eq!(of(usual(20480, 2560 + 64)), "vector_product_4");
        let six = TileMatrix {
            bits: 6,
            ..usual(20480, 2560)
        };
        assert_eq!(of(six), "vector_product_6");
        let without = Tuning {
            queues: false,
            ..H200
        };
        assert_eq!(
            kernel(usual(20480, 2560), Neighbours::Products, without),
            held(2560, 10)
        );
    }

    #[test]
    fn a_queue_without_room_beside_the_inputs_is_not_used() {
        let of = |w, shared_bytes| {
            let tuning = Tuning {
                shared_bytes,
                ..H200
            };
            kernel(w, Neighbours::Products, tuning)
        };
        let w = usual(20480, 2560);
        let (.., bytes) = queued(2560, 10);
        assert_eq!(of(w, bytes), queued(2560, 10));
        assert_eq!(of(w, bytes - 1), held(2560, 10));
        // GPUs of compute capability 12.0 have 99 KB a block.
        assert_eq!(of(w, 99 << 10), held(2560, 10));
        // A short product of very long rows.
        assert_eq!(of(usual(2048, 53248), 227 << 10), held(53248, 1));
    }

    #[test]
    fn every_unit_has_a_warp() {
        for (rows, columns, pieces_allowed) in
            [(20480, 2560, true), (2560, 10240, true), (48, 640, true)]
        {
            let cut = cut(rows, columns, pieces_allowed);
            let shares = cut.shares(384);
            let steps = cut.blocks as i32 * shares.block_steps + shares.larger_blocks;
            let units = rows.div_ceil(16) * columns.div_ceil(256);
            assert_eq!((steps * shares.step_units) as usize, units);
            let most_units =
                (shares.block_steps + i32::from(shares.larger_blocks > 0)) * shares.step_units;
            assert!(12 * shares.warp_units.value >= most_units, "{shares:?}");
        }
    }

    #[test]
    fn shared_memory_holds_the_sums_of_every_row_tile_that_a_block_touches() {
        let (inputs, fixed) = (160 * 144, 64 + 256);
        // 6400 units on 132 blocks: 49 at most, of row tiles of 40, so up to three row tiles.
        assert_eq!(
            cut(2560, 10240, true).shared_bytes(384) as usize,
            inputs + fixed + (3 + 12) * 64
        );
        assert_eq!(
            cut(2560, 10240, false).shared_bytes(384) as usize,
            inputs + fixed + (2 + 12) * 64
        );
    }
}
