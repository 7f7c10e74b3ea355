//! The gated feed-forward's first half, fused: act(G·x) · (U·x).
//!
//! Gate and up rows are computed together and only the result is stored:
//! one start of the pool and one pass over memory instead of three.

#![expect(
    unsafe_code,
    reason = "streams checked buffers through kernels of one instruction set"
)]

use super::Kernels;
use super::activation::Activations;
use super::dispatch::isa_entry;
use super::exp::{gelu_tanh, silu};
use super::lanes::{LANES, Lanes};
use super::pool::Disjoint;
use super::product::{Operands, tile};
use super::repack::{BLOCK_ROWS, QuantisedMatrix};
use super::vector::each_block;

/// The function that a gate goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))).
    GeluTanh,
    /// x · sigmoid(x).
    Silu,
}

/// y = act(G·x) · (U·x) for every token of `x`; `y` is `[tokens][rows]`.
///
/// # Panics
/// When the sizes of the matrices, `x` and `y` do not fit.
pub fn gated_product(
    kernels: &Kernels,
    gate: &QuantisedMatrix,
    up: &QuantisedMatrix,
    function: Gate,
    x: &Activations,
    y: &mut [f32],
) {
    assert_eq!(gate.rows(), up.rows(), "rows of gate and up");
    assert_eq!(y.len(), x.tokens() * gate.rows(), "length of the output");
    let (gate, up) = (Operands::new(gate, x), Operands::new(up, x));
    let y = Disjoint::new(y);
    let tasks = gate.tasks(kernels);
    kernels.pool().run_tasks(tasks, |task| {
        let blocks = gate.blocks(task, tasks);
        let pair = Pair {
            gate: &gate,
            up: &up,
            function,
        };
        // SAFETY: `Operands` has checked the sizes; tasks write disjoint
        // rows; the instruction set is available.
        unsafe { gated_rows(kernels.isa(), &pair, blocks.start, blocks.end, y.as_ptr()) };
    });
}

/// Blocks of gate rows, and then of up rows, that are read in one go.
const RUN_BLOCKS: usize = 32;

struct Pair<'a> {
    gate: &'a Operands<'a>,
    up: &'a Operands<'a>,
    function: Gate,
}

isa_entry! {
    /// Writes the rows of blocks `first..end` for all tokens to `y`,
    /// `[tokens][rows]`: its contract is that nobody else uses those rows.
    fn gated_rows(pair: &Pair<'_>, first: usize, end: usize, y: *mut f32) {
        avx512: gated_kernel::<super::lanes::Avx512, 4, 6>,
        avx2: gated_kernel::<super::lanes::Avx2, 1, 4>,
        neon: gated_kernel::<super::lanes::Neon, 1, 4>,
        scalar: gated_kernel::<super::lanes::Scalar, 1, 4>,
    }
}

/// # Safety
/// Those of [`Lanes`] and of `gated_rows`.
#[inline(always)]
unsafe fn gated_kernel<L: Lanes, const R: usize, const T: usize>(
    pair: &Pair<'_>,
    first: usize,
    end: usize,
    y: *mut f32,
) {
    let (rows, tokens) = (pair.gate.rows(), pair.gate.tokens());
    // SAFETY: blocks and tokens stay within the operands; `combine` writes
    // only rows that exist.
    unsafe {
        if tokens == 1 {
            return gated_vector::<L>(pair, first, end, y);
        }
        let mut block = first;
        while block < end {
            let step = if block + R <= end { R } else { 1 };
            let mut token = 0;
            while token < tokens {
                let (mut gates, mut ups) = ([[[0.0; LANES]; R]; T], [[[0.0; LANES]; R]; T]);
                let (g, u) = (gates.as_mut_ptr().cast(), ups.as_mut_ptr().cast());
                let width = R * LANES;
                let taken = if token + T <= tokens && step == R {
                    tile::<L, R, T>(pair.gate, block, token, g, width);
                    tile::<L, R, T>(pair.up, block, token, u, width);
                    T
                } else {
                    for r in 0..step {
                        let at = r * LANES;
                        tile::<L, 1, 1>(pair.gate, block + r, token, g.add(at), width);
                        tile::<L, 1, 1>(pair.up, block + r, token, u.add(at), width);
                    }
                    1
                };
                for t in 0..taken {
                    for r in 0..step {
                        let row = (block + r) * BLOCK_ROWS;
                        let to = y.add((token + t) * rows + row);
                        let (g, u) = (gates[t][r].as_ptr(), ups[t][r].as_ptr());
                        combine::<L>(pair.function, g, u, to, BLOCK_ROWS.min(rows - row));
                    }
                }
                token += taken;
            }
            block += step;
        }
    }
}

/// The only token: a run of gate rows, then the same rows of up, because two
/// streams read in turns come slower than one (27 against 32 GB/s).
///
/// # Safety
/// As for [`gated_kernel`].
#[inline(always)]
unsafe fn gated_vector<L: Lanes>(pair: &Pair<'_>, first: usize, end: usize, y: *mut f32) {
    let rows = pair.gate.rows();
    let mut gates = [[0.0; LANES]; RUN_BLOCKS];
    let mut ups = gates;
    for start in (first..end).step_by(RUN_BLOCKS) {
        let count = RUN_BLOCKS.min(end - start);
        // SAFETY: the blocks exist; only rows that exist are written.
        unsafe {
            for (operands, out) in [(pair.gate, &mut gates), (pair.up, &mut ups)] {
                each_block::<L>(operands, start, start + count, |block, sum| {
                    L::store(out[block - start].as_mut_ptr(), sum);
                });
            }
            for index in 0..count {
                let row = (start + index) * BLOCK_ROWS;
                let (g, u) = (gates[index].as_ptr(), ups[index].as_ptr());
                combine::<L>(pair.function, g, u, y.add(row), BLOCK_ROWS.min(rows - row));
            }
        }
    }
}

/// Writes the first `count` of 16 results.
///
/// # Safety
/// Those of [`Lanes`]; 16 values at `gate` and `up`, room for `count` at `to`.
#[inline(always)]
unsafe fn combine<L: Lanes>(
    function: Gate,
    gate: *const f32,
    up: *const f32,
    to: *mut f32,
    count: usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let gate = match function {
            Gate::GeluTanh => gelu_tanh::<L>(L::load(gate)),
            Gate::Silu => silu::<L>(L::load(gate)),
        };
        let value = L::mul(gate, L::load(up));
        if count == LANES {
            L::store(to, value);
        } else {
            let mut all = [0.0; LANES];
            L::store(all.as_mut_ptr(), value);
            std::ptr::copy_nonoverlapping(all.as_ptr(), to, count);
        }
    }
}
