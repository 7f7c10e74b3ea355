//! Logits to nats, in float64: a sum over a quarter of a million terms.

/// A row of logits as log-probabilities.
#[derive(Debug, Clone, Copy)]
pub struct LogProbabilities<'a> {
    logits: &'a [f32],
    /// `ln Σ exp(logit)`.
    log_sum: f64,
}

impl<'a> LogProbabilities<'a> {
    /// Of one row, which must not be empty.
    pub fn new(logits: &'a [f32]) -> Self {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let largest = f64::from(largest);
        let sum: f64 = logits.iter().map(|l| (f64::from(*l) - largest).exp()).sum();
        Self {
            logits,
            log_sum: largest + sum.ln(),
        }
    }

    /// `ln p(token)`; minus infinity for a token that the row does not have.
    pub fn of(&self, token: u32) -> f64 {
        let logit = self.logits.get(token as usize);
        logit.map_or(f64::NEG_INFINITY, |logit| f64::from(*logit) - self.log_sum)
    }

    /// The likeliest token, the first among equals.
    pub fn best(&self) -> usize {
        let mut best = 0;
        for (index, logit) in self.logits.iter().enumerate() {
            if *logit > self.logits[best] {
                best = index;
            }
        }
        best
    }

    /// Kullback–Leibler divergence `Σ p ln(p/q)` of `other` (q) from this (p), in nats.
    pub fn divergence(&self, other: &Self) -> f64 {
        let pairs = self.logits.iter().zip(other.logits);
        let terms = pairs.map(|(p, q)| {
            let log_p = f64::from(*p) - self.log_sum;
            let log_q = f64::from(*q) - other.log_sum;
            let p = log_p.exp();
            // What cannot happen adds nothing, however unlikely the other finds it.
            if p == 0.0 { 0.0 } else { p * (log_p - log_q) }
        });
        // Rounding can leave a sum a hair below zero, where the divergence is zero.
        terms.sum::<f64>().max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_softmax() {
        let logits = [0.0, 2.0f32.ln(), 5.0f32.ln()];
        let row = LogProbabilities::new(&logits);
        for (token, p) in [(0u32, 0.125), (1, 0.25), (2, 0.625)] {
            assert!((row.of(token).exp() - p).abs() < 1e-6);
        }
        assert_eq!(row.best(), 2);
        assert_eq!(row.of(3), f64::NEG_INFINITY);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let row = LogProbabilities::new(&[1e4, 1e4, f32::NEG_INFINITY]);
        assert!((row.of(0) - 0.5f64.ln()).abs() < 1e-9);
    }

    #[test]
    fn the_divergence_is_that_of_the_definition() {
        // p = (1/2, 1/2), q = (3/4, 1/4): ln(2/3)/2 + ln(2)/2.
        let p = LogProbabilities::new(&[0.0, 0.0]);
        let threes = [3.0f32.ln(), 0.0];
        let q = LogProbabilities::new(&threes);
        let expected = 0.5 * (2.0f64 / 3.0).ln() + 0.5 * 2.0f64.ln();
        assert!((p.divergence(&q) - expected).abs() < 1e-6);
        assert_eq!(p.divergence(&p), 0.0);
        assert_ne!(p.divergence(&q), q.divergence(&p));
    }
}
