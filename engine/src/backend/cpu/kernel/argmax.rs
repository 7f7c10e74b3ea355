//! The largest product of one token with a matrix, and where it is: greedy choice in the head.
//!
//! A vocabulary's products are a megabyte that nobody reads again: they are looked at while they are
//! in the first-level cache, and written to memory only on request.

#![expect(
    unsafe_code,
    reason = "streams checked buffers through kernels of one instruction set"
)]

use std::sync::{Mutex, PoisonError};

use super::Kernels;
use super::activation::Activations;
use super::dispatch::isa_entry;
use super::elementwise::largest_kernel;
use super::lanes::Lanes;
use super::pool::Disjoint;
use super::product::{Operands, store_rows};
use super::repack::{BLOCK_ROWS, QuantisedMatrix};
use super::vector::each_block;

/// The index of the largest element of [`super::product`] for one token, the first of equals; 0 if all are
/// NaN. The elements themselves are written only where `y` asks for them.
///
/// # Panics
/// When the sizes do not fit or there is not exactly one token.
pub fn product_argmax(
    kernels: &Kernels,
    matrix: &QuantisedMatrix,
    x: &Activations,
    y: Option<&mut [f32]>,
) -> usize {
    assert_eq!(x.tokens(), 1, "tokens");
    let operands = Operands::new(matrix, x);
    let kept = y.map(|y| {
        assert_eq!(y.len(), matrix.rows(), "length of the output");
        Disjoint::new(y)
    });
    let best = Mutex::new((f32::NEG_INFINITY, 0));
    let tasks = operands.tasks(kernels);
    kernels.pool().run_tasks(tasks, |task| {
        let blocks = operands.blocks(task, tasks);
        let kept = kept.as_ref().map(Disjoint::as_ptr);
        // SAFETY: `Operands` has checked the sizes; tasks write disjoint rows; the instruction set
        // is available.
        let (value, row) =
            unsafe { largest_row(kernels.isa(), &operands, blocks.start, blocks.end, kept) };
        let mut best = best.lock().unwrap_or_else(PoisonError::into_inner);
        if value > best.0 || (value == best.0 && row < best.1) {
            *best = (value, row);
        }
    });
    best.into_inner().unwrap_or_else(PoisonError::into_inner).1
}

isa_entry! {
    /// The largest product of the only token with the rows of blocks `first..end`, and its row, the
    /// first of equals; −∞ and row 0 if all are NaN. Writes them to `kept` at their rows.
    fn largest_row(operands: &Operands<'_>, first: usize, end: usize, kept: Option<*mut f32>)
        -> (f32, usize) = largest_row_kernel
}

/// Blocks whose products are looked at together, while they are in the first-level cache.
const LOOK_BLOCKS: usize = 16;

/// # Safety
/// Those of [`Lanes`] and of `largest_row`.
#[inline(always)]
unsafe fn largest_row_kernel<L: Lanes>(
    operands: &Operands<'_>,
    first: usize,
    end: usize,
    kept: Option<*mut f32>,
) -> (f32, usize) {
    let mut values = [0.0; LOOK_BLOCKS * BLOCK_ROWS];
    let mut best = (f32::NEG_INFINITY, 0);
    for start in (first..end).step_by(LOOK_BLOCKS) {
        let stop = end.min(start + LOOK_BLOCKS);
        let first_row = start * BLOCK_ROWS;
        let values = &mut values[..operands.rows().min(stop * BLOCK_ROWS) - first_row];
        // SAFETY: the blocks exist, and `values` has room for those of their rows that do.
        unsafe {
            each_block::<L>(operands, start, stop, |block, sum| {
                let to = values.as_mut_ptr().add((block - start) * BLOCK_ROWS);
                store_rows::<L>(operands, block, sum, to);
            });
            if let Some(kept) = kept {
                let to = kept.add(first_row);
                std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len());
            }
        }
        // SAFETY: the instruction set is the caller's.
        let largest = unsafe { largest_kernel::<L>(values) };
        if largest > best.0 {
            let place = values.iter().position(|&value| value == largest);
            best = (largest, first_row + place.unwrap_or(0));
        }
    }
    best
}
