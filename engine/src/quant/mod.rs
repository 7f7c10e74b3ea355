//! Quantisation as MLX folders store it: formats, bit packing, quantiser and dequantiser, and mxfp4
//! as the affine format that it is.
//!
//! Everything here is pure, and all but [`mxfp4`] slow on purpose: it is what the fast kernels are
//! tested against.

pub mod dequantize;
pub mod format;
pub mod mxfp4;
pub mod pack;
pub mod quantize;

pub use dequantize::dequantize_row;
pub use format::{AffineFormat, FormatError};
