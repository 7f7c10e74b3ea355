//! Is the machine quiet, and was it quiet during the attempt?
//!
//! `policy` decides (pure), `sampler` reads, `lock` holds the device, `cpu` and
//! `rocm` say who is foreign.

pub mod interface;
