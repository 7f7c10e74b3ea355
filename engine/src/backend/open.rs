//! From the user's choice to a device that takes weights.

use crate::backend::interface::{Arithmetic, BackendChoice, DeviceBuilder};
use crate::backend::{cpu, cuda, disabled, sim};
use crate::error::{BackendError, LoadError};
use crate::qmm::QmmSetup;

/// Opens a device; `threads` is for the CPU, 0 means one a core.
///
/// `Auto` is the processor: a GPU is asked for by name, so that a report never depends on what else
/// is in a machine.
///
/// # Errors
/// When this build or machine has no such back end.
pub fn open(
    choice: BackendChoice,
    arithmetic: Arithmetic,
    threads: usize,
    qmm: QmmSetup,
) -> Result<Box<dyn DeviceBuilder>, LoadError> {
    require(choice)?;
    match choice {
        BackendChoice::Cuda => no_routes("cuda", &qmm).and_then(|()| cuda::open(arithmetic)),
        BackendChoice::Sim => no_routes("sim", &qmm).and_then(|()| sim::open(arithmetic)),
        _ => arithmetic_has_routes(arithmetic, &qmm)
            .and_then(|()| cpu::open(arithmetic, threads, qmm)),
    }
}

/// A GPU's kernels are its own: it cannot take another device's routes.
fn no_routes(backend: &str, qmm: &QmmSetup) -> Result<(), LoadError> {
    match qmm.route_profile {
        None => Ok(()),
        Some(_) => Err(LoadError::Backend(BackendError::Unavailable {
            backend: backend.to_owned(),
            reason: "a route profile is for the processor".to_owned(),
        })),
    }
}

/// The reference multiplies row by row, whatever a table says.
fn arithmetic_has_routes(arithmetic: Arithmetic, qmm: &QmmSetup) -> Result<(), LoadError> {
    match (arithmetic, qmm.route_profile) {
        (Arithmetic::Float32, Some(_)) => Err(LoadError::Backend(BackendError::Unavailable {
            backend: "cpu".to_owned(),
            reason: "a route profile is for fast arithmetic, not for float32".to_owned(),
        })),
        _ => Ok(()),
    }
}

/// Fails when this build or machine has no such back end, before anything expensive is begun.
///
/// # Errors
/// [`crate::error::BackendError::Unavailable`], naming it.
pub fn require(choice: BackendChoice) -> Result<(), LoadError> {
    match choice {
        BackendChoice::Auto | BackendChoice::Cpu => Ok(()),
        BackendChoice::Cuda => cuda::require(),
        BackendChoice::Sim => sim::require(),
        BackendChoice::Rocm => Err(disabled::unavailable("rocm")),
    }
}
