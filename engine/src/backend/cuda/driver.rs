//! The driver API behind [`Machine`]: one context, one stream.

#![expect(unsafe_code, reason = "calls of the driver")]

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{
    self, CUdevice_attribute as DeviceAttribute, CUfunction_attribute as FunctionAttribute,
};

use crate::backend::cuda::images::{Image, images_for};
use crate::backend::cuda::launch::{
    CLUSTER_WARPS, allow_large_clusters, cluster_of, clusters_at_once, config, most_shared_bytes,
    overlapping,
};
use crate::backend::cuda::open::unavailable;
use crate::backend::gpu::{Clusters, GraphId, HostWords, Launch, Layout, MARKS, Machine, Tuning};
use crate::device_profile::DeviceProfile;
use crate::error::BackendError;

/// Dynamic shared memory that a kernel may have without asking.
const SHARED_BYTES_FOR_ALL: u32 = 48 << 10;

/// Blocks of a cluster that every GPU with clusters runs.
const PORTABLE_CLUSTER: u32 = 8;

/// Host memory that the device can write to.
const MAPPED: u32 = 2;

/// A GPU.
#[derive(Debug)]
pub(super) struct CudaMachine {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    module: sys::CUmodule,
    profile: DeviceProfile,
    /// Kernels may start before the one ahead has ended: from compute capability 9.0 on.
    can_overlap: bool,
    /// Dynamic shared memory that a block may ask for.
    shared_bytes: u32,
    warpgroups: bool,
    clusters: Clusters,
    marks: Vec<sys::CUevent>,
    allocated: AtomicU64,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    functions: HashMap<&'static str, (sys::CUfunction, u32)>,
    sizes: HashMap<u64, u64>,
    graphs: Vec<sys::CUgraphExec>,
    host: Vec<*mut c_void>,
}

// SAFETY: the driver's handles may be used from any thread; each call makes the context current in
// its own thread first.
unsafe impl Send for CudaMachine {}
// SAFETY: as above; what changes is behind a mutex.
unsafe impl Sync for CudaMachine {}

impl CudaMachine {
    /// Opens the first device.
    pub(super) fn open() -> Result<Self, BackendError> {
        let failed = |what: &'static str| move |error| unavailable(text(what, error));
        result::init().map_err(failed("no CUDA device"))?;
        if result::device::get_count().map_err(failed("counting devices"))? == 0 {
            return Err(unavailable("a CUDA driver, but no device".to_owned()));
        }
        let device = result::device::get(0).map_err(failed("the first device"))?;
        // SAFETY: `device` is what the driver returned.
        let context = unsafe { result::primary_ctx::retain(device) };
        let context = context.map_err(failed("a context"))?;
        // SAFETY: the context is retained until this is dropped.
        unsafe { result::ctx::set_current(context) }.map_err(failed("the context"))?;
        let (profile, capability) = describe(device).map_err(failed("the device's properties"))?;
        let Some((image, module)) = load(capability).map_err(failed("loading the kernels"))? else {
            return Err(unavailable(format!(
                "{} has compute capability {}.{}, expected at least 8.0",
                profile.name, capability.0, capability.1
            )));
        };
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        let stream = stream.map_err(failed("a stream"))?;
        let event = |_| result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
        let marks = (0..MARKS).map(event).collect::<Result<_, _>>();
        Ok(Self {
            device,
            context,
            stream,
            module,
            profile,
            can_overlap: image.capability >= (9, 0),
            shared_bytes: most_shared_bytes(device)
                .map_err(failed("the device's shared memory"))?,
            warpgroups: image.for_one_chip,
            clusters: clusters_at_once(module, image),
            marks: marks.map_err(failed("events"))?,
            allocated: AtomicU64::new(0),
            tables: Mutex::default(),
        })
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the context current and runs `act`.
    fn with<T>(
        &self,
        what: &str,
        act: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<T, BackendError> {
        // SAFETY: the context lives as long as `self`.
        let done = unsafe { result::ctx::set_current(self.context) }.and_then(|()| act());
        done.map_err(|error| BackendError::Stopped {
            reason: text(what, error),
        })
    }

    /// The kernel, allowed to have the dynamic shared memory and the clusters of `launch`.
    fn function(
        &self,
        kernel: &'static str,
        launch: Launch,
    ) -> Result<sys::CUfunction, BackendError> {
        launch.check_shared_bytes(kernel, self.shared_bytes)?;
        let shared_bytes = launch.shared_bytes;
        let known = self.tables().functions.get(kernel).copied();
        let (function, allowed) = match known {
            Some(known) => known,
            None => {
                let name = CString::new(kernel).unwrap_or_default();
                // SAFETY: the module lives as long as `self`.
                let found = self.with(kernel, || unsafe {
                    result::module::get_function(self.module, name)
                })?;
                (found, SHARED_BYTES_FOR_ALL)
            }
        };
        if launch.cluster > PORTABLE_CLUSTER {
            // SAFETY: `function` is one of the module's.
            self.with(kernel, || unsafe { allow_large_clusters(function) })?;
        }
        if shared_bytes > allowed {
            let attribute = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: `function` is one of the module's.
            self.with(kernel, || unsafe {
                result::function::set_function_attribute(function, attribute, shared_bytes as i32)
            })?;
        }
        let allowed = allowed.max(shared_bytes);
        self.tables().functions.insert(kernel, (function, allowed));
        Ok(function)
    }
}

/// The first image that the driver takes; `None` when there is none for this compute capability. The
/// error is that of the last one.
fn load(capability: (i32, i32)) -> Result<Option<(Image, sys::CUmodule)>, DriverError> {
    let mut loaded = Ok(None);
    for image in images_for(capability) {
        // SAFETY: the image is PTX that ends in a zero byte, or an ELF file, which says how long it is.
        let module = unsafe { result::module::load_data(image.code.as_ptr().cast()) };
        loaded = module.map(|module| Some((image, module)));
        if loaded.is_ok() {
            break;
        }
    }
    loaded
}

/// What the device is, and its compute capability.
fn describe(device: sys::CUdevice) -> Result<(DeviceProfile, (i32, i32)), DriverError> {
    // SAFETY: `device` is what the driver returned.
    let attribute = |which| unsafe { result::device::get_attribute(device, which) };
    let major = attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let units = attribute(DeviceAttribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    // SAFETY: as above.
    let memory = unsafe { result::device::total_mem(device) }?;
    let profile = DeviceProfile {
        backend: "cuda".to_owned(),
        name: result::device::get_name(device)?,
        architecture: format!("sm_{major}{minor}"),
        units: usize::try_from(units).unwrap_or(1),
        memory_bytes: Some(memory as u64),
        bandwidth_bytes_per_second: None,
    };
    Ok((profile, (major, minor)))
}

fn text(what: &str, error: DriverError) -> String {
    let name = error
        .error_string()
        .ok()
        .map(|s| s.to_string_lossy().into_owned());
    format!("{what}: {}", name.unwrap_or_else(|| format!("{error:?}")))
}

impl Machine for CudaMachine {
    fn profile(&self) -> DeviceProfile {
        self.profile.clone()
    }

    fn allocated_bytes(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    fn layout(&self) -> Layout {
        Layout::Nvidia
    }

    fn tuning(&self) -> Tuning {
        Tuning {
            vector_threads: 640,
            beside_threads: 384,
            queues: self.can_overlap,
            shared_bytes: self.shared_bytes,
            attention_warps: 8,
            cluster_warps: CLUSTER_WARPS,
            split_rows: 64,
            threads: 256,
            warpgroups: self.warpgroups,
            clusters: self.clusters,
        }
    }

    fn allocate(&self, bytes: usize) -> Result<u64, BackendError> {
        let what = format!("allocating {bytes} bytes");
        let address = self.with(&what, || {
            // SAFETY: the memory is set before anything reads it, in the order of the stream.
            unsafe {
                let address = result::malloc_sync(bytes)?;
                result::memset_d8_async(address, 0, bytes, self.stream)?;
                Ok(address)
            }
        })?;
        self.allocated.fetch_add(bytes as u64, Ordering::Relaxed);
        self.tables().sizes.insert(address, bytes as u64);
        Ok(address)
    }

    fn free(&self, address: u64) {
        let bytes = self.tables().sizes.remove(&address).unwrap_or(0);
        self.allocated.fetch_sub(bytes, Ordering::Relaxed);
        // SAFETY: the driver waits for what is queued before it takes memory back. An error here is
        // that of an earlier call, which was reported.
        let _ = self.with("freeing", || unsafe {
            result::stream::synchronize(self.stream)?;
            result::free_sync(address)
        });
    }

    fn write(&self, to: u64, bytes: &[u8]) -> Result<(), BackendError> {
        // SAFETY: pageable memory is copied to the driver's own before the call returns.
        self.with("copying to the device", || unsafe {
            result::memcpy_htod_async(to, bytes, self.stream)
        })
    }

    fn read(&self, from: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        // SAFETY: the buffer outlives the wait.
        self.with("copying from the device", || unsafe {
            result::memcpy_dtoh_async(bytes, from, self.stream)?;
            result::stream::synchronize(self.stream)
        })
    }

    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: the caller answers for the ranges.
        self.with("copying on the device", || unsafe {
            result::memcpy_dtod_async(to, from, bytes, self.stream)
        })
    }

    fn zero(&self, at: u64, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: the caller answers for the range.
        self.with("zeroing", || unsafe {
            result::memset_d8_async(at, 0, bytes, self.stream)
        })
    }

    fn launch(
        &self,
        kernel: &'static str,
        launch: Launch,
        args: &[u8],
    ) -> Result<(), BackendError> {
        let function = self.function(kernel, launch)?;
        // Eight bytes at a time: the driver reads the struct where it is, and it must be aligned.
        let mut aligned = vec![0u64; args.len().div_ceil(8)];
        for (word, bytes) in aligned.iter_mut().zip(args.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        let mut parameters = [aligned.as_mut_ptr().cast::<c_void>()];
        let mut attributes = [cluster_of(launch.cluster), overlapping()];
        // Those that are wanted follow one another.
        let first = usize::from(launch.cluster == 1);
        let end = 1 + usize::from(launch.overlaps && self.can_overlap);
        let config = config(launch, self.stream, &mut attributes[first..end]);
        // SAFETY: the caller answers for the arguments, which the driver copies during the call.
        self.with(kernel, || unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                function,
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
            .result()
        })
    }

    fn begin_capture(&self) -> Result<(), BackendError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as `self`.
        self.with("capturing a step", || unsafe {
            result::stream::begin_capture(self.stream, mode)
        })
    }

    fn end_capture(&self) -> Result<GraphId, BackendError> {
        // SAFETY: the graph is what the driver returned; its executable form stands alone.
        let graph = self.with("the captured step", || unsafe {
            let graph = result::stream::end_capture(self.stream)?;
            let flags =
                sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
            let executable = result::graph::instantiate(graph, flags)?;
            result::graph::destroy(graph)?;
            Ok(executable)
        })?;
        let mut tables = self.tables();
        tables.graphs.push(graph);
        Ok(GraphId(tables.graphs.len() - 1))
    }

    fn replay(&self, graph: GraphId) -> Result<(), BackendError> {
        let graph = self.tables().graphs[graph.0];
        // SAFETY: the graph lives as long as `self`.
        self.with("a captured step", || unsafe {
            result::graph::launch(graph, self.stream)
        })
    }

    fn host_words(&self, count: usize) -> Result<HostWords, BackendError> {
        // SAFETY: the memory is freed when `self` is dropped, and set before it is read.
        let host = self.with("shared memory", || unsafe {
            let host = result::malloc_host(4 * count, MAPPED)?;
            host.cast::<u32>().write_bytes(0, count);
            Ok(host)
        })?;
        self.tables().host.push(host);
        // One address space for both sides: the device reaches it by the same number.
        Ok(HostWords {
            host: host.cast(),
            device: host as u64,
        })
    }

    fn word(&self, words: HostWords, index: usize) -> u32 {
        // SAFETY: the caller stays within what `host_words` gave; the device may write meanwhile.
        unsafe { words.host.add(index).read_volatile() }
    }

    fn set_mark(&self, index: usize) -> Result<(), BackendError> {
        // SAFETY: event and stream live as long as `self`.
        self.with("a mark", || unsafe {
            result::event::record(self.marks[index], self.stream)
        })
    }

    fn wait_mark(&self, index: usize) -> Result<(), BackendError> {
        // SAFETY: the event lives as long as `self`.
        self.with("waiting for a step", || unsafe {
            result::event::synchronize(self.marks[index])
        })
    }
}

impl Drop for CudaMachine {
    fn drop(&mut self) {
        let tables = std::mem::take(&mut *self.tables());
        // SAFETY: everything is this machine's own, and nothing runs any more. Errors would be those
        // of earlier calls.
        unsafe {
            let _ = result::ctx::set_current(self.context);
            let _ = result::stream::synchronize(self.stream);
            for graph in tables.graphs {
                let _ = result::graph::exec_destroy(graph);
            }
            for host in tables.host {
                let _ = result::free_host(host);
            }
            for mark in &self.marks {
                let _ = result::event::destroy(*mark);
            }
            let _ = result::stream::destroy(self.stream);
            let _ = result::module::unload(self.module);
            let _ = result::primary_ctx::release(self.device);
        }
    }
}
