//! What the programs share: printing, progress, exit codes.
//!
//! The only part of the crate that writes to standard output or error.

pub mod bench_decode;
pub mod check;
pub mod compute;
pub mod convert;
pub mod engine_parity;
pub mod exit_code;
pub mod fetch;
pub mod generate;
pub mod inspect;
pub mod logit_trace;
pub mod model_argument;
pub mod overrides;
pub mod perplexity;
pub mod progress;
pub mod routes;
pub mod synth;
pub mod version;
