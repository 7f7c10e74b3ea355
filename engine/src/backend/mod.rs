//! Devices: one trait, one folder a back end; this is the only place with `cfg(feature)`.

pub mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg_attr(
    any(feature = "cuda", feature = "sim"),
    expect(dead_code, reason = "this build has what it stands for")
)]
pub mod disabled;
#[cfg(any(feature = "cuda", feature = "sim"))]
#[cfg_attr(
    not(feature = "sim"),
    expect(
        dead_code,
        reason = "only the simulated GPU has every layout of fragments"
    )
)]
mod gpu;
pub mod interface;
mod open;
mod sample;
#[cfg(feature = "sim")]
pub(crate) mod sim;

#[cfg(not(feature = "cuda"))]
use disabled::cuda;
#[cfg(not(feature = "sim"))]
use disabled::sim;

pub use open::{open, require};
