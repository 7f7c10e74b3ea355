//! The findings, as data; the JSON of `mlxcel inspect --json`.

use super::cache::CacheReport;

/// One folder.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct InspectReport {
    /// The folder.
    pub model: String,
    /// `model_type` of config.json.
    pub model_type: Option<String>,
    /// Family that would run it, where one would.
    pub family: Option<String>,
    /// Whether no problem was found.
    pub loads: bool,
    /// Everything that was found wrong.
    pub problems: Vec<Problem>,
    /// Whether the weights are random numbers in a real model's shape.
    pub synthetic: bool,
    /// Decoder layers.
    pub layers: Option<u64>,
    /// Width of the residual stream.
    pub hidden_size: Option<u64>,
    /// Rows of the embedding table.
    pub vocab_size: Option<u64>,
    /// Longest context that the model says it was made for.
    pub max_position_tokens: Option<u64>,
    /// Tokens that end a text.
    pub end_tokens: Vec<u32>,
    /// Files of weights.
    pub shards: Vec<Shard>,
    /// Bytes of all of them.
    pub total_bytes: u64,
    /// Numbers that the weights stand for.
    pub parameters: u64,
    /// Bits of weight data a parameter, scales and biases included.
    pub bits_per_parameter: f64,
    /// Formats, the one with the most bytes first.
    pub formats: Vec<FormatShare>,
    /// Modules, those of all layers together.
    pub modules: Vec<ModuleGroup>,
    /// Tensors that the family does not read, by the first words of their names.
    pub unused: Vec<Unused>,
    /// What makes text of its ids, where the folder has it.
    pub tokenizer: Option<TokenizerReport>,
    /// Keys and values.
    pub cache: Option<CacheReport>,
}

/// Something that would stop the model from loading or talking.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// Part of the folder.
    pub part: Part,
    /// What is wrong, as an error says it.
    pub problem: String,
}

/// Parts of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// config.json and generation_config.json.
    Config,
    /// The shards and their index.
    Weights,
    /// How the weights are stored.
    Format,
    /// tokenizer.json and what goes with it.
    Tokenizer,
}

impl Part {
    /// Its name in the text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Weights => "weights",
            Self::Format => "format",
            Self::Tokenizer => "tokenizer",
        }
    }
}

/// One file of weights.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Shard {
    /// Its name.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// Tensors in it.
    pub tensors: usize,
}

/// All modules of one format.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct FormatShare {
    /// E.g. `affine 4-bit g64` or `bf16`.
    pub format: String,
    /// Format that it is converted to, without loss, when it is loaded; `None` if it stays.
    pub executed_as: Option<String>,
    /// Modules.
    pub modules: usize,
    /// Numbers that they stand for.
    pub parameters: u64,
    /// Bytes of codes, scales and biases.
    pub bytes: u64,
}

/// Modules that differ in their numbers only, such as one projection of all layers.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ModuleGroup {
    /// Path with `*` for each number.
    pub path: String,
    /// Format.
    pub format: String,
    /// How many there are.
    pub count: usize,
    /// Layers, as ranges of the first number in the path; empty where there is none.
    pub layers: String,
    /// Shape of the largest one's weight as it is stored.
    pub shape: Vec<usize>,
    /// Bytes of all.
    pub bytes: u64,
}

/// Tensors that nothing reads.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Unused {
    /// First word of their names.
    pub prefix: String,
    /// Tensors.
    pub tensors: usize,
}

/// The folder's tokenizer.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TokenizerReport {
    /// Number of its tokens, added ones included.
    pub tokens: usize,
    /// Tokens that it puts before a text.
    pub start_tokens: Vec<u32>,
    /// Whether there is a chat template.
    pub chat_template: bool,
}
