//! Parts that families share: each checks and uploads its weights and hands back a stage.

pub mod attention;
pub mod linear;
pub mod mlp;
mod mxfp4_matrix;
pub mod rms_norm;
pub mod rope;

use crate::backend::interface::Uploader;
use crate::model::ModelConfig;
use crate::weights::WeightStore;

/// What every part needs to load itself.
pub struct Loading<'a> {
    /// The model's shape.
    pub config: &'a ModelConfig,
    /// Its tensors.
    pub store: &'a WeightStore,
    /// Where they go.
    pub uploader: &'a mut dyn Uploader,
}
