//! The operations on AArch64 Advanced SIMD: four registers a vector.
//!
//! Only baseline instructions: products of bytes are widened to i16 and added
//! in pairs, so neither the dot product nor the half float extension is asked
//! for. The tests have passed under emulation; the speed has not been measured.

#![expect(unsafe_code, reason = "instruction set intrinsics")]
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "each function's obligations are those of `Lanes`"
)]

use std::arch::aarch64::*;

use super::interface::{LANES, Lanes};

/// Advanced SIMD.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Neon;

type F4 = [float32x4_t; 4];
type I4 = [int32x4_t; 4];
type B4 = [uint8x16_t; 4];

/// Applies a 128-bit operation to all four registers.
macro_rules! each {
    ($f:ident, $($a:expr),+) => {
        [$f($($a[0]),+), $f($($a[1]),+), $f($($a[2]),+), $f($($a[3]),+)]
    };
}

/// Adds to each lane its four codes below 128 times four i8: two products of
/// at most 127 · 127 fit in i16, and pairs of them are added in i32.
#[inline(always)]
unsafe fn dot(sum: int32x4_t, codes: uint8x16_t, x: uint8x16_t) -> int32x4_t {
    let (codes, x) = (vreinterpretq_s8_u8(codes), vreinterpretq_s8_u8(x));
    let low = vpaddlq_s16(vmull_s8(vget_low_s8(codes), vget_low_s8(x)));
    let high = vpaddlq_s16(vmull_s8(vget_high_s8(codes), vget_high_s8(x)));
    vaddq_s32(sum, vpaddq_s32(low, high))
}

#[inline(always)]
unsafe fn low(a: uint8x16_t) -> uint8x16_t {
    vandq_u8(a, vdupq_n_u8(15))
}

#[inline(always)]
unsafe fn high(a: uint8x16_t) -> uint8x16_t {
    vshrq_n_u8::<4>(a)
}

/// Codes up to 255, as sixteen times the high nibbles plus the low ones.
#[inline(always)]
unsafe fn wide_dot(sum: int32x4_t, codes: uint8x16_t, x: uint8x16_t) -> int32x4_t {
    let sixteens = dot(vdupq_n_s32(0), high(codes), x);
    dot(vaddq_s32(sum, vshlq_n_s32::<4>(sixteens)), low(codes), x)
}

/// c + a · b
#[inline(always)]
unsafe fn fma4(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
    vfmaq_f32(c, a, b)
}

/// c − a · b
#[inline(always)]
unsafe fn fnma4(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
    vfmsq_f32(c, a, b)
}

/// a > b ? a : b; the instruction for the maximum would prefer NaN on either side.
#[inline(always)]
unsafe fn larger4(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    vbslq_f32(vcgtq_f32(a, b), a, b)
}

/// a < b ? a : b
#[inline(always)]
unsafe fn smaller4(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    vbslq_f32(vcltq_f32(a, b), a, b)
}

#[inline(always)]
unsafe fn power4(a: float32x4_t) -> float32x4_t {
    let biased = vaddq_s32(vcvtnq_s32_f32(a), vdupq_n_s32(127));
    vreinterpretq_f32_s32(vshlq_n_s32::<23>(biased))
}

/// Exponent and fraction are moved into place and the exponent's bias is
/// corrected by an exact product, which also makes subnormals right. Infinity
/// and NaN, whose exponent is all ones, get the one that is all ones here.
#[inline(always)]
unsafe fn widen_f16(from: *const u16) -> float32x4_t {
    const BIAS: f32 = 5.192_297e33; // 2^112
    let bits = vmovl_u16(vld1_u16(from));
    let sign = vshlq_n_u32::<16>(vandq_u32(bits, vdupq_n_u32(0x8000)));
    let rest = vshlq_n_u32::<13>(vandq_u32(bits, vdupq_n_u32(0x7fff)));
    let magnitude = vmulq_f32(vreinterpretq_f32_u32(rest), vdupq_n_f32(BIAS));
    let no_number = vcgeq_u32(rest, vdupq_n_u32(0x7c00 << 13));
    let ones = vandq_u32(no_number, vdupq_n_u32(0x7f80_0000));
    let bits = vorrq_u32(vreinterpretq_u32_f32(magnitude), ones);
    vreinterpretq_f32_u32(vorrq_u32(sign, bits))
}

#[inline(always)]
unsafe fn widen_bf16(from: *const u16) -> float32x4_t {
    vreinterpretq_f32_u32(vshlq_n_u32::<16>(vmovl_u16(vld1_u16(from))))
}

#[inline(always)]
unsafe fn as_array(a: F4) -> [f32; LANES] {
    let mut array = [0.0; LANES];
    Neon::store(array.as_mut_ptr(), a);
    array
}

// SAFETY: every function uses only the baseline of the architecture.
unsafe impl Lanes for Neon {
    type F = F4;
    type I = I4;
    type B = B4;
    const HOLDS_TWO_BLOCKS: bool = true;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        [vdupq_n_f32(value); 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        [
            vld1q_f32(from),
            vld1q_f32(from.add(4)),
            vld1q_f32(from.add(8)),
            vld1q_f32(from.add(12)),
        ]
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        let at = [from, from.add(4), from.add(8), from.add(12)];
        each!(widen_f16, at)
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F {
        let at = [from, from.add(4), from.add(8), from.add(12)];
        each!(widen_bf16, at)
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: Self::F) {
        let at = [to, to.add(4), to.add(8), to.add(12)];
        each!(vst1q_f32, at, value);
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u16, value: Self::F) {
        let bits = as_array(value).map(|value| half::f16::from_f32(value).to_bits());
        to.cast::<[u16; LANES]>().write_unaligned(bits);
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        each!(vaddq_f32, a, b)
    }
    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        each!(vsubq_f32, a, b)
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        each!(vmulq_f32, a, b)
    }
    #[inline(always)]
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F {
        each!(vdivq_f32, a, b)
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        each!(fma4, a, b, c)
    }
    #[inline(always)]
    unsafe fn fnma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        each!(fnma4, a, b, c)
    }
    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        each!(larger4, a, b)
    }
    #[inline(always)]
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F {
        each!(smaller4, a, b)
    }
    #[inline(always)]
    unsafe fn abs(a: Self::F) -> Self::F {
        each!(vabsq_f32, a)
    }
    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        each!(vrndnq_f32, a)
    }
    #[inline(always)]
    unsafe fn power_of_two(a: Self::F) -> Self::F {
        each!(power4, a)
    }
    #[inline(always)]
    unsafe fn sum(a: Self::F) -> f32 {
        let four = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
        let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
        vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
    }
    #[inline(always)]
    unsafe fn largest(a: Self::F) -> f32 {
        vmaxvq_f32(vmaxq_f32(vmaxq_f32(a[0], a[1]), vmaxq_f32(a[2], a[3])))
    }
    #[inline(always)]
    unsafe fn sums(a: [Self::F; LANES]) -> Self::F {
        let mut sums = [0.0; LANES];
        let mut lane = 0;
        while lane < LANES {
            sums[lane] = Self::sum(a[lane]);
            lane += 1;
        }
        Self::load(sums.as_ptr())
    }
    #[inline(always)]
    unsafe fn to_f32(a: Self::I) -> Self::F {
        each!(vcvtq_f32_s32, a)
    }
    #[inline(always)]
    unsafe fn store_i8(to: *mut i8, value: Self::F) {
        let wide = each!(vcvtnq_s32_f32, value);
        let low = vcombine_s16(vqmovn_s32(wide[0]), vqmovn_s32(wide[1]));
        let high = vcombine_s16(vqmovn_s32(wide[2]), vqmovn_s32(wide[3]));
        vst1q_s8(to, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
    }

    #[inline(always)]
    unsafe fn zero() -> Self::I {
        [vdupq_n_s32(0); 4]
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::B {
        [
            vld1q_u8(from),
            vld1q_u8(from.add(16)),
            vld1q_u8(from.add(32)),
            vld1q_u8(from.add(48)),
        ]
    }
    #[inline(always)]
    unsafe fn splat_bytes(from: *const i8) -> Self::B {
        [vreinterpretq_u8_s32(vdupq_n_s32(from.cast::<i32>().read_unaligned())); 4]
    }
    #[inline(always)]
    unsafe fn low_nibbles(a: Self::B) -> Self::B {
        each!(low, a)
    }
    #[inline(always)]
    unsafe fn high_nibbles(a: Self::B) -> Self::B {
        each!(high, a)
    }
    #[inline(always)]
    unsafe fn dot_nibbles(sum: Self::I, codes: Self::B, x: Self::B) -> Self::I {
        each!(dot, sum, codes, x)
    }
    #[inline(always)]
    unsafe fn dot_codes(sum: Self::I, codes: Self::B, x: Self::B) -> Self::I {
        each!(wide_dot, sum, codes, x)
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
        each!(vaddq_s32, sums.0, sums.1)
    }
}
