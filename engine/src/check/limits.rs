//! What each arithmetic is held to.

use crate::backend::interface::Arithmetic;

/// float32 against float32: nothing but the order of sums may differ. Two independent
/// implementations are 1e-6 to 8e-6 apart on the fixtures; a wrong rounding is beyond 1e-3.
pub const FLOAT32_RMS: f64 = 5e-5;

/// Largest single difference of a logit in float32.
pub const FLOAT32_WORST: f64 = 1e-3;

/// Largest single difference of a residual stream in float32.
pub const FLOAT32_HIDDEN_WORST: f64 = 2e-4;

/// Prefill in chunks against one piece, in float32.
pub const FLOAT32_CHUNKED_RMS: f64 = 5e-5;

/// Fast arithmetic against bf16 activations, both against float32, as a ratio of their rms.
///
/// An int8 activation in a group of 64 is off by about (largest/rms ≈ 2.6)/127/√12 = 0.6 %, a bf16
/// one by 0.1 %; but int8 rounds only what enters a product, bf16 every intermediate result. The
/// fixtures show 1.2 to 1.5.
pub const FAST_RMS_OVER_BF16: f64 = 2.0;

/// Fast arithmetic where the folder has no bf16 logits to compare with. The fixtures, which are
/// tiny, show 0.026 to 0.028; a missing norm or a wrong rotation shows more than 0.3.
pub const FAST_RMS: f64 = 0.06;

/// Largest single difference in fast arithmetic, as a multiple of its rms limit: five standard
/// deviations are reached once in 10⁶ logits, and a wrong row is far beyond eight.
pub const FAST_WORST_OVER_RMS: f64 = 8.0;

/// A row is clear when the float32 lead exceeds this many rms limits; fast arithmetic must agree
/// on every clear row.
pub const FAST_CLEAR_GAP_OVER_RMS: f64 = 5.0;

/// The limits of one arithmetic, in standard deviations of the reference logits.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Limits {
    /// Of all logits.
    pub rms: f64,
    /// Of all logits.
    pub worst: f64,
    /// Of all residual streams; `None` where they are not judged.
    pub hidden_worst: Option<f64>,
    /// Of prefill in chunks against one piece.
    pub chunked_rms: f64,
    /// Lead beyond which the best logit must agree.
    pub clear_gap: f64,
    /// Whether the engine's own greedy tokens must equal the reference's.
    pub equal_ids: bool,
}

/// The limits of `arithmetic`; `bf16_rms` is the reference's own distance between bf16 and float32
/// activations, where the folder has it.
pub fn limits(arithmetic: Arithmetic, bf16_rms: Option<f64>) -> Limits {
    match arithmetic {
        Arithmetic::Float32 => Limits {
            rms: FLOAT32_RMS,
            worst: FLOAT32_WORST,
            hidden_worst: Some(FLOAT32_HIDDEN_WORST),
            chunked_rms: FLOAT32_CHUNKED_RMS,
            clear_gap: 0.0,
            equal_ids: true,
        },
        Arithmetic::Fast => {
            let rms = bf16_rms.map_or(FAST_RMS, |bf16| FAST_RMS_OVER_BF16 * bf16);
            Limits {
                rms,
                worst: FAST_WORST_OVER_RMS * rms,
                hidden_worst: None,
                chunked_rms: rms,
                clear_gap: FAST_CLEAR_GAP_OVER_RMS * rms,
                equal_ids: false,
            }
        }
    }
}
