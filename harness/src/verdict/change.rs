//! An effect as readers see it: the metric's own change in percent.

use crate::experiment::model::Better;
use crate::unit;

/// δ (larger is slower) as a relative change of the metric itself, in percent:
/// a rate that got slower went down, a time that got slower went up.
#[must_use]
pub fn own_pct(better: Better, delta: f64) -> f64 {
    unit::percent_of(match better {
        Better::Higher => -delta,
        Better::Lower => delta,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_the_metrics_own_sign() {
        let own = |better, delta| unit::signed_pct(own_pct(better, delta));
        let slower = (100.0_f64 / 98.81).ln();
        assert_eq!(own(Better::Higher, slower), "−1.19 %");
        assert_eq!(own(Better::Lower, 1.0119_f64.ln()), "+1.19 %");
        assert_eq!(own(Better::Lower, -slower), "−1.19 %");
        assert_eq!(own(Better::Higher, 0.0), "±0.00 %");
    }
}
