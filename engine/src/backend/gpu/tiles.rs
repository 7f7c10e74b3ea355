//! Weights in the order in which the matrix units read them.
//!
//! A tile is 16 rows × 64 columns. Each lane's codes are contiguous, eight of them make four
//! registers of two, and register `j` holds codes `j` and `j + 4` of the eight.
//! `engine/kernels/arrange.h` writes them, `engine/kernels/fragments.h` reads them.

/// Rows of a tile.
pub(crate) const TILE_ROWS: usize = 16;
/// Columns of a tile.
pub(crate) const TILE_COLUMNS: usize = 64;

/// How the operands of 16 × 16 × 16 products lie in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `mma.m16n8k16` (PTX ISA, matrix fragments).
    Nvidia,
    /// `v_wmma_f32_16x16x16_bf16` (RDNA3 ISA).
    Rdna3,
}

impl Layout {
    /// Codes that one lane holds.
    pub(crate) fn lane_codes(self) -> usize {
        match self {
            Self::Nvidia => 32,
            Self::Rdna3 => 64,
        }
    }
}
