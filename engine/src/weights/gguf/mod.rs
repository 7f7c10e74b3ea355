//! GGUF files: checked reading and the reference dequantiser of their blocks.
//!
//! * [`file`](mod@file) one mapped file, every statement checked before anything is handed out.
//! * [`metadata`] the key and value section; [`cursor`] reads that cannot leave the file.
//! * [`block`] which tensor types are read and how long their blocks are.
//! * [`dequantize`] blocks to float32, in the order of the format's definition.
//!
//! Facts of the format are from its public specification (ggml's docs/gguf.md). Not here: what
//! tensors and keys mean (see `convert/`).

pub mod block;
mod cursor;
pub mod dequantize;
pub mod file;
pub mod metadata;
#[cfg(test)]
pub(crate) mod testing;

pub use block::BlockType;
pub use dequantize::dequantize_row;
pub use file::{GgufFile, GgufTensor};
pub use metadata::{ListRange, Value};
