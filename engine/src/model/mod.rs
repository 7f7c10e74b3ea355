//! What a model is: its configuration, one file a family, and the parts that families share.
//!
//! A family checks and uploads its weights, and its forward pass drives the fused stages of
//! [`crate::backend::interface::Stages`]. Nothing here computes.

pub mod census;
pub mod config;
mod config_reader;
pub mod family;
pub mod gemma3;
pub mod llama;
pub mod parts;
pub mod quantisation;
pub mod qwen3;

pub use config::{Family, ModelConfig};
