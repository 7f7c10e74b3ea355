//! One position of a trace.

use serde::Serialize;

use crate::perplexity::score::LogProbabilities;

/// What was predicted at one position, and what came.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceRow {
    /// Which chunk of the text.
    pub chunk: usize,
    /// Position of the predicting token in the chunk.
    pub pos: usize,
    /// The token that came next.
    pub target: u32,
    /// `-ln p(target)`.
    pub nll: f64,
    /// The likeliest tokens, the first among equals first.
    pub ids: Vec<u32>,
    /// Their logits.
    pub logits: Vec<f32>,
}

impl TraceRow {
    /// Of the logits after the token at `pos` of `chunk`.
    #[must_use]
    pub fn new((chunk, pos): (usize, usize), logits: &[f32], target: u32, top: usize) -> Self {
        let ids = likeliest(logits, top);
        Self {
            chunk,
            pos,
            target,
            nll: -LogProbabilities::new(logits).of(target),
            logits: ids.iter().map(|&id| logits[id as usize]).collect(),
            ids,
        }
    }
}

/// Ids of the `count` largest logits, largest first, the smaller id among equals first.
fn likeliest(logits: &[f32], count: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0u32..).take(logits.len()).collect();
    let order = |a: &u32, b: &u32| {
        let (left, right) = (logits[*a as usize], logits[*b as usize]);
        right.total_cmp(&left).then(a.cmp(b))
    };
    let count = count.min(ids.len());
    if count < ids.len() {
        ids.select_nth_unstable_by(count, order);
        ids.truncate(count);
    }
    ids.sort_unstable_by(order);
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_come_first_and_equals_by_id() {
        let logits = [1.0, 3.0, 2.0, 3.0, -1.0];
        assert_eq!(likeliest(&logits, 3), [1, 3, 2]);
        assert_eq!(likeliest(&logits, 9), [1, 3, 2, 0, 4]);
        assert!(likeliest(&logits, 0).is_empty());
    }

    #[test]
    fn the_surprise_is_that_of_the_softmax() {
        let logits = [0.0, 2.0f32.ln(), 5.0f32.ln()];
        let row = TraceRow::new((3, 7), &logits, 1, 2);
        assert!((row.nll - 4.0f64.ln()).abs() < 1e-6);
        assert_eq!(
            (row.ids, row.logits),
            (vec![2, 1], vec![logits[2], logits[1]])
        );
    }
}
