//! Whether the guard rejected one arm more often than another.
//!
//! A rejected attempt drops the whole round, so no arm keeps its lucky numbers.
//! But if one arm draws the rejections, the rounds that are left were selected by
//! it, and a comparison of what is left is not the comparison that was planned.

use statrs::function::gamma::ln_gamma;

/// Level of the test. Low, because it is made for every candidate of every run
/// and throws a run away: one honest run in a hundred comparisons.
const LEVEL: f64 = 0.01;

/// Attempts of one treatment, all its copies together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejections {
    /// Attempts that ran, rejected ones included, priming ones not.
    pub attempts: u32,
    /// Those that the guard rejected.
    pub rejected: u32,
}

/// The reason why `candidate` cannot be compared with `base`, if the rejections
/// of the two are further apart than chance explains.
///
/// Exact test: if rejections do not depend on the arm, the candidate's share of
/// them is binomial with its share of the attempts.
#[must_use]
pub fn unbalanced(base: Rejections, candidate: Rejections) -> Option<String> {
    let rejected = base.rejected + candidate.rejected;
    let attempts = base.attempts + candidate.attempts;
    if rejected == 0 || base.attempts == 0 || candidate.attempts == 0 {
        return None;
    }
    let share = f64::from(candidate.attempts) / f64::from(attempts);
    let tail = |range: std::ops::RangeInclusive<u32>| -> f64 {
        range.map(|hits| binomial(rejected, hits, share)).sum()
    };
    let (low, high) = (
        tail(0..=candidate.rejected),
        tail(candidate.rejected..=rejected),
    );
    (2.0 * low.min(high) < LEVEL).then(|| {
        format!(
            "the guard rejected {} of its {} attempts and {} of the base's {}: the rounds that \
             are left were selected",
            candidate.rejected, candidate.attempts, base.rejected, base.attempts
        )
    })
}

/// Probability of `hits` in `of` draws with chance `share`, strictly between 0 and 1.
fn binomial(of: u32, hits: u32, share: f64) -> f64 {
    let [of, hits] = [of, hits].map(f64::from);
    let misses = of - hits;
    let choose = ln_gamma(of + 1.0) - ln_gamma(hits + 1.0) - ln_gamma(misses + 1.0);
    (choose + hits * share.ln() + misses * (1.0 - share).ln()).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(attempts: u32, rejected: u32) -> Rejections {
        Rejections { attempts, rejected }
    }

    #[test]
    fn a_few_rejections_here_or_there_are_chance() {
        for (base, candidate) in [
            (of(10, 0), of(5, 0)),
            (of(10, 0), of(5, 2)),
            (of(13, 3), of(6, 1)),
            (of(40, 5), of(20, 0)),
            (of(0, 0), of(5, 5)),
        ] {
            assert_eq!(unbalanced(base, candidate), None, "{base:?} {candidate:?}");
        }
    }

    #[test]
    fn rejections_of_one_arm_only_are_told_with_their_numbers() {
        let reason = unbalanced(of(20, 0), of(20, 9)).unwrap();
        assert!(
            reason.starts_with("the guard rejected 9 of its 20"),
            "{reason}"
        );
        assert!(unbalanced(of(20, 9), of(20, 0)).is_some());
    }

    #[test]
    fn more_attempts_may_have_more_rejections() {
        // Two copies of the base: twice the attempts, twice the rejections.
        assert_eq!(unbalanced(of(40, 20), of(20, 10)), None);
    }

    #[test]
    fn the_probabilities_are_a_distribution() {
        let sum: f64 = (0..=30).map(|hits| binomial(30, hits, 0.3)).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
        assert!((binomial(3, 1, 0.25) - 0.421_875).abs() < 1e-12);
    }
}
