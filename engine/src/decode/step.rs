//! One token, start to end: the sequential twin that every pipelined loop is tested against.

use crate::backend::interface::{StepOutput, TokenSource};
use crate::engine::{Sequence, StepRequest};
use crate::error::BackendError;

/// Feeds `token` and waits for what comes after it.
///
/// # Errors
/// When the step fails.
pub fn step(
    sequence: &mut Sequence,
    token: u32,
    request: StepRequest,
) -> Result<StepOutput, BackendError> {
    let ticket = sequence.submit(TokenSource::Host(vec![token]), request)?;
    sequence.engine().read(ticket)
}
