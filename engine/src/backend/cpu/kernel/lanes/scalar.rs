//! The operations in portable Rust: what the others are compared with.
//!
//! `f32::mul_add` is rounded once like the vector instructions. A processor
//! without one emulates it slowly; that is accepted for equal bits.

#![expect(
    unsafe_code,
    reason = "reads and writes through the pointers of the kernels"
)]
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "each function's obligations are those of `Lanes`"
)]

use half::f16;

use super::interface::{LANES, Lanes};

/// Portable Rust.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Scalar;

#[inline(always)]
fn map2(a: [f32; LANES], b: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    std::array::from_fn(|lane| f(a[lane], b[lane]))
}

#[inline(always)]
fn dot(mut sum: [i32; LANES], codes: [u8; 64], x: [i8; 64]) -> [i32; LANES] {
    for (lane, sum) in sum.iter_mut().enumerate() {
        for byte in 4 * lane..4 * lane + 4 {
            *sum += i32::from(codes[byte]) * i32::from(x[byte]);
        }
    }
    sum
}

// SAFETY: nothing here needs more than the pointers' contracts.
unsafe impl Lanes for Scalar {
    type F = [f32; LANES];
    type I = [i32; LANES];
    const HOLDS_TWO_BLOCKS: bool = false;
    /// Codes are read as u8, activations as i8.
    type B = [u8; 64];

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        [value; LANES]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        from.cast::<Self::F>().read_unaligned()
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        let bits = from.cast::<[u16; LANES]>().read_unaligned();
        bits.map(|bits| f16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F {
        let bits = from.cast::<[u16; LANES]>().read_unaligned();
        bits.map(|bits| f32::from_bits(u32::from(bits) << 16))
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: Self::F) {
        to.cast::<Self::F>().write_unaligned(value);
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u16, value: Self::F) {
        let bits = value.map(|value| f16::from_f32(value).to_bits());
        to.cast::<[u16; LANES]>().write_unaligned(bits);
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |a, b| a / b)
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        std::array::from_fn(|lane| a[lane].mul_add(b[lane], c[lane]))
    }
    #[inline(always)]
    unsafe fn fnma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        std::array::from_fn(|lane| (-a[lane]).mul_add(b[lane], c[lane]))
    }
    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F {
        map2(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    unsafe fn abs(a: Self::F) -> Self::F {
        a.map(f32::abs)
    }
    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        a.map(f32::round_ties_even)
    }
    #[inline(always)]
    unsafe fn power_of_two(a: Self::F) -> Self::F {
        a.map(|a| f32::from_bits(((a as i32 + 127) as u32) << 23))
    }
    #[inline(always)]
    unsafe fn sum(mut a: Self::F) -> f32 {
        for half in [8, 4, 2, 1] {
            for lane in 0..half {
                a[lane] += a[lane + half];
            }
        }
        a[0]
    }
    #[inline(always)]
    unsafe fn largest(a: Self::F) -> f32 {
        a.into_iter()
            .fold(f32::NEG_INFINITY, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn sums(a: [Self::F; LANES]) -> Self::F {
        a.map(|a| Self::sum(a))
    }
    #[inline(always)]
    unsafe fn to_f32(a: Self::I) -> Self::F {
        a.map(|a| a as f32)
    }
    #[inline(always)]
    unsafe fn store_i8(to: *mut i8, value: Self::F) {
        let bytes = value.map(|value| value.round_ties_even() as i8);
        to.cast::<[i8; LANES]>().write_unaligned(bytes);
    }

    #[inline(always)]
    unsafe fn zero() -> Self::I {
        [0; LANES]
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::B {
        from.cast::<Self::B>().read_unaligned()
    }
    #[inline(always)]
    unsafe fn splat_bytes(from: *const i8) -> Self::B {
        let four = from.cast::<[u8; 4]>().read_unaligned();
        std::array::from_fn(|byte| four[byte % 4])
    }
    #[inline(always)]
    unsafe fn low_nibbles(a: Self::B) -> Self::B {
        a.map(|byte| byte & 15)
    }
    #[inline(always)]
    unsafe fn high_nibbles(a: Self::B) -> Self::B {
        a.map(|byte| byte >> 4)
    }
    #[inline(always)]
    unsafe fn dot_nibbles(sum: Self::I, codes: Self::B, x: Self::B) -> Self::I {
        dot(sum, codes, x.map(|byte| byte as i8))
    }
    #[inline(always)]
    unsafe fn dot_codes(sum: Self::I, codes: Self::B, x: Self::B) -> Self::I {
        dot(sum, codes, x.map(|byte| byte as i8))
    }
    #[inline(always)]
    unsafe fn dot_packed(
        sums: (Self::I, Self::I),
        packed: Self::B,
        x_low: Self::B,
        x_high: Self::B,
    ) -> (Self::I, Self::I) {
        (
            Self::dot_nibbles(sums.0, Self::low_nibbles(packed), x_low),
            Self::dot_nibbles(sums.1, Self::high_nibbles(packed), x_high),
        )
    }
    #[inline(always)]
    unsafe fn join(sums: (Self::I, Self::I)) -> Self::I {
        std::array::from_fn(|lane| sums.0[lane] + sums.1[lane])
    }
}
