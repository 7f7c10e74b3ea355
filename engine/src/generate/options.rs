//! What to write and when to stop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::decode::{LoopChoice, SamplerOptions};

/// What the model is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// A question, in the folder's chat template.
    Chat {
        /// What sets the tone, if anything.
        system: Option<String>,
        /// The question.
        user: String,
    },
    /// A text to go on with, as it is.
    Raw(String),
}

/// How to go on and when to stop.
#[derive(Debug, Clone)]
pub struct GenerateOptions {
    /// How tokens are drawn.
    pub sampler: SamplerOptions,
    /// Most tokens to write.
    pub max_tokens: usize,
    /// Strings that end the text and are not part of it.
    pub stop_strings: Vec<String>,
    /// Go on past the model's end tokens.
    pub ignore_end_tokens: bool,
    /// The loop that decodes.
    pub decode_loop: LoopChoice,
    /// Once raised, the text ends with the token under way.
    pub cancel: Arc<AtomicBool>,
}
