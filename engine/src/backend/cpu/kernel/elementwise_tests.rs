//! Elementwise kernels against their definitions, on every instruction set.

use super::super::exp::{EXP_RELATIVE_ERROR, exp};
use super::super::testing::{every_isa, wave};
use super::*;

isa_entry! {
    fn exp_slice(x: &mut [f32]) = exp_kernel
}

#[inline(always)]
unsafe fn exp_kernel<L: Lanes>(x: &mut [f32]) {
    for x in x.chunks_exact_mut(LANES) {
        // SAFETY: 16 floats each; called with an available instruction set.
        unsafe { L::store(x.as_mut_ptr(), exp::<L>(L::load(x.as_ptr()))) };
    }
}

#[test]
fn exp_stays_within_its_stated_error_over_its_range() {
    let x: Vec<f32> = (0..16 * 40_000)
        .map(|i| -87.0 + i as f32 * (175.0 / 640_000.0))
        .collect();
    let mut scalar = None;
    for kernels in every_isa(1) {
        let mut y = x.clone();
        // SAFETY: the instruction set is available.
        unsafe { exp_slice(kernels.isa(), &mut y) };
        for (&x, &y) in x.iter().zip(&y) {
            let exact = f64::from(x).exp();
            let error = (f64::from(y) - exact).abs() / exact;
            assert!(error < EXP_RELATIVE_ERROR, "exp({x}) = {y}: {error:e}");
        }
        assert_eq!(
            *scalar.get_or_insert_with(|| y.clone()),
            y,
            "{}",
            kernels.isa()
        );
    }
}

#[test]
fn exp_saturates_outside_its_range() {
    for kernels in every_isa(1) {
        let mut y = [-1e30; 16];
        y[1] = 1e30;
        // SAFETY: the instruction set is available.
        unsafe { exp_slice(kernels.isa(), &mut y) };
        assert!(y[0] > 0.0 && y[0] < 2e-38 && y[1] > 1e38 && y[1].is_finite());
    }
}

#[test]
fn exp_of_nan_is_nan() {
    for kernels in every_isa(1) {
        let mut y = [0.0; 16];
        y[3] = f32::NAN;
        // SAFETY: the instruction set is available.
        unsafe { exp_slice(kernels.isa(), &mut y) };
        assert!(y[3].is_nan(), "{}", kernels.isa());
        assert_eq!(y[2], 1.0, "{}", kernels.isa());
    }
}

#[test]
fn rms_norm_is_x_over_root_mean_square_times_weight() {
    /// Sums of at most 2048 squares in f32.
    const RELATIVE: f64 = 1e-6;
    let mut first: Option<Vec<f32>> = None;
    for kernels in every_isa(3) {
        let mut all = Vec::new();
        for (rows, width) in [(1, 16), (3, 24), (2, 7), (1, 2048), (40, 1000)] {
            let (x, weight) = (wave(rows * width, 0.2), wave(width, 0.3));
            let mut y = vec![f32::NAN; x.len()];
            rms_norm(&kernels, &x, &weight, 1e-6, &mut y);
            for (x, y) in x.chunks(width).zip(y.chunks(width)) {
                let mean = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / width as f64;
                for ((&x, &w), &y) in x.iter().zip(&weight).zip(y) {
                    let exact = f64::from(x) / (mean + 1e-6).sqrt() * f64::from(w);
                    assert!((f64::from(y) - exact).abs() <= RELATIVE * exact.abs() + 1e-12);
                }
            }
            let mut in_place = x;
            rms_norm_in_place(&kernels, &mut in_place, &weight, 1e-6);
            assert_eq!(in_place, y);
            all.extend(y);
        }
        assert_eq!(
            *first.get_or_insert_with(|| all.clone()),
            all,
            "{}",
            kernels.isa()
        );
    }
}

#[test]
fn rope_rotates_pairs_half_a_head_apart_and_nothing_else() {
    for kernels in every_isa(3) {
        for (tokens, heads, half, gap) in [(1, 1, 8, 0), (3, 4, 32, 10), (40, 4, 128, 512)] {
            let row = heads * 2 * half + gap;
            let x = wave(tokens * row, 0.5);
            let angles = wave(tokens * half, 0.6);
            let cos: Vec<f32> = angles.iter().map(|angle| angle.cos()).collect();
            let sin: Vec<f32> = angles.iter().map(|angle| angle.sin()).collect();
            let mut y = x.clone();
            rope(&kernels, &mut y, row, heads, &cos, &sin, half);
            for (index, (&y, &unchanged)) in y.iter().zip(&x).enumerate() {
                let (token, at) = (index / row, index % row);
                let expected = if at >= heads * 2 * half {
                    unchanged
                } else {
                    let (head, i) = (at / (2 * half), at % (2 * half));
                    let angle = token * half + i % half;
                    let start = token * row + head * 2 * half + i % half;
                    let (a, b, c, s) = (x[start], x[start + half], cos[angle], sin[angle]);
                    if i < half {
                        (-b).mul_add(s, a * c)
                    } else {
                        a.mul_add(s, b * c)
                    }
                };
                assert_eq!(y, expected, "{} at {index}", kernels.isa());
            }
        }
    }
}

#[test]
fn gates_are_gelu_tanh_and_silu_of_the_gate_times_up() {
    /// The exponential's error and some roundings.
    const RELATIVE: f64 = 2e-6;
    /// Where the exact value vanishes: exp saturates at 88.
    const ABSOLUTE: f64 = 1e-30;
    for kernels in every_isa(3) {
        let mut gates = wave(40_003, 0.7);
        gates[..4].copy_from_slice(&[0.0, -50.0, 60.0, -200.0]);
        let up = wave(gates.len(), 0.1);
        for function in [Gate::GeluTanh, Gate::Silu] {
            let mut y = vec![f32::NAN; gates.len()];
            gate(&kernels, function, &gates, &up, &mut y);
            for ((&g, &u), &y) in gates.iter().zip(&up).zip(&y) {
                let (g, u) = (f64::from(g), f64::from(u));
                let z = match function {
                    Gate::GeluTanh => {
                        2.0 * (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g.powi(3))
                    }
                    Gate::Silu => g,
                };
                let exact = g / (1.0 + (-z).exp()) * u;
                // The argument's rounding is multiplied by its size.
                let bound = RELATIVE * (1.0 + z.abs()) * exact.abs() + ABSOLUTE;
                assert!(
                    (f64::from(y) - exact).abs() <= bound,
                    "{function:?} {g} {u} {y} {exact}"
                );
            }
        }
    }
}

#[test]
fn add_to_adds() {
    let mut y = [1.0, 2.0];
    add_to(&[10.0, 20.0], &mut y);
    assert_eq!(y, [11.0, 22.0]);
}
