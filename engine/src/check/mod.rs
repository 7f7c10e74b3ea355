//! Comparison of a model folder that carries `reference.safetensors` with the engine.
//!
//! The reference holds a prompt, the tokens that followed it, and the logits and residual streams of
//! a trusted implementation in float32. Each arithmetic is judged by limits of its own
//! ([`limits`]); only float32 is asked for equal tokens, the fast one is judged teacher-forced.

pub mod compare;
pub mod limits;
pub mod reference;
pub mod report;
mod run;

pub use report::{CheckReport, ModeReport};
pub use run::{CheckOptions, check};
