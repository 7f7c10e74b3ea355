//! Every operation against the scalar one, bit for bit, at its extremes.

#![expect(unsafe_code, reason = "calls the operations of each instruction set")]

use super::super::dispatch::{CpuFeatures, Isa, isa_entry};
use super::super::testing::{Random, wave};
use super::{LANES, Lanes};

isa_entry! {
    fn every_float_operation(x: &[f32; 512]) -> Vec<u32> = every_float_operation_kernel
}

/// # Safety
/// Those of [`Lanes`].
#[inline(always)]
unsafe fn every_float_operation_kernel<L: Lanes>(x: &[f32; 512]) -> Vec<u32> {
    // SAFETY: 32 vectors of 16 floats, and the arrays written have 16.
    unsafe {
        let at = |index: usize| L::load(x.as_ptr().add(index * LANES));
        let (a, b, c) = (at(0), at(1), at(2));
        let mut halves = [0u16; LANES];
        L::store_f16(halves.as_mut_ptr(), a);
        let mut results = vec![
            L::add(a, b),
            L::sub(a, b),
            L::mul(a, b),
            L::div(a, b),
            L::fma(a, b, c),
            L::fnma(a, b, c),
            L::max(a, b),
            L::min(a, b),
            L::abs(a),
            L::round(a),
            L::power_of_two(L::round(a)),
            L::splat(L::sum(a)),
            L::splat(L::largest(a)),
            L::load_f16(halves.as_ptr()),
            L::load_bf16(x.as_ptr().add(1).cast()),
        ];
        let mut many = [a; LANES];
        for (index, many) in many.iter_mut().enumerate() {
            *many = at(index + 3);
        }
        results.push(L::sums(many));
        let mut bits = Vec::new();
        for result in results {
            let mut out = [0.0f32; LANES];
            L::store(out.as_mut_ptr(), result);
            bits.extend(out.map(f32::to_bits));
        }
        bits
    }
}

isa_entry! {
    fn every_integer_operation(codes: &[u8; 64], x: &[i8; 8], values: &[f32; 16]) -> Vec<f32>
        = every_integer_operation_kernel
}

/// # Safety
/// Those of [`Lanes`].
#[inline(always)]
unsafe fn every_integer_operation_kernel<L: Lanes>(
    codes: &[u8; 64],
    x: &[i8; 8],
    values: &[f32; 16],
) -> Vec<f32> {
    // SAFETY: the arrays have the bytes that are read and written.
    unsafe {
        let codes = L::load_bytes(codes.as_ptr());
        let (low, high) = (
            L::splat_bytes(x.as_ptr()),
            L::splat_bytes(x.as_ptr().add(4)),
        );
        let mut all = L::dot_codes(L::zero(), codes, low);
        all = L::dot_codes(all, codes, low);
        let nibbles = L::dot_nibbles(L::zero(), L::low_nibbles(codes), low);
        let both = L::dot_nibbles(nibbles, L::high_nibbles(codes), high);
        let mut packed = (L::zero(), L::zero());
        for _ in 0..16 {
            packed = L::dot_packed(packed, codes, low, high);
        }
        let mut results = Vec::new();
        for sums in [all, nibbles, both, L::join(packed)] {
            let mut out = [0.0f32; LANES];
            L::store(out.as_mut_ptr(), L::to_f32(sums));
            results.extend(out);
        }
        let mut bytes = [0i8; LANES];
        L::store_i8(bytes.as_mut_ptr(), L::load(values.as_ptr()));
        results.extend(bytes.map(f32::from));
        results
    }
}

#[test]
fn float_operations_have_the_bits_of_the_scalar_ones() {
    for round in 0..200 {
        let x: [f32; 512] = wave(512, round as f32).try_into().unwrap();
        // SAFETY: scalar code runs everywhere.
        let expected = unsafe { every_float_operation(Isa::Scalar, &x) };
        for isa in CpuFeatures::detect().available() {
            // SAFETY: an available instruction set.
            let got = unsafe { every_float_operation(isa, &x) };
            assert_eq!(got, expected, "{isa}");
        }
    }
}

#[test]
fn integer_operations_are_exact_up_to_the_largest_codes_and_activations() {
    let mut random = Random(1);
    for round in 0..200 {
        let mut codes = [0u8; 64];
        let mut x = [0i8; 8];
        codes
            .iter_mut()
            .for_each(|code| *code = random.bits() as u8);
        x.iter_mut()
            .for_each(|x| *x = (random.bits() as u8 as i8).max(-127));
        if round < 4 {
            codes = [255; 64];
            x = [if round % 2 == 0 { 127 } else { -127 }; 8];
        }
        let values: [f32; 16] = std::array::from_fn(|_| random.unit() * 127.4);
        for isa in CpuFeatures::detect().available() {
            // SAFETY: an available instruction set.
            let got = unsafe { every_integer_operation(isa, &codes, &x, &values) };
            let dot = |lane: usize, shift: u32, mask: u8, x: &[i8]| -> i32 {
                (0..4)
                    .map(|i| i32::from((codes[lane * 4 + i] >> shift) & mask) * i32::from(x[i]))
                    .sum()
            };
            for lane in 0..LANES {
                let (low, high) = (dot(lane, 0, 15, &x), dot(lane, 4, 15, &x[4..]));
                let all = 2 * dot(lane, 0, 255, &x);
                let expected = [all, low, low + high, 16 * (low + high)];
                for (index, expected) in expected.into_iter().enumerate() {
                    assert_eq!(got[index * LANES + lane], expected as f32, "{isa} {index}");
                }
                assert_eq!(
                    got[4 * LANES + lane],
                    values[lane].round_ties_even(),
                    "{isa}"
                );
            }
        }
    }
}

isa_entry! {
    /// max(a, b), then min(a, b).
    fn extremes(a: &[f32; 16], b: &[f32; 16]) -> [[f32; 16]; 2] = extremes_kernel
}

/// # Safety
/// Those of [`Lanes`].
#[inline(always)]
unsafe fn extremes_kernel<L: Lanes>(a: &[f32; 16], b: &[f32; 16]) -> [[f32; 16]; 2] {
    let mut out = [[0.0; LANES]; 2];
    // SAFETY: the arrays have 16 floats.
    unsafe {
        let (a, b) = (L::load(a.as_ptr()), L::load(b.as_ptr()));
        L::store(out[0].as_mut_ptr(), L::max(a, b));
        L::store(out[1].as_mut_ptr(), L::min(a, b));
    }
    out
}

// Clamps and searches put the operand that NaN must win or lose against in its place.
#[test]
fn the_second_operand_is_taken_where_one_is_nan() {
    let (nan, mut a, mut b) = (f32::NAN, [2.0; 16], [3.0; 16]);
    (a[1], b[2], a[3], b[3]) = (nan, nan, nan, nan);
    for isa in CpuFeatures::detect().available() {
        // SAFETY: an available instruction set.
        let [largest, smallest] = unsafe { extremes(isa, &a, &b) };
        for (got, expected) in [(largest, 3.0), (smallest, 2.0)] {
            assert_eq!((got[0], got[1]), (expected, 3.0), "{isa}");
            assert!(got[2].is_nan() && got[3].is_nan(), "{isa}");
        }
    }
}

isa_entry! {
    fn widened(halves: &[u16; 16]) -> [f32; 16] = widened_kernel
}

/// # Safety
/// Those of [`Lanes`].
#[inline(always)]
unsafe fn widened_kernel<L: Lanes>(halves: &[u16; 16]) -> [f32; 16] {
    let mut out = [0.0; LANES];
    // SAFETY: the arrays have 16 elements.
    unsafe { L::store(out.as_mut_ptr(), L::load_f16(halves.as_ptr())) };
    out
}

#[test]
fn every_half_is_widened_to_what_it_stands_for() {
    for isa in CpuFeatures::detect().available() {
        for first in (0..=u16::MAX).step_by(LANES) {
            let halves: [u16; 16] = std::array::from_fn(|lane| first + lane as u16);
            // SAFETY: an available instruction set.
            let got = unsafe { widened(isa, &halves) };
            for (bits, got) in halves.into_iter().zip(got) {
                let expected = half::f16::from_bits(bits).to_f32();
                let same = got.to_bits() == expected.to_bits();
                assert!(
                    same || (got.is_nan() && expected.is_nan()),
                    "{isa} {bits:#x}"
                );
            }
        }
    }
}
