//! What a loaded model's products did: data for outputs.

use std::collections::BTreeMap;

use super::dequant_lru::DequantStats;
use super::options::QmmOptions;

/// Which routes products took since the model was loaded.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct QmmReport {
    /// Whose table decided; empty where no table is asked.
    pub profile: String,
    /// Whether that is another device's than the one that computes.
    pub foreign: bool,
    /// What the environment said.
    pub options: QmmOptions,
    /// Products by route; routes that none took are left out.
    pub routes: BTreeMap<String, u64>,
    /// The cache of dequantised weights.
    pub dequant_cache: DequantStats,
}
