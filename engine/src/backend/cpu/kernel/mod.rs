//! Kernels of the CPU back end over plain slices; they know no model.
//!
//! Build a [`Kernels`] (instruction set and threads) once, repack the weights
//! ([`QuantisedMatrix`], [`PlainMatrix`]) at load, and call:
//!
//! - [`Activations::quantise`], then [`product`] or [`gated_product`], for
//!   affine weights; [`plain_product`] for bf16, f16 and f32 ones;
//!   [`dense_product`] for affine ones that are dequantised as a whole;
//! - [`decode_attention`] and [`prefill_attention`] over a KV cache;
//! - the functions of [`elementwise`].
//!
//! All results are the same bits for any number of threads and, but for
//! [`dense_product`], any instruction set. Products and elementwise functions also do not depend on how many
//! tokens are computed together; attention does, in the last bits, because a
//! token alone and a chunk add in different orders. Sizes that do not fit are
//! a mistake of the calling code, and panic.

mod activation;
mod argmax;
mod attention;
mod dequantised;
mod dispatch;
pub mod elementwise;
mod exp;
mod gated;
mod huge_pages;
mod kernels;
mod lanes;
mod plain;
mod plain_product;
mod pool;
mod product;
#[cfg(test)]
mod product_tests;
mod repack;
mod source;
#[cfg(test)]
mod testing;
mod vector;

pub use activation::Activations;
pub use argmax::product_argmax;
pub use attention::{
    AttentionShape, DecodeScratch, KvElement, KvRing, KvSegment, KvView, PrefillQueries,
    decode_attention, prefill_attention, replace_row, write_rows,
};
pub use dequantised::{DequantisedMatrix, dense_product};
pub use dispatch::{CpuFeatures, DispatchError, Isa, KernelChoice, choose};
pub use gated::{Gate, gated_product};
pub use huge_pages::{ALIGNMENT_BYTES, AlignedBuffer, Arena, Plain};
pub use kernels::{Kernels, KernelsError};
pub use plain::PlainMatrix;
pub use plain_product::plain_product;
pub use pool::{Pool, share};
pub use product::product;
pub use repack::{BLOCK_ROWS, QuantisedMatrix};
pub use source::{AffineSource, FloatKind, FloatSource, PlainSource, RepackError};
