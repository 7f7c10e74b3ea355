//! From a configuration to a program on a device.

use crate::backend::interface::{HeadStage, LinearId, StepProgram};
use crate::error::LoadError;
use crate::model::config::Family;
use crate::model::parts::{Loading, linear, rms_norm};
use crate::model::{ModelConfig, gemma3, llama, qwen3};

/// Module path of the embedding table.
pub const EMBEDDING: &str = "model.embed_tokens";

/// Module path of a head that is not the embedding table.
pub const HEAD: &str = "lm_head";

/// A kind of cache: all layers of a kind have the same cursors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheKind {
    /// Keeps every token.
    Full,
    /// Keeps a window of tokens.
    Rotating {
        /// The window.
        window_tokens: usize,
    },
}

/// The kinds that a model's layers use, in the order of [`layer_cache_kind`].
pub fn cache_kinds(config: &ModelConfig) -> Vec<CacheKind> {
    let mut kinds = vec![CacheKind::Full];
    if let Some(sliding) = &config.sliding {
        kinds.push(CacheKind::Rotating {
            window_tokens: sliding.window_tokens,
        });
    }
    kinds
}

/// Index of a layer's kind in [`cache_kinds`].
pub fn layer_cache_kind(config: &ModelConfig, layer: usize) -> usize {
    usize::from(config.window_tokens(layer).is_some())
}

/// Uploads all weights and returns the family's forward pass.
///
/// # Errors
/// When a tensor is missing or wrong, or the device refuses.
pub fn load(loading: &mut Loading<'_>) -> Result<Box<dyn StepProgram>, LoadError> {
    Ok(match loading.config.family {
        Family::Gemma3 => Box::new(gemma3::Gemma3::load(loading)?),
        Family::Llama => Box::new(llama::Llama::load(loading)?),
        Family::Qwen3 => Box::new(qwen3::Qwen3::load(loading)?),
    })
}

/// The embedding table and the head, which may be one matrix.
pub(super) fn load_ends(loading: &mut Loading<'_>) -> Result<(LinearId, HeadStage), LoadError> {
    let config = loading.config;
    let (vocab, hidden) = (config.vocab_size, config.hidden_size);
    let table = linear::upload_stacked(loading, &[(EMBEDDING.to_owned(), vocab)], hidden)?;
    // Files may carry a head that they say not to use; Gemma files say nothing and have none.
    let has_head = loading.store.contains(&format!("{HEAD}.weight"));
    let tied = match config.family {
        Family::Gemma3 => !has_head,
        // Where the key is left out, what the file holds decides.
        Family::Llama | Family::Qwen3 => config.tie_word_embeddings.unwrap_or(!has_head),
    };
    let head = if tied {
        table
    } else {
        linear::upload_stacked(loading, &[(HEAD.to_owned(), vocab)], hidden)?
    };
    let norm = rms_norm::upload(loading, "model.norm", hidden)?;
    Ok((table, HeadStage { norm, head }))
}
