//! Aligned, zeroed buffers on huge pages where the system grants them.
//!
//! Streaming weights through 4 KiB pages reads at about half the bandwidth of
//! 2 MiB pages on the machine measured (16–21 against 32 GB/s with one
//! thread), and transparent huge pages are often `madvise` only. The advice
//! must come before the first touch, hence a mapping of our own. Where there
//! is no `madvise`, or it is refused, the buffer works on ordinary pages and
//! [`AlignedBuffer::advised_bytes`] says 0.
//!
//! Most matrices of a small model are smaller than a huge page, so an
//! [`Arena`] packs them into larger mappings.

#![expect(unsafe_code, reason = "owns raw memory with a given alignment")]

use std::alloc::Layout;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::memory::MappingAccount;

/// A cache line, and the width of the widest load.
pub const ALIGNMENT_BYTES: usize = 64;
/// Size and alignment of a huge page on x86-64, and on AArch64 with 4 KiB pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Types for which any bit pattern, zero included, is a value.
///
/// # Safety
/// No padding, no invalid bit pattern, no drop.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}
// SAFETY: integers and IEEE floats have no invalid bit pattern.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for i8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for i32 {}
// SAFETY: as above.
unsafe impl Plain for f32 {}
// SAFETY: a transparent wrapper of `u16`.
unsafe impl Plain for half::f16 {}

/// A mapping that an arena cuts buffers from.
const SLAB_BYTES: usize = 32 << 20;
/// From this size on a buffer gets a mapping of its own: the rest of a huge
/// page that it leaves unused is then little beside it.
const OWN_MAPPING_BYTES: usize = SLAB_BYTES / 4;

enum Owner {
    /// A private mapping that starts at this address and has this many bytes.
    #[cfg(target_os = "linux")]
    Mapping(*mut libc::c_void, usize, Option<MappingAccount>),
    Allocator(Layout),
    /// Cut from an arena's mapping, which lives as long as any of its buffers.
    Slab(
        #[expect(dead_code, reason = "lives as long as the buffer")] Arc<AlignedBuffer<u8>>,
        #[expect(dead_code, reason = "counts while it lives")] MappingAccount,
    ),
    Nobody,
}

/// A zeroed buffer of a fixed length, aligned to [`ALIGNMENT_BYTES`] at least.
pub struct AlignedBuffer<T: Plain> {
    start: NonNull<T>,
    len: usize,
    owner: Owner,
    advised_bytes: usize,
}

// SAFETY: the buffer owns its memory and `T` is plain data.
unsafe impl<T: Plain> Send for AlignedBuffer<T> {}
// SAFETY: as above; shared access only reads.
unsafe impl<T: Plain> Sync for AlignedBuffer<T> {}

impl<T: Plain> AlignedBuffer<T> {
    /// A buffer of `len` zeros. Aborts like `Vec` when memory is exhausted.
    ///
    /// # Panics
    /// When the size in bytes overflows, as `Vec` does.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let mut buffer = Self::uncounted(len);
        #[cfg(target_os = "linux")]
        if let Owner::Mapping(_, _, account) = &mut buffer.owner {
            *account = Some(MappingAccount::new(len * size_of::<T>()));
        }
        buffer
    }

    /// [`Self::zeroed`] without announcing a mapping's bytes as in use.
    fn uncounted(len: usize) -> Self {
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&bytes| bytes <= isize::MAX as usize / 2);
        let Some(bytes) = bytes else {
            panic!("buffer of {len} elements overflows")
        };
        if bytes == 0 {
            return AlignedBuffer {
                start: NonNull::dangling(),
                len: 0,
                owner: Owner::Nobody,
                advised_bytes: 0,
            };
        }
        #[cfg(target_os = "linux")]
        if bytes >= HUGE_PAGE_BYTES
            && let Some(buffer) = Self::mapped(len, bytes)
        {
            return buffer;
        }
        Self::allocated(len, bytes)
    }

    /// Bytes for which huge pages were asked and the request was accepted.
    #[must_use]
    pub fn advised_bytes(&self) -> usize {
        self.advised_bytes
    }

    fn allocated(len: usize, bytes: usize) -> Self {
        let align = ALIGNMENT_BYTES.max(align_of::<T>());
        let Ok(layout) = Layout::from_size_align(bytes, align) else {
            panic!("buffer of {len} elements overflows")
        };
        // SAFETY: the layout has a size above zero.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start.cast::<T>()) else {
            std::alloc::handle_alloc_error(layout)
        };
        AlignedBuffer {
            start,
            len,
            owner: Owner::Allocator(layout),
            advised_bytes: 0,
        }
    }

    #[cfg(target_os = "linux")]
    fn mapped(len: usize, bytes: usize) -> Option<Self> {
        let mapping_bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES) + HUGE_PAGE_BYTES;
        // SAFETY: a new private anonymous mapping touches nothing of ours.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapping_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            return None;
        }
        let skip = mapping.align_offset(HUGE_PAGE_BYTES);
        let advise = bytes.next_multiple_of(HUGE_PAGE_BYTES);
        // SAFETY: `skip` is below the huge page that was added to the mapping.
        let start = unsafe { mapping.byte_add(skip) };
        // SAFETY: the advised range lies inside the mapping; advice changes no data.
        let refused = unsafe { libc::madvise(start, advise, libc::MADV_HUGEPAGE) } != 0;
        Some(AlignedBuffer {
            start: NonNull::new(start.cast::<T>())?,
            len,
            owner: Owner::Mapping(mapping, mapping_bytes, None),
            advised_bytes: if refused { 0 } else { advise },
        })
    }
}

impl<T: Plain> Drop for AlignedBuffer<T> {
    fn drop(&mut self) {
        match &self.owner {
            #[cfg(target_os = "linux")]
            &Owner::Mapping(mapping, bytes, _) => {
                // SAFETY: exactly the mapping made in `mapped`, no longer used.
                unsafe { libc::munmap(mapping, bytes) };
            }
            &Owner::Allocator(layout) => {
                // SAFETY: allocated in `allocated` with this very layout.
                unsafe { std::alloc::dealloc(self.start.as_ptr().cast(), layout) };
            }
            Owner::Slab(..) | Owner::Nobody => {}
        }
    }
}

impl<T: Plain> Deref for AlignedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements, zeroed by the system, owned by this buffer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for AlignedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> std::fmt::Debug for AlignedBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedBuffer")
            .field("len", &self.len)
            .field("advised_bytes", &self.advised_bytes)
            .finish_non_exhaustive()
    }
}

/// Hands out buffers that lie side by side in large mappings.
///
/// Memory of a mapping is given back when the last of its buffers is dropped;
/// until then the space of dropped ones is not used again. That suits weights,
/// which are made at load and live as long as the engine.
#[derive(Debug, Default)]
pub struct Arena {
    slab: Mutex<Option<Slab>>,
}

#[derive(Debug)]
struct Slab {
    memory: Arc<AlignedBuffer<u8>>,
    start: NonNull<u8>,
    used: usize,
}

// SAFETY: `start` points into `memory`, of which the bytes from `used` on
// belong to nobody else.
unsafe impl Send for Slab {}

impl Slab {
    fn new() -> Self {
        // What is cut from it counts, not what is still free.
        let memory = AlignedBuffer::uncounted(SLAB_BYTES);
        // Taken once: the bytes are only reached through this pointer and the
        // buffers cut from it, never through `memory`.
        let start = memory.start;
        Slab {
            memory: Arc::new(memory),
            start,
            used: 0,
        }
    }
}

impl Arena {
    /// An arena that has no mapping yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer of `len` zeros.
    ///
    /// # Panics
    /// As [`AlignedBuffer::zeroed`].
    #[must_use]
    pub fn zeroed<T: Plain>(&self, len: usize) -> AlignedBuffer<T> {
        let bytes = len.saturating_mul(size_of::<T>());
        if bytes == 0 || bytes >= OWN_MAPPING_BYTES {
            return AlignedBuffer::zeroed(len);
        }
        let bytes = bytes.next_multiple_of(ALIGNMENT_BYTES);
        let mut slab = self.slab.lock().unwrap_or_else(PoisonError::into_inner);
        let full = slab
            .as_ref()
            .is_none_or(|slab| slab.used + bytes > slab.memory.len());
        if full {
            *slab = None;
        }
        let slab = slab.get_or_insert_with(Slab::new);
        // SAFETY: `used + bytes` is within the mapping.
        let start = unsafe { slab.start.add(slab.used) };
        slab.used += bytes;
        AlignedBuffer {
            start: start.cast(),
            len,
            advised_bytes: if slab.memory.advised_bytes > 0 {
                bytes
            } else {
                0
            },
            owner: Owner::Slab(Arc::clone(&slab.memory), MappingAccount::new(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_zeroed_aligned_and_writable_at_every_size() {
        for len in [0, 1, 63, 4096, (2 << 20) - 1, 2 << 20, (5 << 20) + 7] {
            let mut buffer = AlignedBuffer::<u8>::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|&byte| byte == 0));
            if let Some(last) = buffer.last_mut() {
                *last = 7;
                assert_eq!(buffer.as_ptr().align_offset(ALIGNMENT_BYTES), 0);
                assert_eq!(buffer[len - 1], 7);
            }
        }
    }

    #[test]
    fn buffers_of_an_arena_do_not_overlap_and_outlive_it() {
        let arena = Arena::new();
        let sizes = [
            1usize,
            64,
            100,
            3 << 20,
            0,
            (7 << 20) + 3,
            9 << 20,
            7 << 20,
            7 << 20,
            5,
        ];
        let mut buffers: Vec<AlignedBuffer<u16>> =
            sizes.iter().map(|&len| arena.zeroed(len)).collect();
        drop(arena);
        for (index, buffer) in buffers.iter_mut().enumerate() {
            assert_eq!(buffer.len(), sizes[index]);
            assert!(buffer.iter().all(|&value| value == 0));
            buffer.fill(index as u16 + 1);
        }
        buffers.remove(3);
        for (index, buffer) in buffers.iter().enumerate() {
            let index = if index < 3 { index } else { index + 1 };
            assert!(buffer.iter().all(|&value| value == index as u16 + 1));
            assert!(buffer.is_empty() || buffer.as_ptr().align_offset(ALIGNMENT_BYTES) == 0);
        }
    }

    #[test]
    fn advised_bytes_cover_the_buffer_or_are_zero() {
        assert_eq!(AlignedBuffer::<f32>::zeroed(100).advised_bytes(), 0);
        let buffer = AlignedBuffer::<f32>::zeroed(3 << 20);
        assert!([0, 12 << 20].contains(&buffer.advised_bytes()));
    }
}
