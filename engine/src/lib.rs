//! An LLM engine: decodes tokens, knows no statistics.
//!
//! Table of contents, lowest layer first; each module may use those above it.

pub mod device_profile;
pub mod kv_cache;
pub mod memory;
pub mod qmm;
pub mod quant;
pub mod random;
pub mod version;

pub mod error;
pub mod tokenizer;
pub mod weights;

pub mod convert;

pub mod hub;

pub mod backend;

pub mod model;

pub mod decode;

pub mod engine;

pub mod check;

pub mod bench;

pub mod parity;

pub mod inspect;

pub mod generate;

pub mod perplexity;

pub mod logit_trace;

pub mod cli;

pub use backend::interface::{Arithmetic, BackendChoice, KernelReport};
pub use engine::{Engine, LoadOptions, LoadProgress, ModelInfo, Sequence};
pub use error::{BackendError, LoadError};

/// The examples of README.md compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
