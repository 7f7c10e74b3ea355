//! Opens the processor in one of its two arithmetics.

use crate::backend::cpu::{device, reference};
use crate::backend::interface::{Arithmetic, DeviceBuilder};
use crate::error::LoadError;

/// A device that takes weights; `threads` of 0 means one a core.
///
/// # Errors
/// When the operating system refuses the threads.
pub fn open(arithmetic: Arithmetic, threads: usize) -> Result<Box<dyn DeviceBuilder>, LoadError> {
    let threads = match threads {
        0 => device::default_threads(),
        some => some,
    };
    match arithmetic {
        Arithmetic::Float32 => Ok(Box::new(reference::ReferenceBuilder::new(threads))),
        Arithmetic::Fast => Ok(Box::new(reference::ReferenceBuilder::new(threads))),
    }
}
