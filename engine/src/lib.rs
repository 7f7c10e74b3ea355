//! An LLM engine: decodes tokens, knows no statistics.

pub mod cli;
pub mod version;
pub mod weights;
