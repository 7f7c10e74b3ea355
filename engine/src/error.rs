//! Everything that can go wrong from the outside, as two enums: loading and running.
//!
//! Texts are lower-case fragments that fit after "failed to"; each names the file, the key or
//! tensor, what was expected and what was found.

use std::path::PathBuf;

/// A folder that cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A safetensors file that is truncated, lies about itself or is something else.
    #[error("{}: not a valid safetensors file: {problem}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// The first thing found wrong, with expected and got.
        problem: String,
    },
    /// A GGUF file that is truncated, lies about itself or holds what is not read.
    #[error("{}: not a GGUF file that can be read: {problem}", path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// The first thing found wrong, with expected and got.
        problem: String,
    },
    /// A JSON file that does not parse.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The parser's message, with line and column.
        source: serde_json::Error,
    },
    /// A key of config.json that is missing or of the wrong kind.
    #[error("{}: `{key}`: expected {expected}, got {got}", path.display())]
    ConfigKey {
        /// The file.
        path: PathBuf,
        /// Dotted path of the key.
        key: String,
        /// What a model of this family needs there.
        expected: String,
        /// What is there.
        got: String,
    },
    /// A model_type that no family file implements.
    #[error("{}: unsupported model_type `{got}`, expected one of {supported}", path.display())]
    UnsupportedFamily {
        /// The file.
        path: PathBuf,
        /// The model_type found.
        got: String,
        /// The families there are.
        supported: String,
    },
    /// No `model*.safetensors` in the folder.
    #[error("{}: no model*.safetensors in this folder", dir.display())]
    NoWeights {
        /// The folder.
        dir: PathBuf,
    },
    /// The index names a shard that is not in the folder.
    #[error(
        "{}: shard {} is missing: was the download interrupted?",
        index.display(),
        shard.display()
    )]
    MissingShard {
        /// The index.
        index: PathBuf,
        /// The shard.
        shard: PathBuf,
    },
    /// Two shards hold a tensor of the same name.
    #[error("tensor `{tensor}` is both in {} and in {}", first.display(), second.display())]
    DuplicateTensor {
        /// The name.
        tensor: String,
        /// Shard that had it first.
        first: PathBuf,
        /// Shard that has it too.
        second: PathBuf,
    },
    /// A tensor that the model needs and no shard has.
    #[error("{}: tensor `{tensor}` is missing", dir.display())]
    MissingTensor {
        /// The folder.
        dir: PathBuf,
        /// The name after the family's renaming.
        tensor: String,
    },
    /// A tensor of the wrong shape or type.
    #[error("{}: tensor `{tensor}`: expected {expected}, got {got}", path.display())]
    Tensor {
        /// The shard.
        path: PathBuf,
        /// The name as the file has it.
        tensor: String,
        /// Shape or type that config.json implies.
        expected: String,
        /// Shape or type found.
        got: String,
    },
    /// The device side refused.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// A device, or a step on it, that failed.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum BackendError {
    /// This build or machine has no such back end.
    #[error("back end `{backend}` is not available: {reason}")]
    Unavailable {
        /// Its name.
        backend: String,
        /// What is missing.
        reason: String,
    },
    /// A token id beyond the embedding table.
    #[error("token id {token} is outside the vocabulary of {vocab_size}")]
    TokenOutOfRange {
        /// The id.
        token: u32,
        /// Rows of the table.
        vocab_size: usize,
    },
    /// A step with nothing in it.
    #[error("a step needs at least one token, got none")]
    EmptyStep,
    /// The sequence would outgrow the limit it was made with.
    #[error("context of {limit_tokens} tokens is full: {wanted_tokens} wanted")]
    ContextFull {
        /// Largest number of tokens.
        limit_tokens: usize,
        /// Tokens that the step would reach.
        wanted_tokens: usize,
    },
    /// A ticket that was read, discarded or forgotten.
    #[error(
        "ticket {ticket} is not outstanding: it was read, discarded, or its step is too long ago"
    )]
    StaleTicket {
        /// Its number.
        ticket: u64,
    },
    /// A sequence that was dropped, or belongs to another engine.
    #[error("sequence {sequence} does not exist on this device")]
    UnknownSequence {
        /// Its number.
        sequence: u64,
    },
    /// Steps that cannot be taken back exactly; the sequence is as it was.
    #[error("{reason}")]
    CannotRewind {
        /// What the cache says.
        reason: String,
    },
    /// The device stopped working; nothing more can be submitted.
    #[error("the device stopped: {reason}")]
    Stopped {
        /// What it said last.
        reason: String,
    },
}
