//! What the queue thread asks of a set of stages.

use crate::backend::interface::{
    LayerCacheShape, SequenceId, Step, StepOutput, StepProgram, UndoWork,
};
use crate::error::BackendError;
use crate::kv_cache::CacheUndo;

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

    /// Takes back the newest steps of a sequence, one entry for each kind of cache.
    fn rewind(&mut self, id: SequenceId, undo: &[CacheUndo]);

    /// What was done for rewinding a sequence so far.
    fn undo_work(&self, id: SequenceId) -> UndoWork;

    /// Bytes in use: weights, buffers, caches.
    fn memory_bytes(&self) -> u64;
}
