//! The numbers of the tables, each with what set it.

/// Rows from which dequantise-then-multiply beats the WMMA kernel on RDNA 3.5.
///
/// Published for gfx1151 with Gemma 3 4B (bf16): `MLX_ROCM_WMMA_QMM_MAX_M`'s default there. Not
/// measured by this project, which has no such device.
pub(in crate::qmm) const RDNA35_WMMA_CEILING_M: usize = 128;

/// Compute units below which an integrated GPU does not want the WMMA kernel unasked.
///
/// An assumption that separates gfx1150 and gfx1152 (16 and 8) from gfx1151 (40), for which alone
/// there are published figures.
pub(in crate::qmm) const LOW_COMPUTE_UNITS: usize = 32;

/// Rows from which an e4m3 product is worth its conversion: the published rule, not measured here.
pub(in crate::qmm) const FP8_MIN_M: usize = 64;

/// Rows up to which 4- and 8-bit weights stay on the vector kernel: the published rule.
pub(in crate::qmm) const QMV_MAX_M: usize = 8;

/// Bits that the vector kernel of an AMD GPU reads: codes that do not cross bytes, and 6.
///
/// An assumption; no published table of ours says it of 3 and 5 bits.
pub(in crate::qmm) const ROCM_QMV_BITS: [usize; 4] = [2, 4, 6, 8];

/// Columns of a group, and bits, that the WMMA kernel reads: the published rule.
pub(in crate::qmm) const WMMA_GROUP: usize = 64;
/// See [`WMMA_GROUP`].
pub(in crate::qmm) const WMMA_BITS: [usize; 3] = [4, 6, 8];
/// Outputs that a WMMA tile covers: `N` is a multiple of it.
pub(in crate::qmm) const WMMA_TILE_N: usize = 16;
/// Inputs that a WMMA step covers: `K` is a multiple of it.
pub(in crate::qmm) const WMMA_TILE_K: usize = 64;

/// Rows from which dequantise-then-multiply is preferred on AMD GPUs.
///
/// At most 64: the published test takes this route with 64 rows once the ceiling is lowered to 32.
/// The true crossover of a device lies at or below, may depend on `K` and `N`, and was not measured
/// here.
pub(in crate::qmm) const ROCM_DEQUANT_MIN_M: usize = 64;
