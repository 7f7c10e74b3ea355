//! The formulas of the stages, on plain slices.

/// Independent partial sums of a dot product: enough for the compiler to use vectors, and a fixed
/// order of summation whatever the machine.
const LANES: usize = 16;

/// `Σ a[i] b[i]` in float32.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// `x / sqrt(mean(x²) + eps) * weight`.
pub(super) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let mean_square = dot(x, x) / x.len() as f32;
    let factor = 1.0 / (mean_square + eps).sqrt();
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * factor * weight;
    }
}

/// As [`rms_norm`], in place.
pub(super) fn rms_norm_in_place(x: &mut [f32], weight: &[f32], eps: f32) {
    let mean_square = dot(x, x) / x.len() as f32;
    let factor = 1.0 / (mean_square + eps).sqrt();
    for (x, weight) in x.iter_mut().zip(weight) {
        *x = *x * factor * weight;
    }
}

/// Rotates a head: pair `i` is elements `i` and `i + half`, by `position * inverse[i]` radians.
///
/// Angle, sine and cosine are computed in float64, so that they do not depend on the platform's
/// float32 routines.
pub(super) fn rotate(head: &mut [f32], position: usize, inverse: &[f32]) {
    let (low, high) = head.split_at_mut(inverse.len());
    for ((low, high), inverse) in low.iter_mut().zip(high).zip(inverse) {
        let angle = position as f64 * f64::from(*inverse);
        let (sin, cos) = (angle.sin() as f32, angle.cos() as f32);
        (*low, *high) = (*low * cos - *high * sin, *high * cos + *low * sin);
    }
}

/// In place, over all of `scores`.
pub(super) fn softmax(scores: &mut [f32]) {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = (*score - largest).exp();
        sum += *score;
    }
    for score in scores {
        *score /= sum;
    }
}

/// `x · sigmoid(x)`.
pub(super) fn silu(x: f32) -> f32 {
    x / (1.0 + (-x).exp())
}

/// The tanh form of GELU (Hendrycks and Gimpel 2016).
pub(super) fn gelu_tanh(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_product_counts_every_element() {
        let a: Vec<f32> = (0..37).map(|i| i as f32).collect();
        let ones = vec![1.0; 37];
        assert_eq!(dot(&a, &ones), 666.0);
    }

    #[test]
    fn a_quarter_turn_moves_the_first_half_to_the_second() {
        let mut head = [1.0, 0.0];
        rotate(&mut head, 1, &[std::f32::consts::FRAC_PI_2]);
        assert!(head[0].abs() < 1e-6 && (head[1] - 1.0).abs() < 1e-6);
    }

    #[test]
    fn softmax_sums_to_one_even_for_huge_scores() {
        let mut scores = [1000.0, 1000.0, -1000.0];
        softmax(&mut scores);
        assert_eq!(scores, [0.5, 0.5, 0.0]);
    }

    #[test]
    fn activations_at_known_points() {
        assert_eq!(silu(0.0), 0.0);
        assert!((silu(1.0) - 0.731_058_6).abs() < 1e-6);
        assert!((gelu_tanh(1.0) - 0.841_192).abs() < 1e-6);
        assert!((gelu_tanh(-10.0)).abs() < 1e-6);
    }
}
