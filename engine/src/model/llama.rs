//! Llama 2 and 3: one norm before each block, rotation in bands, a SiLU gate.

use crate::backend::interface::{Activation, HeadStage, LinearId, Stages, StepProgram};
use crate::error::{BackendError, LoadError};
use crate::model::family::{layer_cache_kind, load_ends};
use crate::model::parts::attention::{self, Attention, AttentionSpec};
use crate::model::parts::mlp::{self, Mlp};
use crate::model::parts::{Loading, rope};

/// The uploaded model.
#[derive(Debug)]
pub struct Llama {
    embed: LinearId,
    layers: Vec<(Attention, Mlp)>,
    head: HeadStage,
}

impl Llama {
    /// Checks and uploads all weights.
    ///
    /// # Errors
    /// When a tensor is missing or wrong.
    pub fn load(loading: &mut Loading<'_>) -> Result<Self, LoadError> {
        Self::load_with(loading, false)
    }

    /// The same block with or without per-head norms of q and k, which is all that Qwen 3 adds.
    pub(super) fn load_with(loading: &mut Loading<'_>, qk_norm: bool) -> Result<Self, LoadError> {
        let config = loading.config;
        let (embed, head) = load_ends(loading)?;
        let table = rope::inverse_frequencies(&config.rope, config.head_dim);
        let rope = loading.uploader.rope(table)?;
        let layers = (0..config.layers)
            .map(|layer| {
                let spec = AttentionSpec {
                    layer,
                    cache_kind: layer_cache_kind(config, layer),
                    rope,
                    qk_norm,
                    post_norm: None,
                };
                let attention = attention::load(loading, &spec)?;
                let norm = format!("model.layers.{layer}.post_attention_layernorm");
                let mlp = mlp::load(loading, layer, &norm, None, Activation::Silu)?;
                Ok((attention, mlp))
            })
            .collect::<Result<_, LoadError>>()?;
        Ok(Self {
            embed,
            layers,
            head,
        })
    }
}

impl StepProgram for Llama {
    fn forward(&self, stages: &mut dyn Stages) -> Result<(), BackendError> {
        stages.embed(self.embed, 1.0)?;
        for (layer, (attention, mlp)) in self.layers.iter().enumerate() {
            stages.qkv(&attention.qkv)?;
            if layer + 1 == self.layers.len() {
                stages.keep_output_rows()?;
            }
            stages.attention(&attention.attention)?;
            stages.output(&attention.output)?;
            stages.gate_up(&mlp.gate_up)?;
            stages.down(&mlp.down)?;
        }
        stages.head(&self.head)
    }
}
