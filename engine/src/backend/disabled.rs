//! What is left of a back end that this build does not have: one clear error.

use crate::error::{BackendError, LoadError};

/// The error for `backend`.
pub fn unavailable(backend: &str) -> LoadError {
    LoadError::Backend(BackendError::Unavailable {
        backend: backend.to_owned(),
        reason: "this build does not contain it".to_owned(),
    })
}

/// Stands for the back end for NVIDIA GPUs (feature `cuda`).
pub(crate) mod cuda {
    use crate::backend::interface::{Arithmetic, DeviceBuilder};
    use crate::error::LoadError;

    /// There is none.
    pub(crate) fn require() -> Result<(), LoadError> {
        Err(super::unavailable("cuda"))
    }

    /// There is none.
    pub(crate) fn open(_: Arithmetic) -> Result<Box<dyn DeviceBuilder>, LoadError> {
        Err(super::unavailable("cuda"))
    }
}

/// Stands for the GPU back end on the processor (feature `sim`).
pub(crate) mod sim {
    use crate::backend::interface::{Arithmetic, DeviceBuilder};
    use crate::error::LoadError;

    /// There is none.
    pub(crate) fn require() -> Result<(), LoadError> {
        Err(super::unavailable("sim"))
    }

    /// There is none.
    pub(crate) fn open(_: Arithmetic) -> Result<Box<dyn DeviceBuilder>, LoadError> {
        Err(super::unavailable("sim"))
    }
}
