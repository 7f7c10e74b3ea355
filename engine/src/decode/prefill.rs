//! A prompt in chunks: only the last one needs the head.

use crate::backend::interface::{HeadRequest, Ticket, TokenSource};
use crate::engine::{Sequence, StepRequest};
use crate::error::BackendError;

/// Queues `ids` in chunks of the engine's size; returns the last chunk's ticket.
///
/// The other chunks' outputs are given up, so their errors show on the last one: a failed step
/// stops the sequence.
///
/// # Errors
/// When `ids` is empty or the device refuses a chunk.
pub fn prefill(
    sequence: &mut Sequence,
    ids: &[u32],
    request: StepRequest,
) -> Result<Ticket, BackendError> {
    let chunk_tokens = sequence.engine().prefill_chunk_tokens();
    let last_start = ids.len().saturating_sub(1) / chunk_tokens * chunk_tokens;
    for chunk in ids[..last_start].chunks(chunk_tokens) {
        let request = StepRequest {
            head: HeadRequest::Skip,
            ..request
        };
        let ticket = sequence.submit(TokenSource::Host(chunk.to_vec()), request)?;
        sequence.engine().discard(ticket);
    }
    sequence.submit(TokenSource::Host(ids[last_start..].to_vec()), request)
}
