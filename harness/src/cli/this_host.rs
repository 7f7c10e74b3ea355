//! What machine this is, with the GPUs that only the driver's library tells.

use std::path::Path;

use crate::guard::cuda;
use crate::host;
use crate::record::format::Host;

/// Describes this machine; `label` replaces the label made from the processor.
pub(super) fn describe(label: Option<&str>) -> Host {
    let mut host = host::info::describe(label);
    let asked = ["GPU", "GPU driver"];
    if asked.iter().all(|name| host.facts.contains_key(*name)) {
        return host;
    }
    // In a container the files of the driver may be missing.
    if let Ok(gpus) = cuda::open(Path::new("/proc")) {
        let names: Vec<String> = gpus.describe().into_iter().map(|gpu| gpu.name).collect();
        let driver = gpus.driver().map(|version| format!("NVIDIA {version}"));
        for (name, value) in asked.into_iter().zip([Some(names.join(", ")), driver]) {
            if let Some(value) = value {
                host.facts.entry(name.to_owned()).or_insert(value);
            }
        }
    }
    host
}
