//! Tiles made on the host, code by code: the slow twin of `arrange.rs` and its kernels, for tests.

use crate::backend::gpu::tiles::{Layout, TILE_COLUMNS, TILE_ROWS};
use crate::quant::pack::pack_row;

impl Layout {
    /// Row and column within a tile of each code, in the order in which they are stored: lanes one
    /// after the other.
    pub(crate) fn order(self) -> Vec<(usize, usize)> {
        match self {
            Self::Nvidia => nvidia_order(),
            Self::Rdna3 => rdna3_order(),
        }
    }
}

/// Lane `4 g + t` holds rows `g` and `g + 8`, and of each half of the columns eight from `8 t` on, four
/// a step.
fn nvidia_order() -> Vec<(usize, usize)> {
    let mut order = Vec::with_capacity(TILE_ROWS * TILE_COLUMNS);
    for lane in 0..32 {
        let (g, t) = (lane / 4, lane % 4);
        for step in 0..4 {
            for place in 0..8 {
                let (register, high) = (place % 4, place / 4);
                let row = g + 8 * (register % 2);
                let column = 32 * (step / 2) + 8 * t + 4 * (step % 2);
                order.push((row, column + 2 * (register / 2) + high));
            }
        }
    }
    order
}

/// Lane `l` holds row `l`, all columns; the other half of the lanes reads the same.
fn rdna3_order() -> Vec<(usize, usize)> {
    let mut order = Vec::with_capacity(TILE_ROWS * TILE_COLUMNS);
    for row in 0..16 {
        for eight in 0..TILE_COLUMNS / 8 {
            for place in 0..8 {
                let (register, high) = (place % 4, place / 4);
                order.push((row, 8 * eight + 2 * register + high));
            }
        }
    }
    order
}

/// Packs one tile; `code` gives the code at a row and column within it.
pub(crate) fn pack_tile(
    layout: Layout,
    order: &[(usize, usize)],
    bits: u8,
    code: impl Fn(usize, usize) -> u8,
    out: &mut Vec<u32>,
) {
    let mut lane = [0u8; 64];
    for places in order.chunks_exact(layout.lane_codes()) {
        for (slot, &(row, column)) in lane.iter_mut().zip(places) {
            *slot = code(row, column);
        }
        out.extend(pack_row(&lane[..places.len()], bits));
    }
}

/// Packs one tile of bf16 weights, given as bit patterns.
pub(crate) fn pack_bf16_tile(
    order: &[(usize, usize)],
    weight: impl Fn(usize, usize) -> u16,
    out: &mut Vec<u32>,
) {
    for eight in order.chunks_exact(8) {
        for register in 0..4 {
            let half = |(row, column)| u32::from(weight(row, column));
            out.push(half(eight[register]) | half(eight[register + 4]) << 16);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_of_a_tile_is_stored_once() {
        for layout in [Layout::Nvidia, Layout::Rdna3] {
            let mut order = layout.order();
            order.sort_unstable();
            order.dedup();
            assert_eq!(order.len(), TILE_ROWS * TILE_COLUMNS);
        }
    }

    #[test]
    fn the_first_word_of_a_lane_is_its_first_operand() {
        // Row in the high digit, column in the low one, of lane 0: a0 = (0, 0), (0, 1); a1 = row 8;
        // a2 = (0, 2), (0, 3). Nibbles 0 and 4 are one register, then 1 and 5, ...
        let code = |row: usize, column: usize| (row / 8 * 8 + column % 8) as u8;
        let mut words = Vec::new();
        let layout = Layout::Nvidia;
        pack_tile(layout, &layout.order(), 4, code, &mut words);
        assert_eq!(words[0], 0xb391_a280);
        assert_eq!(words.len(), TILE_ROWS * TILE_COLUMNS / 8);
    }
}
