//! Quantised weights times int8 activations: y = W·x for one token or many.
//!
//! One token reads every weight once, so it runs at the speed of memory
//! ([`super::vector`]), and high nibbles are not even shifted.
//! Many tokens reuse each unpacked vector of codes: a register tile of row
//! blocks × tokens, tile after tile over the tokens while the blocks stay in
//! the cache. Both add in the same order, group after group, so a token's
//! result does not depend on how many are computed together.

#![expect(
    unsafe_code,
    reason = "streams checked buffers through kernels of one instruction set"
)]
#![expect(
    clippy::needless_range_loop,
    reason = "indices into register tiles, in lockstep"
)]

use super::Kernels;
use super::activation::Activations;
use super::dispatch::isa_entry;
use super::lanes::{LANES, Lanes};
use super::pool::{Disjoint, share};
use super::repack::{BLOCK_ROWS, QuantisedMatrix};
use super::source::FloatKind;
use super::vector::each_block;

/// Tokens for which a tile's blocks stay in the cache.
const TOKENS_AT_A_TIME: usize = 256;

/// Tasks are cut between this many blocks: the largest tile's.
const UNIT_BLOCKS: usize = 4;
/// More are fairer, but each costs a shared counter's cache miss, ~0.1 µs.
const TASKS_PER_WORKER: usize = 8;

/// y = W·x for every token of `x`; `y` is `[tokens][rows]`.
///
/// # Panics
/// When the columns, group or length of `y` do not fit.
pub fn product(kernels: &Kernels, matrix: &QuantisedMatrix, x: &Activations, y: &mut [f32]) {
    assert_eq!(y.len(), x.tokens() * matrix.rows(), "length of the output");
    let operands = Operands::new(matrix, x);
    let y = Disjoint::new(y);
    let tasks = operands.tasks(kernels);
    kernels.pool().run_tasks(tasks, |task| {
        let blocks = operands.blocks(task, tasks);
        // SAFETY: `Operands` has checked the sizes; tasks write disjoint
        // rows; the instruction set is available.
        unsafe {
            rows_of_product(
                kernels.isa(),
                &operands,
                blocks.start,
                blocks.end,
                y.as_ptr(),
            )
        };
    });
}

/// A matrix and activations that fit each other, as the kernels read them.
pub(super) struct Operands<'a> {
    pub(super) data: &'a [u8],
    pub(super) codes: &'a [i8],
    pub(super) scales: &'a [f32],
    pub(super) sums: &'a [f32],
    rows: usize,
    pub(super) columns: usize,
    pub(super) group: usize,
    tokens: usize,
    pub(super) code_bits: usize,
    pub(super) kind: FloatKind,
    pub(super) code_bytes: usize,
    pub(super) record_bytes: usize,
    pub(super) block_bytes: usize,
}

impl<'a> Operands<'a> {
    pub(super) fn new(matrix: &'a QuantisedMatrix, x: &'a Activations) -> Self {
        assert_eq!(
            x.columns(),
            matrix.columns(),
            "columns of activations and matrix"
        );
        assert_eq!(x.group(), matrix.group(), "group of activations and matrix");
        let groups = x.tokens() * (x.columns() / x.group());
        Operands {
            data: &matrix.data[..matrix.blocks() * matrix.block_bytes()],
            codes: &x.codes[..x.tokens() * x.columns()],
            scales: &x.scales[..groups],
            sums: &x.sums[..groups],
            rows: matrix.rows(),
            columns: matrix.columns(),
            group: matrix.group(),
            tokens: x.tokens(),
            code_bits: matrix.code_bits(),
            kind: matrix.scale_kind,
            code_bytes: matrix.record_code_bytes(),
            record_bytes: matrix.record_bytes(),
            block_bytes: matrix.block_bytes(),
        }
    }

    fn units(&self) -> usize {
        self.rows.div_ceil(BLOCK_ROWS * UNIT_BLOCKS)
    }

    /// How many tasks the rows are cut into: some for each thread, so that one
    /// that is late or slow takes fewer.
    pub(super) fn tasks(&self, kernels: &Kernels) -> usize {
        self.units()
            .min(kernels.pool().workers() * TASKS_PER_WORKER)
    }

    /// The blocks of rows of a task: whole tiles, but for the last.
    pub(super) fn blocks(&self, task: usize, tasks: usize) -> std::ops::Range<usize> {
        let units = share(self.units(), task, tasks);
        let blocks = self.rows.div_ceil(BLOCK_ROWS);
        units.start * UNIT_BLOCKS..blocks.min(units.end * UNIT_BLOCKS)
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn tokens(&self) -> usize {
        self.tokens
    }
}

isa_entry! {
    /// Writes the rows of blocks `first..end` for all tokens to `y`,
    /// `[tokens][rows]`: its contract is that nobody else uses those rows.
    fn rows_of_product(operands: &Operands<'_>, first: usize, end: usize, y: *mut f32) {
        // Tiles sized to the registers: 32, 16, 32 and none.
        avx512: rows_kernel::<super::lanes::Avx512, 4, 6>,
        avx2: rows_kernel::<super::lanes::Avx2, 1, 4>,
        neon: rows_kernel::<super::lanes::Neon, 1, 4>,
        scalar: rows_kernel::<super::lanes::Scalar, 1, 4>,
    }
}

/// # Safety
/// Those of [`Lanes`] and of `rows_of_product`.
#[inline(always)]
unsafe fn rows_kernel<L: Lanes, const R: usize, const T: usize>(
    operands: &Operands<'_>,
    first: usize,
    end: usize,
    y: *mut f32,
) {
    // SAFETY: blocks and tokens stay within the operands.
    unsafe {
        if operands.tokens == 1 {
            return each_block::<L>(operands, first, end, |block, sum| {
                store_rows::<L>(operands, block, sum, y.add(block * BLOCK_ROWS));
            });
        }
        for start in (0..operands.tokens).step_by(TOKENS_AT_A_TIME) {
            let stop = operands.tokens.min(start + TOKENS_AT_A_TIME);
            let mut block = first;
            while block < end {
                let step = if block + R <= end { R } else { 1 };
                let mut token = start;
                while token < stop {
                    let at = y.add(token * operands.rows + block * BLOCK_ROWS);
                    let stride = operands.rows;
                    if token + T <= stop && step == R {
                        tile::<L, R, T>(operands, block, token, at, stride);
                        token += T;
                    } else if step == R {
                        tile::<L, R, 1>(operands, block, token, at, stride);
                        token += 1;
                    } else if token + T <= stop {
                        tile::<L, 1, T>(operands, block, token, at, stride);
                        token += T;
                    } else {
                        tile::<L, 1, 1>(operands, block, token, at, stride);
                        token += 1;
                    }
                }
                block += step;
            }
        }
    }
}

/// Writes the rows of `block` that exist.
///
/// # Safety
/// Those of [`Lanes`]; `to` is valid for those rows.
#[inline(always)]
pub(super) unsafe fn store_rows<L: Lanes>(
    operands: &Operands<'_>,
    block: usize,
    value: L::F,
    to: *mut f32,
) {
    let rows = operands.rows - block * BLOCK_ROWS;
    // SAFETY: the caller's contract.
    unsafe {
        if rows >= BLOCK_ROWS {
            L::store(to, value);
        } else {
            let mut all = [0.0; LANES];
            L::store(all.as_mut_ptr(), value);
            std::ptr::copy_nonoverlapping(all.as_ptr(), to, rows);
        }
    }
}

/// 16 scales or biases of a record.
///
/// # Safety
/// Those of [`Lanes`]; `from` is valid for 16 values of `kind`.
#[inline(always)]
pub(super) unsafe fn load_floats<L: Lanes>(kind: FloatKind, from: *const u8) -> L::F {
    // SAFETY: the caller's contract.
    unsafe {
        match kind {
            FloatKind::Bf16 => L::load_bf16(from.cast()),
            FloatKind::F16 => L::load_f16(from.cast()),
            FloatKind::F32 => L::load(from.cast()),
        }
    }
}

/// `R` blocks of rows times `T` tokens, written to `out` with `stride` floats
/// between tokens.
///
/// # Safety
/// Those of [`Lanes`]; the blocks and tokens exist, and `out` is valid for
/// their rows.
#[inline(always)]
pub(super) unsafe fn tile<L: Lanes, const R: usize, const T: usize>(
    operands: &Operands<'_>,
    block: usize,
    token: usize,
    out: *mut f32,
    stride: usize,
) {
    let groups = operands.columns / operands.group;
    let float_bytes = LANES * operands.kind.bytes();
    // SAFETY: as in `side_by_side`, for each block and token.
    unsafe {
        let mut y = [[L::splat(0.0); T]; R];
        for group in 0..groups {
            let record = operands
                .data
                .as_ptr()
                .add(block * operands.block_bytes + group * operands.record_bytes);
            let x = operands
                .codes
                .as_ptr()
                .add(token * operands.columns + group * operands.group);
            let dots = if operands.code_bits == 4 {
                nibble_tile::<L, R, T>(operands, record, x)
            } else {
                code_tile::<L, R, T>(operands, record, x)
            };
            for r in 0..R {
                let floats = record.add(r * operands.block_bytes + operands.code_bytes);
                let scale = load_floats::<L>(operands.kind, floats);
                let bias = load_floats::<L>(operands.kind, floats.add(float_bytes));
                for t in 0..T {
                    let index = (token + t) * groups + group;
                    let x_scale = L::splat(*operands.scales.get_unchecked(index));
                    let x_sum = L::splat(*operands.sums.get_unchecked(index));
                    let product = L::mul(L::to_f32(dots[r][t]), x_scale);
                    y[r][t] = L::fma(scale, product, y[r][t]);
                    y[r][t] = L::fma(bias, x_sum, y[r][t]);
                }
            }
        }
        for r in 0..R {
            for t in 0..T {
                let to = out.add(t * stride + r * BLOCK_ROWS);
                store_rows::<L>(operands, block + r, y[r][t], to);
            }
        }
    }
}

/// One group's integer dot products of a tile of 4-bit codes.
///
/// # Safety
/// As for [`tile`]; `record` and `x` point to the group's first ones.
#[inline(always)]
unsafe fn nibble_tile<L: Lanes, const R: usize, const T: usize>(
    operands: &Operands<'_>,
    record: *const u8,
    x: *const i8,
) -> [[L::I; T]; R] {
    // SAFETY: the caller's contract.
    unsafe {
        let mut dots = [[L::zero(); T]; R];
        for eight in 0..operands.group / 8 {
            let mut packed = [L::load_bytes(record.add(eight * 64)); R];
            for r in 1..R {
                packed[r] = L::load_bytes(record.add(r * operands.block_bytes + eight * 64));
            }
            for half in 0..2 {
                let mut codes = packed;
                for r in 0..R {
                    codes[r] = if half == 0 {
                        L::low_nibbles(packed[r])
                    } else {
                        L::high_nibbles(packed[r])
                    };
                }
                for t in 0..T {
                    let x = L::splat_bytes(x.add(t * operands.columns + eight * 8 + half * 4));
                    for r in 0..R {
                        dots[r][t] = L::dot_nibbles(dots[r][t], codes[r], x);
                    }
                }
            }
        }
        dots
    }
}

/// One group's integer dot products of a tile of 8-bit codes.
///
/// # Safety
/// As for [`tile`]; `record` and `x` point to the group's first ones.
#[inline(always)]
unsafe fn code_tile<L: Lanes, const R: usize, const T: usize>(
    operands: &Operands<'_>,
    record: *const u8,
    x: *const i8,
) -> [[L::I; T]; R] {
    // SAFETY: the caller's contract.
    unsafe {
        let mut dots = [[L::zero(); T]; R];
        for four in 0..operands.group / 4 {
            let mut codes = [L::load_bytes(record.add(four * 64)); R];
            for r in 1..R {
                codes[r] = L::load_bytes(record.add(r * operands.block_bytes + four * 64));
            }
            for t in 0..T {
                let x = L::splat_bytes(x.add(t * operands.columns + four * 4));
                for r in 0..R {
                    dots[r][t] = L::dot_codes(dots[r][t], codes[r], x);
                }
            }
        }
        dots
    }
}
