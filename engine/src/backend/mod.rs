//! Devices: one trait, one folder a back end; this is the only place with `cfg(feature)`.

pub mod cpu;
pub mod disabled;
pub mod interface;
mod open;

pub use open::{open, require};
