//! Takes weights over and starts the queue.

use super::matrix::Matrix;
use super::stages::ReferenceMode;
use crate::backend::cpu::device;
use crate::backend::cpu::kernel::Pool;
use crate::backend::cpu::queue::CpuBackend;
use crate::backend::interface::{
    Backend, DeviceBuilder, GatedId, HostLinear, KernelReport, LinearId, RopeId, StepProgram,
    StepShape, Uploader, VectorId,
};
use crate::error::{BackendError, LoadError};

/// The device before it has its program.
pub(in crate::backend::cpu) struct ReferenceBuilder {
    pool: Pool,
    matrices: Vec<Matrix>,
    vectors: Vec<Vec<f32>>,
    ropes: Vec<Vec<f32>>,
}

impl ReferenceBuilder {
    /// Nothing uploaded yet.
    pub(in crate::backend::cpu) fn new(pool: Pool) -> Self {
        Self {
            pool,
            matrices: Vec::new(),
            vectors: Vec::new(),
            ropes: Vec::new(),
        }
    }
}

impl Uploader for ReferenceBuilder {
    fn linear(&mut self, parts: &[HostLinear<'_>]) -> Result<LinearId, LoadError> {
        self.matrices.push(Matrix::new(parts)?);
        Ok(LinearId(self.matrices.len() - 1))
    }

    fn gated(&mut self, gate: &HostLinear<'_>, up: &HostLinear<'_>) -> Result<GatedId, LoadError> {
        let stacked = self.linear(&[gate.clone(), up.clone()])?;
        Ok(GatedId(stacked.0))
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<VectorId, LoadError> {
        self.vectors.push(values);
        Ok(VectorId(self.vectors.len() - 1))
    }

    fn rope(&mut self, inverse_frequencies: Vec<f32>) -> Result<RopeId, LoadError> {
        self.ropes.push(inverse_frequencies);
        Ok(RopeId(self.ropes.len() - 1))
    }
}

impl DeviceBuilder for ReferenceBuilder {
    fn finish(
        self: Box<Self>,
        program: Box<dyn StepProgram>,
        shape: StepShape,
    ) -> Result<Box<dyn Backend>, LoadError> {
        let kernels = KernelReport {
            by_role: vec![("all stages".to_owned(), "float32 reference".to_owned())],
            kv_dtype: "f32".to_owned(),
        };
        let profile = device::profile(self.pool.workers());
        let mode = ReferenceMode::new(self.pool, self.matrices, self.vectors, self.ropes);
        let backend =
            CpuBackend::start(Box::new(mode), program, shape.vocab_size, profile, kernels);
        Ok(Box::new(backend.map_err(|source| {
            BackendError::Unavailable {
                backend: "cpu".to_owned(),
                reason: format!("no thread for its queue: {source}"),
            }
        })?))
    }
}
