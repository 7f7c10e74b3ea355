//! What the memory can give: a probe in the measuring process itself.
//!
//! The speed of a decode step is bounded by the bytes it reads, so a report
//! puts the bytes it moved beside the bytes it could have. On shared hosts the
//! limit itself moves (seen: 35 GB/s in most processes, 53 to 63 in others, and
//! flips within one), hence a probe each time, right after the measured pass,
//! and both the median and the best of its passes.

use std::ops::Range;
use std::sync::Barrier;
use std::time::Instant;

use crate::backend::cpu::kernel::AlignedBuffer;

/// Four times the last-level cache of the machine it was tried on.
const BUFFER_BYTES: usize = 128 << 20;

/// Each takes about 4 ms at 32 GB/s.
const PASSES: usize = 9;

/// Read bandwidth of the memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadBandwidth {
    /// Bytes per second of the median pass.
    pub median: f64,
    /// Bytes per second of the fastest pass.
    pub best: f64,
}

impl ReadBandwidth {
    /// Of passes that a device timed itself, in bytes per second.
    pub fn of(mut passes: Vec<f64>) -> Self {
        passes.sort_by(f64::total_cmp);
        Self {
            median: passes.get(passes.len() / 2).copied().unwrap_or(0.0),
            best: passes.last().copied().unwrap_or(0.0),
        }
    }
}

/// Reads a buffer on huge pages with `threads` threads, several times.
pub fn probe(threads: usize) -> ReadBandwidth {
    probe_buffer(threads.max(1), BUFFER_BYTES)
}

fn probe_buffer(threads: usize, bytes: usize) -> ReadBandwidth {
    let mut buffer = AlignedBuffer::<u8>::zeroed(bytes);
    // Not zeros: untouched pages all map to one page, which a cache would hold.
    buffer.fill(1);
    let barrier = Barrier::new(threads);
    let buffer: &[u8] = &buffer;
    let mut times_ns = std::thread::scope(|scope| {
        for worker in 1..threads {
            let barrier = &barrier;
            scope.spawn(move || {
                run_passes(&buffer[part(bytes, worker, threads)], barrier);
            });
        }
        run_passes(&buffer[part(bytes, 0, threads)], &barrier)
    });
    times_ns.sort_unstable();
    let rate = |ns: u64| bytes as f64 * 1e9 / ns.max(1) as f64;
    ReadBandwidth {
        median: rate(times_ns[PASSES / 2]),
        best: rate(times_ns[0]),
    }
}

fn part(bytes: usize, worker: usize, workers: usize) -> Range<usize> {
    bytes * worker / workers..bytes * (worker + 1) / workers
}

/// Reads the part in step with the other threads; the time of each pass.
fn run_passes(part: &[u8], barrier: &Barrier) -> [u64; PASSES] {
    let mut times_ns = [0; PASSES];
    for time_ns in &mut times_ns {
        barrier.wait();
        let start = Instant::now();
        std::hint::black_box(read(part));
        barrier.wait();
        *time_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }
    times_ns
}

/// Every byte once, in an order and a form that compiles to wide loads: eight
/// independent sums, so that no addition waits for the one before it.
fn read(part: &[u8]) -> u64 {
    let mut sums = [0u64; 8];
    for block in part.chunks_exact(64) {
        for (sum, word) in sums.iter_mut().zip(block.chunks_exact(8)) {
            let word = word.try_into().map_or(0, u64::from_le_bytes);
            *sum = sum.wrapping_add(word);
        }
    }
    sums.iter().fold(0, |sum, next| sum.wrapping_add(*next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_gives_finite_positive_rates_with_any_number_of_threads() {
        for threads in [1, 2, 3] {
            let bandwidth = probe_buffer(threads, 4 << 20);
            assert!(bandwidth.median.is_finite() && bandwidth.median > 0.0);
            assert!(bandwidth.best >= bandwidth.median);
        }
    }

    #[test]
    fn of_a_devices_passes_the_median_and_the_best_count() {
        let bandwidth = ReadBandwidth::of(vec![3.0, 1.0, 2.0]);
        assert_eq!((bandwidth.median, bandwidth.best), (2.0, 3.0));
    }

    #[test]
    fn every_byte_is_read() {
        assert_eq!(read(&[1; 128]), 16 * 0x0101_0101_0101_0101);
    }
}
