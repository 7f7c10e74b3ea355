//! What a device is, as plain data: no detection here (each back end fills it in), no decision.

/// A device as reports and route tables see it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DeviceProfile {
    /// Back end that drives it: `cpu`, `cuda`, `rocm`.
    pub backend: String,
    /// Marketing name, as the operating system or driver gives it.
    pub name: String,
    /// Instruction set or chip generation that kernels are chosen by, e.g. `x86_64`, `sm_90`.
    pub architecture: String,
    /// Parallel units that the engine uses: threads on a CPU, multiprocessors on a GPU.
    pub units: usize,
    /// Memory that weights and caches can live in, in bytes; `None` when unknown.
    pub memory_bytes: Option<u64>,
    /// Peak read bandwidth in bytes per second where it is known; never guessed.
    pub bandwidth_bytes_per_second: Option<u64>,
}
