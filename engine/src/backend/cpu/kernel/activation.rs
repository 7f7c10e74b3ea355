//! Activations as int8, one scale for each group of columns.
//!
//! A product with affine weights is, group by group,
//! y = Σ_g s_w·s_x·(q_w·q_x) + b_w·s_x·Σq_x: the first term in integers, the
//! second with the sum of the codes, not of the activations they stand for.
//! The rounding error e of an activation then enters as (s_w·q_w + b_w)·e, the
//! weight times e. With the exact Σx in the second term it would enter as
//! s_w·q_w·e, and since codes are not negative that is about twice as much:
//! √(Σq²/Σ(q−8)²) = 1.9 for four uniform bits, and so it was in whole models.

#![expect(
    unsafe_code,
    reason = "hands checked slices to kernels of one instruction set"
)]

use super::Kernels;
use super::dispatch::isa_entry;
use super::huge_pages::AlignedBuffer;
use super::lanes::{LANES, Lanes};
use super::pool::{Disjoint, share};

/// The largest code; −128 is not used, so that the range is symmetric.
const LARGEST_CODE: f32 = 127.0;
/// Below this a group counts as zero: its inverse scale would overflow.
const SMALLEST_PEAK: f32 = 1e-30;
/// Fewer tokens are quantised by the caller alone: less than a pool's start.
const POOL_TOKENS: usize = 8;

/// A few tokens' activations, quantised for one matrix's group size.
#[derive(Debug)]
pub struct Activations {
    tokens: usize,
    columns: usize,
    group: usize,
    pub(super) codes: AlignedBuffer<i8>,
    pub(super) scales: AlignedBuffer<f32>,
    pub(super) sums: AlignedBuffer<f32>,
}

impl Default for Activations {
    fn default() -> Self {
        Self::new()
    }
}

impl Activations {
    /// Empty; grows at the first use.
    #[must_use]
    pub fn new() -> Self {
        Activations {
            tokens: 0,
            columns: 0,
            group: 1,
            codes: AlignedBuffer::zeroed(0),
            scales: AlignedBuffer::zeroed(0),
            sums: AlignedBuffer::zeroed(0),
        }
    }

    /// Tokens held.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Columns of each token.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Columns that share a scale.
    #[must_use]
    pub fn group(&self) -> usize {
        self.group
    }

    /// Quantises `x`, `[tokens][columns]`, in groups of `group` columns.
    ///
    /// For each group: scale = max |x| / 127, code = x / scale rounded to
    /// nearest even, sum = scale · Σ codes. No code stands for NaN or infinity:
    /// a group with one has a scale and a sum of NaN, so that whatever is
    /// computed with it is NaN. Memory is kept for the next call.
    ///
    /// # Panics
    /// When `columns` is no multiple of `group`, `group` none of 16, or `x`
    /// no multiple of `columns`.
    pub fn quantise(&mut self, kernels: &Kernels, x: &[f32], columns: usize, group: usize) {
        assert!(
            group.is_multiple_of(LANES) && group > 0,
            "group of {group} columns"
        );
        assert!(
            columns.is_multiple_of(group) && columns > 0,
            "{columns} columns in groups of {group}"
        );
        assert!(
            x.len().is_multiple_of(columns),
            "{} values of {columns} columns",
            x.len()
        );
        self.tokens = x.len() / columns;
        self.columns = columns;
        self.group = group;
        let groups = x.len() / group;
        if self.codes.len() < x.len() {
            self.codes = AlignedBuffer::zeroed(x.len());
        }
        if self.scales.len() < groups {
            self.scales = AlignedBuffer::zeroed(groups);
            self.sums = AlignedBuffer::zeroed(groups);
        }
        let codes = Disjoint::new(&mut self.codes);
        let scales = Disjoint::new(&mut self.scales);
        let sums = Disjoint::new(&mut self.sums);
        let run = |worker: usize, workers: usize| {
            let range = share(groups, worker, workers);
            let columns = range.start * group..range.end * group;
            // SAFETY: shares are disjoint and the buffers outlive the job; the
            // instruction set is available, as `Kernels` guarantees.
            unsafe {
                quantise_groups(
                    kernels.isa(),
                    &x[columns.clone()],
                    group,
                    codes.part(columns),
                    scales.part(range.clone()),
                    sums.part(range),
                );
            }
        };
        if self.tokens < POOL_TOKENS {
            run(0, 1)
        } else {
            kernels.pool().run(run)
        }
    }
}

isa_entry! {
    /// Lengths: `codes` as `x`, `scales` and `sums` one for each group.
    fn quantise_groups(x: &[f32], group: usize, codes: &mut [i8], scales: &mut [f32], sums: &mut [f32])
        = quantise_kernel
}

/// # Safety
/// Those of [`Lanes`] and of `quantise_groups`.
#[inline(always)]
unsafe fn quantise_kernel<L: Lanes>(
    x: &[f32],
    group: usize,
    codes: &mut [i8],
    scales: &mut [f32],
    sums: &mut [f32],
) {
    let (x, codes) = (x.as_ptr(), codes.as_mut_ptr());
    for (index, (scale, sum)) in scales.iter_mut().zip(sums).enumerate() {
        // SAFETY: `index` counts groups, and a group is whole vectors.
        unsafe {
            let (x, codes) = (x.add(index * group), codes.add(index * group));
            let (mut peak, mut zero) = (L::splat(0.0), L::splat(0.0));
            for column in (0..group).step_by(LANES) {
                let x = L::load(x.add(column));
                peak = L::max(peak, L::abs(x));
                // NaN where an x is not finite; a maximum may step over it.
                zero = L::fma(x, L::splat(0.0), zero);
            }
            let (peak, zero) = (L::largest(peak), L::sum(zero));
            let inverse = if peak > SMALLEST_PEAK {
                LARGEST_CODE / peak
            } else {
                0.0
            };
            *scale = if peak > SMALLEST_PEAK {
                peak / LARGEST_CODE + zero
            } else {
                zero
            };
            for column in (0..group).step_by(LANES) {
                let x = L::load(x.add(column));
                L::store_i8(codes.add(column), L::mul(x, L::splat(inverse)));
            }
            let codes = std::slice::from_raw_parts(codes, group);
            let total: i32 = codes.iter().map(|&code| i32::from(code)).sum();
            *sum = *scale * total as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{every_isa, wave};
    use super::*;

    #[test]
    fn codes_scales_and_sums_are_those_of_the_definition_on_every_isa() {
        for kernels in every_isa(2) {
            for (tokens, columns, group) in [(1, 64, 64), (3, 96, 32), (17, 256, 128)] {
                let x = wave(tokens * columns, 0.7);
                let mut activations = Activations::new();
                activations.quantise(&kernels, &x, columns, group);
                for (index, x) in x.chunks(group).enumerate() {
                    let peak = x.iter().fold(0.0f32, |peak, x| peak.max(x.abs()));
                    assert_eq!(activations.scales[index], peak / 127.0);
                    let codes = &activations.codes[index * group..(index + 1) * group];
                    let total: i32 = codes.iter().map(|&code| i32::from(code)).sum();
                    assert_eq!(activations.sums[index], peak / 127.0 * total as f32);
                    for (column, &x) in x.iter().enumerate() {
                        let code = (x * (127.0 / peak)).round_ties_even();
                        assert_eq!(f32::from(activations.codes[index * group + column]), code);
                    }
                }
            }
        }
    }

    #[test]
    fn a_group_of_zeros_has_scale_zero_and_codes_zero() {
        for kernels in every_isa(1) {
            let mut activations = Activations::new();
            activations.quantise(&kernels, &[1.0; 32], 32, 32);
            activations.quantise(&kernels, &[0.0; 32], 32, 32);
            assert_eq!((activations.scales[0], activations.sums[0]), (0.0, 0.0));
            assert!(activations.codes.iter().all(|&code| code == 0));
        }
    }

    #[test]
    fn a_group_with_a_number_that_is_not_finite_is_nan_and_no_other_is() {
        for kernels in every_isa(1) {
            for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for place in [0, 40, 63] {
                    let mut x = wave(3 * 64, 0.7);
                    let mut activations = Activations::new();
                    activations.quantise(&kernels, &x, 64, 64);
                    let (scales, sums) = (activations.scales.to_vec(), activations.sums.to_vec());
                    x[64 + place] = odd;
                    activations.quantise(&kernels, &x, 64, 64);
                    let what = format!("{} {odd} at {place}", kernels.isa());
                    assert!(activations.scales[1].is_nan(), "{what}");
                    assert!(activations.sums[1].is_nan(), "{what}");
                    for group in [0, 2] {
                        assert_eq!(activations.scales[group], scales[group], "{what}");
                        assert_eq!(activations.sums[group], sums[group], "{what}");
                    }
                }
            }
        }
    }
}
