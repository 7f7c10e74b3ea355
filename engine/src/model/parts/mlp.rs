//! The gated feed-forward block: `down(act(gate x) · up x)`.

use crate::backend::interface::{Activation, GateUpStage, ResidualStage};
use crate::error::LoadError;
use crate::model::parts::{Loading, attention, linear, rms_norm};

/// The two stages of a block.
#[derive(Debug, Clone, Copy)]
pub struct Mlp {
    /// Norm, gate|up, activation.
    pub gate_up: GateUpStage,
    /// Back into the residual stream.
    pub down: ResidualStage,
}

/// Loads `model.layers.N.mlp.*` with the norm at `norm` and the one at `post_norm`, if any.
///
/// # Errors
/// When a tensor is missing or wrong.
pub fn load(
    loading: &mut Loading<'_>,
    layer: usize,
    norm: &str,
    post_norm: Option<&str>,
    activation: Activation,
) -> Result<Mlp, LoadError> {
    let (hidden, inner) = (loading.config.hidden_size, loading.config.intermediate_size);
    let module = |name: &str| format!("model.layers.{layer}.mlp.{name}");
    let norm = rms_norm::upload(loading, norm, hidden)?;
    let (config, store) = (loading.config, loading.store);
    let gate = linear::read(config, store, &module("gate_proj"), inner, hidden)?;
    let up = linear::read(config, store, &module("up_proj"), inner, hidden)?;
    let gate_up = loading.uploader.gated(&gate.host(), &up.host())?;
    let down = attention::load_output(loading, &module("down_proj"), inner, post_norm)?;
    Ok(Mlp {
        gate_up: GateUpStage {
            norm,
            gate_up,
            activation,
        },
        down,
    })
}
