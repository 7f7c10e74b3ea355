//! The fused stages, put together from kernels.

use std::collections::HashMap;
use std::sync::Arc;

use half::f16;

use super::linear::{Device, FastGated, FastLinear, Scratch, sized};
use super::storage::{FastCache, FastSequence};
use crate::backend::cpu::kernel::elementwise::{add_to, rms_norm, rms_norm_in_place, rope};
use crate::backend::cpu::kernel::{
    AttentionShape, DecodeScratch, Gate, Kernels, KvRing, KvSegment, PrefillQueries,
    decode_attention, prefill_attention,
};
use crate::backend::cpu::mode::Mode;
use crate::backend::cpu::routed::RoutedProducts;
use crate::backend::interface::{
    Activation, AttentionStage, GateUpStage, HeadRequest, HeadShape, HeadStage, LayerCacheShape,
    LinearId, Norm, QkvStage, ResidualStage, RopeId, Sampling, SequenceId, Stages, Step,
    StepOutput, StepProgram, UndoWork,
};
use crate::backend::sample;
use crate::error::BackendError;
use crate::kv_cache::{CachePlan, CacheUndo, KeyView};

/// What does not change while the model is loaded.
pub(super) struct Weights {
    pub(super) kernels: Kernels,
    pub(super) products: Arc<RoutedProducts>,
    pub(super) linears: Vec<FastLinear>,
    pub(super) gated: Vec<FastGated>,
    pub(super) vectors: Vec<Vec<f32>>,
    pub(super) ropes: Vec<Vec<f32>>,
}

impl Weights {
    fn device(&self) -> Device<'_> {
        Device {
            kernels: &self.kernels,
            products: &self.products,
        }
    }
}

/// Weights, caches and the buffers of the step that is running.
pub(super) struct FastMode {
    weights: Weights,
    sequences: HashMap<SequenceId, FastSequence>,
    run: Run,
    buffers: Buffers,
}

/// The running step.
#[derive(Default)]
struct Run {
    tokens: Vec<u32>,
    first_position: usize,
    /// Rows of the residual stream that are still computed: the last of the tokens.
    rows: usize,
    plans: Vec<CachePlan>,
    head: Option<(HeadRequest, Sampling)>,
    capture_hidden: bool,
    caches: FastSequence,
    /// Cosines and sines of the step's positions, by rotation table.
    angles: HashMap<RopeId, (Vec<f32>, Vec<f32>)>,
    output: StepOutput,
}

/// What stages leave for each other; memory stays between steps.
#[derive(Default)]
struct Buffers {
    /// Residual stream, `[tokens, hidden]`.
    x: Vec<f32>,
    /// `[tokens, hidden]`.
    normed: Vec<f32>,
    /// `[tokens, (heads + 2 kv_heads) head_dim]`.
    qkv: Vec<f32>,
    /// What the last block produced, `[tokens, features]`.
    inner: Vec<f32>,
    /// A projection before it is added, `[tokens, hidden]`.
    projected: Vec<f32>,
    logits: Vec<f32>,
    spare: Vec<f32>,
    scratch: Scratch,
    attention: DecodeScratch,
}

impl FastMode {
    pub(super) fn new(weights: Weights) -> Self {
        Self {
            weights,
            sequences: HashMap::new(),
            run: Run::default(),
            buffers: Buffers::default(),
        }
    }

    fn norm_x(&mut self, norm: Norm) {
        let x = &self.buffers.x;
        let normed = sized(&mut self.buffers.normed, x.len());
        let weight = &self.weights.vectors[norm.weight.0];
        rms_norm(&self.weights.kernels, x, weight, norm.eps, normed);
    }

    fn add_projection(&mut self, stage: &ResidualStage) {
        if self.run.rows == 0 {
            return;
        }
        let kernels = &self.weights.kernels;
        let linear = &self.weights.linears[stage.linear.0];
        let buffers = &mut self.buffers;
        let inner = &buffers.inner[..self.run.rows * linear.in_features];
        let projected = sized(&mut buffers.projected, buffers.x.len());
        linear.apply(
            self.weights.device(),
            inner,
            &mut buffers.scratch,
            projected,
        );
        if let Some(norm) = stage.post_norm {
            let weight = &self.weights.vectors[norm.weight.0];
            rms_norm_in_place(kernels, projected, weight, norm.eps);
        }
        add_to(projected, &mut buffers.x);
    }

    fn capture(&mut self) {
        if self.run.capture_hidden {
            self.run.output.hidden.push(self.buffers.x.clone());
        }
    }
}

impl Run {
    fn compute_angles(&mut self, rope: RopeId, inverse: &[f32]) {
        let (first, tokens) = (self.first_position, self.tokens.len());
        self.angles.entry(rope).or_insert_with(|| {
            let angles = (first..first + tokens)
                .flat_map(|position| inverse.iter().map(move |f| position as f64 * f64::from(*f)));
            angles
                .map(|angle| (angle.cos() as f32, angle.sin() as f32))
                .unzip()
        });
    }
}

fn kernel_shape(shape: HeadShape, scale: f32) -> AttentionShape {
    AttentionShape {
        heads: shape.heads,
        kv_heads: shape.kv_heads,
        head_dim: shape.head_dim,
        scale,
    }
}

/// Floats of q and of k (and of v) in a token's row.
fn row_parts(shape: HeadShape) -> (usize, usize) {
    (
        shape.heads * shape.head_dim,
        shape.kv_heads * shape.head_dim,
    )
}

impl Stages for FastMode {
    fn embed(&mut self, table: LinearId, scale: f32) -> Result<(), BackendError> {
        let table = &self.weights.linears[table.0];
        let hidden = table.in_features;
        self.buffers.x.resize(self.run.tokens.len() * hidden, 0.0);
        let rows = self.buffers.x.chunks_exact_mut(hidden);
        for (row, &token) in rows.zip(&self.run.tokens) {
            table.copy_row(token as usize, row);
            row.iter_mut().for_each(|value| *value *= scale);
        }
        self.capture();
        Ok(())
    }

    fn qkv(&mut self, stage: &QkvStage) -> Result<(), BackendError> {
        self.norm_x(stage.norm);
        self.run
            .compute_angles(stage.rope, &self.weights.ropes[stage.rope.0]);
        let Self {
            weights,
            run,
            buffers,
            ..
        } = self;
        let kernels = &weights.kernels;
        let (q_len, kv_len) = row_parts(stage.shape);
        let row_len = q_len + 2 * kv_len;
        let tokens = run.tokens.len();
        let qkv = sized(&mut buffers.qkv, tokens * row_len);
        let normed = &buffers.normed[..buffers.x.len()];
        weights.linears[stage.qkv.0].apply(weights.device(), normed, &mut buffers.scratch, qkv);

        let (cos, sin) = &run.angles[&stage.rope];
        let half = stage.shape.head_dim / 2;
        let finish = |token: usize, row: &mut [f32]| {
            let (q, rest) = row.split_at_mut(q_len);
            let k = &mut rest[..kv_len];
            if let Some((q_norm, k_norm)) = stage.qk_norm {
                for (heads, norm) in [(&mut *q, q_norm), (&mut *k, k_norm)] {
                    let weight = &weights.vectors[norm.weight.0];
                    rms_norm_in_place(kernels, heads, weight, norm.eps);
                }
            }
            let angles = token * half..(token + 1) * half;
            let (cos, sin) = (&cos[angles.clone()], &sin[angles]);
            rope(kernels, q, q_len, stage.shape.heads, cos, sin, half);
            rope(kernels, k, kv_len, stage.shape.kv_heads, cos, sin, half);
        };
        if tokens == 1 {
            // One row is less work than starting the pool.
            finish(0, qkv);
        } else {
            kernels.pool().for_chunks(qkv, row_len, finish);
        }

        let plan = &run.plans[stage.cache_kind];
        let cache = &mut run.caches.layers[stage.layer];
        cache.prepare(plan, &run.caches.arena);
        let rows = (&qkv[..], row_len, q_len);
        cache.append(kernels, plan, rows);
        Ok(())
    }

    fn keep_output_rows(&mut self) -> Result<(), BackendError> {
        let Self {
            weights,
            run,
            buffers,
            ..
        } = self;
        let wanted = match run.head {
            Some((HeadRequest::AllLogits, _)) => run.rows,
            Some(_) => 1,
            None => 0,
        };
        // Other devices compute every row of the last layer, and their routes depend on how many.
        if run.capture_hidden || wanted == run.rows || weights.products.is_foreign() {
            return Ok(());
        }
        let hidden = buffers.x.len() / run.rows;
        buffers.x.drain(..(run.rows - wanted) * hidden);
        run.rows = wanted;
        Ok(())
    }

    fn attention(&mut self, stage: &AttentionStage) -> Result<(), BackendError> {
        let Self {
            weights,
            run,
            buffers,
            ..
        } = self;
        let shape = kernel_shape(stage.shape, stage.scale);
        let (q_len, kv_len) = row_parts(stage.shape);
        let (rows, skipped) = (run.rows, run.tokens.len() - run.rows);
        if rows == 0 {
            return Ok(());
        }
        let plan = &run.plans[stage.cache_kind];
        let view = run.caches.layers[stage.layer].view();
        let out = sized(&mut buffers.inner, rows * q_len);
        match plan.view {
            KeyView::Ring { oldest_slot, rows } => {
                let (q, scratch) = (&buffers.qkv[..q_len], &mut buffers.attention);
                let ring = KvRing {
                    view,
                    ring_slots: plan.physical_rows,
                    oldest_slot,
                    rows,
                };
                decode_attention(&weights.kernels, &shape, ring, q, scratch, out);
            }
            KeyView::Ordered {
                first_position,
                window_tokens,
            } => {
                let keys: KvSegment<'_, f16> = KvSegment {
                    view,
                    first_slot: 0,
                    rows: plan.physical_rows,
                    first_position,
                };
                let row = q_len + 2 * kv_len;
                let queries = PrefillQueries {
                    q: &buffers.qkv[skipped * row..],
                    row,
                    tokens: rows,
                    first_position: run.first_position + skipped,
                };
                prefill_attention(
                    &weights.kernels,
                    &shape,
                    &[keys],
                    &queries,
                    window_tokens,
                    out,
                );
            }
        }
        Ok(())
    }

    fn output(&mut self, stage: &ResidualStage) -> Result<(), BackendError> {
        self.add_projection(stage);
        Ok(())
    }

    fn gate_up(&mut self, stage: &GateUpStage) -> Result<(), BackendError> {
        if self.run.rows == 0 {
            return Ok(());
        }
        self.norm_x(stage.norm);
        let buffers = &mut self.buffers;
        let gated = &self.weights.gated[stage.gate_up.0];
        let function = match stage.activation {
            Activation::Silu => Gate::Silu,
            Activation::GeluTanh => Gate::GeluTanh,
        };
        let normed = &buffers.normed[..buffers.x.len()];
        let out = sized(&mut buffers.inner, self.run.rows * gated.out_features());
        let spare = (&mut buffers.scratch, &mut buffers.spare);
        gated.apply(self.weights.device(), function, normed, spare, out);
        Ok(())
    }

    fn down(&mut self, stage: &ResidualStage) -> Result<(), BackendError> {
        self.add_projection(stage);
        self.capture();
        Ok(())
    }

    fn head(&mut self, stage: &HeadStage) -> Result<(), BackendError> {
        let Some((request, sampling)) = self.run.head else {
            return Ok(());
        };
        let Self {
            weights,
            run,
            buffers,
            ..
        } = self;
        let kernels = &weights.kernels;
        let head = &weights.linears[stage.head.0];
        let (hidden, vocab) = (head.in_features, head.out_features);
        let first = match request {
            HeadRequest::AllLogits => 0,
            _ => buffers.x.len() - hidden,
        };
        let x = &buffers.x[first..];
        let normed = sized(&mut buffers.normed, x.len());
        let norm = stage.norm;
        rms_norm(
            kernels,
            x,
            &weights.vectors[norm.weight.0],
            norm.eps,
            normed,
        );
        let scratch = &mut buffers.scratch;
        if (request, sampling) == (HeadRequest::Token, Sampling::Greedy)
            && let Some(largest) = head.argmax(weights.device(), normed, scratch, None)
        {
            run.output.token = Some(largest);
            return Ok(());
        }
        let logits = sized(&mut buffers.logits, x.len() / hidden * vocab);
        let largest = head.argmax(weights.device(), normed, scratch, Some(&mut *logits));
        if largest.is_none() {
            head.apply(weights.device(), normed, scratch, logits);
        }
        let last = &logits[logits.len() - vocab..];
        run.output.token = Some(match (sampling, largest) {
            (Sampling::Greedy, Some(largest)) => largest,
            _ => sample::choose(last, sampling),
        });
        if request != HeadRequest::Token {
            run.output.logits = logits.to_vec();
        }
        Ok(())
    }
}

impl Mode for FastMode {
    fn create_sequence(&mut self, id: SequenceId, layers: &[LayerCacheShape]) {
        let sequence = FastSequence {
            layers: layers.iter().map(|shape| FastCache::new(*shape)).collect(),
            ..FastSequence::default()
        };
        self.sequences.insert(id, sequence);
    }

    fn drop_sequence(&mut self, id: SequenceId) {
        self.sequences.remove(&id);
    }

    fn run(
        &mut self,
        program: &dyn StepProgram,
        step: &Step,
        tokens: &[u32],
    ) -> Result<StepOutput, BackendError> {
        let unknown = BackendError::UnknownSequence {
            sequence: step.sequence.0,
        };
        let caches = self.sequences.remove(&step.sequence).ok_or(unknown)?;
        self.run = Run {
            tokens: tokens.to_vec(),
            rows: tokens.len(),
            first_position: step.first_position,
            plans: step.caches.clone(),
            head: (step.head != HeadRequest::Skip).then_some((step.head, step.sampling)),
            capture_hidden: step.capture_hidden,
            caches,
            ..Run::default()
        };
        let result = program.forward(self);
        let run = std::mem::take(&mut self.run);
        self.sequences.insert(step.sequence, run.caches);
        result.map(|()| run.output)
    }

    fn rewind(&mut self, id: SequenceId, undo: &[CacheUndo]) {
        let sequence = self.sequences.get_mut(&id);
        for cache in sequence.into_iter().flat_map(|s| &mut s.layers) {
            if let Some(undo) = undo.get(cache.kind()) {
                cache.rewind(undo);
            }
        }
    }

    fn undo_work(&self, id: SequenceId) -> UndoWork {
        let layers = self.sequences.get(&id).into_iter().flat_map(|s| &s.layers);
        layers
            .map(FastCache::undo_work)
            .fold(UndoWork::default(), UndoWork::plus)
    }

    fn memory_bytes(&self) -> u64 {
        let weights = &self.weights;
        let gated = weights.gated.iter().flat_map(FastGated::matrices);
        let matrices = weights.linears.iter().chain(gated).map(FastLinear::bytes);
        let layers = self
            .sequences
            .values()
            .flat_map(|sequence| &sequence.layers);
        let caches = layers.map(FastCache::bytes);
        let buffers = &self.buffers;
        let floats = [
            &buffers.x,
            &buffers.normed,
            &buffers.qkv,
            &buffers.inner,
            &buffers.projected,
            &buffers.logits,
            &buffers.spare,
        ];
        let vectors = weights.vectors.iter().chain(&weights.ropes).chain(floats);
        let float_bytes: usize = vectors.map(|values| 4 * values.len()).sum();
        matrices.sum::<u64>() + caches.sum::<u64>() + float_bytes as u64
    }
}
