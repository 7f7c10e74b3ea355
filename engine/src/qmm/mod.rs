//! Which way a product with quantised weights is computed: `y = x · dequant(W)ᵀ`.
//!
//! The choice is a pure function of the [`Problem`], the [`Profile`] of the device and the
//! [`QmmOptions`], so every machine can test every device's table. Back ends ask [`choose`] and
//! execute; nothing here launches, reads the environment or prints. The [`DequantLru`] holds what
//! one of the routes keeps; it is generic over the weights, so its counters can be tested alone.

mod choose;
mod dequant_lru;
mod options;
mod problem;
mod profiles;
mod report;
mod route;
mod table;
mod threshold;

pub use choose::choose;
pub use dequant_lru::{DequantKey, DequantLimits, DequantLru, DequantStats};
pub use options::{OptionWarning, QmmOptions, QmmSetup, WmmaChoice};
pub use problem::{Float, Mode, Problem};
pub use profiles::{
    CpuIsa, CpuProfile, CudaProfile, PROFILES, Profile, RocmGeneration, RocmProfile, UnknownProfile,
};
pub use report::QmmReport;
pub use route::Route;
