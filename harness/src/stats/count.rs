//! Whole numbers as real ones.

/// `n` as a double: exact up to 2⁵³, and no sample is that large.
#[must_use]
pub fn count(n: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let count = n as f64;
    count
}
