//! A device that keeps nothing: the family's own loader checks every tensor against it.

use crate::backend::interface::{GatedId, HostLinear, LinearId, RopeId, Uploader, VectorId};
use crate::error::LoadError;
use crate::model::parts::Loading;
use crate::model::{ModelConfig, family};
use crate::weights::WeightStore;

/// Runs the family's loader; what it asked for is then marked as used in `store`.
///
/// # Errors
/// The first tensor that is missing or not what `config` implies.
pub(super) fn survey(config: &ModelConfig, store: &WeightStore) -> Result<(), LoadError> {
    family::load(&mut Loading {
        config,
        store,
        uploader: &mut Nowhere,
    })
    .map(drop)
}

/// Takes everything, keeps nothing; its numbers are never used.
struct Nowhere;

impl Uploader for Nowhere {
    fn linear(&mut self, _: &[HostLinear<'_>]) -> Result<LinearId, LoadError> {
        Ok(LinearId(0))
    }

    fn gated(&mut self, _: &HostLinear<'_>, _: &HostLinear<'_>) -> Result<GatedId, LoadError> {
        Ok(GatedId(0))
    }

    fn vector(&mut self, _: Vec<f32>) -> Result<VectorId, LoadError> {
        Ok(VectorId(0))
    }

    fn rope(&mut self, _: Vec<f32>) -> Result<RopeId, LoadError> {
        Ok(RopeId(0))
    }
}
