//! Opens the simulated GPU; the environment says which.

use std::sync::Arc;

use crate::backend::gpu::{GpuBuilder, Layout};
use crate::backend::interface::{Arithmetic, DeviceBuilder};
use crate::backend::sim::machine::SimMachine;
use crate::error::{BackendError, LoadError};

/// Whose matrix units: `nvidia` (unless set) or `rdna3`.
const LAYOUT: &str = "MLXCEL_SIM_LAYOUT";

/// In which order warps and lanes run: 0 forward (unless set), 1 reverse, more is a seed.
const ORDER: &str = "MLXCEL_SIM_ORDER";

/// There is always a processor.
pub(crate) fn require() -> Result<(), LoadError> {
    Ok(())
}

/// A device that takes weights.
pub(crate) fn open(arithmetic: Arithmetic) -> Result<Box<dyn DeviceBuilder>, LoadError> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let layout = match variable(LAYOUT).as_str() {
        "" | "nvidia" => Layout::Nvidia,
        "rdna3" => Layout::Rdna3,
        other => {
            return Err(unavailable(format!(
                "{LAYOUT}: expected nvidia or rdna3, got {other}"
            )));
        }
    };
    let order = match variable(ORDER) {
        text if text.is_empty() => 0,
        text => text
            .parse()
            .map_err(|_| unavailable(format!("{ORDER}: expected a small number, got {text}")))?,
    };
    let machine = SimMachine::new(layout, order);
    Ok(Box::new(GpuBuilder::new(Arc::new(machine), arithmetic)))
}

fn unavailable(reason: String) -> LoadError {
    LoadError::Backend(BackendError::Unavailable {
        backend: "sim".to_owned(),
        reason,
    })
}
