//! What a driver has to offer: memory, copies, launches and graphs, all in one order.

#![expect(
    unsafe_code,
    reason = "a pointer that both sides share travels between threads"
)]

use crate::backend::gpu::tiles::Layout;
use crate::device_profile::DeviceProfile;
use crate::error::BackendError;

/// The shape of one launch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Launch {
    /// Blocks.
    pub(crate) grid: (u32, u32),
    /// Threads of a block, a multiple of 32.
    pub(crate) threads: u32,
    /// Bytes of dynamic shared memory.
    pub(crate) shared_bytes: u32,
    /// The kernel waits itself for the one before it (`wait_previous_kernel`), so it may be started
    /// before that has ended.
    pub(crate) overlaps: bool,
    /// Blocks that follow one another in the first direction of the grid and form a cluster; 1: none do.
    pub(crate) cluster: u32,
}

impl Launch {
    /// Whether a block may have its shared memory where there are `most_bytes` of it.
    ///
    /// # Errors
    /// With both sizes, when it may not.
    pub(crate) fn check_shared_bytes(
        self,
        kernel: &str,
        most_bytes: u32,
    ) -> Result<(), BackendError> {
        if self.shared_bytes <= most_bytes {
            return Ok(());
        }
        Err(BackendError::Stopped {
            reason: format!(
                "{kernel} needs {} bytes of shared memory a block, the device has {most_bytes}",
                self.shared_bytes
            ),
        })
    }
}

/// Sizes of clusters that are asked for, largest first.
pub(crate) const CLUSTER_BLOCKS: [u32; 3] = [16, 8, 4];

/// How many clusters of each of [`CLUSTER_BLOCKS`] run at once, of the decode attention that uses them.
pub(crate) type Clusters = [u32; CLUSTER_BLOCKS.len()];

/// A captured sequence of launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GraphId(pub(crate) usize);

/// Words that both sides reach.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostWords {
    /// On the host.
    pub(crate) host: *const u32,
    /// On the device.
    pub(crate) device: u64,
}

// SAFETY: the memory lives as long as the machine, and the pointer is only read through
// `Machine::word`, volatile.
unsafe impl Send for HostWords {}

/// Sizes of launches that suit a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// Threads of a block in a product with one row.
    pub(crate) vector_threads: u32,
    /// The same next to a decode attention, so many that a block of either has room beside the other.
    pub(crate) beside_threads: u32,
    /// Products with one row have kernels that queue weights in shared memory, and that pays.
    pub(crate) queues: bool,
    /// Bytes of dynamic shared memory that a block may have.
    pub(crate) shared_bytes: u32,
    /// Warps of a block of a decode attention, as its kernels were compiled.
    pub(crate) attention_warps: u32,
    /// The same where its blocks form clusters.
    pub(crate) cluster_warps: u32,
    /// Rows of keys that a block of a decode attention has at least.
    pub(crate) split_rows: u32,
    /// Threads of a block in attention and between products.
    pub(crate) threads: u32,
    /// The kernels are built for warpgroups that multiply from shared memory.
    pub(crate) warpgroups: bool,
    /// Zeros where there are none.
    pub(crate) clusters: Clusters,
}

/// A device and its one stream: what is queued runs in order.
///
/// Addresses are the device's own. Whoever launches a kernel answers for its arguments: they must
/// point to live memory of the sizes that the kernel expects.
pub(crate) trait Machine: Send + Sync + std::fmt::Debug {
    /// What it is.
    fn profile(&self) -> DeviceProfile;

    /// Bytes allocated now.
    fn allocated_bytes(&self) -> u64;

    /// How its matrix units want their operands.
    fn layout(&self) -> Layout;

    /// Sizes of launches that suit it.
    fn tuning(&self) -> Tuning;

    /// Memory of `bytes` bytes, all zero.
    ///
    /// # Errors
    /// When there is no room.
    fn allocate(&self, bytes: usize) -> Result<u64, BackendError>;

    /// Gives memory back once what is queued is done with it.
    fn free(&self, address: u64);

    /// Queues a copy from the host, which may reuse `bytes` at once.
    ///
    /// # Errors
    /// When the device has stopped.
    fn write(&self, to: u64, bytes: &[u8]) -> Result<(), BackendError>;

    /// Waits for everything queued and copies to the host.
    ///
    /// # Errors
    /// When the device has stopped.
    fn read(&self, from: u64, bytes: &mut [u8]) -> Result<(), BackendError>;

    /// Queues a copy on the device; the ranges do not overlap.
    ///
    /// # Errors
    /// When the device has stopped.
    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), BackendError>;

    /// Queues zeros.
    ///
    /// # Errors
    /// When the device has stopped.
    fn zero(&self, at: u64, bytes: usize) -> Result<(), BackendError>;

    /// Queues a kernel with one argument, the struct that `args` is the bytes of.
    ///
    /// # Errors
    /// When there is no such kernel or the device refuses.
    fn launch(&self, kernel: &'static str, launch: Launch, args: &[u8])
    -> Result<(), BackendError>;

    /// From here on launches are recorded, not run.
    ///
    /// # Errors
    /// When the device refuses.
    fn begin_capture(&self) -> Result<(), BackendError>;

    /// Ends the recording.
    ///
    /// # Errors
    /// When the device refuses.
    fn end_capture(&self) -> Result<GraphId, BackendError>;

    /// Queues a recording.
    ///
    /// # Errors
    /// When the device refuses.
    fn replay(&self, graph: GraphId) -> Result<(), BackendError>;

    /// `count` words that host and device share, zero.
    ///
    /// # Errors
    /// When there is no room.
    fn host_words(&self, count: usize) -> Result<HostWords, BackendError>;

    /// Word `index`, as it is now.
    fn word(&self, words: HostWords, index: usize) -> u32;

    /// Sets mark `index` behind everything queued; there are [`MARKS`].
    ///
    /// # Errors
    /// When the device has stopped.
    fn set_mark(&self, index: usize) -> Result<(), BackendError>;

    /// Waits until mark `index` has been passed.
    ///
    /// # Errors
    /// When the device has stopped.
    fn wait_mark(&self, index: usize) -> Result<(), BackendError>;
}

/// Marks of a machine, which is how many steps can be outstanding or referred to.
pub(crate) const MARKS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_with_more_shared_memory_than_there_is_gets_both_sizes_in_one_error() {
        let launch = Launch {
            shared_bytes: 4096,
            ..Launch::default()
        };
        assert!(launch.check_shared_bytes("embed", 4096).is_ok());
        let refused = launch.check_shared_bytes("embed", 4095).unwrap_err();
        assert!(
            refused
                .to_string()
                .ends_with("embed needs 4096 bytes of shared memory a block, the device has 4095"),
            "{refused}"
        );
    }
}
