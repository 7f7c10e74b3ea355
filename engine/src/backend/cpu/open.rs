//! Opens the processor in one of its two arithmetics.

use crate::backend::cpu::fast::FastBuilder;
use crate::backend::cpu::kernel::{KernelChoice, Kernels, Pool};
use crate::backend::cpu::reference::ReferenceBuilder;
use crate::backend::cpu::routed::RoutedProducts;
use crate::backend::cpu::{device, kernel};
use crate::backend::interface::{Arithmetic, DeviceBuilder};
use crate::error::{BackendError, LoadError};
use crate::qmm::QmmSetup;

/// A device that takes weights; `threads` of 0 means one a core.
///
/// # Errors
/// When the operating system refuses the threads.
pub fn open(
    arithmetic: Arithmetic,
    threads: usize,
    qmm: QmmSetup,
) -> Result<Box<dyn DeviceBuilder>, LoadError> {
    let threads = match threads {
        0 => device::default_threads(),
        some => some,
    };
    match arithmetic {
        Arithmetic::Float32 => {
            let pool = Pool::new(threads)
                .map_err(|source| unavailable(kernel::KernelsError::Threads { threads, source }))?;
            Ok(Box::new(ReferenceBuilder::new(pool)))
        }
        Arithmetic::Fast => {
            let kernels = Kernels::new(KernelChoice::Best, threads).map_err(unavailable)?;
            let products = RoutedProducts::new(kernels.isa(), qmm.route_profile, qmm.options);
            Ok(Box::new(FastBuilder::new(kernels, products)))
        }
    }
}

/// Something that this processor cannot do.
pub(super) fn unavailable(reason: impl std::fmt::Display) -> LoadError {
    LoadError::Backend(BackendError::Unavailable {
        backend: "cpu".to_owned(),
        reason: reason.to_string(),
    })
}
