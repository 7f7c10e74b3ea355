//! How attention is cut into blocks, and which kernel takes it.

use crate::backend::gpu::machine::{CLUSTER_BLOCKS, Clusters, Launch, Tuning};
use crate::backend::interface::{Arithmetic, HeadShape};

/// Queries and keys of a block of `tile_attention`, elements behind each row, and warps
/// (`attention_tiles.h`).
const TILE_ATTENTION: (usize, usize, usize, usize) = (64, 32, 8, 4);

/// Keys of a block of `group_attention` (`attention_warpgroup.h`).
const GROUP_KEYS: usize = 64;

/// Elements of a row that a lane of a decode attention loads at once (`attention_decode.h`).
const LANE_ELEMENTS: usize = 8;

/// Most splits of a decode attention (`attention_decode.h`).
const MOST_SPLITS: usize = 64;

/// Blocks of a decode attention that a multiprocessor holds at once.
const BLOCKS_PER_UNIT: usize = 2;

/// Query heads of a kv head that a cluster takes (`attention_cluster.h`).
const CLUSTER_HEADS: usize = 8;

/// Blocks of the largest cluster that there may be, tiles of rows that a warp has room for, and further ones of a
/// block (`attention_cluster.h`).
const MOST_CLUSTER_BLOCKS: u32 = 16;
const TILES_AHEAD: u32 = 2;
const SPARE_TILES: u32 = 2;

/// Below this share of multiprocessors with a block, clusters are not worth it: the other kernel uses all of them.
/// An assumption.
const CLUSTER_SHARE: f64 = 0.2;

/// How attention is cut into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AttentionCut {
    /// Elements of a head in a lane.
    elements: usize,
    /// Query heads that walk together.
    heads: usize,
    /// Blocks side by side: kv heads times pieces of their query heads.
    pub(crate) columns: usize,
    /// Splits of the rows of a decode step.
    pub(crate) splits: usize,
    /// What takes their place where blocks form clusters.
    cluster: Option<ClusterCut>,
}

/// A decode attention whose blocks of one kv head are a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClusterCut {
    kernel: &'static str,
    /// Blocks of a cluster.
    blocks: u32,
    /// Clusters: kv heads times pieces of their query heads.
    columns: u32,
    head_dim: usize,
}

impl AttentionCut {
    /// The cut for heads of `shape` on `units` multiprocessors that run so many `clusters` of
    /// [`CLUSTER_BLOCKS`] at once; `None` for heads that no kernel takes.
    pub(crate) fn of(shape: HeadShape, units: usize, clusters: Clusters) -> Option<Self> {
        let elements = [2, 4, 8].into_iter().find(|e| 32 * e >= shape.head_dim)?;
        if !shape.head_dim.is_multiple_of(LANE_ELEMENTS) {
            return None;
        }
        let group = shape.heads / shape.kv_heads;
        let heads = if group > 2 { 4 } else { 2 };
        let columns = shape.kv_heads * group.div_ceil(heads);
        Some(Self {
            elements,
            heads,
            columns,
            splits: (BLOCKS_PER_UNIT * units / columns).clamp(1, MOST_SPLITS),
            cluster: ClusterCut::of(shape, units, clusters),
        })
    }

    /// The launch of a decode step.
    pub(crate) fn decode_launch(&self, tuning: Tuning) -> Launch {
        if let Some(cut) = self.cluster {
            return cut.launch(tuning.cluster_warps);
        }
        Launch {
            grid: (self.splits as u32, self.columns as u32),
            threads: 32 * tuning.attention_warps,
            shared_bytes: self.decode_shared_bytes(tuning.attention_warps as usize),
            overlaps: true,
            cluster: 1,
        }
    }

    /// What a decode block's walkers found, with the largest score and the sum of each head.
    fn decode_shared_bytes(&self, warps: usize) -> u32 {
        let head_elements = 32 * self.elements;
        let walkers = warps * 32 * LANE_ELEMENTS / head_elements;
        (walkers * self.heads * (head_elements + 2) * 4) as u32
    }

    /// The decode kernel.
    pub(crate) fn decode_kernel(&self) -> &'static str {
        if let Some(cut) = self.cluster {
            return cut.kernel;
        }
        match (self.elements, self.heads) {
            (2, 2) => "decode_attention_8_2",
            (2, _) => "decode_attention_8_4",
            (4, 2) => "decode_attention_16_2",
            (4, _) => "decode_attention_16_4",
            (_, 2) => "decode_attention_32_2",
            _ => "decode_attention_32_4",
        }
    }

    /// The kernel on the matrix units for many queries, with its launch; `None` for heads that it
    /// does not take.
    pub(crate) fn tile_kernel(
        shape: HeadShape,
        queries: usize,
        warpgroups: bool,
    ) -> Option<(&'static str, Launch)> {
        let kernel = match (shape.head_dim, warpgroups) {
            (64, false) => "tile_attention_64",
            (128, false) => "tile_attention_128",
            (256, false) => "tile_attention_256",
            (64, true) => "group_attention_64",
            (128, true) => "group_attention_128",
            (256, true) => "group_attention_256",
            _ => return None,
        };
        let (tile_queries, tile_keys, pad, warps) = TILE_ATTENTION;
        let elements = match warpgroups {
            // Queries, keys and values, and room to align them.
            true => (tile_queries + 2 * GROUP_KEYS) * shape.head_dim + 512,
            // Each warp has room to turn 16 rows of sums into operands.
            false => (tile_queries + 2 * tile_keys) * (shape.head_dim + pad) + warps * 16 * 24,
        };
        let launch = Launch {
            grid: (queries.div_ceil(tile_queries) as u32, shape.heads as u32),
            threads: 32 * warps as u32,
            shared_bytes: 2 * elements as u32,
            overlaps: false,
            cluster: 1,
        };
        Some((kernel, launch))
    }

    /// The kernel for many rows.
    pub(crate) fn rows_kernel(&self, arithmetic: Arithmetic) -> &'static str {
        match (arithmetic, self.elements, self.heads) {
            (Arithmetic::Fast, 2, 2) => "prefill_attention_bf16_2_2",
            (Arithmetic::Fast, 2, _) => "prefill_attention_bf16_2_4",
            (Arithmetic::Fast, 4, 2) => "prefill_attention_bf16_4_2",
            (Arithmetic::Fast, 4, _) => "prefill_attention_bf16_4_4",
            (Arithmetic::Fast, _, 2) => "prefill_attention_bf16_8_2",
            (Arithmetic::Fast, _, _) => "prefill_attention_bf16_8_4",
            (Arithmetic::Float32, 2, 2) => "prefill_attention_f32_2_2",
            (Arithmetic::Float32, 2, _) => "prefill_attention_f32_2_4",
            (Arithmetic::Float32, 4, 2) => "prefill_attention_f32_4_2",
            (Arithmetic::Float32, 4, _) => "prefill_attention_f32_4_4",
            (Arithmetic::Float32, _, 2) => "prefill_attention_f32_8_2",
            (Arithmetic::Float32, _, _) => "prefill_attention_f32_8_4",
        }
    }
}

impl ClusterCut {
    /// The largest clusters of which all run at once.
    fn of(shape: HeadShape, units: usize, clusters: Clusters) -> Option<Self> {
        let kernel = match shape.head_dim {
            64 => "cluster_attention_64",
            128 => "cluster_attention_128",
            256 => "cluster_attention_256",
            _ => return None,
        };
        let pieces = (shape.heads / shape.kv_heads).div_ceil(CLUSTER_HEADS);
        let columns = (shape.kv_heads * pieces) as u32;
        let sizes = CLUSTER_BLOCKS.into_iter().zip(clusters);
        let (blocks, _) = sizes.into_iter().find(|(_, at_once)| *at_once >= columns)?;
        let enough = f64::from(blocks * columns) >= CLUSTER_SHARE * units as f64;
        enough.then_some(Self {
            kernel,
            blocks,
            columns,
            head_dim: shape.head_dim,
        })
    }

    fn launch(self, warps: u32) -> Launch {
        Launch {
            grid: (self.blocks, self.columns),
            threads: 32 * warps,
            shared_bytes: cluster_shared_bytes(self.head_dim, warps),
            overlaps: true,
            cluster: self.blocks,
        }
    }
}

/// Rows of a tile of heads of so many elements.
fn tile_rows(head_dim: u32) -> u32 {
    if head_dim > 128 { 8 } else { 16 }
}

/// Rows that a block of `warps` has room for: of all warps together, and with the spare tiles.
#[cfg(test)]
pub(crate) fn rows_of_block(head_dim: usize, warps: u32) -> [usize; 2] {
    let rows = |tiles| (tiles * tile_rows(head_dim as u32)) as usize;
    [
        rows(warps * TILES_AHEAD),
        rows(warps * TILES_AHEAD + SPARE_TILES),
    ]
}

/// Bytes of shared memory of a block of `warps` that is one of a cluster, for heads of `head_dim` elements.
pub(crate) fn cluster_shared_bytes(head_dim: usize, warps: u32) -> u32 {
    let dim = head_dim as u32;
    let heads = CLUSTER_HEADS as u32;
    // Rows are bf16, everything else float32 or a pair of it.
    let queries = 2 * heads * dim * 2;
    let new_row = 2 * dim * 4;
    let tops = (warps + MOST_CLUSTER_BLOCKS) * heads * 8;
    let parts = (heads * dim / 2 + MOST_CLUSTER_BLOCKS) * 8;
    let tiles = (warps * TILES_AHEAD + SPARE_TILES) * 2 * tile_rows(dim) * dim * 2;
    queries + new_row + tops + parts + tiles
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An H200: 132 multiprocessors.
    const UNITS: usize = 132;
    const HOPPER: Clusters = [8, 16, 33];

    fn cut(heads: usize, kv_heads: usize, head_dim: usize, clusters: Clusters) -> Launch {
        let shape = HeadShape {
            heads,
            kv_heads,
            head_dim,
        };
        let tuning = Tuning {
            cluster_warps: 8,
            ..Tuning::default()
        };
        let cut = AttentionCut::of(shape, UNITS, clusters);
        cut.map_or(Launch::default(), |cut| cut.decode_launch(tuning))
    }

    #[test]
    fn a_kv_head_has_the_largest_cluster_of_which_all_run_at_once() {
        // Llama 3.1 8B.
        let launch = cut(32, 8, 128, HOPPER);
        assert_eq!((launch.grid, launch.cluster), ((16, 8), 16));
        let launch = cut(32, 8, 128, [7, 16, 33]);
        assert_eq!((launch.grid, launch.cluster), ((8, 8), 8));
        let launch = cut(32, 32, 64, HOPPER);
        assert_eq!((launch.grid, launch.cluster), ((4, 32), 4));
    }

    #[test]
    fn heads_that_share_more_than_the_kernel_takes_are_cut() {
        // 16 query heads a kv head are two pieces.
        let launch = cut(64, 4, 128, HOPPER);
        assert_eq!((launch.grid, launch.cluster), ((16, 8), 16));
    }

    #[test]
    fn without_clusters_or_with_few_heads_all_multiprocessors_are_used() {
        assert_eq!(cut(32, 8, 128, [0; 3]).cluster, 1);
        assert_eq!(cut(4, 1, 256, HOPPER).cluster, 1);
        assert_eq!(cut(32, 8, 96, HOPPER).cluster, 1);
    }

    #[test]
    fn a_block_of_a_cluster_fits_into_the_shared_memory_of_hopper() {
        for head_dim in [64, 128, 256] {
            assert!(cluster_shared_bytes(head_dim, 8) <= 227 << 10);
        }
    }
}
