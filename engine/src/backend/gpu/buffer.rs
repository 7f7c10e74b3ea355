//! Device memory that is given back when it is no longer held, and counted meanwhile.

#![expect(unsafe_code, reason = "values are copied as their bytes")]

use std::sync::Arc;

use crate::backend::gpu::machine::Machine;
use crate::error::BackendError;
use crate::memory::MappingAccount;

/// A piece of device memory.
#[derive(Debug)]
pub(crate) struct Buffer {
    machine: Arc<dyn Machine>,
    address: u64,
    bytes: usize,
    _account: MappingAccount,
}

impl Buffer {
    /// Zeros.
    pub(crate) fn zeroed(machine: &Arc<dyn Machine>, bytes: usize) -> Result<Self, BackendError> {
        // Kernels may load a few bytes at once; a buffer of nothing has an address all the same.
        let bytes = bytes.max(16);
        Ok(Self {
            machine: Arc::clone(machine),
            address: machine.allocate(bytes)?,
            bytes,
            _account: MappingAccount::new(bytes),
        })
    }

    /// A copy of `values`.
    pub(crate) fn of<T: Plain>(
        machine: &Arc<dyn Machine>,
        values: &[T],
    ) -> Result<Self, BackendError> {
        let buffer = Self::zeroed(machine, size_of_val(values))?;
        machine.write(buffer.address, as_bytes(values))?;
        Ok(buffer)
    }

    /// Where it is.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Makes it at least `bytes` long; what it held is lost when it has to move.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Result<(), BackendError> {
        if bytes > self.bytes {
            *self = Self::zeroed(&self.machine, bytes)?;
        }
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.machine.free(self.address);
    }
}

/// Values that are their bytes: no padding that is not a field, no pointer of the host.
///
/// # Safety
/// Every bit pattern of the bytes is initialised in every value.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: numbers have no padding.
unsafe impl Plain for u8 {}
// SAFETY: numbers have no padding.
unsafe impl Plain for u16 {}
// SAFETY: numbers have no padding.
unsafe impl Plain for u32 {}
// SAFETY: numbers have no padding.
unsafe impl Plain for f32 {}
// SAFETY: an array of numbers has no padding.
unsafe impl Plain for [f32; 2] {}

/// The bytes of `values`.
pub(crate) fn as_bytes<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` says that every byte is initialised; the length is that of the slice.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Reads `count` floats from the device.
pub(crate) fn read_floats(
    machine: &dyn Machine,
    from: u64,
    count: usize,
) -> Result<Vec<f32>, BackendError> {
    let mut bytes = vec![0u8; 4 * count];
    machine.read(from, &mut bytes)?;
    let words = bytes.as_chunks::<4>().0;
    Ok(words.iter().map(|word| f32::from_le_bytes(*word)).collect())
}
