//! [`Machine`] on the processor: addresses are the process's own, every call is done when it returns.

#![expect(
    unsafe_code,
    reason = "kernels are called through C and addresses are pointers"
)]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backend::gpu::{CLUSTER_BLOCKS, GraphId, HostWords, Launch, Layout, Machine, Tuning};
use crate::device_profile::DeviceProfile;
use crate::error::BackendError;

type LaunchFunction =
    unsafe extern "C" fn(*const c_char, *const c_int, *const c_void) -> *const c_char;

unsafe extern "C" {
    fn mlxcel_sim_nv_launch(
        kernel: *const c_char,
        shape: *const c_int,
        args: *const c_void,
    ) -> *const c_char;
    fn mlxcel_sim_rdna3_launch(
        kernel: *const c_char,
        shape: *const c_int,
        args: *const c_void,
    ) -> *const c_char;
    #[cfg(test)]
    fn mlxcel_sim_nv_args_bytes(kernel: *const c_char) -> usize;
}

/// Size of a kernel's arguments as C++ sees it.
#[cfg(test)]
pub(super) fn args_bytes(kernel: &str) -> usize {
    let name = CString::new(kernel).unwrap_or_default();
    // SAFETY: the function reads the name and returns a number.
    unsafe { mlxcel_sim_nv_args_bytes(name.as_ptr()) }
}

/// Multiprocessors that it pretends to have: few, so that blocks take several tiles each.
const UNITS: usize = 3;

/// Dynamic shared memory that `cpu_sim.h` has.
const SHARED_BYTES: u32 = 112 << 10;

/// Words of an allocation that nothing may write to, at its end.
const GUARD_WORDS: usize = 8;
const GUARD: u64 = 0x5afe_5afe_5afe_5afe;

/// The processor as a GPU.
#[derive(Debug)]
pub(super) struct SimMachine {
    layout: Layout,
    order: c_int,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Blocks of memory by address, with the bytes asked for.
    blocks: HashMap<u64, (Vec<u64>, usize)>,
    recording: Option<Vec<Recorded>>,
    graphs: Vec<Vec<Recorded>>,
}

#[derive(Debug, Clone)]
struct Recorded {
    kernel: &'static str,
    launch: Launch,
    args: Vec<u64>,
}

impl SimMachine {
    /// A machine whose warps and lanes run in the given order.
    pub(super) fn new(layout: Layout, order: c_int) -> Self {
        Self {
            layout,
            order,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, recorded: &Recorded) -> Result<(), BackendError> {
        let function: LaunchFunction = match self.layout {
            Layout::Nvidia => mlxcel_sim_nv_launch,
            Layout::Rdna3 => mlxcel_sim_rdna3_launch,
        };
        let Recorded {
            kernel,
            launch,
            args,
        } = recorded;
        launch.check_shared_bytes(kernel, SHARED_BYTES)?;
        let name = CString::new(*kernel).unwrap_or_default();
        let shape = [
            launch.grid.0 as c_int,
            launch.grid.1 as c_int,
            launch.threads as c_int,
            launch.cluster as c_int,
            self.order,
        ];
        // SAFETY: the caller answers for the arguments, the shape is as `sim.cpp` reads it; a fault
        // comes back as a static text.
        let fault = unsafe { function(name.as_ptr(), shape.as_ptr(), args.as_ptr().cast()) };
        if fault.is_null() {
            return Ok(());
        }
        // SAFETY: not null, so a static text.
        let fault = unsafe { CStr::from_ptr(fault) };
        Err(stopped(kernel, &fault.to_string_lossy()))
    }
}

fn stopped(kernel: &str, what: &str) -> BackendError {
    BackendError::Stopped {
        reason: format!("{kernel}: {what}"),
    }
}

impl Machine for SimMachine {
    fn profile(&self) -> DeviceProfile {
        DeviceProfile {
            backend: "sim".to_owned(),
            name: format!("simulated GPU ({:?} fragments)", self.layout),
            architecture: "sim".to_owned(),
            units: UNITS,
            memory_bytes: None,
            bandwidth_bytes_per_second: None,
        }
    }

    fn allocated_bytes(&self) -> u64 {
        let state = self.state();
        state.blocks.values().map(|(_, bytes)| *bytes as u64).sum()
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn tuning(&self) -> Tuning {
        Tuning {
            vector_threads: 64,
            beside_threads: 96,
            queues: self.layout == Layout::Nvidia,
            shared_bytes: SHARED_BYTES,
            attention_warps: 2,
            cluster_warps: 2,
            split_rows: 8,
            threads: 64,
            warpgroups: self.layout == Layout::Nvidia,
            clusters: match self.layout {
                Layout::Nvidia => [0, 0, 1000],
                Layout::Rdna3 => [0; CLUSTER_BLOCKS.len()],
            },
        }
    }

    fn allocate(&self, bytes: usize) -> Result<u64, BackendError> {
        // Vectors of 8-byte words are aligned to 16 by the allocator in use; one word more lets the
        // address be moved there in any case.
        let words = bytes.div_ceil(8);
        let mut block = vec![0u64; words + 1 + GUARD_WORDS];
        let start = block.as_ptr() as u64;
        let address = start.next_multiple_of(16);
        let guard = ((address - start) / 8) as usize + words;
        block[guard..guard + GUARD_WORDS].fill(GUARD);
        self.state().blocks.insert(address, (block, bytes));
        Ok(address)
    }

    fn free(&self, address: u64) {
        let freed = self.state().blocks.remove(&address);
        if let Some((block, bytes)) = freed {
            let guard = ((address - block.as_ptr() as u64) / 8) as usize + bytes.div_ceil(8);
            let intact = block[guard..guard + GUARD_WORDS]
                .iter()
                .all(|word| *word == GUARD);
            assert!(intact, "a kernel wrote beyond the end of {bytes} bytes");
        }
    }

    fn write(&self, to: u64, bytes: &[u8]) -> Result<(), BackendError> {
        // SAFETY: the caller answers for the range.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
        Ok(())
    }

    fn read(&self, from: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        // SAFETY: the caller answers for the range.
        unsafe {
            std::ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), bytes.len())
        };
        Ok(())
    }

    fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), BackendError> {
        let apart = to + bytes as u64 <= from || from + bytes as u64 <= to;
        assert!(apart, "a copy whose ranges overlap");
        // SAFETY: the caller answers for the ranges.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
        Ok(())
    }

    fn zero(&self, at: u64, bytes: usize) -> Result<(), BackendError> {
        // SAFETY: the caller answers for the range.
        unsafe { std::ptr::write_bytes(at as *mut u8, 0, bytes) };
        Ok(())
    }

    fn launch(
        &self,
        kernel: &'static str,
        launch: Launch,
        args: &[u8],
    ) -> Result<(), BackendError> {
        let mut words = vec![0u64; args.len().div_ceil(8)];
        for (word, bytes) in words.iter_mut().zip(args.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        let recorded = Recorded {
            kernel,
            launch,
            args: words,
        };
        if let Some(recording) = &mut self.state().recording {
            recording.push(recorded);
            return Ok(());
        }
        self.run(&recorded)
    }

    fn begin_capture(&self) -> Result<(), BackendError> {
        self.state().recording = Some(Vec::new());
        Ok(())
    }

    fn end_capture(&self) -> Result<GraphId, BackendError> {
        let mut state = self.state();
        let recorded = state.recording.take().unwrap_or_default();
        state.graphs.push(recorded);
        Ok(GraphId(state.graphs.len() - 1))
    }

    fn replay(&self, graph: GraphId) -> Result<(), BackendError> {
        let recorded = self.state().graphs[graph.0].clone();
        recorded.iter().try_for_each(|launch| self.run(launch))
    }

    fn host_words(&self, count: usize) -> Result<HostWords, BackendError> {
        let device = self.allocate(4 * count)?;
        Ok(HostWords {
            host: device as *const u32,
            device,
        })
    }

    fn word(&self, words: HostWords, index: usize) -> u32 {
        // SAFETY: the caller stays within what `host_words` gave.
        unsafe { words.host.add(index).read_volatile() }
    }

    fn set_mark(&self, _: usize) -> Result<(), BackendError> {
        Ok(())
    }

    fn wait_mark(&self, _: usize) -> Result<(), BackendError> {
        Ok(())
    }
}
