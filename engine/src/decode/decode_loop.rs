//! What every decode loop is to its caller: a prompt goes in, tokens come out one by one, and at
//! the end it says what it did.

use crate::backend::interface::StepOutput;
use crate::decode::stop::StopReason;
use crate::error::BackendError;

/// A token with what came along.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The token.
    pub token: u32,
    /// Logits that it was chosen from, where they were asked for; else empty.
    pub logits: Vec<f32>,
}

impl Decoded {
    /// What a step with a head left.
    pub(super) fn from_output(output: StepOutput) -> Result<Self, BackendError> {
        let token = output.token.ok_or_else(|| BackendError::Stopped {
            reason: "a step with a head returned no token".to_owned(),
        })?;
        Ok(Self {
            token,
            logits: output.logits,
        })
    }
}

/// What a loop did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct DecodeStatistics {
    /// Name of the loop: `generator`, `engine`.
    pub decode_path: &'static str,
    /// Steps queued before the token they follow was read, and that could be taken back.
    pub lookahead_steps: usize,
    /// Rows of keys and of values that steps were told to save.
    pub undo_rows_recorded: usize,
    /// Rows that the device copied for that.
    pub undo_rows_copied: u64,
    /// Pieces of work that the device was given for that alone.
    pub undo_launches: u64,
    /// Times that steps were taken back.
    pub rewinds: usize,
    /// Steps taken back.
    pub appends_rewound: usize,
    /// Forward passes past the end whose tokens were dropped.
    pub dropped_steps: usize,
    /// Whether a window was written past its end.
    pub wrapped: bool,
    /// Whether the user forced synchronous steps.
    pub forced_sync: bool,
    /// What happens to rows that are overwritten ahead; `None` in a loop that takes nothing back.
    pub undo_policy: Option<&'static str>,
    /// Why steps were synchronous, where they were.
    pub sync_reason: Option<&'static str>,
}

/// A loop over one sequence.
pub trait DecodeLoop {
    /// Feeds the prompt and returns the first token.
    ///
    /// # Errors
    /// When the prompt is empty or a step fails.
    fn prefill(&mut self, ids: &[u32]) -> Result<Decoded, BackendError>;

    /// The next token, or `None` after the end.
    ///
    /// # Errors
    /// When a step fails.
    fn next(&mut self) -> Result<Option<Decoded>, BackendError>;

    /// Ends the text after the token that was returned last.
    ///
    /// # Errors
    /// When a step that was still under way cannot be taken back.
    fn end(&mut self, reason: StopReason) -> Result<(), BackendError>;

    /// Why the text ended, once it has.
    fn stopped(&self) -> Option<StopReason>;

    /// Ends the loop, with nothing of it left under way.
    ///
    /// # Errors
    /// When a step that was still under way fails, or cannot be taken back.
    fn finish(self: Box<Self>) -> Result<DecodeStatistics, BackendError>;
}
