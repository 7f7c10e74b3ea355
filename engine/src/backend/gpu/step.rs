//! One token as one captured graph: five kernels a layer, and nothing in them that changes from step
//! to step. What does change (position, slots, lengths, where the caches lie) is written to device
//! memory by the step's first kernel, ahead of the graph.

use crate::backend::gpu::args::{
    BeginArgs, DecodeAttentionArgs, KindState, MAX_CACHE_KINDS, PickArgs, RowInput, StepState,
};
use crate::backend::gpu::attention_cut::AttentionCut;
use crate::backend::gpu::buffer::Buffer;
use crate::backend::gpu::context::{Model, Output, padded};
use crate::backend::gpu::machine::{GraphId, HostWords};
use crate::backend::gpu::vector_cut::Neighbours;
use crate::backend::gpu::weights::Form;
use crate::backend::interface::{
    AttentionStage, GateUpStage, HeadShape, HeadStage, LinearId, Norm, QkvStage, ResidualStage,
    Stages, StepProgram, StepShape,
};
use crate::error::BackendError;
use crate::kv_cache::{CachePlan, KeyView, SaveMethod};

/// log2 e: scores are powers of two.
pub(crate) const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// The buffers that the graph's kernels leave things in for each other.
#[derive(Debug)]
pub(crate) struct StepBuffers {
    state: Buffer,
    /// The residual stream, twice: one is read while the other is written.
    x: [Buffer; 2],
    /// What a block adds to it, in up to two pieces.
    c: [Buffer; 2],
    qkv: Buffer,
    inner: Buffer,
    pub(crate) logits: Buffer,
    best: Buffer,
    partials: Buffer,
    arrived: Buffer,
    cut: AttentionCut,
}

impl StepBuffers {
    /// Room for a model of `shape`.
    pub(crate) fn new(
        model: &Model,
        shape: StepShape,
        cut: AttentionCut,
    ) -> Result<Self, BackendError> {
        let floats = |count: usize| Buffer::zeroed(&model.machine, 4 * count);
        let HeadShape {
            heads,
            kv_heads,
            head_dim,
        } = shape.heads;
        let gated = model.gated.iter().map(|gated| gated.out_features / 2);
        let inner = gated.max().unwrap_or(0).max(heads * head_dim);
        Ok(Self {
            state: Buffer::zeroed(&model.machine, size_of::<StepState>())?,
            x: [floats(shape.hidden_size)?, floats(shape.hidden_size)?],
            c: [floats(shape.hidden_size)?, floats(shape.hidden_size)?],
            qkv: floats((heads + 2 * kv_heads) * head_dim)?,
            inner: floats(padded(inner))?,
            logits: floats(shape.vocab_size)?,
            best: floats(2 * model.units)?,
            partials: floats(heads * cut.splits * (head_dim + 2))?,
            arrived: floats(cut.columns)?,
            cut,
        })
    }
}

/// The graph and what its first kernel needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepGraph {
    graph: GraphId,
    table: LinearId,
    scale: f32,
}

/// What is new in a step.
#[derive(Debug)]
pub(crate) struct NewStep<'a> {
    /// One plan a kind of cache.
    pub(crate) plans: &'a [CachePlan],
    /// Of the token.
    pub(crate) position: usize,
    /// Where the layers' addresses are.
    pub(crate) layers: u64,
    /// Where the rotation tables are.
    pub(crate) ropes: Vec<u64>,
    /// Where the token's id is.
    pub(crate) token: u64,
    /// Where the chosen token goes.
    pub(crate) token_slot: usize,
}

/// Records the graph.
pub(crate) fn capture(
    model: &Model,
    buffers: &StepBuffers,
    program: &dyn StepProgram,
    tokens: (u64, HostWords),
) -> Result<StepGraph, BackendError> {
    let mut stages = FusedStages {
        model,
        buffers,
        tokens,
        embed: None,
        current: 0,
        pending: None,
        projected: None,
    };
    model.machine.begin_capture()?;
    let recorded = program.forward(&mut stages);
    let graph = model.machine.end_capture()?;
    recorded?;
    let (table, scale) = stages.embed.ok_or_else(|| BackendError::Stopped {
        reason: "a program without an embedding".to_owned(),
    })?;
    Ok(StepGraph {
        graph,
        table,
        scale,
    })
}

/// Queues a step.
pub(crate) fn run(
    model: &Model,
    buffers: &StepBuffers,
    graph: StepGraph,
    step: NewStep<'_>,
) -> Result<(), BackendError> {
    let mut state = StepState {
        layers: step.layers,
        position: step.position as i32,
        token_slot: step.token_slot as i32,
        ..StepState::default()
    };
    for (to, from) in state.ropes.iter_mut().zip(step.ropes) {
        *to = from;
    }
    for (to, plan) in state.kinds.iter_mut().zip(step.plans) {
        *to = kind_state(plan);
    }
    let Some(Form::Tiles(table)) = model.linears[graph.table.0].parts.first().map(|p| p.form)
    else {
        return Err(BackendError::Stopped {
            reason: "an embedding table without tiles".to_owned(),
        });
    };
    let args = BeginArgs {
        state,
        device_state: buffers.state.address(),
        token: step.token,
        table,
        x: buffers.x[0].address(),
        scale: graph.scale,
        padding: 0,
    };
    let threads = model.machine.tuning().threads as usize;
    let launch = model.blocks(((table.columns as usize).div_ceil(threads), 1));
    model.launch("begin_step", launch, &args)?;
    model.machine.replay(graph.graph)
}

/// The plan of one kind, as the kernels see it. Rows that are copied on their own are not kept again.
fn kind_state(plan: &CachePlan) -> KindState {
    let in_append = plan.save.filter(|save| save.method == SaveMethod::InAppend);
    let (oldest_slot, rows) = match plan.view {
        KeyView::Ring { oldest_slot, rows } => (oldest_slot, rows),
        KeyView::Ordered { .. } => (0, plan.physical_rows),
    };
    KindState {
        slot: plan.first_slot as i32,
        rows: rows as i32,
        ring_slots: plan.physical_rows as i32,
        oldest_slot: oldest_slot as i32,
        save_entry: in_append.map_or(-1, |save| save.entry as i32),
        padding: 0,
    }
}

const _: () = assert!(MAX_CACHE_KINDS >= 2, "Gemma has two kinds of caches");

/// Launches kernels for one row, with everything small folded into the products.
struct FusedStages<'a> {
    model: &'a Model,
    buffers: &'a StepBuffers,
    tokens: (u64, HostWords),
    embed: Option<(LinearId, f32)>,
    /// Which of the two residual streams is up to date, but for `pending`.
    current: usize,
    /// `c` waits to be added, through this norm; whether it is in two pieces.
    pending: Option<(Option<Norm>, bool)>,
    /// Whose q, k and v lie in the buffer.
    projected: Option<QkvStage>,
}

impl FusedStages<'_> {
    /// The input of a product behind `norm`; the residual stream is brought up to date on the way.
    fn normed(&mut self, norm: Norm) -> RowInput {
        let buffers = self.buffers;
        let (norm, eps) = self.model.norm(Some(norm));
        let mut input = RowInput {
            x: buffers.x[self.current].address(),
            norm,
            eps,
            ..RowInput::default()
        };
        if let Some((c_norm, in_pieces)) = self.pending.take() {
            (input.c_norm, input.c_eps) = self.model.norm(c_norm);
            input.c = buffers.c[0].address();
            if in_pieces {
                input.c_rest = buffers.c[1].address();
            }
            self.current = 1 - self.current;
            input.x_out = buffers.x[self.current].address();
        }
        input
    }

    fn project(&mut self, stage: &ResidualStage, next_to: Neighbours) -> Result<(), BackendError> {
        let input = RowInput {
            x: self.buffers.inner.address(),
            ..RowInput::default()
        };
        let (model, buffers) = (self.model, self.buffers);
        let linear = &model.linears[stage.linear.0];
        let [c, rest] = &buffers.c;
        let output = (c.address(), Output::Pieces(rest.address()));
        model.vector_product(linear, input, output, next_to)?;
        self.pending = Some((stage.post_norm, model.in_pieces(linear)));
        Ok(())
    }
}

impl Stages for FusedStages<'_> {
    fn embed(&mut self, table: LinearId, scale: f32) -> Result<(), BackendError> {
        self.embed = Some((table, scale));
        Ok(())
    }

    fn qkv(&mut self, stage: &QkvStage) -> Result<(), BackendError> {
        let input = self.normed(stage.norm);
        let (model, buffers) = (self.model, self.buffers);
        let output = (buffers.qkv.address(), Output::Store);
        let qkv = &model.linears[stage.qkv.0];
        model.vector_product(qkv, input, output, Neighbours::Attention)?;
        // Norms, rotation and the append belong to the attention kernel.
        self.projected = Some(*stage);
        Ok(())
    }

    fn attention(&mut self, stage: &AttentionStage) -> Result<(), BackendError> {
        let (model, buffers) = (self.model, self.buffers);
        let Some(qkv) = self.projected.take() else {
            return Err(BackendError::Stopped {
                reason: "an attention without its projections".to_owned(),
            });
        };
        let (q_norm, q_eps) = model.norm(qkv.qk_norm.map(|norms| norms.0));
        let (k_norm, k_eps) = model.norm(qkv.qk_norm.map(|norms| norms.1));
        let args = DecodeAttentionArgs {
            state: buffers.state.address(),
            qkv: buffers.qkv.address(),
            out: buffers.inner.address(),
            partials: buffers.partials.address(),
            arrived: buffers.arrived.address(),
            q_norm,
            k_norm,
            q_eps,
            k_eps,
            scale: stage.scale * LOG2_E,
            layer: stage.layer as i32,
            kind: stage.cache_kind as i32,
            rope: qkv.rope.0 as i32,
            heads: stage.shape.heads as i32,
            kv_heads: stage.shape.kv_heads as i32,
            head_dim: stage.shape.head_dim as i32,
            least_rows: model.machine.tuning().split_rows as i32,
        };
        let cut = &buffers.cut;
        let launch = cut.decode_launch(model.machine.tuning());
        model.launch(cut.decode_kernel(), launch, &args)
    }

    fn output(&mut self, stage: &ResidualStage) -> Result<(), BackendError> {
        let attention = self.buffers.cut.decode_launch(self.model.machine.tuning());
        let shared_bytes = attention.shared_bytes;
        let next_to = match attention.cluster {
            1 => Neighbours::Attention,
            _ => Neighbours::BehindClusters { shared_bytes },
        };
        self.project(stage, next_to)
    }

    fn gate_up(&mut self, stage: &GateUpStage) -> Result<(), BackendError> {
        let input = self.normed(stage.norm);
        let inner = self.buffers.inner.address();
        let gated = &self.model.gated[stage.gate_up.0];
        let output = (inner, Output::Gated(stage.activation));
        self.model
            .vector_product(gated, input, output, Neighbours::Products)?;
        Ok(())
    }

    fn down(&mut self, stage: &ResidualStage) -> Result<(), BackendError> {
        self.project(stage, Neighbours::Products)
    }

    fn head(&mut self, stage: &HeadStage) -> Result<(), BackendError> {
        let input = self.normed(stage.norm);
        let (model, buffers) = (self.model, self.buffers);
        let (logits, best) = (buffers.logits.address(), buffers.best.address());
        let head = &model.linears[stage.head.0];
        let output = (logits, Output::Best(best));
        let blocks = model.vector_product(head, input, output, Neighbours::Products)?;
        let (tokens, host_tokens) = self.tokens;
        model.pick(&PickArgs {
            best,
            tokens,
            host_tokens: host_tokens.device,
            state: buffers.state.address(),
            count: blocks as i32,
            slot: 0,
        })
    }
}
