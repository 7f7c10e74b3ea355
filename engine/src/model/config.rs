//! config.json, read into what the families need; every error names file, key, expected and got.
//!
//! Keys and defaults are those of the published model folders; docs/MODELS.md lists the facts that
//! are easy to get wrong. Not here: tensor names and shapes.

use std::path::Path;

use serde_json::Value;

use super::config_reader::Reader;
use super::quantisation::{QuantisationConfig, read_quantisation};
use crate::backend::interface::MOST_TOKENS;
use crate::error::LoadError;

/// Longer heads than any model has; as [`MAX_LAYERS`].
const MAX_HEAD_DIM: usize = 8192;

/// More layers than any model has; bounds what a wrong file can make us allocate.
const MAX_LAYERS: u64 = 4096;

/// Families that the engine knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Gemma 3, text only: alone (`gemma3_text`) or inside a multimodal file (`gemma3`).
    Gemma3,
    /// Llama 2 and 3 and their relatives.
    Llama,
    /// Qwen 3, dense.
    Qwen3,
}

impl Family {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gemma3 => "gemma3",
            Self::Llama => "llama",
            Self::Qwen3 => "qwen3",
        }
    }
}

/// How rotation frequencies depart from `theta^(-2i/d)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Divided by a factor.
    Linear {
        /// The factor.
        factor: f32,
    },
    /// Llama 3: long wavelengths divided, short ones kept, a ramp between.
    Llama3 {
        /// Divides the long wavelengths' frequencies.
        factor: f32,
        /// Wavelengths beyond `original / low` are long.
        low_freq_factor: f32,
        /// Wavelengths below `original / high` are short.
        high_freq_factor: f32,
        /// Context that the model was first trained for, in tokens.
        original_context_tokens: f32,
    },
}

/// Frequencies of a kind of layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeConfig {
    /// Base.
    pub theta: f32,
    /// Departure from the plain rule.
    pub scaling: RopeScaling,
}

/// Gemma's sliding layers.
#[derive(Debug, Clone, PartialEq)]
pub struct SlidingConfig {
    /// Window in tokens, the token itself included.
    pub window_tokens: usize,
    /// Whether layer `i` slides.
    pub is_sliding: Vec<bool>,
    /// Frequencies of sliding layers.
    pub rope: RopeConfig,
}

/// A model's shape.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Family.
    pub family: Family,
    /// Prefix that tensor names and overrides carry in this folder.
    pub name_prefix: String,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the feed-forward block.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Added to the mean square in norms.
    pub rms_norm_eps: f32,
    /// Factor of the attention scores.
    pub attention_scale: f32,
    /// Frequencies of full-attention layers.
    pub rope: RopeConfig,
    /// Sliding layers, if the family has them.
    pub sliding: Option<SlidingConfig>,
    /// What config.json says about the head, if anything.
    pub tie_word_embeddings: Option<bool>,
    /// Weight formats.
    pub quantisation: QuantisationConfig,
    /// Tokens that end a text; generation_config.json has the last word.
    pub end_tokens: Vec<u32>,
    /// Longest context that the model was made for, if it says so.
    pub max_position_tokens: Option<usize>,
    /// Whether the weights are random numbers in a real model's shape.
    pub synthetic: bool,
}

impl ModelConfig {
    /// Reads `dir/config.json` (and `generation_config.json` where there is one).
    ///
    /// # Errors
    /// When a file cannot be read or parsed, the family is unknown, or a key is missing or wrong.
    pub fn load(dir: &Path) -> Result<Self, LoadError> {
        let path = dir.join("config.json");
        let root = read_json(&path)?;
        let mut config = Self::from_json(&path, &root)?;
        let generation = dir.join("generation_config.json");
        if generation.exists() {
            let value = read_json(&generation)?;
            let reader = Reader::new(&generation, &value)?;
            if let Some(tokens) = reader.end_tokens()? {
                config.end_tokens = tokens;
            }
        }
        Ok(config)
    }

    /// Reads an already parsed config.json; `path` is for error messages.
    ///
    /// # Errors
    /// When the family is unknown, or a key is missing or wrong.
    pub fn from_json(path: &Path, root: &Value) -> Result<Self, LoadError> {
        let outer = Reader::new(path, root)?;
        let model_type = outer.string("model_type")?;
        let mut config = match model_type.as_str() {
            "gemma3_text" => read_gemma3(&outer)?,
            "gemma3" => {
                let mut config = read_gemma3(&outer.object("text_config")?)?;
                "language_model.".clone_into(&mut config.name_prefix);
                config
            }
            "llama" => read_llama(&outer)?,
            "qwen3" => read_qwen3(&outer)?,
            _ => {
                return Err(LoadError::UnsupportedFamily {
                    path: path.to_owned(),
                    got: model_type,
                    supported: "gemma3, gemma3_text, llama, qwen3".to_owned(),
                });
            }
        };
        config.quantisation = read_quantisation(&outer, &config.name_prefix)?;
        if let Some(tokens) = outer.end_tokens()? {
            config.end_tokens = tokens;
        }
        config.synthetic = outer.boolean("synthetic")?.unwrap_or(false);
        check_heads(&outer, &config)?;
        check_vocab(&outer, &config)?;
        Ok(config)
    }

    /// Window of layer `layer`, or `None` where it attends to everything.
    pub fn window_tokens(&self, layer: usize) -> Option<usize> {
        let sliding = self.sliding.as_ref()?;
        sliding.is_sliding[layer].then_some(sliding.window_tokens)
    }
}

fn read_json(path: &Path) -> Result<Value, LoadError> {
    let text = std::fs::read(path).map_err(|source| LoadError::Io {
        path: path.to_owned(),
        source,
    })?;
    serde_json::from_slice(&text).map_err(|source| LoadError::Json {
        path: path.to_owned(),
        source,
    })
}

// ---- families -----------------------------------------------------------------------------------

/// The keys that all families share; `heads`, `kv_heads` and `head_dim` differ in their defaults.
fn read_common(
    reader: &Reader<'_>,
    family: Family,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    vocab_size: usize,
) -> Result<ModelConfig, LoadError> {
    Ok(ModelConfig {
        family,
        name_prefix: String::new(),
        hidden_size: reader.count("hidden_size")?,
        intermediate_size: reader.count("intermediate_size")?,
        layers: reader.count_up_to("num_hidden_layers", MAX_LAYERS)?,
        heads,
        kv_heads,
        head_dim,
        vocab_size,
        rms_norm_eps: reader.number_or("rms_norm_eps", 1e-6)?,
        attention_scale: (head_dim as f32).powf(-0.5),
        rope: RopeConfig {
            theta: reader.number_or("rope_theta", 10_000.0)?,
            scaling: read_rope_scaling(reader)?,
        },
        sliding: None,
        tie_word_embeddings: reader.boolean("tie_word_embeddings")?,
        quantisation: QuantisationConfig::default(),
        end_tokens: reader.end_tokens()?.unwrap_or_default(),
        max_position_tokens: reader.optional_count("max_position_embeddings")?,
        synthetic: false,
    })
}

/// Gemma 3: published files leave out whatever equals these defaults.
fn read_gemma3(reader: &Reader<'_>) -> Result<ModelConfig, LoadError> {
    let mut config = read_common(
        reader,
        Family::Gemma3,
        reader.count_or("num_attention_heads", 8)?,
        reader.count_or("num_key_value_heads", 4)?,
        reader.count_or("head_dim", 256)?,
        reader.count_or("vocab_size", 262_208)?,
    )?;
    config.rope.theta = reader.number_or("rope_theta", 1_000_000.0)?;
    // The published scale comes from this key, not from head_dim: they differ at 27B.
    config.attention_scale = reader.number_or("query_pre_attn_scalar", 256.0)?.powf(-0.5);
    config.sliding = Some(SlidingConfig {
        window_tokens: reader.count_or("sliding_window", 512)?,
        is_sliding: read_sliding_layers(reader, config.layers)?,
        rope: RopeConfig {
            theta: reader.number_or("rope_local_base_freq", 10_000.0)?,
            scaling: RopeScaling::None,
        },
    });
    Ok(config)
}

/// By `layer_types` where a file has it, else every `sliding_window_pattern`-th layer is global.
fn read_sliding_layers(reader: &Reader<'_>, layers: usize) -> Result<Vec<bool>, LoadError> {
    let Some(types) = reader.raw("layer_types") else {
        let key = if reader.raw("sliding_window_pattern").is_some() {
            "sliding_window_pattern"
        } else {
            "_sliding_window_pattern"
        };
        let pattern = reader.count_or(key, 6)?;
        return Ok((0..layers)
            .map(|layer| (layer + 1) % pattern != 0)
            .collect());
    };
    let list = types.as_array().map(Vec::as_slice).unwrap_or_default();
    let kinds: Option<Vec<bool>> = list
        .iter()
        .map(|kind| match kind.as_str() {
            Some("sliding_attention") => Some(true),
            Some("full_attention") => Some(false),
            _ => None,
        })
        .collect();
    kinds.filter(|kinds| kinds.len() == layers).ok_or_else(|| {
        let expected = format!("{layers} of `sliding_attention` or `full_attention`");
        reader.wrong("layer_types", &expected, types)
    })
}

fn read_llama(reader: &Reader<'_>) -> Result<ModelConfig, LoadError> {
    refuse_sliding(reader)?;
    let heads = reader.count("num_attention_heads")?;
    let hidden = reader.count("hidden_size")?;
    read_common(
        reader,
        Family::Llama,
        heads,
        reader.count_or("num_key_value_heads", heads)?,
        reader.count_or("head_dim", hidden / heads)?,
        reader.count("vocab_size")?,
    )
}

fn read_qwen3(reader: &Reader<'_>) -> Result<ModelConfig, LoadError> {
    refuse_sliding(reader)?;
    let heads = reader.count("num_attention_heads")?;
    let mut config = read_common(
        reader,
        Family::Qwen3,
        heads,
        reader.count("num_key_value_heads")?,
        reader.count("head_dim")?,
        reader.count("vocab_size")?,
    )?;
    config.rope.theta = reader.number_or("rope_theta", 1_000_000.0)?;
    Ok(config)
}

/// Llama and Qwen 3 files can ask for sliding layers; running them as full ones would be wrong.
fn refuse_sliding(reader: &Reader<'_>) -> Result<(), LoadError> {
    if let Some(value) = reader
        .raw("use_sliding_window")
        .filter(|v| *v != &Value::Bool(false))
    {
        return Err(reader.wrong("use_sliding_window", "false", value));
    }
    let Some(types) = reader.raw("layer_types") else {
        return Ok(());
    };
    let full = |kind: &Value| kind.as_str() == Some("full_attention");
    if types.as_array().is_some_and(|list| list.iter().all(full)) {
        return Ok(());
    }
    Err(reader.wrong("layer_types", "only `full_attention`", types))
}

fn read_rope_scaling(reader: &Reader<'_>) -> Result<RopeScaling, LoadError> {
    if reader.raw("rope_scaling").is_none() {
        return Ok(RopeScaling::None);
    }
    let scaling = reader.object("rope_scaling")?;
    let key = if scaling.raw("rope_type").is_some() {
        "rope_type"
    } else {
        "type"
    };
    let kind = scaling.string(key)?;
    match kind.as_str() {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear {
            factor: scaling.number("factor")?,
        }),
        "llama3" => Ok(RopeScaling::Llama3 {
            factor: scaling.number("factor")?,
            low_freq_factor: scaling.number_or("low_freq_factor", 1.0)?,
            high_freq_factor: scaling.number_or("high_freq_factor", 4.0)?,
            original_context_tokens: scaling
                .number_or("original_max_position_embeddings", 8192.0)?,
        }),
        _ => Err(scaling.wrong(key, "default, linear or llama3", &Value::String(kind))),
    }
}

fn check_vocab(reader: &Reader<'_>, config: &ModelConfig) -> Result<(), LoadError> {
    let vocab_size = config.vocab_size;
    if vocab_size <= MOST_TOKENS {
        return Ok(());
    }
    let expected = format!("a whole number from 1 to {MOST_TOKENS}");
    Err(reader.wrong("vocab_size", &expected, &Value::from(vocab_size)))
}

fn check_heads(reader: &Reader<'_>, config: &ModelConfig) -> Result<(), LoadError> {
    let (heads, kv_heads, head_dim) = (config.heads, config.kv_heads, config.head_dim);
    if heads % kv_heads != 0 {
        let expected = format!("a divisor of num_attention_heads = {heads}");
        return Err(reader.wrong("num_key_value_heads", &expected, &Value::from(kv_heads)));
    }
    if head_dim == 0 || head_dim % 2 != 0 || head_dim > MAX_HEAD_DIM {
        let expected = format!("an even number from 2 to {MAX_HEAD_DIM}");
        return Err(reader.wrong("head_dim", &expected, &Value::from(head_dim)));
    }
    Ok(())
}
