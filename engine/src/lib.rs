//! An LLM engine: decodes tokens, knows no statistics.

pub mod weights;
