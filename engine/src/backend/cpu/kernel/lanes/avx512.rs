//! The operations on AVX-512 with VNNI: one register a vector.

#![expect(unsafe_code, reason = "instruction set intrinsics")]
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "each function's obligations are those of `Lanes`"
)]

use std::arch::x86_64::*;

use super::interface::{LANES, Lanes};

/// AVX-512 F, BW, DQ, VL and VNNI.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Avx512;

/// The first two steps of the order of sums for four vectors: lanes eight
/// apart, then four apart, leaving the four results in the four quarters.
#[inline(always)]
unsafe fn quarters(a: __m512, b: __m512, c: __m512, d: __m512) -> __m512 {
    let ab = _mm512_add_ps(
        _mm512_shuffle_f32x4::<0b01_00_01_00>(a, b),
        _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b),
    );
    let cd = _mm512_add_ps(
        _mm512_shuffle_f32x4::<0b01_00_01_00>(c, d),
        _mm512_shuffle_f32x4::<0b11_10_11_10>(c, d),
    );
    _mm512_add_ps(
        _mm512_shuffle_f32x4::<0b10_00_10_00>(ab, cd),
        _mm512_shuffle_f32x4::<0b11_01_11_01>(ab, cd),
    )
}

// SAFETY: every function uses only the features named at the type.
unsafe impl Lanes for Avx512 {
    type F = __m512;
    type I = __m512i;
    type B = __m512i;
    const HOLDS_TWO_BLOCKS: bool = true;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        _mm512_set1_ps(value)
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        _mm512_loadu_ps(from)
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self::F {
        let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, value: Self::F) {
        _mm512_storeu_ps(to, value);
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u16, value: Self::F) {
        let half = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(value);
        _mm256_storeu_si256(to.cast(), half);
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        _mm512_add_ps(a, b)
    }
    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        _mm512_sub_ps(a, b)
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        _mm512_mul_ps(a, b)
    }
    #[inline(always)]
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F {
        _mm512_div_ps(a, b)
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        _mm512_fmadd_ps(a, b, c)
    }
    #[inline(always)]
    unsafe fn fnma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        _mm512_fnmadd_ps(a, b, c)
    }
    #[inline(always)]
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        _mm512_max_ps(a, b)
    }
    #[inline(always)]
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F {
        _mm512_min_ps(a, b)
    }
    #[inline(always)]
    unsafe fn abs(a: Self::F) -> Self::F {
        _mm512_abs_ps(a)
    }
    #[inline(always)]
    unsafe fn round(a: Self::F) -> Self::F {
        _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
    }
    #[inline(always)]
    unsafe fn power_of_two(a: Self::F) -> Self::F {
        let biased = _mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(127));
        _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
    }
    #[inline(always)]
    unsafe fn sum(a: Self::F) -> f32 {
        let eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
        let four = _mm_add_ps(
            _mm256_castps256_ps128(eight),
            _mm256_extractf128_ps::<1>(eight),
        );
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
    }
    #[inline(always)]
    unsafe fn largest(a: Self::F) -> f32 {
        _mm512_reduce_max_ps(a)
    }
    #[inline(always)]
    unsafe fn sums(a: [Self::F; LANES]) -> Self::F {
        let q0 = quarters(a[0], a[4], a[8], a[12]);
        let q1 = quarters(a[1], a[5], a[9], a[13]);
        let q2 = quarters(a[2], a[6], a[10], a[14]);
        let q3 = quarters(a[3], a[7], a[11], a[15]);
        // Two apart, then one apart, within each quarter.
        let q01 = _mm512_add_ps(
            _mm512_shuffle_ps::<0b01_00_01_00>(q0, q1),
            _mm512_shuffle_ps::<0b11_10_11_10>(q0, q1),
        );
        let q23 = _mm512_add_ps(
            _mm512_shuffle_ps::<0b01_00_01_00>(q2, q3),
            _mm512_shuffle_ps::<0b11_10_11_10>(q2, q3),
        );
        _mm512_add_ps(
            _mm512_shuffle_ps::<0b10_00_10_00>(q01, q23),
            _mm512_shuffle_ps::<0b11_01_11_01>(q01, q23),
        )
    }
    #[inline(always)]
    unsafe fn to_f32(a: Self::I) -> Self::F {
        _mm512_cvtepi32_ps(a)
    }
    #[inline(always)]
    unsafe fn store_i8(to: *mut i8, value: Self::F) {
        let bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(value));
        _mm_storeu_si128(to.cast(), bytes);
    }

    #[inline(always)]
    unsafe fn zero() -> Self::I {
        _mm512_setzero_si512()
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> Self::B {
        _mm512_loadu_si512(from.cast())
    }
    #[inline(always)]
    unsafe fn splat_bytes(from: *const i8) -> Self::B {
        _mm512_set1_epi32(from.cast::<i32>().read_unaligned())
    }
    #[inline(always)]
    unsafe fn low_nibbles(a: Self::B) -> Self::B {
        _mm512_and_si512(a, _mm512_set1_epi8(15))
    }
    #[inline(always)]
    unsafe fn high_nibbles(a: Self::B) -> Self::B {
        _mm512_and_si512(_mm512_srli_epi16::<4>(a), _mm512_set1_epi8(15))
    }
    #[inline(always)]
    unsafe fn dot_nibbles(sum: Self::I, codes: Self::B, x: Self::B) -> Self::I {
        _mm512_dpbusd_epi32(sum, codes, x)
    }
    #[inline(always)]
    unsafe fn dot_codes(sum: Self::I, codes: Self::B, x: Self::B) -> Self::I {
        _mm512_dpbusd_epi32(sum, codes, x)
    }
    #[inline(always)]
    unsafe fn dot_packed(
        sums: (Self::I, Self::I),
        packed: Self::B,
        x_low: Self::B,
        x_high: Self::B,
    ) -> (Self::I, Self::I) {
        // High nibbles stay in place, sixteen times too large: one shift at
        // the end instead of one for every vector.
        let high = _mm512_andnot_si512(_mm512_set1_epi8(15), packed);
        (
            _mm512_dpbusd_epi32(sums.0, Self::low_nibbles(packed), x_low),
            _mm512_dpbusd_epi32(sums.1, high, x_high),
        )
    }
    #[inline(always)]
    unsafe fn join(sums: (Self::I, Self::I)) -> Self::I {
        _mm512_add_epi32(sums.0, _mm512_srai_epi32::<4>(sums.1))
    }
}
