//! Launches as the driver wants them, and what shared memory and clusters of blocks the device has room for.

#![expect(unsafe_code, reason = "calls of the driver")]

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{
    self, CUdevice_attribute as DeviceAttribute, CUfunction_attribute as FunctionAttribute,
};

use crate::backend::cuda::images::Image;
use crate::backend::gpu::{CLUSTER_BLOCKS, Clusters, Launch, cluster_shared_bytes};

/// Warps of a block of a decode attention whose blocks form clusters (`attention_cluster.h`).
pub(super) const CLUSTER_WARPS: u32 = 8;

/// An attribute of a launch: the kernel may start before the one ahead of it has ended.
pub(super) fn overlapping() -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue {
            programmaticStreamSerializationAllowed: 1,
        },
    }
}

/// An attribute of a launch: so many blocks are a cluster.
pub(super) fn cluster_of(blocks: u32) -> sys::CUlaunchAttribute {
    let mut value = sys::CUlaunchAttributeValue { pad: [0; 64] };
    value.clusterDim.x = blocks;
    value.clusterDim.y = 1;
    value.clusterDim.z = 1;
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        pad: [0; 4],
        value,
    }
}

/// A launch as the driver wants it; it points to `attributes`.
pub(super) fn config(
    launch: Launch,
    stream: sys::CUstream,
    attributes: &mut [sys::CUlaunchAttribute],
) -> sys::CUlaunchConfig {
    sys::CUlaunchConfig {
        gridDimX: launch.grid.0,
        gridDimY: launch.grid.1,
        gridDimZ: 1,
        blockDimX: launch.threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: launch.shared_bytes,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as u32,
    }
}

/// Bytes of dynamic shared memory that a block may ask for.
pub(super) fn most_shared_bytes(device: sys::CUdevice) -> Result<u32, DriverError> {
    let which = DeviceAttribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    // SAFETY: the caller has `device` from the driver, which looks the number up.
    let bytes = unsafe { result::device::get_attribute(device, which) }?;
    Ok(bytes.unsigned_abs())
}

/// Lets the kernel have clusters larger than every GPU runs.
///
/// # Safety
/// `function` is one of a loaded module's.
pub(super) unsafe fn allow_large_clusters(function: sys::CUfunction) -> Result<(), DriverError> {
    let attribute = FunctionAttribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
    // SAFETY: the caller's.
    unsafe { result::function::set_function_attribute(function, attribute, 1) }
}

/// How many clusters of the decode attention run at once; an image without that kernel, and a device
/// that cannot say, have none.
pub(super) fn clusters_at_once(module: sys::CUmodule, image: Image) -> Clusters {
    // The widths differ little in what they need; this is the one of most models.
    let (kernel, head_dim) = (c"cluster_attention_128", 128);
    let ask = |blocks: u32| -> Result<u32, DriverError> {
        let launch = Launch {
            grid: (blocks, 1),
            threads: 32 * CLUSTER_WARPS,
            shared_bytes: cluster_shared_bytes(head_dim, CLUSTER_WARPS),
            overlaps: false,
            cluster: blocks,
        };
        let attribute = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let mut attributes = [cluster_of(blocks)];
        let config = config(launch, std::ptr::null_mut(), &mut attributes);
        let mut count = 0;
        // SAFETY: the module is loaded, and the driver reads the configuration during the call.
        unsafe {
            let function = result::module::get_function(module, kernel.to_owned())?;
            result::function::set_function_attribute(
                function,
                attribute,
                launch.shared_bytes as i32,
            )?;
            allow_large_clusters(function)?;
            sys::cuOccupancyMaxActiveClusters(&raw mut count, function, &raw const config)
                .result()?;
        }
        Ok(count.unsigned_abs())
    };
    match image.capability >= (9, 0) {
        true => CLUSTER_BLOCKS.map(|blocks| ask(blocks).unwrap_or(0)),
        false => [0; CLUSTER_BLOCKS.len()],
    }
}
