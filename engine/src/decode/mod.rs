//! Loops over steps: prompts in chunks, one token after the other, when to stop.

pub mod generator;
pub mod prefill;
pub mod sampler;
pub mod step;
pub mod stop;

pub use generator::{Decoded, Generator, GeneratorStatistics};
pub use sampler::{Sampler, SamplerOptions};
pub use stop::{StopReason, StopRule};
