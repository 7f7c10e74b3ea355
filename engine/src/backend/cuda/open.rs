//! From "the first GPU" to a device that takes weights.

#![expect(unsafe_code, reason = "asks the loader for the driver")]

use std::sync::Arc;

use cudarc::driver::sys;

use crate::backend::cuda::driver::CudaMachine;
use crate::backend::gpu::GpuBuilder;
use crate::backend::interface::{Arithmetic, DeviceBuilder};
use crate::error::{BackendError, LoadError};

/// Fails when there is no driver, before anything expensive is begun.
pub(crate) fn require() -> Result<(), LoadError> {
    // SAFETY: opens and closes the driver's library, whose initialisers are meant to be run.
    match unsafe { sys::is_culib_present() } {
        true => Ok(()),
        false => Err(LoadError::Backend(unavailable(
            "no CUDA driver (libcuda.so.1) on this machine".to_owned(),
        ))),
    }
}

/// The first GPU that the driver shows; `CUDA_VISIBLE_DEVICES` says which that is.
pub(crate) fn open(arithmetic: Arithmetic) -> Result<Box<dyn DeviceBuilder>, LoadError> {
    require()?;
    let machine = CudaMachine::open()?;
    Ok(Box::new(GpuBuilder::new(Arc::new(machine), arithmetic)))
}

/// Something that this machine cannot do.
pub(super) fn unavailable(reason: String) -> BackendError {
    BackendError::Unavailable {
        backend: "cuda".to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_the_error_says_so_and_nothing_panics() {
        // SAFETY: as above.
        if unsafe { sys::is_culib_present() } {
            return;
        }
        let error = open(Arithmetic::Fast).err().map(|error| error.to_string());
        let text = error.unwrap_or_default();
        assert!(text.contains("no CUDA driver"), "{text}");
    }
}
