//! Weights: where a model's tensors come from; nothing about what they mean.
//!
//! * [`safetensors`] one checked, mapped file; [`index`] which shards a folder has; [`store`] all
//!   of them behind one name space.
//! * [`gguf`] files of llama.cpp's format, to be converted.
//! * [`synthetic`] seeded random models in the shapes of real ones.

pub mod gguf;
pub mod index;
pub mod safetensors;
pub mod store;
pub mod synthetic;

pub use safetensors::{Dtype, SafetensorsFile, TensorView};
pub use store::WeightStore;
