//! Affine quantisation as MLX folders store it: formats, bit packing, quantiser and dequantiser.
//!
//! Everything here is pure and slow on purpose: it is what the fast kernels are tested against.

pub mod dequantize;
pub mod format;
pub mod pack;
pub mod quantize;

pub use dequantize::dequantize_row;
pub use format::{AffineFormat, FormatError};
