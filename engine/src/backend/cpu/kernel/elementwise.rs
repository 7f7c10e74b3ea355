//! Work on each element or row of the activations: norms, rotations, gates.
//!
//! A function takes any number of rows and splits them over the pool when
//! there is enough to do; a token alone is done by the caller, because
//! starting the pool would cost more.

#![expect(
    unsafe_code,
    reason = "hands checked slices to kernels of one instruction set"
)]

use super::Kernels;
use super::dispatch::{Isa, isa_entry};
use super::exp::{gelu_tanh, silu};
use super::gated::Gate;
use super::lanes::{LANES, Lanes};

/// Elements below which the pool is not started.
const POOL_ELEMENTS: usize = 32 * 1024;

/// y = x / √(mean x² + epsilon) · weight, for each row of `weight.len()`.
///
/// `weight` is the final one: a family that scales by 1 + w passes that.
///
/// # Panics
/// When `x` and `y` differ in length or are not whole rows.
pub fn rms_norm(kernels: &Kernels, x: &[f32], weight: &[f32], epsilon: f32, y: &mut [f32]) {
    let width = weight.len();
    assert!(
        x.len() == y.len() && width > 0 && x.len().is_multiple_of(width),
        "sizes of a norm"
    );
    by_rows(kernels, y, width, |row, y| {
        let x = &x[row * width..][..y.len()];
        // SAFETY: whole rows of equal length; the instruction set is available.
        unsafe { rms_norm_rows(kernels.isa(), x, weight, epsilon, y) };
    });
}

/// [`rms_norm`] of `x` onto itself.
///
/// # Panics
/// When `x` is not whole rows.
pub fn rms_norm_in_place(kernels: &Kernels, x: &mut [f32], weight: &[f32], epsilon: f32) {
    let width = weight.len();
    assert!(
        width > 0 && x.len().is_multiple_of(width),
        "sizes of a norm"
    );
    by_rows(kernels, x, width, |_, x| {
        let pointer = x.as_mut_ptr();
        // SAFETY: as in `rms_norm`; the kernel reads a vector before it writes it.
        unsafe {
            rms_norm_at(
                kernels.isa(),
                pointer.cast_const(),
                weight,
                epsilon,
                pointer,
                x.len(),
            );
        };
    });
}

/// Rotates pairs (i, i + d/2) of every head by the angles of its token.
///
/// `x` is `[tokens][heads][d]` with `row` floats from token to token
/// (`row ≥ heads · d`, so that q and k can be rotated inside a joint buffer);
/// `cos` and `sin` are `[tokens][d/2]`.
///
/// # Panics
/// When the lengths do not fit.
pub fn rope(
    kernels: &Kernels,
    x: &mut [f32],
    row: usize,
    heads: usize,
    cos: &[f32],
    sin: &[f32],
    half: usize,
) {
    assert!(
        half > 0 && cos.len() == sin.len() && row >= heads * 2 * half,
        "sizes of a rotation"
    );
    let tokens = cos.len() / half;
    assert!(cos.len() == tokens * half, "length of the angles");
    assert!(
        tokens == 0 || x.len() >= (tokens - 1) * row + heads * 2 * half,
        "length of the heads"
    );
    by_rows(kernels, x, row, |first, x| {
        for (token, x) in x
            .chunks_mut(row)
            .enumerate()
            .map(|(index, x)| (first + index, x))
        {
            if token < tokens {
                let angles = token * half..(token + 1) * half;
                let x = &mut x[..heads * 2 * half];
                // SAFETY: `heads` heads of 2 · half; the instruction set is available.
                unsafe { rotate(kernels.isa(), x, &cos[angles.clone()], &sin[angles]) };
            }
        }
    });
}

/// y = act(gate) · up, element by element.
///
/// # Panics
/// When the lengths differ.
pub fn gate(kernels: &Kernels, function: Gate, gate: &[f32], up: &[f32], y: &mut [f32]) {
    assert!(
        gate.len() == up.len() && up.len() == y.len(),
        "lengths of gate, up and output"
    );
    by_rows(kernels, y, LANES * 64, |row, y| {
        let range = row * LANES * 64..row * LANES * 64 + y.len();
        // SAFETY: equal lengths; the instruction set is available.
        unsafe { gate_slice(kernels.isa(), function, &gate[range.clone()], &up[range], y) };
    });
}

/// y += x
///
/// # Panics
/// When the lengths differ.
pub fn add_to(x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "lengths of a sum");
    for (y, x) in y.iter_mut().zip(x) {
        *y += x;
    }
}

/// Calls `each` with the first row's number and the elements of some rows.
fn by_rows(
    kernels: &Kernels,
    y: &mut [f32],
    width: usize,
    each: impl Fn(usize, &mut [f32]) + Sync,
) {
    if y.len() < POOL_ELEMENTS {
        return each(0, y);
    }
    let rows = y.len().div_ceil(width).div_ceil(kernels.pool().workers());
    kernels
        .pool()
        .for_chunks(y, rows * width, |chunk, y| each(chunk * rows, y));
}

isa_entry! {
    fn rms_norm_at(x: *const f32, weight: &[f32], epsilon: f32, y: *mut f32, len: usize)
        = rms_norm_kernel
}

/// # Safety
/// `x` and `y` are whole rows of equal length.
unsafe fn rms_norm_rows(isa: Isa, x: &[f32], weight: &[f32], epsilon: f32, y: &mut [f32]) {
    // SAFETY: the caller's contract.
    unsafe { rms_norm_at(isa, x.as_ptr(), weight, epsilon, y.as_mut_ptr(), y.len()) }
}

/// # Safety
/// Those of [`Lanes`]; `len` floats at `x` and `y`, in whole rows, which may
/// be the same memory.
#[inline(always)]
unsafe fn rms_norm_kernel<L: Lanes>(
    x: *const f32,
    weight: &[f32],
    epsilon: f32,
    y: *mut f32,
    len: usize,
) {
    let width = weight.len();
    let whole = width / LANES * LANES;
    // SAFETY: the caller's contract; the tail goes through a zeroed vector.
    unsafe {
        for row in (0..len).step_by(width) {
            let (x, y) = (x.add(row), y.add(row));
            let mut squares = [L::splat(0.0); 2];
            for column in (0..whole).step_by(LANES) {
                let x = L::load(x.add(column));
                let slot = column / LANES % 2;
                squares[slot] = L::fma(x, x, squares[slot]);
            }
            let tail = load_tail::<L>(x.add(whole), width - whole);
            squares[0] = L::fma(tail, tail, squares[0]);
            let mean = L::sum(L::add(squares[0], squares[1])) / width as f32;
            let factor = L::splat(1.0 / (mean + epsilon).sqrt());
            for column in (0..whole).step_by(LANES) {
                let scaled = L::mul(L::load(x.add(column)), factor);
                L::store(
                    y.add(column),
                    L::mul(scaled, L::load(weight.as_ptr().add(column))),
                );
            }
            let weight = load_tail::<L>(weight.as_ptr().add(whole), width - whole);
            let scaled = L::mul(L::mul(tail, factor), weight);
            store_tail::<L>(y.add(whole), scaled, width - whole);
        }
    }
}

isa_entry! {
    fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32]) = rotate_kernel
}

/// # Safety
/// Those of [`Lanes`]; `x` is whole heads of 2 · `cos.len()`.
#[inline(always)]
unsafe fn rotate_kernel<L: Lanes>(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    for head in x.chunks_exact_mut(2 * half) {
        let (low, high) = head.split_at_mut(half);
        for start in (0..half).step_by(LANES) {
            let count = LANES.min(half - start);
            // SAFETY: `count` floats are left in each of the four slices.
            unsafe {
                let (low, high) = (low.as_mut_ptr().add(start), high.as_mut_ptr().add(start));
                let c = load_tail::<L>(cos.as_ptr().add(start), count);
                let s = load_tail::<L>(sin.as_ptr().add(start), count);
                let a = load_tail::<L>(low, count);
                let b = load_tail::<L>(high, count);
                store_tail::<L>(low, L::fnma(b, s, L::mul(a, c)), count);
                store_tail::<L>(high, L::fma(a, s, L::mul(b, c)), count);
            }
        }
    }
}

isa_entry! {
    fn gate_slice(function: Gate, gate: &[f32], up: &[f32], y: &mut [f32]) = gate_kernel
}

/// # Safety
/// Those of [`Lanes`]; equal lengths.
#[inline(always)]
unsafe fn gate_kernel<L: Lanes>(function: Gate, gate: &[f32], up: &[f32], y: &mut [f32]) {
    for start in (0..y.len()).step_by(LANES) {
        let count = LANES.min(y.len() - start);
        // SAFETY: `count` floats are left in each slice.
        unsafe {
            let gate = load_tail::<L>(gate.as_ptr().add(start), count);
            let up = load_tail::<L>(up.as_ptr().add(start), count);
            let gate = match function {
                Gate::GeluTanh => gelu_tanh::<L>(gate),
                Gate::Silu => silu::<L>(gate),
            };
            store_tail::<L>(y.as_mut_ptr().add(start), L::mul(gate, up), count);
        }
    }
}

/// The largest element; −∞ if all are NaN.
///
/// # Safety
/// Those of [`Lanes`].
#[inline(always)]
pub(super) unsafe fn largest_kernel<L: Lanes>(x: &[f32]) -> f32 {
    let mut largest = f32::NEG_INFINITY;
    let chunks = x.chunks_exact(LANES);
    for &x in chunks.remainder() {
        largest = if x > largest { x } else { largest };
    }
    // SAFETY: each chunk has 16 floats.
    unsafe {
        let mut lanes = L::splat(f32::NEG_INFINITY);
        for chunk in chunks {
            lanes = L::max(L::load(chunk.as_ptr()), lanes);
        }
        let lanes = L::largest(lanes);
        if lanes > largest { lanes } else { largest }
    }
}

/// The first `count` lanes from memory, the others 0.
///
/// # Safety
/// Those of [`Lanes`]; `count ≤ 16` floats at `from`.
#[inline(always)]
pub(super) unsafe fn load_tail<L: Lanes>(from: *const f32, count: usize) -> L::F {
    // SAFETY: the caller's contract.
    unsafe {
        if count == LANES {
            return L::load(from);
        }
        let mut all = [0.0; LANES];
        std::ptr::copy_nonoverlapping(from, all.as_mut_ptr(), count);
        L::load(all.as_ptr())
    }
}

/// Writes the first `count` lanes.
///
/// # Safety
/// Those of [`Lanes`]; room for `count ≤ 16` floats at `to`.
#[inline(always)]
pub(super) unsafe fn store_tail<L: Lanes>(to: *mut f32, value: L::F, count: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        if count == LANES {
            return L::store(to, value);
        }
        let mut all = [0.0; LANES];
        L::store(all.as_mut_ptr(), value);
        std::ptr::copy_nonoverlapping(all.as_ptr(), to, count);
    }
}

#[cfg(test)]
#[path = "elementwise_tests.rs"]
mod tests;
