//! A text in chunks, each as one step of as many rows on a sequence of its own.

use super::row::TraceRow;
use crate::backend::interface::{HeadRequest, TokenSource};
use crate::engine::{Engine, StepRequest};
use crate::error::BackendError;

/// How to cut the text and what to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceOptions {
    /// Tokens of a chunk; at least two, or nothing is predicted.
    pub chunk_tokens: usize,
    /// Tokens kept at each position.
    pub top: usize,
}

/// Why a trace ended early.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A step failed.
    #[error(transparent)]
    Step(#[from] BackendError),
    /// The reader of the rows gave up.
    #[error("failed to write the trace")]
    Write(#[from] std::io::Error),
    /// Nothing to predict.
    #[error("a text of {text_tokens} tokens in chunks of {chunk_tokens} leaves nothing to predict")]
    NothingToPredict {
        /// Tokens of the text.
        text_tokens: usize,
        /// Tokens of a chunk.
        chunk_tokens: usize,
    },
}

/// Gives a row for every token of every chunk but its last to `each`.
///
/// # Errors
/// When there is nothing to predict, a step fails, or `each` does.
pub fn trace(
    engine: &Engine,
    text: &[u32],
    options: TraceOptions,
    each: &mut dyn FnMut(&TraceRow) -> std::io::Result<()>,
) -> Result<(), TraceError> {
    let chunk_tokens = options.chunk_tokens;
    if text.len() < 2 || chunk_tokens < 2 {
        return Err(TraceError::NothingToPredict {
            text_tokens: text.len(),
            chunk_tokens,
        });
    }
    let vocab = engine.model().vocab_size;
    for (chunk, tokens) in text.chunks(chunk_tokens).enumerate() {
        let (fed, targets) = (&tokens[..tokens.len() - 1], &tokens[1..]);
        if fed.is_empty() {
            continue;
        }
        let mut sequence = engine.new_sequence()?;
        let request = StepRequest {
            head: HeadRequest::AllLogits,
            ..StepRequest::greedy()
        };
        let ticket = sequence.submit(TokenSource::Host(fed.to_vec()), request)?;
        let logits = engine.read(ticket)?.logits;
        for (pos, (row, &target)) in logits.chunks_exact(vocab).zip(targets).enumerate() {
            each(&TraceRow::new((chunk, pos), row, target, options.top))?;
        }
    }
    Ok(())
}
