//! What to write and when to stop.

use crate::decode::SamplerOptions;

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
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateOptions {
    /// How tokens are drawn.
    pub sampler: SamplerOptions,
    /// Most tokens to write.
    pub max_tokens: usize,
    /// Strings that end the text and are not part of it.
    pub stop_strings: Vec<String>,
    /// Go on past the model's end tokens.
    pub ignore_end_tokens: bool,
}
