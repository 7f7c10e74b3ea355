//! A GGUF file to an MLX model folder: weights, configuration, tokenizer.
//!
//! * [`folder`] the whole conversion, written aside and renamed into place.
//! * [`plan`] which tensor goes where; [`llama`] and [`gemma3`] say so for their families, and
//!   read the keys of config.json, from [`keys`].
//! * [`matrix`] blocks to affine groups, without loss where the block type has an affine form.
//! * [`writer`] the safetensors file; [`tokenizer`] tokenizer.json.
//!
//! Not here: what a GGUF file is (`weights/gguf`), printing (`cli/convert.rs`).

pub mod error;
pub mod folder;
mod gemma3;
mod keys;
mod llama;
pub mod matrix;
mod plan;
#[cfg(test)]
mod tests;
mod tokenizer;
mod writer;

pub use error::ConvertError;
pub use folder::{Conversion, ConvertOptions, convert};
