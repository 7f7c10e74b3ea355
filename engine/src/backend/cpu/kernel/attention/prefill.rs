//! Attention of a chunk of tokens, causal and within a window.
//!
//! A task is one KV head and a tile of queries with all their heads, 128
//! columns at most. Everything is kept transposed, queries along the lanes:
//! scores `[key][column]` and outputs `[d][column]`. Then the softmax needs no
//! sum over lanes, keys and values are only widened and never transposed, and
//! both products are the same small matrix product. Blocks of keys that no
//! query of the tile sees are skipped.

#![expect(
    unsafe_code,
    reason = "streams checked buffers through kernels of one instruction set"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "indices into register tiles, in lockstep"
)]

use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::Kernels;
use super::super::dispatch::isa_entry;
use super::super::exp::exp;
use super::super::huge_pages::AlignedBuffer;
use super::super::lanes::{LANES, Lanes};
use super::super::pool::Disjoint;
use super::interface::{AttentionShape, KvElement, KvSegment, load};

/// Query heads × queries of a tile.
const COLUMNS: usize = 128;
/// Keys of a block.
const KEYS: usize = 64;
/// The score of a key that is not visible, before its weight is set to 0.
const MASKED: f32 = -1e30;

/// The queries of a chunk.
#[derive(Debug, Clone, Copy)]
pub struct PrefillQueries<'a> {
    /// `[token][…]`, the heads of a token first in its row.
    pub q: &'a [f32],
    /// Floats from one token to the next, at least heads · head_dim.
    pub row: usize,
    /// Tokens of the chunk.
    pub tokens: usize,
    /// Position of the first token; the others follow.
    pub first_position: usize,
}

/// softmax(scale · q·Kᵀ)·V for each query over the keys it sees: key j is
/// visible to query i iff j ≤ i and i − j < window (`None`: no window).
///
/// `out` is `[tokens][heads · head_dim]`. The segments hold every key that a
/// query sees once, in any order; a query that sees none gets zeros.
///
/// # Panics
/// When the sizes do not fit or query heads per KV head exceed 128.
pub fn prefill_attention<T: KvElement>(
    kernels: &Kernels,
    shape: &AttentionShape,
    segments: &[KvSegment<'_, T>],
    queries: &PrefillQueries<'_>,
    window: Option<usize>,
    out: &mut [f32],
) {
    shape.check();
    let width = shape.heads * shape.head_dim;
    let tokens = queries.tokens;
    assert!(
        shape.heads_per_kv() <= COLUMNS,
        "too many query heads per KV head"
    );
    assert!(queries.row >= width, "row of the queries");
    assert!(
        tokens == 0 || queries.q.len() >= (tokens - 1) * queries.row + width,
        "queries"
    );
    assert_eq!(out.len(), tokens * width, "length of the output");
    for segment in segments {
        segment.view.check(shape, segment.first_slot, segment.rows);
    }
    let per_tile = COLUMNS / shape.heads_per_kv();
    let tiles = tokens.div_ceil(per_tile);
    let tasks = tiles * shape.kv_heads;
    let taken = AtomicUsize::new(0);
    let shared = Disjoint::new(out);
    // One part a thread, so that memory is set up once; inside, tiles are
    // taken as they come, the later and longer ones first.
    kernels.pool().run(|_, _| {
        let mut scratch = Scratch::new(shape.head_dim);
        loop {
            let index = taken.fetch_add(1, Ordering::Relaxed);
            if index >= tasks {
                return;
            }
            let task = tasks - 1 - index;
            let (tile, kv_head) = (task / shape.kv_heads, task % shape.kv_heads);
            let first = tile * per_tile;
            let tile = Tile {
                shape,
                queries,
                kv_head,
                first,
                count: per_tile.min(tokens - first),
            };
            // SAFETY: the sizes are checked above; tiles write disjoint parts
            // of the output; the instruction set is available.
            unsafe {
                let out = shared.as_ptr();
                attend_tile(kernels.isa(), &tile, segments, window, &mut scratch, out);
            }
        }
    });
}

/// `count` queries from `first`, and the heads that read `kv_head`.
struct Tile<'a> {
    shape: &'a AttentionShape,
    queries: &'a PrefillQueries<'a>,
    kv_head: usize,
    first: usize,
    count: usize,
}

impl Tile<'_> {
    fn first_position(&self) -> usize {
        self.queries.first_position + self.first
    }

    fn group(&self) -> usize {
        self.shape.heads_per_kv()
    }

    /// Where the head in column `column` is in a token's row, and the token.
    fn place(&self, column: usize) -> (usize, usize) {
        let head = self.kv_head * self.group() + column % self.group();
        (
            self.first + column / self.group(),
            head * self.shape.head_dim,
        )
    }

    /// The columns whose queries see the key at `position`.
    fn columns_that_see(&self, position: usize, window: Option<usize>) -> std::ops::Range<usize> {
        let base = self.first_position();
        let start = position.saturating_sub(base).min(self.count);
        let end = match window {
            Some(window) => (position + window).saturating_sub(base).min(self.count),
            None => self.count,
        };
        start * self.group()..end.max(start) * self.group()
    }

    /// Whether any query sees any of the keys at `first..first + count`.
    fn sees(&self, first: usize, count: usize, window: Option<usize>) -> bool {
        let base = self.first_position();
        let reaches_back = window.is_none_or(|window| first + count - 1 + window > base);
        first < base + self.count && reaches_back
    }
}

/// One thread's memory.
struct Scratch {
    /// `[d][COLUMNS]`, scaled.
    q: AlignedBuffer<f32>,
    /// `[KEYS][d]`
    keys: AlignedBuffer<f32>,
    /// `[KEYS][d]`
    values: AlignedBuffer<f32>,
    /// `[KEYS][COLUMNS]`
    scores: AlignedBuffer<f32>,
    /// `[d][COLUMNS]`
    out: AlignedBuffer<f32>,
    largest: [f32; COLUMNS],
    total: [f32; COLUMNS],
}

impl Scratch {
    fn new(head_dim: usize) -> Self {
        Scratch {
            q: AlignedBuffer::zeroed(head_dim * COLUMNS),
            keys: AlignedBuffer::zeroed(head_dim * KEYS),
            values: AlignedBuffer::zeroed(head_dim * KEYS),
            scores: AlignedBuffer::zeroed(KEYS * COLUMNS),
            out: AlignedBuffer::zeroed(head_dim * COLUMNS),
            largest: [MASKED; COLUMNS],
            total: [0.0; COLUMNS],
        }
    }
}

isa_entry! {
    /// Writes the tile's part of `out`, `[tokens][heads · head_dim]`.
    fn attend_tile[T: KvElement](
        tile: &Tile<'_>,
        segments: &[KvSegment<'_, T>],
        window: Option<usize>,
        scratch: &mut Scratch,
        out: *mut f32,
    ) {
        avx512: attend_tile_kernel::<crate::backend::cpu::kernel::lanes::Avx512, T, 6, 4>,
        avx2: attend_tile_kernel::<crate::backend::cpu::kernel::lanes::Avx2, T, 6, 1>,
        neon: attend_tile_kernel::<crate::backend::cpu::kernel::lanes::Neon, T, 6, 1>,
        scalar: attend_tile_kernel::<crate::backend::cpu::kernel::lanes::Scalar, T, 2, 1>,
    }
}

/// # Safety
/// Those of [`Lanes`]; the tile fits the segments and `out`.
#[inline(always)]
unsafe fn attend_tile_kernel<L: Lanes, T: KvElement, const R: usize, const C: usize>(
    tile: &Tile<'_>,
    segments: &[KvSegment<'_, T>],
    window: Option<usize>,
    scratch: &mut Scratch,
    out: *mut f32,
) {
    let head_dim = tile.shape.head_dim;
    scratch.largest = [MASKED; COLUMNS];
    scratch.total = [0.0; COLUMNS];
    scratch.out.fill(0.0);
    gather_queries(tile, &mut scratch.q);
    for segment in segments {
        let base = (tile.kv_head * segment.view.slots + segment.first_slot) * head_dim;
        for start in (0..segment.rows).step_by(KEYS) {
            let count = KEYS.min(segment.rows - start);
            let position = segment.first_position + start;
            if !tile.sees(position, count, window) {
                continue;
            }
            let range = base + start * head_dim..base + (start + count) * head_dim;
            // SAFETY: the segment was checked; the scratch has these shapes.
            unsafe {
                widen::<L, T>(&segment.view.keys[range.clone()], &mut scratch.keys);
                widen::<L, T>(&segment.view.values[range], &mut scratch.values);
                let (keys, scores) = (scratch.keys.as_ptr(), scratch.scores.as_mut_ptr());
                scratch.scores.fill(0.0);
                multiply_add::<L, R, C>(
                    keys,
                    (head_dim, 1),
                    KEYS,
                    scratch.q.as_ptr(),
                    head_dim,
                    scores,
                );
                let all = mask(tile, position, count, window, &mut scratch.scores, MASKED);
                soften::<L>(tile, position, count, window, scratch, all);
                let (values, sums) = (scratch.values.as_ptr(), scratch.out.as_mut_ptr());
                let weights = scratch.scores.as_ptr();
                multiply_add::<L, R, C>(values, (1, head_dim), head_dim, weights, KEYS, sums);
            }
        }
    }
    // SAFETY: the tile's own tokens and heads.
    unsafe { scatter_outputs(tile, scratch, out) };
}

/// The tile's queries, scaled and transposed to `[d][column]`; unused columns 0.
///
/// A few values of d at a time: all of them at once would be a column of lines
/// that share few sets of the cache.
fn gather_queries(tile: &Tile<'_>, to: &mut [f32]) {
    to.fill(0.0);
    for (first, to) in to.chunks_exact_mut(LANES * COLUMNS).enumerate() {
        for column in 0..tile.count * tile.group() {
            let (token, offset) = tile.place(column);
            let start = token * tile.queries.row + offset + first * LANES;
            for (d, q) in tile.queries.q[start..start + LANES].iter().enumerate() {
                to[d * COLUMNS + column] = q * tile.shape.scale;
            }
        }
    }
}

/// The tile's outputs, divided by the sums of their weights, each to its place
/// in `out`; as few values of d at a time as in [`gather_queries`].
///
/// # Safety
/// `out` is valid for the tile's tokens and heads.
unsafe fn scatter_outputs(tile: &Tile<'_>, scratch: &Scratch, out: *mut f32) {
    let width = tile.shape.heads * tile.shape.head_dim;
    let inverse = scratch
        .total
        .map(|total| if total > 0.0 { 1.0 / total } else { 0.0 });
    for (first, from) in scratch.out.chunks_exact(LANES * COLUMNS).enumerate() {
        for column in 0..tile.count * tile.group() {
            let (token, offset) = tile.place(column);
            let at = token * width + offset + first * LANES;
            for d in 0..LANES {
                // SAFETY: the caller's contract.
                unsafe { *out.add(at + d) = from[d * COLUMNS + column] * inverse[column] };
            }
        }
    }
}

/// Widens rows to f32 and zeroes the rest of `to`.
///
/// # Safety
/// Those of [`Lanes`]; `from` is whole vectors and fits in `to`.
#[inline(always)]
unsafe fn widen<L: Lanes, T: KvElement>(from: &[T], to: &mut [f32]) {
    for start in (0..from.len()).step_by(LANES) {
        // SAFETY: the caller's contract.
        unsafe {
            L::store(
                to.as_mut_ptr().add(start),
                load::<L, T>(from.as_ptr().add(start)),
            )
        };
    }
    to[from.len()..].fill(0.0);
}

/// Sets the scores of pairs that are not visible to `value`; says whether all
/// pairs of keys and used columns are.
fn mask(
    tile: &Tile<'_>,
    position: usize,
    count: usize,
    window: Option<usize>,
    scores: &mut [f32],
    value: f32,
) -> bool {
    let used = tile.count * tile.group();
    let mut all = count == KEYS;
    for (key, row) in scores.chunks_exact_mut(COLUMNS).enumerate() {
        let seen = if key < count {
            tile.columns_that_see(position + key, window)
        } else {
            0..0
        };
        if seen != (0..used) {
            all = false;
            row[..seen.start].fill(value);
            row[seen.end..].fill(value);
        }
    }
    all
}

/// Turns the scores of a block into weights, online.
///
/// # Safety
/// Those of [`Lanes`].
#[inline(always)]
unsafe fn soften<L: Lanes>(
    tile: &Tile<'_>,
    position: usize,
    count: usize,
    window: Option<usize>,
    scratch: &mut Scratch,
    all_visible: bool,
) {
    let scores = scratch.scores.as_mut_ptr();
    let out = scratch.out.as_mut_ptr();
    // SAFETY: rows of COLUMNS floats, a multiple of 16.
    unsafe {
        for column in (0..COLUMNS).step_by(LANES) {
            let before = L::load(scratch.largest.as_ptr().add(column));
            let mut largest = before;
            for key in 0..KEYS {
                largest = L::max(largest, L::load(scores.add(key * COLUMNS + column)));
            }
            for key in 0..KEYS {
                let at = scores.add(key * COLUMNS + column);
                L::store(at, exp::<L>(L::sub(L::load(at), largest)));
            }
            L::store(scratch.largest.as_mut_ptr().add(column), largest);
            let shrink = exp::<L>(L::sub(before, largest));
            let total = scratch.total.as_mut_ptr().add(column);
            L::store(total, L::mul(L::load(total), shrink));
            for d in 0..tile.shape.head_dim {
                let at = out.add(d * COLUMNS + column);
                L::store(at, L::mul(L::load(at), shrink));
            }
        }
        if !all_visible {
            mask(tile, position, count, window, &mut scratch.scores, 0.0);
        }
        for column in (0..COLUMNS).step_by(LANES) {
            let at = scratch.total.as_mut_ptr().add(column);
            let mut total = L::load(at);
            for key in 0..KEYS {
                total = L::add(
                    total,
                    L::load(scratch.scores.as_ptr().add(key * COLUMNS + column)),
                );
            }
            L::store(at, total);
        }
    }
}

/// c += a·b, where a is `rows × depth` with the strides (row, depth) `a_steps`,
/// b is `[depth][COLUMNS]` and c `[rows][COLUMNS]`; `rows` is even.
///
/// # Safety
/// Those of [`Lanes`]; the matrices have these sizes.
#[inline(always)]
unsafe fn multiply_add<L: Lanes, const R: usize, const C: usize>(
    a: *const f32,
    a_steps: (usize, usize),
    rows: usize,
    b: *const f32,
    depth: usize,
    c: *mut f32,
) {
    // SAFETY: the caller's contract.
    unsafe {
        for column in (0..COLUMNS).step_by(C * LANES) {
            let mut row = 0;
            while row < rows {
                let (a, c) = (a.add(row * a_steps.0), c.add(row * COLUMNS + column));
                if row + R <= rows {
                    multiply_tile::<L, R, C>(a, a_steps, b.add(column), depth, c);
                    row += R;
                } else {
                    multiply_tile::<L, 2, C>(a, a_steps, b.add(column), depth, c);
                    row += 2;
                }
            }
        }
    }
}

/// # Safety
/// As for [`multiply_add`], for `R` rows and `C` vectors of columns.
#[inline(always)]
unsafe fn multiply_tile<L: Lanes, const R: usize, const C: usize>(
    a: *const f32,
    a_steps: (usize, usize),
    b: *const f32,
    depth: usize,
    c: *mut f32,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut sums = [[L::splat(0.0); C]; R];
        for r in 0..R {
            for v in 0..C {
                sums[r][v] = L::load(c.add(r * COLUMNS + v * LANES));
            }
        }
        for k in 0..depth {
            let mut columns = [L::splat(0.0); C];
            for v in 0..C {
                columns[v] = L::load(b.add(k * COLUMNS + v * LANES));
            }
            for r in 0..R {
                let a = L::splat(*a.add(r * a_steps.0 + k * a_steps.1));
                for v in 0..C {
                    sums[r][v] = L::fma(a, columns[v], sums[r][v]);
                }
            }
        }
        for r in 0..R {
            for v in 0..C {
                L::store(c.add(r * COLUMNS + v * LANES), sums[r][v]);
            }
        }
    }
}
