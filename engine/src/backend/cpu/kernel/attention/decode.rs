//! Attention of one token: keys and values are streamed once.
//!
//! Softmax runs online over blocks of rows, for all query heads of a KV head
//! together, so that a widened key or value serves every head. The rows are
//! split into parts whose number depends on the length alone, and the parts
//! are combined in order: the result is the same for any number of threads,
//! and a model with one KV head still uses them all.
//!
//! Rows are counted in the order of their positions, and a ring only says in
//! which slot each of them lies: the result is the same for any layout, too.

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
use super::interface::{AttentionShape, KvElement, KvRing, load};

/// Rows whose scores are held before their values are read.
const BLOCK_ROWS: usize = 64;
/// Rows whose scores are computed together.
const QUAD: usize = 4;
/// Rows that keys are asked for ahead of their use: the time of a trip to memory.
const KEYS_AHEAD: usize = 8;
/// A part has at least this many rows: some microseconds of work.
const PART_ROWS: usize = 64;
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

/// softmax(scale · q·Kᵀ)·V over the rows of `ring`; `q` and `out` are
/// `[heads][head_dim]`.
///
/// # Panics
/// When the sizes do not fit or there are no rows.
pub fn decode_attention<T: KvElement>(
    kernels: &Kernels,
    shape: &AttentionShape,
    ring: KvRing<'_, T>,
    q: &[f32],
    scratch: &mut DecodeScratch,
    out: &mut [f32],
) {
    shape.check();
    ring.check(shape);
    let (cache, rows) = (ring.view, ring.rows);
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
        let rows = share(rows, part, parts);
        let first = kv_head * cache.slots * shape.head_dim;
        let elements = ring.ring_slots * shape.head_dim;
        let part = Part {
            keys: &cache.keys[first..first + elements],
            values: &cache.values[first..first + elements],
            ring_slots: ring.ring_slots,
            first_slot: (ring.oldest_slot + rows.start) % ring.ring_slots,
            rows: rows.len(),
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
    let wanted = (rows / PART_ROWS).clamp(1, MOST_PARTS);
    1 << wanted.ilog2()
}

/// Consecutive rows of one KV head, and the query heads that see them.
struct Part<'a, T> {
    /// The whole ring of this head; so are `values`.
    keys: &'a [T],
    values: &'a [T],
    ring_slots: usize,
    /// Slot of the part's first row.
    first_slot: usize,
    rows: usize,
    q: &'a [f32],
    head_dim: usize,
    scale: f32,
}

impl<T> Part<'_, T> {
    /// Element at which the part's row `row` begins: inside the ring for rows of the part, and
    /// anywhere for rows beyond it, which are only asked for.
    #[inline(always)]
    fn start(&self, row: usize) -> usize {
        let slot = self.first_slot + row;
        let round = if slot >= self.ring_slots {
            self.ring_slots
        } else {
            0
        };
        (slot - round) * self.head_dim
    }
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
    let rows = part.rows;
    to.fill(0.0);
    for head in to.chunks_exact_mut(stride) {
        head[0] = f32::MIN;
    }
    // SAFETY: heads and rows stay within the part.
    unsafe {
        for row in 0..KEYS_AHEAD.min(rows) {
            let at = part.keys.as_ptr().wrapping_add(part.start(row));
            ask::<L, T>(at, part.head_dim);
        }
        let mut first_row = 0;
        while first_row < rows {
            let count = BLOCK_ROWS.min(rows - first_row);
            let mut head = 0;
            while head < group {
                let q = part.q.as_ptr().add(head * part.head_dim);
                let to = to.as_mut_ptr().add(head * stride);
                let block = Block {
                    first_row,
                    count,
                    q,
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
            first_row += count;
        }
    }
}

/// A block of a part's rows and the first of the query heads that visit it together.
struct Block {
    first_row: usize,
    count: usize,
    q: *const f32,
    to: *mut f32,
}

/// `H` query heads over one block; returns `H`.
///
/// # Safety
/// Those of [`Lanes`]; the block has 1 to 64 rows and `H` heads.
#[inline(always)]
unsafe fn block_kernel<L: Lanes, T: KvElement, const H: usize>(
    part: &Part<'_, T>,
    block: &Block,
) -> usize {
    let stride = HEADER + part.head_dim;
    let mut weights = [[0.0; BLOCK_ROWS]; H];
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

/// `out[h][row]` = scale · q_h · k_row
///
/// # Safety
/// As for [`block_kernel`].
#[inline(always)]
unsafe fn scores<L: Lanes, T: KvElement, const H: usize>(
    part: &Part<'_, T>,
    block: &Block,
    out: &mut [[f32; BLOCK_ROWS]; H],
) {
    // SAFETY: the caller's contract; beyond the last row it is read again.
    unsafe {
        let start = |row: usize| part.start(block.first_row + row.min(block.count - 1));
        for first in (0..block.count).step_by(QUAD) {
            let mut sums = [L::splat(0.0); LANES];
            let starts = [
                start(first),
                start(first + 1),
                start(first + 2),
                start(first + 3),
            ];
            let rows = starts.map(|start| part.keys.as_ptr().add(start));
            // The step before has pushed the cache out with weights, and rows are too short for the
            // processor to guess. Values are asked for with the keys of the same rows: they are
            // needed once the block is scored.
            for (row, start) in (first..).zip(starts) {
                let ahead = part.start(block.first_row + row + KEYS_AHEAD);
                ask::<L, T>(part.keys.as_ptr().wrapping_add(ahead), part.head_dim);
                ask::<L, T>(part.values.as_ptr().wrapping_add(start), part.head_dim);
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
    // SAFETY: the instruction set is the caller's.
    unsafe { L::prefetch_lines(row.cast(), head_dim * size_of::<T>()) };
}

/// Accumulates weight · value for `C` vectors of columns.
///
/// # Safety
/// As for [`block_kernel`]; the columns exist.
#[inline(always)]
unsafe fn weigh<L: Lanes, T: KvElement, const H: usize, const C: usize>(
    part: &Part<'_, T>,
    block: &Block,
    weights: &[[f32; BLOCK_ROWS]; H],
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
        for row in 0..block.count {
            let values = part.values.as_ptr().add(part.start(block.first_row + row));
            let mut v = [L::splat(0.0); C];
            for c in 0..C {
                v[c] = load::<L, T>(values.add(column + c * LANES));
            }
            for h in 0..H {
                let weight = L::splat(*weights[h].get_unchecked(row));
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
