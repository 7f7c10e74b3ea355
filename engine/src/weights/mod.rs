//! Weights: where a model's tensors come from; nothing about what they mean.
//!
//! * [`safetensors`] one checked, mapped file; [`store`] all shards of a folder.
//! * [`synthetic`] seeded random models in the shapes of real ones.

pub mod safetensors;
pub mod store;
pub mod synthetic;

pub use safetensors::{Dtype, SafetensorsFile, TensorView};
pub use store::WeightStore;
