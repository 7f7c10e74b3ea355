//! The exponential and what is made of it, sixteen lanes at a time.
//!
//! exp(x) = 2^n · p(r) with n = round(x / ln 2) and r = x − n ln 2 in two
//! parts, |r| ≤ ln 2 / 2; p is the Taylor polynomial of degree 7, whose
//! remainder there is below 7e-9 relative. With the roundings of f32 the
//! relative error is below [`EXP_RELATIVE_ERROR`] (tested on a dense grid).

#![expect(unsafe_code, reason = "operations of one instruction set")]

use super::lanes::Lanes;

/// Bound of the relative error of [`exp`] on its range.
#[cfg(test)]
pub(super) const EXP_RELATIVE_ERROR: f64 = 3e-7;

/// Below this exp is taken as exp(−87) ≈ 1.6e-38, the smallest normal power.
const LOWEST: f32 = -87.0;
/// Above this exp is taken as exp(88) ≈ 1.7e38.
const HIGHEST: f32 = 88.0;
/// ln 2 with few enough bits that n · LN_2_HIGH is exact, and the rest.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// 1/7!, 1/6!, …, 1/0!
const TAYLOR: [f32; 8] = [
    1.0 / 5040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
    1.0,
    1.0,
];

/// exp(x), for x clamped to −87..=88; NaN for NaN.
///
/// # Safety
/// Those of [`Lanes`].
#[inline(always)]
pub(super) unsafe fn exp<L: Lanes>(x: L::F) -> L::F {
    // SAFETY: the caller's contract; n stays within −126..=127.
    unsafe {
        // In this order NaN passes: where the second operand is NaN, it is taken.
        let x = L::min(L::splat(HIGHEST), L::max(L::splat(LOWEST), x));
        let n = L::round(L::mul(x, L::splat(std::f32::consts::LOG2_E)));
        let r = L::fnma(n, L::splat(LN_2_HIGH), x);
        let r = L::fnma(n, L::splat(LN_2_LOW), r);
        let mut p = L::splat(TAYLOR[0]);
        let mut term = 1;
        while term < TAYLOR.len() {
            p = L::fma(p, r, L::splat(TAYLOR[term]));
            term += 1;
        }
        L::mul(p, L::power_of_two(n))
    }
}

/// x · sigmoid(x)
///
/// # Safety
/// Those of [`Lanes`].
#[inline(always)]
pub(super) unsafe fn silu<L: Lanes>(x: L::F) -> L::F {
    // SAFETY: the caller's contract.
    unsafe { gate_by_sigmoid::<L>(x, x) }
}

/// x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))), as x · sigmoid(2√(2/π) (…)).
///
/// # Safety
/// Those of [`Lanes`].
#[inline(always)]
pub(super) unsafe fn gelu_tanh<L: Lanes>(x: L::F) -> L::F {
    /// 2√(2/π)
    const SLOPE: f32 = 1.595_769;
    const CUBIC: f32 = 0.044_715;
    // SAFETY: the caller's contract.
    unsafe {
        let inner = L::fma(L::mul(x, x), L::splat(SLOPE * CUBIC), L::splat(SLOPE));
        gate_by_sigmoid::<L>(x, L::mul(x, inner))
    }
}

/// x / (1 + exp(−z))
#[inline(always)]
unsafe fn gate_by_sigmoid<L: Lanes>(x: L::F, z: L::F) -> L::F {
    // SAFETY: the caller's contract.
    unsafe {
        let e = exp::<L>(L::sub(L::splat(0.0), z));
        L::div(x, L::add(L::splat(1.0), e))
    }
}
