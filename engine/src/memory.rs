//! How much memory the process uses: an account of what it asked for.
//!
//! *Active* is what is held now: heap blocks, as counted by
//! [`CountingAllocator`], and mappings, as announced by their owners with
//! [`MappingAccount`] (weights on huge pages, files while they are mapped). It
//! is an account of requests, not of resident pages, so it is the same in
//! every run, but for messages between threads that happen to be under way. *Cached* is what an allocator keeps for
//! reuse; this engine frees what it does not use, so it is always 0 on a CPU.
//! *Peak* is the largest active since [`start_phase`].
//!
//! Only programs that install the allocator count heap blocks. What the
//! operating system saw is [`peak_resident_bytes`].

use std::sync::atomic::{AtomicU64, Ordering};

static ACTIVE_BYTES: AtomicU64 = AtomicU64::new(0);
static PEAK_BYTES: AtomicU64 = AtomicU64::new(0);

/// The account at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct MemoryUse {
    /// Held now.
    pub active_bytes: u64,
    /// Kept by an allocator for reuse.
    pub cache_bytes: u64,
    /// Largest `active_bytes` since the phase began.
    pub phase_peak_bytes: u64,
}

/// Reads the account.
pub fn now() -> MemoryUse {
    MemoryUse {
        active_bytes: ACTIVE_BYTES.load(Ordering::Relaxed),
        cache_bytes: 0,
        phase_peak_bytes: PEAK_BYTES.load(Ordering::Relaxed),
    }
}

/// Forgets the peak so far: a new phase begins.
pub fn start_phase() {
    PEAK_BYTES.store(ACTIVE_BYTES.load(Ordering::Relaxed), Ordering::Relaxed);
}

fn add(bytes: u64) {
    let active = ACTIVE_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK_BYTES.fetch_max(active, Ordering::Relaxed);
}

fn subtract(bytes: u64) {
    ACTIVE_BYTES.fetch_sub(bytes, Ordering::Relaxed);
}

/// Announces a mapping for as long as it lives. Kept beside the mapping.
#[derive(Debug)]
pub struct MappingAccount(u64);

impl MappingAccount {
    /// Counts `bytes` as active until dropped.
    #[must_use = "the bytes count only while this lives"]
    pub fn new(bytes: usize) -> Self {
        add(bytes as u64);
        Self(bytes as u64)
    }
}

impl Drop for MappingAccount {
    fn drop(&mut self) {
        subtract(self.0);
    }
}

/// The most memory that was ever resident, as the operating system saw it;
/// `None` where `/proc` does not say.
pub fn peak_resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    parse_peak_resident(&status)
}

fn parse_peak_resident(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

pub use counting::CountingAllocator;

#[expect(
    unsafe_code,
    reason = "an allocator is an unsafe trait; every call goes on to the system's"
)]
mod counting {
    use std::alloc::{GlobalAlloc, Layout, System};

    use super::{add, subtract};

    /// The system's allocator, counted. A program installs it with
    /// `#[global_allocator]`.
    #[derive(Debug)]
    pub struct CountingAllocator;

    // SAFETY: every method passes its arguments on to `System` unchanged and
    // returns what it returns; counting touches atomics only.
    unsafe impl GlobalAlloc for CountingAllocator {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller keeps the contract of `alloc`.
            let block = unsafe { System.alloc(layout) };
            count(block, layout.size());
            block
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller keeps the contract of `alloc_zeroed`.
            let block = unsafe { System.alloc_zeroed(layout) };
            count(block, layout.size());
            block
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: the caller keeps the contract of `dealloc`.
            unsafe { System.dealloc(block, layout) };
            subtract(layout.size() as u64);
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
            // SAFETY: the caller keeps the contract of `realloc`.
            let moved = unsafe { System.realloc(block, layout, new_size) };
            if !moved.is_null() {
                add(new_size as u64);
                subtract(layout.size() as u64);
            }
            moved
        }
    }

    fn count(block: *mut u8, size: usize) {
        if !block.is_null() {
            add(size as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test for everything that touches the account, with a size that no
    // other test of this process comes near.
    #[test]
    fn mappings_count_while_they_live_and_a_phase_forgets_the_peak() {
        start_phase();
        let mapping = MappingAccount::new(1 << 40);
        assert!(now().active_bytes >= 1 << 40);
        drop(mapping);
        assert!(now().active_bytes < 1 << 40);
        assert!(now().phase_peak_bytes >= 1 << 40);
        start_phase();
        assert!(now().phase_peak_bytes < 1 << 40);
    }

    #[test]
    fn the_peak_is_read_from_the_status_file_in_kibibytes() {
        let status = "Name:\tx\nVmPeak:\t   99 kB\nVmHWM:\t   1234 kB\nVmRSS:\t 7 kB\n";
        assert_eq!(parse_peak_resident(status), Some(1234 * 1024));
        assert_eq!(parse_peak_resident("Name:\tx\n"), None);
    }
}
