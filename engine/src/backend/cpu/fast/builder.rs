//! Repacks weights as they arrive and starts the queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use half::f16;

use super::linear::{FastGated, FastLinear};
use super::stages::{FastMode, Weights};
use crate::backend::cpu::device;
use crate::backend::cpu::kernel::{Kernels, KvElement};
use crate::backend::cpu::open::unavailable;
use crate::backend::cpu::queue::CpuBackend;
use crate::backend::cpu::routed::RoutedProducts;
use crate::backend::interface::{
    Backend, DeviceBuilder, GatedId, HeadShape, HostLinear, KernelReport, LinearId, RopeId,
    StepProgram, StepShape, Uploader, VectorId,
};
use crate::error::LoadError;

/// Heads are read in vectors of this many elements.
const HEAD_DIM_MULTIPLE: usize = 16;

/// Most query heads that may share a key head.
const MOST_HEADS_PER_KV: usize = 128;

/// The device before it has its program.
pub(in crate::backend::cpu) struct FastBuilder {
    weights: Weights,
}

impl FastBuilder {
    /// Nothing uploaded yet.
    pub(in crate::backend::cpu) fn new(kernels: Kernels, products: RoutedProducts) -> Self {
        Self {
            weights: Weights {
                kernels,
                products: Arc::new(products),
                linears: Vec::new(),
                gated: Vec::new(),
                vectors: Vec::new(),
                ropes: Vec::new(),
            },
        }
    }

    fn report(&self) -> KernelReport {
        let kernels = &self.weights.kernels;
        let mut roles = BTreeMap::new();
        let gated = self.weights.gated.iter().flat_map(FastGated::matrices);
        for linear in self.weights.linears.iter().chain(gated) {
            linear.report(kernels, &mut roles);
        }
        roles.insert("attention".to_owned(), format!("{} float32", kernels.isa()));
        roles.insert(
            "elementwise".to_owned(),
            format!("{} float32", kernels.isa()),
        );
        KernelReport {
            by_role: roles.into_iter().collect(),
            kv_dtype: f16::NAME.to_owned(),
        }
    }
}

impl Uploader for FastBuilder {
    fn linear(&mut self, parts: &[HostLinear<'_>]) -> Result<LinearId, LoadError> {
        let linear = FastLinear::new(&self.weights.kernels, parts)?;
        self.weights.linears.push(linear);
        Ok(LinearId(self.weights.linears.len() - 1))
    }

    fn gated(&mut self, gate: &HostLinear<'_>, up: &HostLinear<'_>) -> Result<GatedId, LoadError> {
        let gated = FastGated::new(&self.weights.kernels, gate, up)?;
        self.weights.gated.push(gated);
        Ok(GatedId(self.weights.gated.len() - 1))
    }

    fn vector(&mut self, values: Vec<f32>) -> Result<VectorId, LoadError> {
        self.weights.vectors.push(values);
        Ok(VectorId(self.weights.vectors.len() - 1))
    }

    fn rope(&mut self, inverse_frequencies: Vec<f32>) -> Result<RopeId, LoadError> {
        self.weights.ropes.push(inverse_frequencies);
        Ok(RopeId(self.weights.ropes.len() - 1))
    }
}

impl DeviceBuilder for FastBuilder {
    fn finish(
        self: Box<Self>,
        program: Box<dyn StepProgram>,
        shape: StepShape,
    ) -> Result<Box<dyn Backend>, LoadError> {
        check_heads(shape.heads)?;
        let kernels = self.report();
        let profile = device::profile(self.weights.kernels.pool().workers());
        let products = Arc::clone(&self.weights.products);
        let mode = Box::new(FastMode::new(self.weights));
        let backend = CpuBackend::start(mode, program, shape.vocab_size, profile, kernels);
        let backend =
            backend.map_err(|source| unavailable(format!("no thread for its queue: {source}")))?;
        Ok(Box::new(backend.with_products(products)))
    }
}

fn check_heads(heads: HeadShape) -> Result<(), LoadError> {
    if !heads.head_dim.is_multiple_of(HEAD_DIM_MULTIPLE) {
        return Err(unavailable(format!(
            "fast arithmetic needs a head_dim that is a multiple of {HEAD_DIM_MULTIPLE}, got {}; \
             float32 arithmetic takes any",
            heads.head_dim
        )));
    }
    if heads.heads / heads.kv_heads > MOST_HEADS_PER_KV {
        return Err(unavailable(format!(
            "fast arithmetic takes at most {MOST_HEADS_PER_KV} query heads a key head, got {}; \
             float32 arithmetic takes any number",
            heads.heads / heads.kv_heads
        )));
    }
    Ok(())
}
