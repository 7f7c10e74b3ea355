//! The operations on AVX2 with FMA and F16C: two registers a vector.
//!
//! `vpmaddubsw` adds two products in saturating i16. Codes up to 15 times i8
//! stay below 3810, so nibbles are safe; codes up to 255 are split into two
//! nibbles first.

#![expect(unsafe_code, reason = "instruction set intrinsics")]
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "each function's obligations are those of `Lanes`"
)]

use std::arch::x86_64::*;

use super::interface::{LANES, Lanes};

/// AVX2, FMA and F16C.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Avx2;

/// Adds pairs of i16 into the i32 lanes of `sum`.
#[inline(always)]
unsafe fn widen(sum: __m256i, pairs: __m256i) -> __m256i {
    _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

#[inline(always)]
unsafe fn nibble_dot(sum: __m256i, codes: __m256i, x: __m256i) -> __m256i {
    widen(sum, _mm256_maddubs_epi16(codes, x))
}

#[inline(always)]
unsafe fn low(a: __m256i) -> __m256i {
    _mm256_and_si256(a, _mm256_set1_epi8(15))
}

#[inline(always)]
unsafe fn high(a: __m256i) -> __m256i {
    low(_mm256_srli_epi16::<4>(a))
}

#[inline(always)]
unsafe fn code_dot(sum: __m256i, codes: __m256i, x: __m256i) -> __m256i {
    let sixteens = nibble_dot(_mm256_setzero_si256(), high(codes), x);
    nibble_dot(
        _mm256_add_epi32(sum, _mm256_slli_epi32::<4>(sixteens)),
        low(codes),
        x,
    )
}

#[inline(always)]
unsafe fn packed_dot(sum: __m256i, packed: __m256i, x_low: __m256i, x_high: __m256i) -> __m256i {
    let pairs = _mm256_add_epi16(
        _mm256_maddubs_epi16(low(packed), x_low),
        _mm256_maddubs_epi16(high(packed), x_high),
    );
    widen(sum, pairs)
}

#[inline(always)]
unsafe fn bf16_half(from: *const u16) -> __m256 {
    let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
}

#[inline(always)]
unsafe fn power_half(a: __m256) -> __m256 {
    let biased = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));
    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
}

/// Applies a 256-bit operation to both registers.
macro_rules! both {
    ($f:ident, $($a:expr),+) => { ($f($($a.0),+), $f($($a.1),+)) };
}

// SAFETY: every function uses only the features named at the type.
unsafe impl Lanes for Avx2 {
    type F = (__m256, __m256);
    type I = (__m256i, __m256i);
    type B = (__m256i, __m256i);
    // A vector is two of sixteen registers.
    const HOLDS_TWO_BLOCKS: bool = false;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        (_mm256_set1_ps(value), _mm256_set1_ps(value))
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        (_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8)))
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        (
            _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
            _mm256_cvtph_ps(_mm_loadu_si128(from.add(8).cast())),
        )
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F {
        (bf16_half(from), bf16_half(from.add(8)))
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: Self::F) {
        _mm256_storeu_ps(to, value.0);
        _mm256_storeu_ps(to.add(8), value.1);
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u16, value: Self::F) {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;
        _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<NEAREST>(value.0));
        _mm_storeu_si128(to.add(8).cast(), _mm256_cvtps_ph::<NEAREST>(value.1));
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_add_ps, a, b)
    }
    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_sub_ps, a, b)
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_mul_ps, a, b)
    }
    #[inline(always)]
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_div_ps, a, b)
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        both!(_mm256_fmadd_ps, a, b, c)
    }
    #[inline(always)]
    unsafe fn fnma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        both!(_mm256_fnmadd_ps, a, b, c)
    }
    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_max_ps, a, b)
    }
    #[inline(always)]
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F {
        both!(_mm256_min_ps, a, b)
    }
    #[inline(always)]
    unsafe fn abs(a: Self::F) -> Self::F {
        let sign = Self::splat(-0.0);
        both!(_mm256_andnot_ps, sign, a)
    }
    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        (
            _mm256_round_ps::<NEAREST>(a.0),
            _mm256_round_ps::<NEAREST>(a.1),
        )
    }
    #[inline(always)]
    unsafe fn power_of_two(a: Self::F) -> Self::F {
        both!(power_half, a)
    }
    #[inline(always)]
    unsafe fn sum(a: Self::F) -> f32 {
        let eight = _mm256_add_ps(a.0, a.1);
        let four = _mm_add_ps(
            _mm256_castps256_ps128(eight),
            _mm256_extractf128_ps::<1>(eight),
        );
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    }
    #[inline(always)]
    unsafe fn largest(a: Self::F) -> f32 {
        let eight = _mm256_max_ps(a.0, a.1);
        let four = _mm_max_ps(
            _mm256_castps256_ps128(eight),
            _mm256_extractf128_ps::<1>(eight),
        );
        let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
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
        both!(_mm256_cvtepi32_ps, a)
    }
    #[inline(always)]
    unsafe fn store_i8(to: *mut i8, value: Self::F) {
        let wide = both!(_mm256_cvtps_epi32, value);
        // Packing works within 128-bit halves: put the quarters back in order.
        let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(wide.0, wide.1));
        let bytes = _mm_packs_epi16(
            _mm256_castsi256_si128(words),
            _mm256_extracti128_si256::<1>(words),
        );
        _mm_storeu_si128(to.cast(), bytes);
    }

    #[inline(always)]
    unsafe fn zero() -> Self::I {
        (_mm256_setzero_si256(), _mm256_setzero_si256())
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::B {
        (
            _mm256_loadu_si256(from.cast()),
            _mm256_loadu_si256(from.add(32).cast()),
        )
    }
    #[inline(always)]
    unsafe fn splat_bytes(from: *const i8) -> Self::B {
        let all = _mm256_set1_epi32(from.cast::<i32>().read_unaligned());
        (all, all)
    }
    #[inline(always)]
    unsafe fn low_nibbles(a: Self::B) -> Self::B {
        both!(low, a)
    }
    #[inline(always)]
    unsafe fn high_nibbles(a: Self::B) -> Self::B {
        both!(high, a)
    }
    #[inline(always)]
    unsafe fn dot_nibbles(sum: Self::I, codes: Self::B, x: Self::B) -> Self::I {
        both!(nibble_dot, sum, codes, x)
    }
    #[inline(always)]
    unsafe fn dot_codes(sum: Self::I, codes: Self::B, x: Self::B) -> Self::I {
        both!(code_dot, sum, codes, x)
    }
    #[inline(always)]
    unsafe fn dot_packed(
        sums: (Self::I, Self::I),
        packed: Self::B,
        x_low: Self::B,
        x_high: Self::B,
    ) -> (Self::I, Self::I) {
        (both!(packed_dot, sums.0, packed, x_low, x_high), sums.1)
    }
    #[inline(always)]
    unsafe fn join(sums: (Self::I, Self::I)) -> Self::I {
        sums.0
    }
}
