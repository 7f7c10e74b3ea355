//! The attention block of a layer: norm, q|k|v, per-head norms, rotation, scores, projection.

use crate::backend::interface::{
    AttentionStage, HeadShape, LinearId, Norm, QkvStage, ResidualStage, RopeId,
};
use crate::error::LoadError;
use crate::model::parts::{Loading, linear, rms_norm};

/// The three stages of a block.
#[derive(Debug, Clone, Copy)]
pub struct Attention {
    /// Up to the append.
    pub qkv: QkvStage,
    /// Scores and values.
    pub attention: AttentionStage,
    /// Back into the residual stream.
    pub output: ResidualStage,
}

/// What differs between families and layers.
#[derive(Debug, Clone)]
pub struct AttentionSpec {
    /// Layer number.
    pub layer: usize,
    /// Kind of its cache.
    pub cache_kind: usize,
    /// Rotation table.
    pub rope: RopeId,
    /// Whether q and k are normed per head.
    pub qk_norm: bool,
    /// Path of a norm after the projection, if the family has one.
    pub post_norm: Option<String>,
}

/// Loads `model.layers.N.{input_layernorm,self_attn.*}`.
///
/// # Errors
/// When a tensor is missing or wrong.
pub fn load(loading: &mut Loading<'_>, spec: &AttentionSpec) -> Result<Attention, LoadError> {
    let config = loading.config;
    let layer = format!("model.layers.{}", spec.layer);
    let shape = HeadShape {
        heads: config.heads,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
    };
    let (q_rows, kv_rows) = (
        shape.heads * shape.head_dim,
        shape.kv_heads * shape.head_dim,
    );
    let module = |name: &str| format!("{layer}.self_attn.{name}");
    let norm = rms_norm::upload(
        loading,
        &format!("{layer}.input_layernorm"),
        config.hidden_size,
    )?;
    let qkv = linear::upload_stacked(
        loading,
        &[
            (module("q_proj"), q_rows),
            (module("k_proj"), kv_rows),
            (module("v_proj"), kv_rows),
        ],
        config.hidden_size,
    )?;
    let qk_norm = if spec.qk_norm {
        Some((
            rms_norm::upload(loading, &module("q_norm"), shape.head_dim)?,
            rms_norm::upload(loading, &module("k_norm"), shape.head_dim)?,
        ))
    } else {
        None
    };
    let output = load_output(
        loading,
        &module("o_proj"),
        q_rows,
        spec.post_norm.as_deref(),
    )?;
    Ok(Attention {
        qkv: QkvStage {
            layer: spec.layer,
            cache_kind: spec.cache_kind,
            norm,
            qkv,
            qk_norm,
            rope: spec.rope,
            shape,
        },
        attention: AttentionStage {
            layer: spec.layer,
            cache_kind: spec.cache_kind,
            shape,
            scale: config.attention_scale,
        },
        output,
    })
}

/// A projection back to the residual stream, `[hidden, in_features]`.
pub(super) fn load_output(
    loading: &mut Loading<'_>,
    path: &str,
    in_features: usize,
    post_norm: Option<&str>,
) -> Result<ResidualStage, LoadError> {
    let hidden = loading.config.hidden_size;
    let linear: LinearId =
        linear::upload_stacked(loading, &[(path.to_owned(), hidden)], in_features)?;
    let post_norm: Option<Norm> = post_norm
        .map(|path| rms_norm::upload(loading, path, hidden))
        .transpose()?;
    Ok(ResidualStage { linear, post_norm })
}
