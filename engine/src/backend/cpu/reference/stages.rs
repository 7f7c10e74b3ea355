//! The fused stages, one formula after the other.

use std::collections::HashMap;

use super::math::{dot, gelu_tanh, rms_norm, rms_norm_in_place, rotate, silu, softmax};
use super::matrix::Matrix;
use crate::backend::cpu::kernel::Pool;
use crate::backend::cpu::mode::Mode;
use crate::backend::cpu::storage::LayerCache;
use crate::backend::interface::{
    Activation, AttentionStage, GateUpStage, HeadRequest, HeadStage, LayerCacheShape, LinearId,
    Norm, QkvStage, ResidualStage, Sampling, SequenceId, Stages, Step, StepOutput, StepProgram,
    UndoWork,
};
use crate::backend::sample;
use crate::error::BackendError;
use crate::kv_cache::mask::visible_rows;
use crate::kv_cache::{CachePlan, CacheUndo};

/// Weights, caches and the buffers of the step that is running.
pub(super) struct ReferenceMode {
    pool: Pool,
    matrices: Vec<Matrix>,
    vectors: Vec<Vec<f32>>,
    ropes: Vec<Vec<f32>>,
    sequences: HashMap<SequenceId, Vec<LayerCache<f32>>>,
    run: Run,
}

/// The running step, and what its stages leave for each other.
#[derive(Default)]
struct Run {
    tokens: Vec<u32>,
    first_position: usize,
    plans: Vec<CachePlan>,
    head: Option<(HeadRequest, Sampling)>,
    capture_hidden: bool,
    caches: Vec<LayerCache<f32>>,
    /// Residual stream, `[tokens, hidden]`.
    x: Vec<f32>,
    /// Queries, `[tokens, heads * head_dim]`.
    q: Vec<f32>,
    /// What the last block produced, `[tokens, features]`.
    inner: Vec<f32>,
    output: StepOutput,
}

impl ReferenceMode {
    pub(super) fn new(
        pool: Pool,
        matrices: Vec<Matrix>,
        vectors: Vec<Vec<f32>>,
        ropes: Vec<Vec<f32>>,
    ) -> Self {
        Self {
            pool,
            matrices,
            vectors,
            ropes,
            sequences: HashMap::new(),
            run: Run::default(),
        }
    }

    /// `x Wᵀ + bias` for `x` `[tokens, in]`; returns `[tokens, out]`.
    fn linear(&self, id: LinearId, x: &[f32]) -> Vec<f32> {
        let matrix = &self.matrices[id.0];
        let (outputs, inputs) = (matrix.out_features, matrix.in_features);
        let tokens = x.len() / inputs;
        // By output row, so that each row is dequantised once; transposed below.
        let mut by_row = vec![0.0; outputs * tokens];
        self.pool.for_chunks(&mut by_row, tokens, |row, sums| {
            let mut weights = vec![0.0; inputs];
            let bias = matrix.read_row(row, &mut weights);
            for (sum, x) in sums.iter_mut().zip(x.chunks_exact(inputs)) {
                *sum = dot(&weights, x) + bias;
            }
        });
        let mut by_token = vec![0.0; outputs * tokens];
        self.pool
            .for_chunks(&mut by_token, outputs, |token, values| {
                for (row, value) in values.iter_mut().enumerate() {
                    *value = by_row[row * tokens + token];
                }
            });
        by_token
    }

    fn normed(&self, x: &[f32], norm: Norm) -> Vec<f32> {
        let weight = &self.vectors[norm.weight.0];
        let mut out = vec![0.0; x.len()];
        for (out, x) in out
            .chunks_exact_mut(weight.len())
            .zip(x.chunks_exact(weight.len()))
        {
            rms_norm(x, weight, norm.eps, out);
        }
        out
    }

    /// Norm and rotation of `heads` heads a token.
    fn finish_heads(&self, rows: &mut [f32], stage: &QkvStage, heads: usize, norm: Option<Norm>) {
        let inverse = &self.ropes[stage.rope.0];
        let head_dim = stage.shape.head_dim;
        for (token, row) in rows.chunks_exact_mut(heads * head_dim).enumerate() {
            for head in row.chunks_exact_mut(head_dim) {
                if let Some(norm) = norm {
                    rms_norm_in_place(head, &self.vectors[norm.weight.0], norm.eps);
                }
                rotate(head, self.run.first_position + token, inverse);
            }
        }
    }

    fn add_projection(&mut self, stage: &ResidualStage) {
        let mut y = self.linear(stage.linear, &self.run.inner);
        if let Some(norm) = stage.post_norm {
            y = self.normed(&y, norm);
        }
        for (x, y) in self.run.x.iter_mut().zip(&y) {
            *x += y;
        }
    }

    fn capture(&mut self) {
        if self.run.capture_hidden {
            self.run.output.hidden.push(self.run.x.clone());
        }
    }
}

impl Stages for ReferenceMode {
    fn embed(&mut self, table: LinearId, scale: f32) -> Result<(), BackendError> {
        let matrix = &self.matrices[table.0];
        let hidden = matrix.in_features;
        self.run.x.resize(self.run.tokens.len() * hidden, 0.0);
        for (row, &token) in self.run.x.chunks_exact_mut(hidden).zip(&self.run.tokens) {
            matrix.read_row(token as usize, row);
            row.iter_mut().for_each(|value| *value *= scale);
        }
        self.capture();
        Ok(())
    }

    fn qkv(&mut self, stage: &QkvStage) -> Result<(), BackendError> {
        let normed = self.normed(&self.run.x, stage.norm);
        let qkv = self.linear(stage.qkv, &normed);
        let head_dim = stage.shape.head_dim;
        let (q_len, kv_len) = (
            stage.shape.heads * head_dim,
            stage.shape.kv_heads * head_dim,
        );
        let (mut q, mut k, mut v) = (Vec::new(), Vec::new(), Vec::new());
        for row in qkv.chunks_exact(q_len + 2 * kv_len) {
            q.extend_from_slice(&row[..q_len]);
            k.extend_from_slice(&row[q_len..q_len + kv_len]);
            v.extend_from_slice(&row[q_len + kv_len..]);
        }
        let norms = stage.qk_norm;
        self.finish_heads(&mut q, stage, stage.shape.heads, norms.map(|n| n.0));
        self.finish_heads(&mut k, stage, stage.shape.kv_heads, norms.map(|n| n.1));
        let plan = self.run.plans[stage.cache_kind];
        let cache = &mut self.run.caches[stage.layer];
        cache.prepare(&plan);
        if let Some(save) = plan.save {
            cache.save(save);
        }
        for (token, (k, v)) in k
            .chunks_exact(kv_len)
            .zip(v.chunks_exact(kv_len))
            .enumerate()
        {
            let (k_row, v_row) = cache.row_mut(plan.first_slot + token);
            k_row.copy_from_slice(k);
            v_row.copy_from_slice(v);
        }
        self.run.q = q;
        Ok(())
    }

    fn attention(&mut self, stage: &AttentionStage) -> Result<(), BackendError> {
        let shape = stage.shape;
        let head_dim = shape.head_dim;
        let row_len = shape.kv_heads * head_dim;
        let plan = self.run.plans[stage.cache_kind];
        let mut out = vec![0.0; self.run.q.len()];
        let run = &self.run;
        let cache = &run.caches[stage.layer];
        self.pool.for_chunks(&mut out, head_dim, |index, out| {
            let (token, head) = (index / shape.heads, index % shape.heads);
            let at = head / (shape.heads / shape.kv_heads) * head_dim;
            let q = &run.q[index * head_dim..(index + 1) * head_dim];
            let rows = visible_rows(plan.view, plan.physical_rows, run.first_position + token);
            let mut scores: Vec<f32> = rows
                .clone()
                .map(|row| stage.scale * dot(q, &cache.k[row * row_len + at..][..head_dim]))
                .collect();
            softmax(&mut scores);
            for (row, score) in rows.zip(scores) {
                let v = &cache.v[row * row_len + at..][..head_dim];
                for (out, v) in out.iter_mut().zip(v) {
                    *out += score * v;
                }
            }
        });
        self.run.inner = out;
        Ok(())
    }

    fn output(&mut self, stage: &ResidualStage) -> Result<(), BackendError> {
        self.add_projection(stage);
        Ok(())
    }

    fn gate_up(&mut self, stage: &GateUpStage) -> Result<(), BackendError> {
        let normed = self.normed(&self.run.x, stage.norm);
        let both = self.linear(LinearId(stage.gate_up.0), &normed);
        let width = self.matrices[stage.gate_up.0].out_features / 2;
        let activate = match stage.activation {
            Activation::Silu => silu,
            Activation::GeluTanh => gelu_tanh,
        };
        self.run.inner.clear();
        for row in both.chunks_exact(2 * width) {
            let (gate, up) = row.split_at(width);
            let gated = gate.iter().zip(up).map(|(gate, up)| activate(*gate) * up);
            self.run.inner.extend(gated);
        }
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
        let hidden = self.matrices[stage.head.0].in_features;
        let first = match request {
            HeadRequest::AllLogits => 0,
            _ => self.run.x.len() - hidden,
        };
        let normed = self.normed(&self.run.x[first..], stage.norm);
        let logits = self.linear(stage.head, &normed);
        let last = logits.len() - self.matrices[stage.head.0].out_features;
        self.run.output.token = Some(sample::choose(&logits[last..], sampling));
        if request != HeadRequest::Token {
            self.run.output.logits = logits;
        }
        Ok(())
    }
}

impl Mode for ReferenceMode {
    fn create_sequence(&mut self, id: SequenceId, layers: &[LayerCacheShape]) {
        let caches = layers.iter().map(|shape| LayerCache::new(*shape)).collect();
        self.sequences.insert(id, caches);
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
        let caches = self.sequences.get_mut(&id);
        for cache in caches.into_iter().flatten() {
            if let Some(undo) = undo.get(cache.kind()) {
                cache.rewind(undo);
            }
        }
    }

    fn undo_work(&self, id: SequenceId) -> UndoWork {
        let layers = self.sequences.get(&id).into_iter().flatten();
        layers
            .map(LayerCache::undo_work)
            .fold(UndoWork::default(), UndoWork::plus)
    }

    fn memory_bytes(&self) -> u64 {
        let vectors = self.vectors.iter().chain(&self.ropes).map(|v| 4 * v.len());
        let caches = self.sequences.values().flatten().map(LayerCache::bytes);
        let matrices = self.matrices.iter().map(Matrix::bytes);
        matrices.sum::<u64>() + vectors.sum::<usize>() as u64 + caches.sum::<u64>()
    }
}
