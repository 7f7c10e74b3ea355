//! One token times a matrix: every weight is read once, at the speed of memory.
//!
//! What limits it is how many cache lines are under way. The processor guesses ahead within a page
//! only, and its window holds few lines among the instructions of a product; so lines are asked for
//! some records ahead, and where registers allow it two blocks are read side by side, which also share
//! the activations.

#![expect(
    unsafe_code,
    reason = "streams checked buffers through kernels of one instruction set"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "indices into registers, in lockstep"
)]

use super::lanes::{LANES, Lanes};
use super::product::{Operands, load_floats};

/// Bytes of each block that are asked for ahead of their use: with two threads what memory has under
/// way, and little enough to be in vain behind the last row.
const AHEAD_BYTES: usize = 2 << 10;

/// Hands the products of blocks `first..end` with the only token to `take`, block by block, in order.
///
/// # Safety
/// Those of [`Lanes`]; the blocks exist.
#[inline(always)]
pub(super) unsafe fn each_block<L: Lanes>(
    operands: &Operands<'_>,
    first: usize,
    end: usize,
    mut take: impl FnMut(usize, L::F),
) {
    let mut block = first;
    // SAFETY: the caller's contract.
    unsafe {
        while L::HOLDS_TWO_BLOCKS && block + 2 <= end {
            let sums = side_by_side::<L, 2>(operands, block);
            sums.into_iter()
                .zip(block..)
                .for_each(|(sum, block)| take(block, sum));
            block += 2;
        }
        while block < end {
            take(block, side_by_side::<L, 1>(operands, block)[0]);
            block += 1;
        }
    }
}

/// `S` blocks of rows from `first` on times the only token.
///
/// # Safety
/// Those of [`Lanes`]; the blocks exist.
#[inline(always)]
unsafe fn side_by_side<L: Lanes, const S: usize>(
    operands: &Operands<'_>,
    first: usize,
) -> [L::F; S] {
    let float_bytes = LANES * operands.kind.bytes();
    let groups = operands.columns / operands.group;
    let records_ahead = AHEAD_BYTES.div_ceil(operands.record_bytes);
    // SAFETY: a block has a record for each group, and `Operands` has checked
    // that the activations have as many.
    unsafe {
        let mut record = operands.data.as_ptr().add(first * operands.block_bytes);
        let mut x = operands.codes.as_ptr();
        let mut y = [L::splat(0.0); S];
        for group in 0..groups {
            // Behind the last record of these blocks come those of the next.
            let beyond = group + records_ahead >= groups;
            let skipped = if beyond {
                (S - 1) * operands.block_bytes
            } else {
                0
            };
            let ahead = records_ahead * operands.record_bytes + skipped;
            for s in 0..S {
                let at = record.wrapping_add(ahead + s * operands.block_bytes);
                L::prefetch_lines(at, operands.record_bytes);
            }
            let mut dots = [L::zero(); S];
            if operands.code_bits == 4 {
                let mut sums = [(L::zero(), L::zero()); S];
                for eight in 0..operands.group / 8 {
                    let low = L::splat_bytes(x.add(eight * 8));
                    let high = L::splat_bytes(x.add(eight * 8 + 4));
                    for s in 0..S {
                        let packed =
                            L::load_bytes(record.add(s * operands.block_bytes + eight * 64));
                        sums[s] = L::dot_packed(sums[s], packed, low, high);
                    }
                }
                for s in 0..S {
                    dots[s] = L::join(sums[s]);
                }
            } else {
                for four in 0..operands.group / 4 {
                    let x = L::splat_bytes(x.add(four * 4));
                    for s in 0..S {
                        let codes = L::load_bytes(record.add(s * operands.block_bytes + four * 64));
                        dots[s] = L::dot_codes(dots[s], codes, x);
                    }
                }
            }
            for s in 0..S {
                let floats = record.add(s * operands.block_bytes + operands.code_bytes);
                let scale = load_floats::<L>(operands.kind, floats);
                let bias = load_floats::<L>(operands.kind, floats.add(float_bytes));
                let product = L::mul(L::to_f32(dots[s]), L::splat(operands.scales[group]));
                y[s] = L::fma(scale, product, y[s]);
                y[s] = L::fma(bias, L::splat(operands.sums[group]), y[s]);
            }
            record = record.add(operands.record_bytes);
            x = x.add(operands.group);
        }
        y
    }
}
