//! Attention of one token: keys and values are streamed once.
//!
//! Softmax runs online over blocks of slots, for all query heads of a KV head
//! together, so that a widened key or value serves every head. The slots are
//! split into parts whose number depends on the length alone, and the parts
//! are combined in order: the result is the same for any number of threads,
//! and a model with one KV head still uses them all.

#![expect(
    unsafe_code,
    reason = "streams checked buffers through kernels of one instruction set"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "indices into register tiles, in lockstep"
)]

use super::super::Kernels;
use super::super::dispatch::isa_entry;
use super::super::exp::exp;
use super::super::huge_pages::AlignedBuffer;
use super::super::lanes::{LANES, Lanes};
use super::super::pool::{Disjoint, share};
use super::interface::{AttentionShape, KvElement, KvView, load};

/// Slots whose scores are held before their values are read.
const BLOCK_SLOTS: usize = 64;
/// Slots whose scores are computed together.
const QUAD: usize = 4;
/// Slots that keys are asked for ahead of their use: the time of a trip to memory.
const KEYS_AHEAD: usize = 8;
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// A part has at least this many slots: some microseconds of work.
const PART_SLOTS: usize = 64;
/// More parts than this only add combining.
const MOST_PARTS: usize = 16;
/// Before each part's accumulator: its largest score and its sum of weights.
const HEADER: usize = LANES;

/// Memory for the parts, kept between calls.
#[derive(Debug)]
pub struct DecodeScratch {
    parts: AlignedBuffer<f32>,
}

impl Default for DecodeScratch {
    fn default() -> Self {
        Self::new()
    }
}

impl DecodeScratch {
    /// Empty; grows at the first use.
    #[must_use]
    pub fn new() -> Self {
        DecodeScratch {
            parts: AlignedBuffer::zeroed(0),
        }
    }
}

/// softmax(scale · q·Kᵀ)·V over the first `rows` slots, in whatever order of
/// positions they are; `q` and `out` are `[heads][head_dim]`.
///
/// # Panics
/// When the sizes do not fit or `rows` is 0.
pub fn decode_attention<T: KvElement>(
    kernels: &Kernels,
    shape: &AttentionShape,
    cache: KvView<'_, T>,
    rows: usize,
    q: &[f32],
    scratch: &mut DecodeScratch,
    out: &mut [f32],
) {
    shape.check();
    cache.check(shape, 0, rows);
    assert!(rows > 0, "attention over no rows");
    let len = shape.heads * shape.head_dim;
    assert!(
        q.len() == len && out.len() == len,
        "lengths of query and output"
    );
    let (parts, group) = (part_count(rows), shape.heads_per_kv());
    let part_floats = group * (HEADER + shape.head_dim);
    let needed = shape.kv_heads * parts * part_floats;
    if scratch.parts.len() < needed {
        scratch.parts = AlignedBuffer::zeroed(needed);
    }
    let buffer = Disjoint::new(&mut scratch.parts[..needed]);
    let task = |index: usize| {
        let (kv_head, part) = (index / parts, index % parts);
        let slots = share(rows, part, parts);
        let first = (kv_head * cache.slots + slots.start) * shape.head_dim;
        let elements = slots.len() * shape.head_dim;
        let part = Part {
            keys: &cache.keys[first..first + elements],
            values: &cache.values[first..first + elements],
            q: &q[kv_head * group * shape.head_dim..][..group * shape.head_dim],
            head_dim: shape.head_dim,
            scale: shape.scale,
        };
        // SAFETY: every task has its own piece of the buffer, the slices of
        // `part` fit each other, and the instruction set is available.
        unsafe {
            let to = buffer.part(index * part_floats..(index + 1) * part_floats);
            attend(kernels.isa(), &part, to);
        }
    };
    kernels.pool().run_tasks(shape.kv_heads * parts, task);
    let pieces = scratch.parts[..needed].chunks_exact(parts * part_floats);
    for (parts, out) in pieces.zip(out.chunks_exact_mut(group * shape.head_dim)) {
        // SAFETY: sizes as computed above; the instruction set is available.
        unsafe { combine(kernels.isa(), parts, group, shape.head_dim, out) };
    }
}

/// A power of two, so that it divides well over threads.
fn part_count(rows: usize) -> usize {
    let wanted = (rows / PART_SLOTS).clamp(1, MOST_PARTS);
    1 << wanted.ilog2()
}

struct Part<'a, T> {
    keys: &'a [T],
    values: &'a [T],
    q: &'a [f32],
    head_dim: usize,
    scale: f32,
}

isa_entry! {
    /// Writes for each query head [largest score, sum of weights, …, Σ weight · value].
    fn attend[T: KvElement](part: &Part<'_, T>, to: &mut [f32]) {
        avx512: attend_kernel::<crate::backend::cpu::kernel::lanes::Avx512, T>,
        avx2: attend_kernel::<crate::backend::cpu::kernel::lanes::Avx2, T>,
        neon: attend_kernel::<crate::backend::cpu::kernel::lanes::Neon, T>,
        scalar: attend_kernel::<crate::backend::cpu::kernel::lanes::Scalar, T>,
    }
}

/// # Safety
/// Those of [`Lanes`]; `part` and `to` fit each other.
#[inline(always)]
unsafe fn attend_kernel<L: Lanes, T: KvElement>(part: &Part<'_, T>, to: &mut [f32]) {
    let stride = HEADER + part.head_dim;
    let group = part.q.len() / part.head_dim;
    let slots = part.keys.len() / part.head_dim;
    to.fill(0.0);
    for head in to.chunks_exact_mut(stride) {
        head[0] = f32::MIN;
    }
    // SAFETY: heads and slots stay within the part.
    unsafe {
        for slot in 0..KEYS_AHEAD.min(slots) {
            ask::<L, T>(
                part.keys.as_ptr().wrapping_add(slot * part.head_dim),
                part.head_dim,
            );
        }
        let mut start = 0;
        while start < slots {
            let count = BLOCK_SLOTS.min(slots - start);
            let keys = part.keys.as_ptr().add(start * part.head_dim);
            let values = part.values.as_ptr().add(start * part.head_dim);
            let mut head = 0;
            while head < group {
                let q = part.q.as_ptr().add(head * part.head_dim);
                let to = to.as_mut_ptr().add(head * stride);
                let block = Block {
                    keys,
                    values,
                    q,
                    count,
                    to,
                };
                let taken = match group - head {
                    1 => block_kernel::<L, T, 1>(part, &block),
                    2 => block_kernel::<L, T, 2>(part, &block),
                    3 => block_kernel::<L, T, 3>(part, &block),
                    _ => block_kernel::<L, T, 4>(part, &block),
                };
                head += taken;
            }
            start += count;
        }
    }
}

/// A block of slots and the first of the query heads that visit it together.
struct Block<T> {
    keys: *const T,
    values: *const T,
    q: *const f32,
    count: usize,
    to: *mut f32,
}

/// `H` query heads over one block; returns `H`.
///
/// # Safety
/// Those of [`Lanes`]; the block has 1 to 64 slots and `H` heads.
#[inline(always)]
unsafe fn block_kernel<L: Lanes, T: KvElement, const H: usize>(
    part: &Part<'_, T>,
    block: &Block<T>,
) -> usize {
    let stride = HEADER + part.head_dim;
    let mut weights = [[0.0; BLOCK_SLOTS]; H];
    // SAFETY: the caller's contract.
    unsafe {
        scores::<L, T, H>(part, block, &mut weights);
        let mut shrink = [1.0; H];
        for h in 0..H {
            let header = block.to.add(h * stride);
            let weights = &mut weights[h];
            let mut largest = *header;
            for &score in &weights[..block.count] {
                largest = if score > largest { score } else { largest };
            }
            let mut first = [0.0; LANES];
            L::store(first.as_mut_ptr(), exp::<L>(L::splat(*header - largest)));
            shrink[h] = first[0];
            let mut total = L::splat(0.0);
            for start in (0..block.count).step_by(LANES) {
                let at = weights.as_mut_ptr().add(start);
                L::store(at, exp::<L>(L::sub(L::load(at), L::splat(largest))));
                for weight in &mut weights[block.count.min(start + LANES)..start + LANES] {
                    *weight = 0.0;
                }
                total = L::add(total, L::load(weights.as_ptr().add(start)));
            }
            *header.add(1) = (*header.add(1)).mul_add(shrink[h], L::sum(total));
            *header = largest;
        }
        let mut column = 0;
        while column + 4 * LANES <= part.head_dim {
            weigh::<L, T, H, 4>(part, block, &weights, &shrink, column);
            column += 4 * LANES;
        }
        while column < part.head_dim {
            weigh::<L, T, H, 1>(part, block, &weights, &shrink, column);
            column += LANES;
        }
    }
    H
}

/// `out[h][slot]` = scale · q_h · k_slot
///
/// # Safety
/// As for [`block_kernel`].
#[inline(always)]
unsafe fn scores<L: Lanes, T: KvElement, const H: usize>(
    part: &Part<'_, T>,
    block: &Block<T>,
    out: &mut [[f32; BLOCK_SLOTS]; H],
) {
    // SAFETY: the caller's contract; beyond the last slot it is read again.
    unsafe {
        for first in (0..block.count).step_by(QUAD) {
            let mut sums = [L::splat(0.0); LANES];
            let row = |slot: usize| block.keys.add(slot.min(block.count - 1) * part.head_dim);
            let rows = [row(first), row(first + 1), row(first + 2), row(first + 3)];
            // The step before has pushed the cache out with weights, and rows are too short for the
            // processor to guess. Values are asked for with the keys of the same slots: they are
            // needed once the block is scored.
            for slot in first..first + QUAD {
                let ahead = (slot + KEYS_AHEAD) * part.head_dim;
                ask::<L, T>(block.keys.wrapping_add(ahead), part.head_dim);
                let at = slot.min(block.count - 1) * part.head_dim;
                ask::<L, T>(block.values.wrapping_add(at), part.head_dim);
            }
            for column in (0..part.head_dim).step_by(LANES) {
                let k = [
                    load::<L, T>(rows[0].add(column)),
                    load::<L, T>(rows[1].add(column)),
                    load::<L, T>(rows[2].add(column)),
                    load::<L, T>(rows[3].add(column)),
                ];
                for h in 0..H {
                    let q = L::load(block.q.add(h * part.head_dim + column));
                    for s in 0..QUAD {
                        sums[h * QUAD + s] = L::fma(q, k[s], sums[h * QUAD + s]);
                    }
                }
            }
            let mut all = [0.0; LANES];
            L::store(
                all.as_mut_ptr(),
                L::mul(L::sums(sums), L::splat(part.scale)),
            );
            for h in 0..H {
                out[h][first..first + QUAD].copy_from_slice(&all[h * QUAD..(h + 1) * QUAD]);
            }
        }
    }
}

/// Asks for a row's cache lines; it may lie beyond the buffer.
///
/// # Safety
/// Those of [`Lanes`].
#[inline(always)]
unsafe fn ask<L: Lanes, T>(row: *const T, head_dim: usize) {
    for byte in (0..head_dim * size_of::<T>()).step_by(LINE_BYTES) {
        // SAFETY: the instruction set is the caller's; nothing is read.
        unsafe { L::prefetch(row.cast::<u8>().wrapping_add(byte)) };
    }
}

/// Accumulates weight · value for `C` vectors of columns.
///
/// # Safety
/// As for [`block_kernel`]; the columns exist.
#[inline(always)]
unsafe fn weigh<L: Lanes, T: KvElement, const H: usize, const C: usize>(
    part: &Part<'_, T>,
    block: &Block<T>,
    weights: &[[f32; BLOCK_SLOTS]; H],
    shrink: &[f32; H],
    column: usize,
) {
    let stride = HEADER + part.head_dim;
    // SAFETY: the caller's contract.
    unsafe {
        let mut sums = [[L::splat(0.0); C]; H];
        for h in 0..H {
            for c in 0..C {
                let at = block.to.add(h * stride + HEADER + column + c * LANES);
                sums[h][c] = L::mul(L::load(at), L::splat(shrink[h]));
            }
        }
        for slot in 0..block.count {
            let row = block.values.add(slot * part.head_dim + column);
            let mut v = [L::splat(0.0); C];
            for c in 0..C {
                v[c] = load::<L, T>(row.add(c * LANES));
            }
            for h in 0..H {
                let weight = L::splat(*weights[h].get_unchecked(slot));
                for c in 0..C {
                    sums[h][c] = L::fma(weight, v[c], sums[h][c]);
                }
            }
        }
        for h in 0..H {
            for c in 0..C {
                L::store(
                    block.to.add(h * stride + HEADER + column + c * LANES),
                    sums[h][c],
                );
            }
        }
    }
}

isa_entry! {
    /// Joins the parts of one KV head, in order, into `out`, `[group][head_dim]`.
    fn combine(parts: &[f32], group: usize, head_dim: usize, out: &mut [f32]) = combine_kernel
}

/// # Safety
/// Those of [`Lanes`]; the slices are as `attend` wrote them.
#[inline(always)]
unsafe fn combine_kernel<L: Lanes>(parts: &[f32], group: usize, head_dim: usize, out: &mut [f32]) {
    let stride = HEADER + head_dim;
    let part_floats = group * stride;
    for (head, out) in out.chunks_exact_mut(head_dim).enumerate() {
        let of_head = || {
            parts
                .chunks_exact(part_floats)
                .map(|part| &part[head * stride..][..stride])
        };
        let largest = of_head().fold(f32::MIN, |a, part| if part[0] > a { part[0] } else { a });
        let mut total = 0.0f32;
        out.fill(0.0);
        for part in of_head() {
            // SAFETY: `out` and the part's accumulator have `head_dim` floats.
            unsafe {
                let weight = exp::<L>(L::splat(part[0] - largest));
                let mut first = [0.0; LANES];
                L::store(first.as_mut_ptr(), weight);
                total = part[1].mul_add(first[0], total);
                for column in (0..head_dim).step_by(LANES) {
                    let at = out.as_mut_ptr().add(column);
                    let value = L::load(part.as_ptr().add(HEADER + column));
                    L::store(at, L::fma(weight, value, L::load(at)));
                }
            }
        }
        let inverse = 1.0 / total;
        for value in out.iter_mut() {
            *value *= inverse;
        }
    }
}
