//! Many tokens, stage by stage: prompts, and everything in float32, the slow twin of the rest.

use crate::backend::gpu::args::{
    BlockBestArgs, EmbedRowsArgs, FinishRowsArgs, FoldNormArgs, GateRowsArgs, PickArgs,
    PrefillAttentionArgs, RowInput,
};
use crate::backend::gpu::attention_cut::AttentionCut;
use crate::backend::gpu::buffer::{Buffer, read_floats};
use crate::backend::gpu::cache::SequenceCaches;
use crate::backend::gpu::context::{Model, Output, activation_kind, padded};
use crate::backend::gpu::step::LOG2_E;
use crate::backend::gpu::vector_cut::Neighbours;
use crate::backend::gpu::weights::Form;
use crate::backend::interface::{
    Arithmetic, AttentionStage, GateUpStage, HeadRequest, HeadStage, LinearId, Norm, QkvStage,
    ResidualStage, Stages, Step,
};
use crate::error::BackendError;
use crate::kv_cache::{CachePlan, KeyView, SaveMethod};

/// Blocks that look for the largest logit.
const BEST_BLOCKS: usize = 64;

/// A bound beyond every position.
const UNBOUNDED: i32 = 1 << 30;

/// What stages leave for each other; grows with the chunk.
#[derive(Debug)]
pub(crate) struct RowBuffers {
    /// Residual stream, `[token][hidden]`.
    x: Buffer,
    /// What a block adds to it, the same shape.
    c: Buffer,
    normed: Buffer,
    qkv: Buffer,
    attended: Buffer,
    inner: Buffer,
    /// Gate and up of the slow twin, `[token][2 width]`.
    both: Buffer,
    /// `[token][vocab]`.
    pub(crate) logits: Buffer,
    best: Buffer,
}

impl RowBuffers {
    /// Nothing yet.
    pub(crate) fn new(model: &Model) -> Result<Self, BackendError> {
        let empty = || Buffer::zeroed(&model.machine, 0);
        let best = 8 * BEST_BLOCKS.max(model.units);
        Ok(Self {
            x: empty()?,
            c: empty()?,
            normed: empty()?,
            qkv: empty()?,
            attended: empty()?,
            inner: empty()?,
            both: empty()?,
            logits: empty()?,
            best: Buffer::zeroed(&model.machine, best)?,
        })
    }
}

/// A step under way.
pub(crate) struct RowStages<'a> {
    pub(crate) model: &'a Model,
    pub(crate) buffers: &'a mut RowBuffers,
    pub(crate) caches: &'a SequenceCaches,
    pub(crate) cut: AttentionCut,
    pub(crate) step: &'a Step,
    /// Tokens of the step, and where their ids are.
    pub(crate) tokens: (usize, u64),
    /// Rotation tables.
    pub(crate) ropes: Vec<u64>,
    /// Where the chosen token goes: on the device, for the host, and in both.
    pub(crate) chosen: (u64, u64, usize),
    /// Rows of the residual stream that are still computed: the last of the tokens.
    pub(crate) rows: usize,
    pub(crate) hidden_size: usize,
    /// `c` waits to be added, through this norm.
    pub(crate) pending: Option<Option<Norm>>,
    /// Floats of logits that the head left.
    pub(crate) logits: usize,
    /// Residual streams copied for the host.
    pub(crate) captured: Vec<Vec<f32>>,
}

impl RowStages<'_> {
    fn element_bytes(&self) -> usize {
        element_bytes(self.model.arithmetic)
    }

    /// Columns of a product's input, padding included.
    fn stride(&self, columns: usize) -> usize {
        match self.model.arithmetic {
            Arithmetic::Fast => padded(columns),
            Arithmetic::Float32 => columns,
        }
    }

    /// Room for a product's input of `columns` columns, zero where padding will be; returns its columns
    /// with padding.
    fn reserve(
        &mut self,
        of: fn(&mut RowBuffers) -> &mut Buffer,
        columns: usize,
    ) -> Result<usize, BackendError> {
        let stride = self.stride(columns);
        let bytes = self.rows * stride * self.element_bytes();
        let buffer = of(self.buffers);
        buffer.reserve(bytes)?;
        if stride > columns {
            // Where the last tile lies depends on the number of rows, so something else may lie there.
            let tile = self.rows * padded(1) * element_bytes(self.model.arithmetic);
            let last = buffer.address() + (bytes - tile) as u64;
            self.model.machine.zero(last, tile)?;
        }
        Ok(stride)
    }

    fn first_row(&self) -> usize {
        self.tokens.0 - self.rows
    }

    fn x(&self, row: usize) -> u64 {
        self.buffers.x.address() + (4 * row * self.hidden_size) as u64
    }

    fn c(&self, row: usize) -> u64 {
        self.buffers.c.address() + (4 * row * self.hidden_size) as u64
    }

    /// Adds what is pending to `rows` rows from `first` on, and leaves their norm, if one is given,
    /// in `normed`.
    fn fold(&mut self, first: usize, rows: usize, norm: Option<Norm>) -> Result<(), BackendError> {
        let stride = self.stride(self.hidden_size);
        self.buffers
            .normed
            .reserve(rows * stride * self.element_bytes())?;
        let (norm, eps) = self.model.norm(norm);
        let (c_norm, c_eps) = self.model.norm(self.pending.flatten());
        let args = FoldNormArgs {
            x: self.x(first),
            c: if self.pending.is_some() {
                self.c(first)
            } else {
                0
            },
            c_norm,
            norm,
            out: self.buffers.normed.address(),
            c_eps,
            eps,
            width: self.hidden_size as i32,
            stride: stride as i32,
        };
        let kernel = match self.model.arithmetic {
            Arithmetic::Fast => "fold_norm_bf16",
            Arithmetic::Float32 => "fold_norm_f32",
        };
        self.pending = None;
        self.model
            .launch(kernel, self.model.blocks((rows, 1)), &args)
    }

    fn project(
        &mut self,
        stage: &ResidualStage,
        from: fn(&RowBuffers) -> &Buffer,
    ) -> Result<(), BackendError> {
        if self.rows == 0 {
            return Ok(());
        }
        let linear = &self.model.linears[stage.linear.0];
        let input = from(self.buffers).address();
        let output = (self.c(self.first_row()), self.hidden_size);
        self.model
            .matrix_product(linear, input, output, self.rows, Output::Store)?;
        self.pending = Some(stage.post_norm);
        Ok(())
    }

    fn capture(&mut self) -> Result<(), BackendError> {
        if !self.step.capture_hidden {
            return Ok(());
        }
        let tokens = self.tokens.0;
        self.fold(0, tokens, None)?;
        let floats = tokens * self.hidden_size;
        let machine = self.model.machine.as_ref();
        self.captured
            .push(read_floats(machine, self.buffers.x.address(), floats)?);
        Ok(())
    }

    fn append(&self, stage: &QkvStage, plan: &CachePlan) -> Result<(), BackendError> {
        let (q_norm, q_eps) = self.model.norm(stage.qk_norm.map(|norms| norms.0));
        let (k_norm, k_eps) = self.model.norm(stage.qk_norm.map(|norms| norms.1));
        let in_append = plan.save.filter(|save| save.method == SaveMethod::InAppend);
        let args = FinishRowsArgs {
            qkv: self.buffers.qkv.address(),
            rope: self.ropes[stage.rope.0],
            q_norm,
            k_norm,
            cache: self.caches.layer(stage.layer),
            q_eps,
            k_eps,
            tokens: self.tokens.0 as i32,
            first_position: self.step.first_position as i32,
            first_slot: plan.first_slot as i32,
            save_entry: in_append.map_or(-1, |save| save.entry as i32),
            heads: stage.shape.heads as i32,
            kv_heads: stage.shape.kv_heads as i32,
            head_dim: stage.shape.head_dim as i32,
            padding: 0,
        };
        let kernel = match self.model.arithmetic {
            Arithmetic::Fast => "finish_rows_bf16",
            Arithmetic::Float32 => "finish_rows_f32",
        };
        let warps = self.model.machine.tuning().threads as usize / 32;
        let heads = stage.shape.heads + 2 * stage.shape.kv_heads;
        let blocks = (self.tokens.0 * heads).div_ceil(warps);
        self.model
            .launch(kernel, self.model.blocks((blocks, 1)), &args)
    }

    /// The last row's logits and the largest of them.
    fn head_of_last_row(&mut self, stage: &HeadStage) -> Result<(), BackendError> {
        let head = &self.model.linears[stage.head.0];
        let last = self.tokens.0 - 1;
        let (logits, best) = (self.buffers.logits.address(), self.buffers.best.address());
        if self.model.arithmetic == Arithmetic::Float32 {
            self.fold(last, 1, Some(stage.norm))?;
            let input = self.buffers.normed.address();
            let output = (logits, head.out_features);
            self.model
                .matrix_product(head, input, output, 1, Output::Store)?;
            return self.pick_from(logits, head.out_features);
        }
        let (norm, eps) = self.model.norm(Some(stage.norm));
        let (c_norm, c_eps) = self.model.norm(self.pending.flatten());
        let input = RowInput {
            x: self.x(last),
            c: if self.pending.is_some() {
                self.c(last)
            } else {
                0
            },
            c_norm,
            norm,
            c_eps,
            eps,
            ..RowInput::default()
        };
        let output = (logits, Output::Best(best));
        let next_to = Neighbours::Products;
        let blocks = self.model.vector_product(head, input, output, next_to)?;
        self.pick(blocks)
    }

    fn pick_from(&self, logits: u64, count: usize) -> Result<(), BackendError> {
        let args = BlockBestArgs {
            logits,
            best: self.buffers.best.address(),
            count: count as i32,
            padding: 0,
        };
        self.model
            .launch("block_best", self.model.blocks((BEST_BLOCKS, 1)), &args)?;
        self.pick(BEST_BLOCKS)
    }

    fn pick(&self, blocks: usize) -> Result<(), BackendError> {
        let (tokens, host_tokens, slot) = self.chosen;
        self.model.pick(&PickArgs {
            best: self.buffers.best.address(),
            tokens,
            host_tokens,
            state: 0,
            count: blocks as i32,
            slot: slot as i32,
        })
    }
}

/// Bytes of an activation that a product reads, and of a key element.
pub(crate) fn element_bytes(arithmetic: Arithmetic) -> usize {
    match arithmetic {
        Arithmetic::Fast => 2,
        Arithmetic::Float32 => 4,
    }
}

impl Stages for RowStages<'_> {
    fn embed(&mut self, table: LinearId, scale: f32) -> Result<(), BackendError> {
        let bytes = 4 * self.tokens.0 * self.hidden_size;
        self.buffers.x.reserve(bytes)?;
        self.buffers.c.reserve(bytes)?;
        let mut args = EmbedRowsArgs {
            tokens: self.tokens.1,
            x: self.buffers.x.address(),
            scale,
            hidden: self.hidden_size as i32,
            ..EmbedRowsArgs::default()
        };
        match self.model.linears[table.0]
            .parts
            .first()
            .map(|part| part.form)
        {
            Some(Form::Tiles(tiles)) => args.tiles = tiles,
            Some(Form::Plain(plain)) => args.plain = plain,
            None => {}
        }
        let launch = self.model.blocks((self.tokens.0, 1));
        self.model.launch("embed_rows", launch, &args)?;
        self.capture()
    }

    fn qkv(&mut self, stage: &QkvStage) -> Result<(), BackendError> {
        let tokens = self.tokens.0;
        self.fold(0, tokens, Some(stage.norm))?;
        let linear = &self.model.linears[stage.qkv.0];
        self.buffers.qkv.reserve(4 * tokens * linear.out_features)?;
        let input = self.buffers.normed.address();
        let output = (self.buffers.qkv.address(), linear.out_features);
        self.model
            .matrix_product(linear, input, output, tokens, Output::Store)?;
        self.append(stage, &self.step.caches[stage.cache_kind])
    }

    fn keep_output_rows(&mut self) -> Result<(), BackendError> {
        if !self.step.capture_hidden {
            self.rows = match self.step.head {
                HeadRequest::AllLogits => self.rows,
                HeadRequest::Skip => 0,
                HeadRequest::Token | HeadRequest::TokenAndLogits => 1,
            };
        }
        Ok(())
    }

    fn attention(&mut self, stage: &AttentionStage) -> Result<(), BackendError> {
        if self.rows == 0 {
            return Ok(());
        }
        let shape = stage.shape;
        let stride = self.reserve(
            |buffers| &mut buffers.attended,
            shape.heads * shape.head_dim,
        )?;
        let plan = &self.step.caches[stage.cache_kind];
        let seen = Seen::of(plan, self.step.first_position);
        let args = PrefillAttentionArgs {
            qkv: self.buffers.qkv.address(),
            cache: self.caches.layer(stage.layer),
            out: self.buffers.attended.address(),
            scale: stage.scale * LOG2_E,
            tokens: self.rows as i32,
            first_token: self.first_row() as i32,
            out_stride: stride as i32,
            rows: seen.rows,
            ring_slots: plan.physical_rows as i32,
            oldest_slot: seen.oldest_slot,
            oldest: seen.oldest,
            newest: seen.newest,
            heads: shape.heads as i32,
            kv_heads: shape.kv_heads as i32,
            head_dim: shape.head_dim as i32,
        };
        let arithmetic = self.model.arithmetic;
        let warpgroups = self.model.machine.tuning().warpgroups;
        if arithmetic == Arithmetic::Fast
            && matches!(plan.view, KeyView::Ordered { .. })
            && let Some((kernel, launch)) = AttentionCut::tile_kernel(shape, self.rows, warpgroups)
        {
            return self.model.launch(kernel, launch, &args);
        }
        let warps = self.model.machine.tuning().threads as usize / 32;
        let blocks = (self.rows.div_ceil(warps), self.cut.columns);
        let launch = self.model.blocks(blocks);
        self.model
            .launch(self.cut.rows_kernel(arithmetic), launch, &args)
    }

    fn output(&mut self, stage: &ResidualStage) -> Result<(), BackendError> {
        self.project(stage, |buffers| &buffers.attended)
    }

    fn gate_up(&mut self, stage: &GateUpStage) -> Result<(), BackendError> {
        if self.rows == 0 {
            return Ok(());
        }
        self.fold(self.first_row(), self.rows, Some(stage.norm))?;
        let gated = &self.model.gated[stage.gate_up.0];
        let width = gated.out_features / 2;
        self.reserve(|buffers| &mut buffers.inner, width)?;
        let input = self.buffers.normed.address();
        let inner = self.buffers.inner.address();
        if self.model.arithmetic == Arithmetic::Fast {
            let output = Output::Gated(stage.activation);
            return self
                .model
                .matrix_product(gated, input, (inner, 0), self.rows, output);
        }
        self.buffers.both.reserve(4 * self.rows * 2 * width)?;
        let both = (self.buffers.both.address(), 2 * width);
        self.model
            .matrix_product(gated, input, both, self.rows, Output::Store)?;
        let args = GateRowsArgs {
            y: both.0,
            out: inner,
            width: width as i32,
            gate: activation_kind(stage.activation),
        };
        self.model
            .launch("gate_rows", self.model.blocks((self.rows, 1)), &args)
    }

    fn down(&mut self, stage: &ResidualStage) -> Result<(), BackendError> {
        self.project(stage, |buffers| &buffers.inner)?;
        self.capture()
    }

    fn head(&mut self, stage: &HeadStage) -> Result<(), BackendError> {
        let vocab = self.model.linears[stage.head.0].out_features;
        let rows = match self.step.head {
            HeadRequest::Skip => return Ok(()),
            HeadRequest::AllLogits => self.tokens.0,
            HeadRequest::Token | HeadRequest::TokenAndLogits => 1,
        };
        self.buffers.logits.reserve(4 * rows * vocab)?;
        self.logits = rows * vocab;
        if rows == 1 {
            return self.head_of_last_row(stage);
        }
        self.fold(0, rows, Some(stage.norm))?;
        let input = self.buffers.normed.address();
        let logits = self.buffers.logits.address();
        let head = &self.model.linears[stage.head.0];
        self.model
            .matrix_product(head, input, (logits, vocab), rows, Output::Store)?;
        self.pick_from(logits + (4 * (rows - 1) * vocab) as u64, vocab)
    }
}

/// Which rows queries see: query `i` those from `i + oldest` to `i + newest`, of `rows` rows that
/// begin in `oldest_slot` of the buffer and go round it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    rows: i32,
    oldest_slot: i32,
    oldest: i32,
    newest: i32,
}

impl Seen {
    /// What `plan` shows to a step whose first query is at `first_position`.
    fn of(plan: &CachePlan, first_position: usize) -> Self {
        match plan.view {
            KeyView::Ring { oldest_slot, rows } => Self {
                rows: rows as i32,
                oldest_slot: oldest_slot as i32,
                oldest: -UNBOUNDED,
                newest: UNBOUNDED,
            },
            KeyView::Ordered {
                first_position: first_row,
                window_tokens,
            } => {
                let newest = (first_position - first_row) as i32;
                Self {
                    rows: plan.physical_rows as i32,
                    oldest_slot: 0,
                    oldest: window_tokens.map_or(-UNBOUNDED, |w| newest + 1 - w as i32),
                    newest,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv_cache::mask::visible_rows;

    fn plan(view: KeyView, physical_rows: usize) -> CachePlan {
        CachePlan {
            compact: None,
            first_slot: 0,
            physical_rows,
            capacity_rows: physical_rows,
            view,
            offset_tokens: 0,
            save: None,
        }
    }

    fn assert_shows_what_the_mask_shows(plan: &CachePlan, first_position: usize, queries: i32) {
        let seen = Seen::of(plan, first_position);
        for i in 0..queries {
            let rows = (i + seen.oldest).max(0)..(i + seen.newest + 1).min(seen.rows);
            let slots = rows.map(|row| (seen.oldest_slot + row) as usize % plan.physical_rows);
            let wanted = visible_rows(plan.view, plan.physical_rows, first_position + i as usize);
            assert!(slots.eq(wanted), "{plan:?}, query {i}");
        }
    }

    #[test]
    fn queries_see_the_rows_that_the_mask_shows() {
        for (first_row, window_tokens) in [(0, None), (3, Some(4)), (0, Some(2)), (5, Some(100))] {
            let view = KeyView::Ordered {
                first_position: first_row,
                window_tokens,
            };
            for first_position in first_row..first_row + 6 {
                let plan = plan(view, first_position - first_row + 5);
                assert_shows_what_the_mask_shows(&plan, first_position, 5);
            }
        }
        for (oldest_slot, rows) in [(0, 6), (4, 5), (5, 6)] {
            let plan = plan(KeyView::Ring { oldest_slot, rows }, 6);
            assert_shows_what_the_mask_shows(&plan, 9, 1);
        }
    }
}
