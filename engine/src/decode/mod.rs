//! Loops over steps: prompts in chunks, one token after the other, when to stop.

pub mod decode_loop;
pub mod eligibility;
#[cfg(test)]
mod fake_device;
pub mod generator;
pub mod loop_choice;
pub mod pipeline;
#[cfg(test)]
mod pipeline_tests;
pub mod prefill;
pub mod sampler;
pub mod step;
pub mod stop;
pub mod token_hash;
pub mod unwind;

pub use decode_loop::{DecodeLoop, DecodeStatistics, Decoded};
pub use eligibility::{
    LookaheadOptions, LookaheadParams, SyncReason, UndoPolicy, can_unwind_lookahead,
    lookahead_params,
};
pub use generator::Generator;
pub use loop_choice::LoopChoice;
pub use pipeline::{Control, DirectEngine};
pub use sampler::{Sampler, SamplerOptions};
pub use stop::{LoopRule, StopReason, StopRule};
