//! One table a kind of device.

pub(super) mod cpu;
pub(super) mod cuda;
pub(super) mod rocm;
