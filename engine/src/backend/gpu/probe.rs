//! What the device's memory can give, measured where the model runs.

use std::time::Instant;

use crate::backend::gpu::args::ReadProbeArgs;
use crate::backend::gpu::buffer::Buffer;
use crate::backend::gpu::context::Model;
use crate::backend::gpu::machine::Launch;
use crate::error::BackendError;

/// Large against every cache, small against every memory: 2 GiB take half a millisecond on an H200,
/// beside which the host's part in the timing is small.
const BUFFER_BYTES: usize = 2 << 30;

/// Share of a small memory that is read at most.
const MEMORY_SHARE: u64 = 16;

/// Where the size of the memory is unknown.
const FALLBACK_BYTES: usize = 1 << 20;

/// The first passes warm up.
const PASSES: (usize, usize) = (2, 9);

/// Bytes per second of each pass.
pub(crate) fn read_bandwidth(model: &Model) -> Result<Vec<f64>, BackendError> {
    let memory = model.machine.profile().memory_bytes;
    let most = memory.map_or(FALLBACK_BYTES, |bytes| (bytes / MEMORY_SHARE) as usize);
    let bytes = BUFFER_BYTES.min(most);
    let buffer = Buffer::zeroed(&model.machine, bytes)?;
    let sum = Buffer::zeroed(&model.machine, 4)?;
    let args = ReadProbeArgs {
        from: buffer.address(),
        sum: sum.address(),
        count: (bytes / 16) as i64,
    };
    let launch = Launch {
        threads: 2 * model.machine.tuning().threads,
        ..model.blocks((4 * model.units, 1))
    };
    let mut rates = Vec::new();
    for pass in 0..PASSES.0 + PASSES.1 {
        let mut word = [0; 4];
        model.machine.read(sum.address(), &mut word)?;
        let start = Instant::now();
        model.launch("read_probe", launch, &args)?;
        model.machine.read(sum.address(), &mut word)?;
        if pass >= PASSES.0 {
            rates.push(bytes as f64 / start.elapsed().as_secs_f64());
        }
    }
    Ok(rates)
}
