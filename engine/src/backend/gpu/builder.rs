//! Takes weights over.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::backend::gpu::args::MAX_ROPES;
use crate::backend::gpu::arrange::Staging;
use crate::backend::gpu::attention_cut::AttentionCut;
use crate::backend::gpu::backend::GpuBackend;
use crate::backend::gpu::buffer::Buffer;
use crate::backend::gpu::context::Model;
use crate::backend::gpu::machine::Machine;
use crate::backend::gpu::rope::RopeTable;
use crate::backend::gpu::routes::Routes;
use crate::backend::gpu::weights::Linear;
use crate::backend::interface::{
    Arithmetic, Backend, DeviceBuilder, GatedId, HostLinear, KernelReport, LinearId, RopeId,
    StepProgram, StepShape, Uploader, VectorId,
};
use crate::error::{BackendError, LoadError};

/// The device before it has its program.
#[derive(Debug)]
pub(crate) struct GpuBuilder {
    staging: Staging,
    model: Model,
    ropes: Vec<RopeTable>,
}

impl GpuBuilder {
    /// Nothing uploaded yet.
    pub(crate) fn new(machine: Arc<dyn Machine>, arithmetic: Arithmetic) -> Self {
        Self {
            staging: Staging::new(&machine),
            model: Model {
                units: machine.profile().units.max(1),
                routes: Routes::new(&machine.profile(), arithmetic),
                machine,
                arithmetic,
                linears: Vec::new(),
                gated: Vec::new(),
                vectors: Vec::new(),
            },
            ropes: Vec::new(),
        }
    }

    fn unavailable(&self, reason: String) -> LoadError {
        LoadError::Backend(BackendError::Unavailable {
            backend: self.model.machine.profile().backend,
            reason,
        })
    }

    fn report(&self) -> KernelReport {
        let products = |format: &str| match (self.model.arithmetic, format) {
            (Arithmetic::Fast, "bf16") => "bf16 activations, float32 sums",
            (Arithmetic::Fast, _) => {
                "15-bit activations by 64 in decode, bf16 in prefill, float32 sums"
            }
            (Arithmetic::Float32, _) => "float32, one element a warp",
        };
        let mut roles = BTreeMap::new();
        for linear in self.model.linears.iter().chain(&self.model.gated) {
            for part in &linear.parts {
                let role = format!("product {}", part.format);
                roles.insert(role, products(&part.format).to_owned());
            }
        }
        let steps = match self.model.arithmetic {
            Arithmetic::Fast => "captured graph",
            Arithmetic::Float32 => "stage by stage",
        };
        roles.insert("decode step".to_owned(), steps.to_owned());
        let kv_dtype = match self.model.arithmetic {
            Arithmetic::Fast => "bf16",
            Arithmetic::Float32 => "f32",
        };
        KernelReport {
            by_role: roles.into_iter().collect(),
            kv_dtype: kv_dtype.to_owned(),
        }
    }
}

impl Uploader for GpuBuilder {
    fn linear(&mut self, parts: &[HostLinear<'_>]) -> Result<LinearId, LoadError> {
        let linear = match self.model.arithmetic {
            Arithmetic::Fast => Linear::tiles(&mut self.staging, parts)?,
            Arithmetic::Float32 => Linear::plain(&self.model.machine, parts)?,
        };
        self.model.linears.push(linear);
        Ok(LinearId(self.model.linears.len() - 1))
    }

    fn gated(&mut self, gate: &HostLinear<'_>, up: &HostLinear<'_>) -> Result<GatedId, LoadError> {
        let gated = match self.model.arithmetic {
            Arithmetic::Fast => Linear::gated(&mut self.staging, gate, up)?,
            Arithmetic::Float32 => Linear::plain(&self.model.machine, &[gate.clone(), up.clone()])?,
        };
        self.model.gated.push(gated);
        Ok(GatedId(self.model.gated.len() - 1))
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<VectorId, LoadError> {
        let buffer = Buffer::of(&self.model.machine, &values)?;
        self.model.vectors.push(buffer);
        Ok(VectorId(self.model.vectors.len() - 1))
    }

    fn rope(&mut self, inverse_frequencies: Vec<f32>) -> Result<RopeId, LoadError> {
        if self.ropes.len() == MAX_ROPES {
            return Err(self.unavailable(format!("more than {MAX_ROPES} rotation tables")));
        }
        self.ropes.push(RopeTable::new(inverse_frequencies));
        Ok(RopeId(self.ropes.len() - 1))
    }
}

impl DeviceBuilder for GpuBuilder {
    fn finish(
        self: Box<Self>,
        program: Box<dyn StepProgram>,
        shape: StepShape,
    ) -> Result<Box<dyn Backend>, LoadError> {
        let clusters = self.model.machine.tuning().clusters;
        let Some(cut) = AttentionCut::of(shape.heads, self.model.units, clusters) else {
            return Err(self.unavailable(format!(
                "attention needs a head_dim of at most 256 that is a multiple of 8, got {}",
                shape.heads.head_dim
            )));
        };
        let kernels = self.report();
        let Self {
            staging,
            model,
            ropes,
        } = *self;
        // Its memory may be what the buffers need.
        drop(staging);
        Ok(Box::new(GpuBackend::new(
            model, ropes, program, shape, cut, kernels,
        )?))
    }
}
