//! The engine as its users see it: load a folder, open sequences, submit steps.

use std::path::Path;
use std::sync::Arc;

use crate::backend;
use crate::backend::interface::{
    Arithmetic, Backend, BackendChoice, DeviceBuilder, HeadRequest, HeadShape, KernelReport,
    LayerCacheShape, Sampling, SequenceId, Step, StepOutput, StepShape, Ticket, TokenSource,
    UndoWork,
};
use crate::device_profile::DeviceProfile;
use crate::error::{BackendError, LoadError};
use crate::kv_cache::{
    CacheCursor, CacheUndo, FullCursor, RewindRefusal, RewindableCache, RotatingCursor, RowUndo,
    SaveMethod,
};
use crate::model::census::Census;
use crate::model::family::{CacheKind, cache_kinds, layer_cache_kind};
use crate::model::parts::Loading;
use crate::model::{ModelConfig, family};
use crate::qmm::{QmmReport, QmmSetup};
use crate::weights::WeightStore;
use crate::weights::synthetic::manifest::Manifest;

/// Tokens of a prompt that one step takes, unless options say otherwise.
pub const DEFAULT_PREFILL_CHUNK_TOKENS: usize = 2048;

/// Single-token steps that a sequence can take back: as many as the decode pipeline ever has
/// outstanding.
pub const REWIND_DEPTH: usize = 2;

/// How to load a folder.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Back end.
    pub backend: BackendChoice,
    /// Arithmetic of activations and products.
    pub arithmetic: Arithmetic,
    /// Threads that compute; 0 means one for each core that this process may use.
    pub threads: usize,
    /// Most tokens of a prompt in one step; 0 is taken as 1.
    pub prefill_chunk_tokens: usize,
    /// Longest sequence; `None` leaves it to memory.
    pub max_context_tokens: Option<usize>,
    /// Routes of products with quantised weights.
    pub qmm: QmmSetup,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            backend: BackendChoice::Auto,
            arithmetic: Arithmetic::Fast,
            threads: 0,
            prefill_chunk_tokens: DEFAULT_PREFILL_CHUNK_TOKENS,
            max_context_tokens: None,
            qmm: QmmSetup::default(),
        }
    }
}

/// How far loading has come; called often enough for a progress bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes of weights taken over so far.
    pub done_bytes: u64,
    /// Bytes of weights in the folder.
    pub total_bytes: u64,
}

/// What was loaded.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ModelInfo {
    /// Family: `gemma3`, `llama`, `qwen3`.
    pub family: String,
    /// Decoder layers.
    pub layers: usize,
    /// Size of the vocabulary.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Sliding window, where some layers have one.
    pub window_tokens: Option<usize>,
    /// Layers whose cache keeps every token.
    pub full_cache_layers: usize,
    /// Layers whose cache keeps a window.
    pub window_cache_layers: usize,
    /// Elements of one token's key and value in one layer.
    pub kv_row_elements: usize,
    /// Longest context that the model says it was made for.
    pub max_position_tokens: Option<usize>,
    /// Formats of the weights with their shares, e.g. `affine 4-bit g64`.
    pub quantisation: String,
    /// Bytes of weights that a decode step reads, caches not included.
    pub bytes_per_token: u64,
    /// SHA-256 of config.json and all weights, in hex; of a synthetic model the recorded hash of
    /// its weights, which its configuration follows from.
    pub model_hash: String,
    /// Whether the weights are random numbers in a real model's shape.
    pub synthetic: bool,
    /// Tokens that end a text.
    pub end_tokens: Vec<u32>,
}

#[derive(Debug)]
struct Shared {
    info: ModelInfo,
    kinds: Vec<CacheKind>,
    cache_shapes: Vec<LayerCacheShape>,
    prefill_chunk_tokens: usize,
    max_context_tokens: usize,
    arithmetic: Arithmetic,
    backend: Box<dyn Backend>,
}

/// A model on a device. Cloning shares both.
#[derive(Debug, Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

impl Engine {
    /// Loads a folder of config.json and `model*.safetensors`.
    ///
    /// # Errors
    /// When the folder is not a complete, consistent model of a known family, or the back end is
    /// not there.
    pub fn load(
        dir: &Path,
        options: &LoadOptions,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self, LoadError> {
        let config = ModelConfig::load(dir)?;
        let store = WeightStore::open(dir, &config.name_prefix)?;
        let shape = StepShape {
            hidden_size: config.hidden_size,
            vocab_size: config.vocab_size,
            heads: HeadShape {
                heads: config.heads,
                kv_heads: config.kv_heads,
                head_dim: config.head_dim,
            },
            chunk_tokens: options.prefill_chunk_tokens.max(1),
        };
        let mut device = open_device(options)?;
        let total_bytes = store.total_bytes();
        let mut on_bytes = |done_bytes| {
            progress(LoadProgress {
                done_bytes,
                total_bytes,
            })
        };
        let mut census = Census::new(device.as_mut(), &mut on_bytes);
        let program = family::load(&mut Loading {
            config: &config,
            store: &store,
            uploader: &mut census,
        })?;
        let (quantisation, bytes_per_token) = (census.formats(), census.bytes_per_token());
        let config_bytes =
            std::fs::read(dir.join("config.json")).map_err(|source| LoadError::Io {
                path: dir.join("config.json"),
                source,
            })?;
        let window_cache_layers = (0..config.layers)
            .filter(|layer| config.window_tokens(*layer).is_some())
            .count();
        let info = ModelInfo {
            family: config.family.name().to_owned(),
            layers: config.layers,
            vocab_size: config.vocab_size,
            hidden_size: config.hidden_size,
            window_tokens: config.sliding.as_ref().map(|s| s.window_tokens),
            full_cache_layers: config.layers - window_cache_layers,
            window_cache_layers,
            kv_row_elements: 2 * config.kv_heads * config.head_dim,
            max_position_tokens: config.max_position_tokens,
            quantisation,
            bytes_per_token,
            model_hash: Manifest::trusted_hash(dir).unwrap_or_else(|| store.hash(&config_bytes)),
            synthetic: config.synthetic,
            end_tokens: config.end_tokens.clone(),
        };
        let layer_shape = |layer| LayerCacheShape {
            cache_kind: layer_cache_kind(&config, layer),
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
        };
        Ok(Self {
            shared: Arc::new(Shared {
                info,
                kinds: cache_kinds(&config),
                cache_shapes: (0..config.layers).map(layer_shape).collect(),
                prefill_chunk_tokens: shape.chunk_tokens,
                max_context_tokens: options.max_context_tokens.unwrap_or(usize::MAX),
                arithmetic: options.arithmetic,
                backend: device.finish(program, shape)?,
            }),
        })
    }

    /// An engine on a device that tests made; it has no model.
    #[cfg(test)]
    pub(crate) fn on_device(
        backend: Box<dyn Backend>,
        kinds: Vec<CacheKind>,
        cache_shapes: Vec<LayerCacheShape>,
        max_context_tokens: usize,
    ) -> Self {
        let info = ModelInfo {
            family: "none".to_owned(),
            layers: cache_shapes.len(),
            vocab_size: 0,
            hidden_size: 0,
            window_tokens: None,
            full_cache_layers: 0,
            window_cache_layers: 0,
            kv_row_elements: 0,
            max_position_tokens: None,
            quantisation: String::new(),
            bytes_per_token: 0,
            model_hash: String::new(),
            synthetic: true,
            end_tokens: Vec::new(),
        };
        Self {
            shared: Arc::new(Shared {
                info,
                kinds,
                cache_shapes,
                prefill_chunk_tokens: 16,
                max_context_tokens,
                arithmetic: Arithmetic::Float32,
                backend,
            }),
        }
    }

    /// What was loaded.
    pub fn model(&self) -> &ModelInfo {
        &self.shared.info
    }

    /// Arithmetic that it was loaded with.
    pub fn arithmetic(&self) -> Arithmetic {
        self.shared.arithmetic
    }

    /// Which kernels run.
    pub fn kernels(&self) -> &KernelReport {
        self.shared.backend.kernels()
    }

    /// What it runs on.
    pub fn device(&self) -> &DeviceProfile {
        self.shared.backend.device()
    }

    /// Bytes in use on the device: weights, buffers, caches of all sequences.
    pub fn memory_bytes(&self) -> u64 {
        self.shared.backend.memory_bytes()
    }

    /// Bytes of keys and values that a decode step reads when `depth_tokens` came before it.
    pub fn cache_bytes_at(&self, depth_tokens: usize) -> u64 {
        let model = self.model();
        let window_tokens = model.window_tokens.unwrap_or(depth_tokens);
        let rows = model.full_cache_layers * depth_tokens
            + model.window_cache_layers * depth_tokens.min(window_tokens);
        let element_bytes = match self.kernels().kv_dtype.as_str() {
            "f32" => 4,
            _ => 2,
        };
        (rows * model.kv_row_elements * element_bytes) as u64
    }

    /// Most tokens of a prompt that one step takes.
    pub fn prefill_chunk_tokens(&self) -> usize {
        self.shared.prefill_chunk_tokens
    }

    /// An empty sequence that can take back [`REWIND_DEPTH`] steps and saves nothing for it.
    ///
    /// # Errors
    /// When the device has stopped.
    pub fn new_sequence(&self) -> Result<Sequence, BackendError> {
        self.new_sequence_with_slack(REWIND_DEPTH)
    }

    /// An empty sequence whose windowed caches have `slack_rows` rows more than their window. With
    /// fewer than [`REWIND_DEPTH`], steps that are to be taken back save what they overwrite.
    ///
    /// # Errors
    /// When the device has stopped.
    pub fn new_sequence_with_slack(&self, slack_rows: usize) -> Result<Sequence, BackendError> {
        let id = self
            .shared
            .backend
            .create_sequence(&self.shared.cache_shapes)?;
        let cursor = |kind: &CacheKind| match *kind {
            CacheKind::Full => CacheCursor::Full(FullCursor::default()),
            CacheKind::Rotating { window_tokens } => {
                CacheCursor::Rotating(RotatingCursor::with_slack(window_tokens, slack_rows))
            }
        };
        let cache = |kind| RewindableCache::new(cursor(kind), REWIND_DEPTH);
        Ok(Sequence {
            engine: self.clone(),
            id,
            caches: self.shared.kinds.iter().map(cache).collect(),
            scope: None,
            spoiled: None,
            undo: UndoCount::default(),
            rewind_bug: false,
        })
    }

    /// Waits for a step.
    ///
    /// # Errors
    /// When the step failed or the ticket is not outstanding.
    pub fn read(&self, ticket: Ticket) -> Result<StepOutput, BackendError> {
        self.shared.backend.read(ticket)
    }

    /// Waits until everything that was submitted is done, dropped sequences freed included.
    ///
    /// # Errors
    /// When the device has stopped.
    pub fn wait_idle(&self) -> Result<(), BackendError> {
        self.shared.backend.wait_idle()
    }

    /// Which routes products took, by the steps that were read.
    pub fn qmm_report(&self) -> QmmReport {
        self.shared.backend.qmm_report()
    }

    /// Bytes per second at which the device reads its memory, pass by pass; `None` where that is the
    /// processor's own.
    ///
    /// # Errors
    /// When the device has stopped.
    pub fn read_bandwidth(&self) -> Result<Option<Vec<f64>>, BackendError> {
        self.shared.backend.read_bandwidth()
    }

    /// Layers whose cache is of the kind `cache_kind`.
    fn layers_of_kind(&self, cache_kind: usize) -> usize {
        let layers = self.shared.cache_shapes.iter();
        layers
            .filter(|shape| shape.cache_kind == cache_kind)
            .count()
    }

    /// Gives up a step's output.
    pub fn discard(&self, ticket: Ticket) {
        self.shared.backend.discard(ticket);
    }
}

fn open_device(options: &LoadOptions) -> Result<Box<dyn DeviceBuilder>, LoadError> {
    backend::open(
        options.backend,
        options.arithmetic,
        options.threads,
        options.qmm,
    )
}

/// What a step of a sequence should leave for the host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepRequest {
    /// How much of the head.
    pub head: HeadRequest,
    /// How to choose the token.
    pub sampling: Sampling,
    /// Residual streams too.
    pub capture_hidden: bool,
}

impl StepRequest {
    /// The most likely token, nothing else.
    pub fn greedy() -> Self {
        Self {
            head: HeadRequest::Token,
            sampling: Sampling::Greedy,
            capture_hidden: false,
        }
    }
}

/// What a sequence recorded and took back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UndoCount {
    /// Rows that steps were told to save; a key and a value of one layer are two.
    pub rows_recorded: usize,
    /// Times that steps were taken back.
    pub rewinds: usize,
    /// Steps taken back.
    pub appends_rewound: usize,
}

/// One text in progress: cursors here, keys and values on the device until it is dropped.
#[derive(Debug)]
pub struct Sequence {
    engine: Engine,
    id: SequenceId,
    caches: Vec<RewindableCache>,
    scope: Option<SaveMethod>,
    /// Why it can no longer be fed.
    spoiled: Option<String>,
    undo: UndoCount,
    /// A test of the tests: rewinds move cursors, and put no row back.
    rewind_bug: bool,
}

impl Sequence {
    /// The engine that it belongs to.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Tokens fed so far, submitted steps included.
    pub fn offset_tokens(&self) -> usize {
        let first = self.caches.first();
        first.map_or(0, |cache| cache.cursor().offset_tokens())
    }

    /// Whether any window has been written past its end by single tokens.
    pub fn has_wrapped(&self) -> bool {
        self.caches.iter().any(|cache| cache.cursor().has_wrapped())
    }

    /// Its caches, for those who decide how to decode.
    pub fn caches(&self) -> &[RewindableCache] {
        &self.caches
    }

    /// What was recorded and taken back so far.
    pub fn undo_count(&self) -> UndoCount {
        self.undo
    }

    /// What the device has done for taking its steps back, by the steps that were read.
    pub fn undo_work(&self) -> UndoWork {
        self.engine.shared.backend.undo_work(self.id)
    }

    /// Opens or closes the speculative scope: inside, single-token steps save what they overwrite in
    /// the given way, where there is too little slack to go without, so that up to [`REWIND_DEPTH`]
    /// of them can be taken back.
    pub fn set_speculative(&mut self, scope: Option<SaveMethod>) {
        self.scope = scope;
    }

    /// Whether a window is full, so that the next token pushes one out of it.
    pub fn is_window_full(&self) -> bool {
        self.caches.iter().any(RewindableCache::is_window_full)
    }

    /// Refuses every later step: the caches hold tokens that are not part of the text.
    pub fn spoil(&mut self, reason: impl Into<String>) {
        self.spoiled = Some(reason.into());
    }

    /// Makes rewinds forget the rows that were overwritten, to see that a test notices.
    #[doc(hidden)]
    pub fn plant_rewind_bug(&mut self) {
        self.rewind_bug = true;
    }

    /// Queues one forward pass over `input` and moves the cursors past it.
    ///
    /// # Errors
    /// When the device refuses; the cursors then stay where they were.
    pub fn submit(
        &mut self,
        input: TokenSource,
        request: StepRequest,
    ) -> Result<Ticket, BackendError> {
        let tokens = match &input {
            TokenSource::Host(ids) => ids.len(),
            TokenSource::Device(_) => 1,
        };
        if tokens == 0 {
            return Err(BackendError::EmptyStep);
        }
        let first_position = self.offset_tokens();
        let wanted_tokens = first_position + tokens;
        let limit_tokens = self.engine.shared.max_context_tokens;
        if wanted_tokens > limit_tokens {
            return Err(BackendError::ContextFull {
                limit_tokens,
                wanted_tokens,
            });
        }
        if let Some(reason) = &self.spoiled {
            return Err(BackendError::CannotRewind {
                reason: reason.clone(),
            });
        }
        let scope = self.scope;
        let mut caches = self.caches.clone();
        let appended = caches.iter_mut().map(|c| c.append(tokens, scope));
        let plans: Vec<_> = appended.collect();
        let saving = (0..plans.len()).filter(|kind| plans[*kind].save.is_some());
        let rows = saving.map(|kind| 2 * self.engine.layers_of_kind(kind));
        let rows_recorded: usize = rows.sum();
        let ticket = self.engine.shared.backend.submit(Step {
            sequence: self.id,
            input,
            first_position,
            caches: plans,
            head: request.head,
            sampling: request.sampling,
            capture_hidden: request.capture_hidden,
        })?;
        self.caches = caches;
        self.undo.rows_recorded += rows_recorded;
        Ok(ticket)
    }

    /// Takes back the newest `appends` single-token steps, as if they had never been submitted; 0
    /// is no change. Their tickets can still be read or discarded.
    ///
    /// # Errors
    /// When that would not be exact, or the device has stopped; the sequence is then as it was.
    pub fn rewind(&mut self, appends: usize) -> Result<(), BackendError> {
        if appends == 0 {
            return Ok(());
        }
        self.take_back(appends, |cache| cache.rewind(appends))
    }

    /// Takes back the newest single-token step where nothing was recorded, because it failed. What
    /// follows is exact, but nothing before that step can be taken back any more.
    ///
    /// # Errors
    /// When the newest step was a chunk, or the device has stopped; the sequence is then as it was.
    pub fn retract(&mut self) -> Result<(), BackendError> {
        self.take_back(1, RewindableCache::retract)
    }

    fn take_back(
        &mut self,
        appends: usize,
        how: impl Fn(&mut RewindableCache) -> Result<CacheUndo, RewindRefusal>,
    ) -> Result<(), BackendError> {
        let mut caches = self.caches.clone();
        let undo: Result<Vec<_>, _> = caches.iter_mut().map(how).collect();
        let undo = undo.map_err(|refusal| BackendError::CannotRewind {
            reason: refusal.to_string(),
        })?;
        let undo = match self.rewind_bug {
            true => undo.into_iter().map(without_rows).collect(),
            false => undo,
        };
        self.engine.shared.backend.rewind(self.id, undo)?;
        self.caches = caches;
        self.undo.rewinds += 1;
        self.undo.appends_rewound += appends;
        Ok(())
    }
}

fn without_rows(mut undo: CacheUndo) -> CacheUndo {
    for append in &mut undo.appends {
        append.row = RowUndo::Keep;
    }
    undo
}

impl Drop for Sequence {
    fn drop(&mut self) {
        self.engine.shared.backend.drop_sequence(self.id);
    }
}
