//! Is the machine quiet, and was it quiet during the attempt?
//!
//! `policy` decides (pure), `sampler` reads, `lock` holds the device, `cpu` says who
//! compiles, `gpu` what a GPU tells and `rocm` and `cuda` where from, `machine` puts them
//! together, `none` is the guard that does nothing, `scripted` one for tests, `open` makes
//! the one that was asked for.

pub mod cpu;
pub mod cuda;
pub mod gpu;
pub mod interface;
pub mod lock;
pub mod machine;
pub mod none;
pub mod open;
pub mod policy;
pub mod rocm;
pub mod sampler;
pub mod scripted;
