//! The models that can be synthesised, and their `config.json`.
//!
//! Shapes, vocabularies, windows and RoPE parameters are those of the published
//! configurations (google/gemma-3-*, meta-llama/Llama-3.1-8B, Qwen/Qwen3-*);
//! quantisation is affine 4-bit with groups of 64 and bf16 scales, as in the
//! usual MLX conversions, or f16 ones (`-f16`). The gains are ours: they keep the residual stream
//! O(1) per layer and greedy decode from repeating itself.

use serde_json::{Map, Value, json};

use super::error::SyntheticError;

/// `-m synthetic:<name>`: what marks a model as one of these.
pub const PREFIX: &str = "synthetic:";

/// Moves whenever a byte of any model changes. Part of the cache folder's name.
pub const FORMAT_VERSION: u32 = 1;

/// The seed of every model; the tensor's name makes the rest of a key.
pub const SEED: u64 = 0x6D6C_7863_656C;

/// Elements that share a scale and a bias.
pub const GROUP_SIZE: usize = 64;

/// Bits of a code.
pub const BITS: usize = 4;

/// How names and config of a family are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Gemma 3 text model, flat config.
    Gemma3Text,
    /// Gemma 3 as its multimodal files carry it: `text_config`, and tensors
    /// below `language_model.`.
    Gemma3,
    /// Llama 3.1.
    Llama,
    /// Qwen 3, dense.
    Qwen3,
}

/// Standard deviations that the weights are drawn for.
///
/// Attention over random keys is nearly the same average at every step. When it
/// outweighs the MLP, or is not sharp, or when the input's own embedding
/// survives to the last layer, greedy decode repeats one token for ever (seen:
/// 1 distinct id of 64 with all gains 1). So attention is sharp and small
/// beside the MLP, and the embedding is small beside both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gains {
    /// Of an element of the residual stream before the first layer.
    pub embed: f32,
    /// Of the attention scores, about: how sharp attention is.
    pub query: f32,
    /// Of `o_proj` in units of 1/√inputs; of the norm after it in Gemma.
    pub attention_out: f32,
    /// Of `down_proj` in units of 1/√inputs; of the norm after it in Gemma.
    pub mlp_out: f32,
    /// Weight of the last norm: sets the spread of the logits, about 2 to 5.
    pub last_norm: f32,
}

/// How scales, biases and norms are stored, which is also what such a model computes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// bfloat16, as most files.
    Bf16,
    /// IEEE half.
    F16,
}

impl Half {
    /// Safetensors type name.
    #[must_use]
    pub fn dtype(self) -> &'static str {
        match self {
            Self::Bf16 => "BF16",
            Self::F16 => "F16",
        }
    }

    /// The name in `config.json`.
    fn torch_dtype(self) -> &'static str {
        match self {
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
        }
    }
}

/// One configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Configuration {
    /// As in `synthetic:<name>`.
    pub name: &'static str,
    /// Not listed for users: small enough for tests.
    pub hidden_from_help: bool,
    /// How the config is written.
    pub family: Family,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width inside the MLP.
    pub intermediate: usize,
    /// Decoder layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Rows of the embedding table.
    pub vocab: usize,
    /// Sliding window and pattern (every n-th layer is global), Gemma only.
    pub window: Option<(usize, usize)>,
    /// The head is the embedding table.
    pub tied: bool,
    /// Base of RoPE (of the global layers).
    pub rope_theta: f64,
    /// `max_position_embeddings`.
    pub max_positions: usize,
    /// Type of scales, biases and norms.
    pub half: Half,
    /// Values of the random weights.
    pub gains: Gains,
}

const GEMMA_GAINS: Gains = Gains {
    embed: 0.25,
    query: 5.0,
    attention_out: 0.25,
    mlp_out: 1.0,
    last_norm: 8.0,
};

const LLAMA_GAINS: Gains = Gains {
    embed: 0.1,
    query: 4.0,
    attention_out: 0.5,
    mlp_out: 2.0,
    last_norm: 2.0,
};

const QWEN_GAINS: Gains = Gains {
    embed: 0.1,
    query: 4.0,
    attention_out: 0.5,
    mlp_out: 2.0,
    last_norm: 1.0,
};

const GEMMA_270M: Configuration = Configuration {
    name: "gemma3-270m",
    hidden_from_help: false,
    family: Family::Gemma3Text,
    hidden: 640,
    intermediate: 2048,
    layers: 18,
    heads: 4,
    kv_heads: 1,
    head_dim: 256,
    vocab: 262_144,
    window: Some((512, 6)),
    tied: true,
    rope_theta: 1e6,
    max_positions: 32_768,
    half: Half::Bf16,
    gains: GEMMA_GAINS,
};

const GEMMA_1B: Configuration = Configuration {
    name: "gemma3-1b",
    hidden: 1152,
    intermediate: 6912,
    layers: 26,
    ..GEMMA_270M
};

const TINY_GEMMA: Configuration = Configuration {
    name: "tiny-gemma3",
    hidden_from_help: true,
    hidden: 128,
    intermediate: 256,
    layers: 6,
    head_dim: 64,
    vocab: 512,
    window: Some((32, 3)),
    max_positions: 1024,
    ..GEMMA_270M
};

/// The same model with its floating-point numbers in IEEE half.
const fn in_f16(name: &'static str, model: Configuration) -> Configuration {
    Configuration {
        name,
        half: Half::F16,
        ..model
    }
}

const LLAMA_8B: Configuration = Configuration {
    name: "llama-3.1-8b",
    hidden_from_help: false,
    family: Family::Llama,
    hidden: 4096,
    intermediate: 14_336,
    layers: 32,
    heads: 32,
    kv_heads: 8,
    head_dim: 128,
    vocab: 128_256,
    window: None,
    tied: false,
    rope_theta: 500_000.0,
    max_positions: 131_072,
    half: Half::Bf16,
    gains: LLAMA_GAINS,
};

const QWEN_0_6B: Configuration = Configuration {
    name: "qwen3-0.6b",
    hidden_from_help: false,
    family: Family::Qwen3,
    hidden: 1024,
    intermediate: 3072,
    layers: 28,
    heads: 16,
    kv_heads: 8,
    head_dim: 128,
    vocab: 151_936,
    window: None,
    tied: true,
    rope_theta: 1e6,
    max_positions: 40_960,
    half: Half::Bf16,
    gains: QWEN_GAINS,
};

/// Every configuration, the tiny ones of the tests last.
pub const CONFIGURATIONS: [Configuration; 13] = [
    GEMMA_270M,
    in_f16("gemma3-270m-f16", GEMMA_270M),
    GEMMA_1B,
    in_f16("gemma3-1b-f16", GEMMA_1B),
    Configuration {
        name: "gemma3-4b",
        family: Family::Gemma3,
        hidden: 2560,
        intermediate: 10_240,
        layers: 34,
        heads: 8,
        kv_heads: 4,
        vocab: 262_208,
        window: Some((1024, 6)),
        max_positions: 131_072,
        ..GEMMA_270M
    },
    LLAMA_8B,
    in_f16("llama-3.1-8b-f16", LLAMA_8B),
    QWEN_0_6B,
    Configuration {
        name: "qwen3-4b",
        hidden: 2560,
        intermediate: 9728,
        layers: 36,
        heads: 32,
        ..QWEN_0_6B
    },
    TINY_GEMMA,
    in_f16("tiny-gemma3-f16", TINY_GEMMA),
    Configuration {
        name: "tiny-llama",
        hidden_from_help: true,
        hidden: 128,
        intermediate: 256,
        layers: 4,
        heads: 4,
        kv_heads: 2,
        head_dim: 32,
        vocab: 512,
        max_positions: 1024,
        ..LLAMA_8B
    },
    Configuration {
        name: "tiny-qwen3",
        hidden_from_help: true,
        hidden: 128,
        intermediate: 256,
        layers: 4,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        vocab: 512,
        max_positions: 1024,
        ..QWEN_0_6B
    },
];

/// Finds a configuration by name (without the prefix).
///
/// # Errors
/// [`SyntheticError::UnknownName`] with the names that exist.
pub fn find(name: &str) -> Result<&'static Configuration, SyntheticError> {
    CONFIGURATIONS
        .iter()
        .find(|configuration| configuration.name == name)
        .ok_or_else(|| SyntheticError::UnknownName {
            name: name.to_owned(),
            known: public_names().join(", "),
        })
}

/// The names that help texts and errors list.
pub fn public_names() -> Vec<&'static str> {
    CONFIGURATIONS
        .iter()
        .filter(|configuration| !configuration.hidden_from_help)
        .map(|configuration| configuration.name)
        .collect()
}

impl Configuration {
    /// Gemma norms differ from the others' in number and in meaning.
    pub(super) fn is_gemma(&self) -> bool {
        matches!(self.family, Family::Gemma3 | Family::Gemma3Text)
    }

    /// The `config.json` of this model as an MLX folder has it, marked synthetic.
    pub fn config_json(&self) -> Value {
        let mut config = match self.family {
            Family::Gemma3Text => self.gemma3_text(),
            Family::Gemma3 => self.gemma3(),
            Family::Llama => self.llama(),
            Family::Qwen3 => self.qwen3(),
        };
        let quantisation = json!({ "group_size": GROUP_SIZE, "bits": BITS, "mode": "affine" });
        config.insert("quantization".into(), quantisation.clone());
        config.insert("quantization_config".into(), quantisation);
        config.insert("torch_dtype".into(), json!(self.half.torch_dtype()));
        config.insert("synthetic".into(), json!(true));
        config.insert(
            "synthetic_source".into(),
            json!({ "name": self.name, "seed": SEED, "format_version": FORMAT_VERSION }),
        );
        Value::Object(config)
    }

    fn common(&self, model_type: &str, epsilon: f64) -> Map<String, Value> {
        let value = json!({
            "model_type": model_type,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": epsilon,
            "rope_theta": self.rope_theta,
            "tie_word_embeddings": self.tied,
        });
        match value {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    fn gemma3_text(&self) -> Map<String, Value> {
        let mut config = self.common("gemma3_text", 1e-6);
        let (window, pattern) = self.window.unwrap_or((self.max_positions, 1));
        config.insert("architectures".into(), json!(["Gemma3ForCausalLM"]));
        config.insert("hidden_activation".into(), json!("gelu_pytorch_tanh"));
        config.insert("query_pre_attn_scalar".into(), json!(self.head_dim));
        config.insert("rope_local_base_freq".into(), json!(10_000.0));
        config.insert("sliding_window".into(), json!(window));
        config.insert("sliding_window_pattern".into(), json!(pattern));
        config.insert("bos_token_id".into(), json!(2));
        config.insert("eos_token_id".into(), json!([1, 106]));
        config
    }

    /// The multimodal form: only what the published `text_config` spells out;
    /// heads, head size, vocabulary, RoPE bases are the family's defaults.
    fn gemma3(&self) -> Map<String, Value> {
        let (window, _) = self.window.unwrap_or((self.max_positions, 1));
        let value = json!({
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "eos_token_id": [1, 106],
            "text_config": {
                "model_type": "gemma3_text",
                "hidden_size": self.hidden,
                "intermediate_size": self.intermediate,
                "num_hidden_layers": self.layers,
                "rope_scaling": { "factor": 8.0, "rope_type": "linear" },
                "sliding_window": window,
            },
        });
        match value {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    fn llama(&self) -> Map<String, Value> {
        let mut config = self.common("llama", 1e-5);
        config.insert("architectures".into(), json!(["LlamaForCausalLM"]));
        config.insert("attention_bias".into(), json!(false));
        config.insert("hidden_act".into(), json!("silu"));
        config.insert("mlp_bias".into(), json!(false));
        config.insert(
            "rope_scaling".into(),
            json!({
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
                "rope_type": "llama3",
            }),
        );
        config.insert("bos_token_id".into(), json!(128_000));
        config.insert("eos_token_id".into(), json!([128_001, 128_008, 128_009]));
        config
    }

    fn qwen3(&self) -> Map<String, Value> {
        let mut config = self.common("qwen3", 1e-6);
        config.insert("architectures".into(), json!(["Qwen3ForCausalLM"]));
        config.insert("attention_bias".into(), json!(false));
        config.insert("hidden_act".into(), json!("silu"));
        config.insert("rope_scaling".into(), Value::Null);
        config.insert("bos_token_id".into(), json!(151_643));
        config.insert("eos_token_id".into(), json!(151_645));
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_lists_the_known_ones_without_the_tests_own() {
        let text = find("gemma3-9b").unwrap_err().to_string();
        assert!(
            text.contains("gemma3-9b") && text.contains("qwen3-0.6b"),
            "{text}"
        );
        assert!(!text.contains("tiny"), "{text}");
    }

    #[test]
    fn every_config_is_marked_synthetic_and_says_where_it_comes_from() {
        for configuration in &CONFIGURATIONS {
            let config = configuration.config_json();
            assert_eq!(config["synthetic"], true);
            assert_eq!(config["synthetic_source"]["name"], configuration.name);
            assert_eq!(config["synthetic_source"]["format_version"], FORMAT_VERSION);
            assert_eq!(config["quantization"]["group_size"], 64);
        }
    }

    #[test]
    fn every_width_is_a_multiple_of_the_group() {
        for configuration in &CONFIGURATIONS {
            for width in [
                configuration.hidden,
                configuration.intermediate,
                configuration.heads * configuration.head_dim,
            ] {
                assert_eq!(width % GROUP_SIZE, 0, "{}", configuration.name);
            }
        }
    }
}
