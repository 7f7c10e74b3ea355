//! Unquantised weights times f32 activations: y = W·x for one token or many.
//!
//! Every sum runs over the columns in order with fused multiply-adds, so a
//! token's result does not depend on how many are computed together; four
//! blocks of rows at a time give the processor independent sums to overlap.

#![expect(
    unsafe_code,
    reason = "streams checked buffers through kernels of one instruction set"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "indices into register tiles, in lockstep"
)]

use super::Kernels;
use super::dispatch::isa_entry;
use super::lanes::{LANES, Lanes};
use super::plain::PlainMatrix;
use super::pool::{Disjoint, share};
use super::product::load_floats;
use super::repack::BLOCK_ROWS;
use super::source::FloatKind;

/// Some for each thread, so that one that is late or slow takes fewer.
const TASKS_PER_WORKER: usize = 8;

/// y = W·x for every token; `x` is `[tokens][columns]`, `y` `[tokens][rows]`.
///
/// # Panics
/// When the lengths do not fit.
pub fn plain_product(kernels: &Kernels, matrix: &PlainMatrix, x: &[f32], y: &mut [f32]) {
    let tokens = x.len() / matrix.columns();
    assert_eq!(x.len(), tokens * matrix.columns(), "length of the input");
    assert_eq!(y.len(), tokens * matrix.rows(), "length of the output");
    let job = PlainJob {
        data: &matrix.data[..matrix.blocks() * matrix.block_bytes()],
        x,
        rows: matrix.rows(),
        columns: matrix.columns(),
        tokens,
        kind: matrix.kind(),
        block_bytes: matrix.block_bytes(),
    };
    let y = Disjoint::new(y);
    let tasks = matrix
        .blocks()
        .min(kernels.pool().workers() * TASKS_PER_WORKER);
    kernels.pool().run_tasks(tasks, |task| {
        let blocks = share(matrix.blocks(), task, tasks);
        // SAFETY: the sizes are checked above; tasks write disjoint rows;
        // the instruction set is available.
        unsafe { plain_rows(kernels.isa(), &job, blocks.start, blocks.end, y.as_ptr()) };
    });
}

struct PlainJob<'a> {
    data: &'a [u8],
    x: &'a [f32],
    rows: usize,
    columns: usize,
    tokens: usize,
    kind: FloatKind,
    block_bytes: usize,
}

isa_entry! {
    /// Writes the rows of blocks `first..end` for all tokens to `y`,
    /// `[tokens][rows]`: its contract is that nobody else uses those rows.
    fn plain_rows(job: &PlainJob<'_>, first: usize, end: usize, y: *mut f32) {
        avx512: plain_kernel::<super::lanes::Avx512, 4, 6>,
        avx2: plain_kernel::<super::lanes::Avx2, 1, 4>,
        neon: plain_kernel::<super::lanes::Neon, 1, 4>,
        scalar: plain_kernel::<super::lanes::Scalar, 1, 4>,
    }
}

/// # Safety
/// Those of [`Lanes`] and of `plain_rows`.
#[inline(always)]
unsafe fn plain_kernel<L: Lanes, const R: usize, const T: usize>(
    job: &PlainJob<'_>,
    first: usize,
    end: usize,
    y: *mut f32,
) {
    // SAFETY: blocks and tokens stay within the job.
    unsafe {
        let mut block = first;
        while block < end {
            let step = if block + R <= end { R } else { 1 };
            let mut token = 0;
            while token < job.tokens {
                let taken = if token + T <= job.tokens { T } else { 1 };
                match (step == R, taken == T) {
                    (true, true) => plain_tile::<L, R, T>(job, block, token, y),
                    (true, false) => plain_tile::<L, R, 1>(job, block, token, y),
                    (false, true) => plain_tile::<L, 1, T>(job, block, token, y),
                    (false, false) => plain_tile::<L, 1, 1>(job, block, token, y),
                }
                token += taken;
            }
            block += step;
        }
    }
}

/// # Safety
/// Those of [`Lanes`]; `R` blocks and `T` tokens exist.
#[inline(always)]
unsafe fn plain_tile<L: Lanes, const R: usize, const T: usize>(
    job: &PlainJob<'_>,
    block: usize,
    token: usize,
    y: *mut f32,
) {
    let step = LANES * job.kind.bytes();
    // SAFETY: the caller's contract.
    unsafe {
        let data = job.data.as_ptr().add(block * job.block_bytes);
        let x = job.x.as_ptr().add(token * job.columns);
        let mut sums = [[L::splat(0.0); T]; R];
        for column in 0..job.columns {
            let mut weights = [L::splat(0.0); R];
            for r in 0..R {
                let from = data.add(r * job.block_bytes + column * step);
                weights[r] = load_floats::<L>(job.kind, from);
            }
            for t in 0..T {
                let x = L::splat(*x.add(t * job.columns + column));
                for r in 0..R {
                    sums[r][t] = L::fma(weights[r], x, sums[r][t]);
                }
            }
        }
        for r in 0..R {
            let row = (block + r) * BLOCK_ROWS;
            for t in 0..T {
                let mut all = [0.0; LANES];
                L::store(all.as_mut_ptr(), sums[r][t]);
                let to = y.add((token + t) * job.rows + row);
                std::ptr::copy_nonoverlapping(all.as_ptr(), to, BLOCK_ROWS.min(job.rows - row));
            }
        }
    }
}
