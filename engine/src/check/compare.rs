//! Distances between logits, in standard deviations of the reference.

/// How far `got` is from `wanted`, rows of logits both.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Distance {
    /// Root mean square.
    pub rms: f64,
    /// Largest single difference.
    pub worst: f64,
}

/// Population standard deviation.
pub fn standard_deviation(values: &[f32]) -> f64 {
    let count = values.len().max(1) as f64;
    let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / count;
    let squares = values.iter().map(|v| (f64::from(*v) - mean).powi(2));
    (squares.sum::<f64>() / count).sqrt()
}

/// Distance in units of `unit`; a length or a value that cannot be compared is infinitely far.
pub fn distance(got: &[f32], wanted: &[f32], unit: f64) -> Distance {
    let comparable = got.len() == wanted.len() && !got.is_empty() && unit > 0.0;
    if !comparable || got.iter().any(|value| !value.is_finite()) {
        return Distance {
            rms: f64::INFINITY,
            worst: f64::INFINITY,
        };
    }
    let errors = got
        .iter()
        .zip(wanted)
        .map(|(got, wanted)| (f64::from(*got) - f64::from(*wanted)).abs() / unit);
    let (mut squares, mut worst) = (0.0, 0.0f64);
    for error in errors {
        squares += error * error;
        worst = worst.max(error);
    }
    Distance {
        rms: (squares / got.len() as f64).sqrt(),
        worst,
    }
}

/// Rows whose largest logit is clear in `wanted`, and how many of them `got` agrees on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Agreement {
    /// Rows in which the best logit leads by more than the gap asked for.
    pub clear_rows: usize,
    /// Those whose best logit is the same.
    pub equal_rows: usize,
}

/// Compares the best logit of each row of `vocab` logits; a row is clear when its lead exceeds
/// `gap`, in the logits' own unit.
pub fn agreement(got: &[f32], wanted: &[f32], vocab: usize, gap: f64) -> Agreement {
    let mut result = Agreement {
        clear_rows: 0,
        equal_rows: 0,
    };
    for (got, wanted) in got.chunks_exact(vocab).zip(wanted.chunks_exact(vocab)) {
        let (best, lead) = best_and_lead(wanted);
        if f64::from(lead) > gap {
            result.clear_rows += 1;
            result.equal_rows += usize::from(best_and_lead(got).0 == best);
        }
    }
    result
}

fn best_and_lead(row: &[f32]) -> (usize, f32) {
    let (mut best, mut first, mut second) = (0, f32::NEG_INFINITY, f32::NEG_INFINITY);
    for (index, &value) in row.iter().enumerate() {
        if value > first {
            (best, second, first) = (index, first, value);
        } else if value > second {
            second = value;
        }
    }
    (best, first - second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_is_in_the_unit_given() {
        let far = distance(&[1.0, 2.0], &[1.0, 4.0], 2.0);
        assert_eq!(far.worst, 1.0);
        assert!((far.rms - 0.5f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn what_is_not_a_number_is_infinitely_far() {
        assert_eq!(distance(&[f32::NAN], &[1.0], 1.0).rms, f64::INFINITY);
        assert_eq!(distance(&[1.0], &[1.0, 2.0], 1.0).worst, f64::INFINITY);
    }

    #[test]
    fn only_clear_rows_are_asked_to_agree() {
        let wanted = [0.0, 1.0, 0.0, 0.1];
        let swapped = [1.0, 0.0, 0.1, 0.0];
        let result = agreement(&swapped, &wanted, 2, 0.5);
        assert_eq!((result.clear_rows, result.equal_rows), (1, 0));
        let result = agreement(&wanted, &wanted, 2, 0.05);
        assert_eq!((result.clear_rows, result.equal_rows), (2, 2));
    }

    #[test]
    fn the_deviation_of_two_numbers_is_half_their_distance() {
        assert_eq!(standard_deviation(&[1.0, 5.0]), 2.0);
    }
}
