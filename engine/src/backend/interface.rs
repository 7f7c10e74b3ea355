//! The wall between models and devices, in two levels.
//!
//! * [`Stages`]: the fused stages of a decoder step. A family file drives them, so that its
//!   forward pass reads like the paper; a back end decides how each is computed.
//! * [`Backend`]: steps are submitted and their tokens read later. A step's input may be the token
//!   of an earlier step that the host has not read, so a loop can keep the device busy.
//!
//! Which cache row is written where is worked out on the host (`kv_cache/`) and comes in as plain
//! slot numbers. Not here: what any stage does on any device.

use crate::device_profile::DeviceProfile;
use crate::error::{BackendError, LoadError};
use crate::kv_cache::{CachePlan, CacheUndo};
use crate::qmm::QmmReport;
use crate::quant::AffineFormat;
use crate::weights::TensorView;

/// How activations and products are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arithmetic {
    /// The reference: float32 activations and caches, weights dequantised to float32.
    Float32,
    /// Int8 activations by group where a kernel for the format exists.
    Fast,
}

/// Which back end to load on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BackendChoice {
    /// The best one that this build and machine have.
    Auto,
    /// The processor.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// An AMD GPU.
    Rocm,
    /// The GPU back end on the processor, for tests.
    Sim,
}

// ---- weights ------------------------------------------------------------------------------------

/// A matrix (or several, stacked by rows) that lives on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinearId(pub usize);

/// A gate and an up matrix of the same shape that live on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GatedId(pub usize);

/// A vector of float32 that lives on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VectorId(pub usize);

/// A table of rotation frequencies that lives on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RopeId(pub usize);

/// One linear module of a file: `y = W x (+ bias)`, `W` `[out_features, in_features]`.
#[derive(Debug, Clone)]
pub struct HostLinear<'a> {
    /// Module path, e.g. `model.layers.0.mlp.gate_proj`.
    pub name: String,
    /// Rows of `W`.
    pub out_features: usize,
    /// Columns of `W`.
    pub in_features: usize,
    /// The matrix.
    pub weights: HostWeights<'a>,
    /// The file's format where `weights` were converted from another one, e.g. `mxfp4`.
    pub stored_as: Option<&'static str>,
    /// `[out_features]`, where the module has one.
    pub bias: Option<Vec<f32>>,
}

/// The matrix of a [`HostLinear`], its shapes checked.
#[derive(Debug, Clone, Copy)]
pub enum HostWeights<'a> {
    /// F32, F16 or BF16, `[out, in]`.
    Plain(TensorView<'a>),
    /// Affine groups along the input axis.
    Affine {
        /// Bits and group.
        format: AffineFormat,
        /// U32 `[out, in * bits / 32]`.
        codes: TensorView<'a>,
        /// Floating point `[out, in / group]`.
        scales: TensorView<'a>,
        /// Floating point `[out, in / group]`.
        biases: TensorView<'a>,
    },
}

impl HostLinear<'_> {
    /// Bytes that a decode step reads to multiply by this matrix.
    pub fn bytes(&self) -> u64 {
        let tensors: usize = match &self.weights {
            HostWeights::Plain(plain) => plain.bytes.len(),
            HostWeights::Affine {
                codes,
                scales,
                biases,
                ..
            } => codes.bytes.len() + scales.bytes.len() + biases.bytes.len(),
        };
        tensors as u64
    }
}

/// Takes a model's weights.
pub trait Uploader {
    /// Uploads one matrix, or several with the same input stacked by rows in the given order.
    ///
    /// # Errors
    /// When the device has no room or no kernel for the format.
    fn linear(&mut self, parts: &[HostLinear<'_>]) -> Result<LinearId, LoadError>;

    /// Uploads the two matrices of a gated block, which have the same shape.
    ///
    /// # Errors
    /// When the device has no room or no kernel for the format.
    fn gated(&mut self, gate: &HostLinear<'_>, up: &HostLinear<'_>) -> Result<GatedId, LoadError>;

    /// Uploads a vector, such as a norm's weight.
    ///
    /// # Errors
    /// When the device has no room.
    fn vector(&mut self, values: Vec<f32>) -> Result<VectorId, LoadError>;

    /// Uploads a rotation table: radians per position, one a pair of elements, `[head_dim / 2]`.
    ///
    /// # Errors
    /// When the device has no room.
    fn rope(&mut self, inverse_frequencies: Vec<f32>) -> Result<RopeId, LoadError>;
}

/// A device that has its weights and waits for its program.
pub trait DeviceBuilder: Uploader {
    /// Starts the device with the model's program.
    ///
    /// # Errors
    /// When the device cannot start.
    fn finish(
        self: Box<Self>,
        program: Box<dyn StepProgram>,
        shape: StepShape,
    ) -> Result<Box<dyn Backend>, LoadError>;
}

/// Sizes of the buffers that a step needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepShape {
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Rows of the embedding table and of the head.
    pub vocab_size: usize,
    /// Of every attention block.
    pub heads: HeadShape,
    /// Most tokens that one step brings.
    pub chunk_tokens: usize,
}

// ---- level one: fused stages --------------------------------------------------------------------

/// `x / rms(x) * weight` over the last axis; `eps` is added to the mean square.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Norm {
    /// The factor, as it multiplies: Gemma's `1 + w` is already added up.
    pub weight: VectorId,
    /// Added to the mean square.
    pub eps: f32,
}

/// Shape of an attention block, in heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadShape {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; a divisor of `heads`.
    pub kv_heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
}

/// Norm, q|k|v, per-head norms, rotation, and the append to the cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QkvStage {
    /// Layer, which is also the index of its cache.
    pub layer: usize,
    /// Index into [`Step::caches`]: layers of one kind move together.
    pub cache_kind: usize,
    /// Before the projections.
    pub norm: Norm,
    /// q, k and v stacked.
    pub qkv: LinearId,
    /// Per-head norms of q and k.
    pub qk_norm: Option<(Norm, Norm)>,
    /// Rotation of q and k; halves pair.
    pub rope: RopeId,
    /// Heads.
    pub shape: HeadShape,
}

/// `softmax(scale * q kᵀ + mask) v` over the layer's cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionStage {
    /// Layer, which is also the index of its cache.
    pub layer: usize,
    /// Index into [`Step::caches`].
    pub cache_kind: usize,
    /// Heads.
    pub shape: HeadShape,
    /// Factor of the scores.
    pub scale: f32,
}

/// A projection of the last stage's result that is added to the residual stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResidualStage {
    /// The projection.
    pub linear: LinearId,
    /// Applied to the projection's result before the sum (Gemma).
    pub post_norm: Option<Norm>,
}

/// What the gate goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// `x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
    GeluTanh,
}

/// Norm, gate|up, `act(gate) · up`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GateUpStage {
    /// Before the projections.
    pub norm: Norm,
    /// The two matrices.
    pub gate_up: GatedId,
    /// Of the gate.
    pub activation: Activation,
}

/// Norm, logits, and the choice of a token, as far as the step asks for them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeadStage {
    /// Before the head.
    pub norm: Norm,
    /// `[vocab, hidden]`; the embedding table when tied.
    pub head: LinearId,
}

/// The fused stages, over the tokens of the step that is running.
///
/// Each stage reads what the one before it left on the device, so their order is the order of the
/// methods. Errors are the device's.
#[expect(missing_docs, reason = "the stage types are documented")]
pub trait Stages {
    /// Starts the residual stream: rows of `table`, times `scale`.
    fn embed(&mut self, table: LinearId, scale: f32) -> Result<(), BackendError>;
    fn qkv(&mut self, stage: &QkvStage) -> Result<(), BackendError>;
    /// Between `qkv` and `attention` of the last layer: from here on only the rows that the step's
    /// head asks for are needed. A hint, which a back end may ignore.
    fn keep_output_rows(&mut self) -> Result<(), BackendError> {
        Ok(())
    }
    fn attention(&mut self, stage: &AttentionStage) -> Result<(), BackendError>;
    fn output(&mut self, stage: &ResidualStage) -> Result<(), BackendError>;
    fn gate_up(&mut self, stage: &GateUpStage) -> Result<(), BackendError>;
    fn down(&mut self, stage: &ResidualStage) -> Result<(), BackendError>;
    fn head(&mut self, stage: &HeadStage) -> Result<(), BackendError>;
}

/// A model's forward pass, as a sequence of stages.
pub trait StepProgram: Send {
    /// Runs one step.
    ///
    /// # Errors
    /// When a stage fails.
    fn forward(&self, stages: &mut dyn Stages) -> Result<(), BackendError>;
}

// ---- level two: submit and read -----------------------------------------------------------------

/// Where a step's tokens come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// Ids known to the host.
    Host(Vec<u32>),
    /// The token that an earlier step chose; it need not have been read.
    Device(Ticket),
}

/// Most tokens of a vocabulary: a draw sums up as many weights in 64 bits.
pub const MOST_TOKENS: usize = 1 << 20;

/// How a step chooses its token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sampling {
    /// The largest logit; the smallest id among equals.
    Greedy,
    /// From the smallest set of tokens whose probabilities reach `top_p`.
    TopP {
        /// Divides the logits; greater than zero.
        temperature: f32,
        /// In `(0, 1]`.
        top_p: f32,
        /// Uniform in `[0, 1)`, drawn by the host for this step.
        uniform: f32,
    },
}

/// How much of the head a step computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadRequest {
    /// Nothing: a chunk of a prompt that is not its last.
    Skip,
    /// A token from the last row.
    Token,
    /// A token, and the logits of the last row copied to the host.
    TokenAndLogits,
    /// A token, and the logits of every row copied to the host.
    AllLogits,
}

/// One forward pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Whose caches.
    pub sequence: SequenceId,
    /// Tokens to feed.
    pub input: TokenSource,
    /// Position of the first of them.
    pub first_position: usize,
    /// One plan for each kind of cache that the model has.
    pub caches: Vec<CachePlan>,
    /// What to do at the end.
    pub head: HeadRequest,
    /// How to choose the token.
    pub sampling: Sampling,
    /// Copy the residual stream to the host after the embedding and after every layer.
    pub capture_hidden: bool,
}

/// A submitted step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// Caches of one sequence on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SequenceId(pub u64);

/// What a step left for the host.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepOutput {
    /// The chosen token; `None` when the head was skipped.
    pub token: Option<u32>,
    /// Logits asked for, `[rows, vocab]`; empty otherwise.
    pub logits: Vec<f32>,
    /// Residual streams asked for, `[layers + 1][tokens * hidden]`; empty otherwise.
    pub hidden: Vec<Vec<f32>>,
    /// Time that the device spent on the step.
    pub elapsed_ns: u64,
}

/// Shape of a layer's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerCacheShape {
    /// Index into [`Step::caches`]: layers of one kind move together.
    pub cache_kind: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
}

/// Which kernels a loaded model runs, by role; e.g. `("matvec 4-bit g64", "avx512vnni")`.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct KernelReport {
    /// Role → kernel, in a fixed order.
    pub by_role: Vec<(String, String)>,
    /// Storage type of keys and values.
    pub kv_dtype: String,
}

/// What a device did so that steps of one sequence can be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct UndoWork {
    /// Rows copied before they were overwritten; a key and a value are two.
    pub rows_copied: u64,
    /// Pieces of work that were given to the device for that alone.
    pub launches: u64,
    /// Rows put back.
    pub rows_restored: u64,
}

impl UndoWork {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            rows_copied: self.rows_copied + other.rows_copied,
            launches: self.launches + other.launches,
            rows_restored: self.rows_restored + other.rows_restored,
        }
    }

    /// What was done since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            rows_copied: self.rows_copied - earlier.rows_copied,
            launches: self.launches - earlier.launches,
            rows_restored: self.rows_restored - earlier.rows_restored,
        }
    }
}

/// A device with a model on it.
pub trait Backend: Send + Sync + std::fmt::Debug {
    /// What it runs on.
    fn device(&self) -> &DeviceProfile;

    /// Which kernels it runs.
    fn kernels(&self) -> &KernelReport;

    /// Bytes of device memory in use: weights, buffers and caches.
    fn memory_bytes(&self) -> u64;

    /// Makes empty caches, one a layer.
    ///
    /// # Errors
    /// When the device has stopped or has no room.
    fn create_sequence(&self, layers: &[LayerCacheShape]) -> Result<SequenceId, BackendError>;

    /// Frees the caches of a sequence.
    fn drop_sequence(&self, sequence: SequenceId);

    /// Queues a step and returns at once; steps run in the order of submission.
    ///
    /// # Errors
    /// When the step is malformed or the device has stopped; the sequence is then unchanged.
    fn submit(&self, step: Step) -> Result<Ticket, BackendError>;

    /// Waits for a step: the only point where host and device meet.
    ///
    /// # Errors
    /// When the step failed, or was read or discarded already.
    fn read(&self, ticket: Ticket) -> Result<StepOutput, BackendError>;

    /// Gives up a step's output; the step itself still runs.
    fn discard(&self, ticket: Ticket);

    /// Queues the taking back of a sequence's newest single-token steps, one entry for each kind of
    /// cache. Steps that failed are taken back, too: the sequence works again if it had stopped at
    /// one of them.
    ///
    /// # Errors
    /// When the device has stopped.
    fn rewind(&self, sequence: SequenceId, undo: Vec<CacheUndo>) -> Result<(), BackendError>;

    /// Reads much of the device's memory several times and gives the bytes per second of each pass;
    /// `None` where that memory is the processor's own.
    ///
    /// # Errors
    /// When the device has stopped or has no room for the buffer.
    fn read_bandwidth(&self) -> Result<Option<Vec<f64>>, BackendError> {
        Ok(None)
    }

    /// What has been done for rewinding a sequence so far, by its steps that were read.
    fn undo_work(&self, sequence: SequenceId) -> UndoWork;

    /// Waits until everything that was queued is done and its memory freed, so that an account of
    /// memory read next is the same in every run.
    ///
    /// # Errors
    /// When the device has stopped.
    fn wait_idle(&self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Which routes products took so far, by the steps that were read; empty where none is chosen.
    fn qmm_report(&self) -> QmmReport {
        QmmReport::default()
    }
}
