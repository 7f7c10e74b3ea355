//! What the queue thread asks of a set of stages.

use crate::backend::interface::{LayerCacheShape, SequenceId, Step, StepOutput, StepProgram};
use crate::error::BackendError;

/// Weights, caches and buffers of one arithmetic.
pub(super) trait Mode: Send {
    /// Makes empty caches.
    fn create_sequence(&mut self, id: SequenceId, layers: &[LayerCacheShape]);

    /// Frees caches.
    fn drop_sequence(&mut self, id: SequenceId);

    /// Runs one step on `tokens`, which are within the vocabulary.
    fn run(
        &mut self,
        program: &dyn StepProgram,
        step: &Step,
        tokens: &[u32],
    ) -> Result<StepOutput, BackendError>;

    /// Bytes in use: weights, buffers, caches.
    fn memory_bytes(&self) -> u64;
}
