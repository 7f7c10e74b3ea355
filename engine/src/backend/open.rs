//! From the user's choice to a device that takes weights.

use crate::backend::interface::{Arithmetic, BackendChoice, DeviceBuilder};
use crate::backend::{cpu, disabled};
use crate::error::LoadError;

/// Opens a device; `threads` is for the CPU, 0 means one a core.
///
/// # Errors
/// When this build or machine has no such back end.
pub fn open(
    choice: BackendChoice,
    arithmetic: Arithmetic,
    threads: usize,
) -> Result<Box<dyn DeviceBuilder>, LoadError> {
    match choice {
        BackendChoice::Auto | BackendChoice::Cpu => cpu::open(arithmetic, threads),
        BackendChoice::Cuda => Err(disabled::unavailable("cuda")),
        BackendChoice::Rocm => Err(disabled::unavailable("rocm")),
    }
}
