//! Qwen 3, dense: Llama's block with q and k normed per head before the rotation.

use crate::backend::interface::{Stages, StepProgram};
use crate::error::{BackendError, LoadError};
use crate::model::llama::Llama;
use crate::model::parts::Loading;

/// The uploaded model.
#[derive(Debug)]
pub struct Qwen3(Llama);

impl Qwen3 {
    /// Checks and uploads all weights.
    ///
    /// # Errors
    /// When a tensor is missing or wrong.
    pub fn load(loading: &mut Loading<'_>) -> Result<Self, LoadError> {
        Llama::load_with(loading, true).map(Self)
    }
}

impl StepProgram for Qwen3 {
    fn forward(&self, stages: &mut dyn Stages) -> Result<(), BackendError> {
        self.0.forward(stages)
    }
}
