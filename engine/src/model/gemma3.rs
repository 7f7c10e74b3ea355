//! Gemma 3: norms before and after each block, q and k normed per head, five sliding layers for
//! each global one, embeddings scaled up.

use half::bf16;

use crate::backend::interface::{Activation, HeadStage, LinearId, RopeId, Stages, StepProgram};
use crate::error::{BackendError, LoadError};
use crate::model::family::{layer_cache_kind, load_ends};
use crate::model::parts::attention::{self, Attention, AttentionSpec};
use crate::model::parts::mlp::{self, Mlp};
use crate::model::parts::{Loading, rope};

/// The uploaded model.
#[derive(Debug)]
pub struct Gemma3 {
    embed: LinearId,
    embed_scale: f32,
    layers: Vec<(Attention, Mlp)>,
    head: HeadStage,
}

impl Gemma3 {
    /// Checks and uploads all weights.
    ///
    /// # Errors
    /// When a tensor is missing or wrong.
    pub fn load(loading: &mut Loading<'_>) -> Result<Self, LoadError> {
        let config = loading.config;
        let (embed, head) = load_ends(loading)?;
        let table = rope::inverse_frequencies(&config.rope, config.head_dim);
        let global = loading.uploader.rope(table)?;
        let local = match &config.sliding {
            Some(sliding) => {
                let table = rope::inverse_frequencies(&sliding.rope, config.head_dim);
                loading.uploader.rope(table)?
            }
            None => global,
        };
        let layers = (0..config.layers)
            .map(|layer| {
                let sliding = config.window_tokens(layer).is_some();
                load_layer(loading, layer, if sliding { local } else { global })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            embed,
            // The factor itself is rounded to bf16, whatever the activations are.
            embed_scale: bf16::from_f32((config.hidden_size as f32).sqrt()).to_f32(),
            layers,
            head,
        })
    }
}

fn load_layer(
    loading: &mut Loading<'_>,
    layer: usize,
    rope: RopeId,
) -> Result<(Attention, Mlp), LoadError> {
    let at = |name: &str| format!("model.layers.{layer}.{name}");
    let spec = AttentionSpec {
        layer,
        cache_kind: layer_cache_kind(loading.config, layer),
        rope,
        qk_norm: true,
        post_norm: Some(at("post_attention_layernorm")),
    };
    let attention = attention::load(loading, &spec)?;
    let mlp = mlp::load(
        loading,
        layer,
        &at("pre_feedforward_layernorm"),
        Some(&at("post_feedforward_layernorm")),
        Activation::GeluTanh,
    )?;
    Ok((attention, mlp))
}

impl StepProgram for Gemma3 {
    fn forward(&self, stages: &mut dyn Stages) -> Result<(), BackendError> {
        stages.embed(self.embed, self.embed_scale)?;
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
