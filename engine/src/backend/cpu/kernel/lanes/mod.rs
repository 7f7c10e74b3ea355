//! Sixteen lanes at a time, for each instruction set.
//!
//! A kernel is written once over [`Lanes`] and compiled once for each
//! instruction set by `isa_entry!`. Every operation is defined lane by lane
//! with the same roundings everywhere (fused multiply-add included), and sums
//! over lanes have one fixed order, so all instruction sets, the scalar one
//! included, give the same bits. What is not here: loops, layouts, decisions.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod interface;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

#[cfg(target_arch = "x86_64")]
pub(super) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::Avx512;
pub(super) use interface::{LANES, Lanes};
#[cfg(target_arch = "aarch64")]
pub(super) use neon::Neon;
pub(super) use scalar::Scalar;

#[cfg(test)]
mod tests;
