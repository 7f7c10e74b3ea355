//! Attention over a KV cache: one token ([`decode`]) and a chunk ([`prefill`]).
//!
//! A cache of one layer is two buffers `[kv_head][slot][head_dim]`. Keys and
//! values may be f16 or f32. f16 is the fast choice: half the bytes of f32,
//! widened by one instruction on every instruction set, and three more bits
//! than bfloat16; values beyond ±65504 are stored as that.

mod decode;
mod interface;
mod prefill;

pub use decode::{DecodeScratch, decode_attention};
pub use interface::{
    AttentionShape, KvElement, KvRing, KvSegment, KvView, replace_row, write_rows,
};
pub use prefill::{PrefillQueries, prefill_attention};

#[cfg(test)]
mod tests;
