//! How a product with many rows is cut into blocks: a pure function of its sizes and the machine.

use crate::backend::gpu::args::TileMatrix;
use crate::backend::gpu::machine::Launch;
use crate::backend::gpu::tiles::TILE_COLUMNS;

/// Row tiles and tokens of a block of `matrix_product` (`linear_matrix.h`), and its threads.
const BLOCK: (u32, u32, u32) = (8, 128, 256);

/// Row tiles of a block of `warpgroup_product` (`linear_warpgroup.h`), and its threads.
const GROUP_BLOCK: (u32, u32) = (16, 256);

/// Its kernels by the tokens of a block.
const GROUP_KERNELS: [(u32, &str); 3] = [
    (160, "warpgroup_product_4_160"),
    (128, "warpgroup_product_4_128"),
    (64, "warpgroup_product_4_64"),
];

/// Tiles of activations under way, and bytes beside them: two barriers a tile, and up to 1024 bytes for
/// the alignment of the first.
const STAGES: (u32, u32) = (4, 2048);

/// What a block of any width costs beside its tokens, in tokens: the start and the arithmetic of the
/// weights. An assumption; it only keeps a narrow block from being chosen when both take as many rounds.
const BLOCK_OVERHEAD_TOKENS: u32 = 32;

/// What the matrix units and the number of multiprocessors leave to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MatrixUnits {
    /// Multiprocessors.
    pub(crate) units: u32,
    /// Warpgroups multiply from shared memory (Hopper).
    pub(crate) warpgroups: bool,
}

/// The kernel for `tokens` rows times `w`, and its launch.
pub(crate) fn cut(w: &TileMatrix, tokens: u32, machine: MatrixUnits) -> (&'static str, Launch) {
    if machine.warpgroups && is_usual(w) {
        return group_cut(w.row_tiles as u32, tokens, machine.units);
    }
    let (row_tiles, block_tokens, threads) = BLOCK;
    let launch = Launch {
        grid: (
            (w.row_tiles as u32).div_ceil(row_tiles),
            tokens.div_ceil(block_tokens),
        ),
        threads,
        shared_bytes: 0,
        overlaps: false,
        cluster: 1,
    };
    (block_kernel(w.bits), launch)
}

/// The usual format: four bits, bf16 scales of groups at least as wide as a tile.
pub(crate) fn is_usual(w: &TileMatrix) -> bool {
    w.bits == 4 && w.scale_kind == 0 && w.group as usize >= TILE_COLUMNS
}

fn group_cut(row_tiles: u32, tokens: u32, units: u32) -> (&'static str, Launch) {
    let (block_tiles, threads) = GROUP_BLOCK;
    let grid = |width: u32| (row_tiles.div_ceil(block_tiles), tokens.div_ceil(width));
    let cost = |width: u32| {
        let (x, y) = grid(width);
        (x * y).div_ceil(units) * (width + BLOCK_OVERHEAD_TOKENS)
    };
    let cheapest = GROUP_KERNELS.iter().min_by_key(|(width, _)| cost(*width));
    let &(width, kernel) = cheapest.unwrap_or(&GROUP_KERNELS[0]);
    let launch = Launch {
        grid: grid(width),
        threads,
        shared_bytes: STAGES.0 * width * 2 * TILE_COLUMNS as u32 + STAGES.1,
        overlaps: false,
        cluster: 1,
    };
    (kernel, launch)
}

fn block_kernel(bits: i32) -> &'static str {
    match bits {
        2 => "matrix_product_2",
        3 => "matrix_product_3",
        4 => "matrix_product_4",
        5 => "matrix_product_5",
        6 => "matrix_product_6",
        8 => "matrix_product_8",
        _ => "matrix_product_16",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: MatrixUnits = MatrixUnits {
        units: 132,
        warpgroups: true,
    };

    fn matrix(rows: i32) -> TileMatrix {
        TileMatrix {
            rows,
            row_tiles: (rows + 15) / 16,
            bits: 4,
            group: 64,
            ..TileMatrix::default()
        }
    }

    #[test]
    fn blocks_are_as_wide_as_leaves_no_multiprocessor_idle() {
        let cut_of = |rows, tokens| {
            let (kernel, launch) = cut(&matrix(rows), tokens, H200);
            (kernel, launch.grid)
        };
        // 160 blocks of 128 tokens would be a round and a fifth, 130 of 160 are one.
        assert_eq!(cut_of(2560, 2048), ("warpgroup_product_4_160", (10, 13)));
        assert_eq!(cut_of(4096, 2048), ("warpgroup_product_4_128", (16, 16)));
        assert_eq!(cut_of(2560, 20), ("warpgroup_product_4_64", (10, 1)));
    }

    #[test]
    fn other_formats_and_machines_take_the_kernel_that_every_machine_has() {
        let ampere = MatrixUnits {
            warpgroups: false,
            ..H200
        };
        let usual = matrix(2560);
        assert_eq!(cut(&usual, 2048, ampere).0, "matrix_product_4");
        assert_eq!(cut(&usual, 2048, ampere).1.grid, (20, 16));
        let others = [
            TileMatrix { bits: 8, ..usual },
            TileMatrix { group: 32, ..usual },
            TileMatrix {
                scale_kind: 1,
                ..usual
            },
        ];
        for other in others {
            assert!(cut(&other, 2048, H200).0.starts_with("matrix_product_"));
        }
    }
}
