//! Looks and confirmation: in which stages the rounds of a run are bought.
//!
//! A look ends a stage: cells that have their verdict stop there, the others go on to
//! the next. A confirmation is a last stage of fresh rounds for the cells that failed. Every
//! stage may say something false, so each gets an equal part of α; by Bonferroni's
//! inequality the run as a whole then errs no more often than α, whatever the noise, and
//! however the answers of the stages depend on each other.

/// What a stage is for, in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The number of the look that ends it, 1-based.
    Look(u32),
    /// Fresh rounds, never pooled with the earlier ones.
    Confirmation,
}

/// A part of a run: rounds `from + 1` to `until` of the cells that take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// What it is for.
    pub kind: Kind,
    /// Planned rounds of the cell before it.
    pub from: u32,
    /// Planned rounds of the cell when it ends.
    pub until: u32,
    /// First of the rounds that are looked at together when it ends, minus 1: a look looks
    /// at all rounds so far, a confirmation at its own.
    pub counted_from: u32,
}

/// The stages of a run. `looks` are the rounds after which is looked, growing; none means
/// one look after all `rounds`. A confirmation has as many rounds as the whole run before it.
#[must_use]
pub fn stages(rounds: u32, looks: &[u32], confirm: bool) -> Vec<Stage> {
    let ends = if looks.is_empty() {
        vec![rounds]
    } else {
        looks.to_vec()
    };
    let mut from = 0;
    let mut stages: Vec<Stage> = Vec::new();
    for (number, until) in (1..).zip(ends) {
        stages.push(Stage {
            kind: Kind::Look(number),
            from,
            until,
            counted_from: 0,
        });
        from = until;
    }
    if confirm {
        stages.push(Stage {
            kind: Kind::Confirmation,
            from,
            until: from.saturating_mul(2),
            counted_from: from,
        });
    }
    stages
}

/// The level of each stage of a run at `alpha`.
#[must_use]
pub fn level(alpha: f64, stages: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a handful of stages")]
    let stages = stages.max(1) as f64;
    alpha / stages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(stages: &[Stage]) -> Vec<(u32, u32, u32)> {
        stages
            .iter()
            .map(|stage| (stage.from, stage.until, stage.counted_from))
            .collect()
    }

    #[test]
    fn a_plain_run_is_one_stage_at_the_whole_level() {
        let stages = stages(5, &[], false);
        assert_eq!(ends(&stages), [(0, 5, 0)]);
        assert_eq!(level(0.05, stages.len()).to_bits(), 0.05_f64.to_bits());
    }

    #[test]
    fn looks_count_all_rounds_so_far_and_a_confirmation_its_own() {
        let stages = stages(10, &[3, 6, 10], true);
        assert_eq!(
            ends(&stages),
            [(0, 3, 0), (3, 6, 0), (6, 10, 0), (10, 20, 10)]
        );
        assert_eq!(stages[3].kind, Kind::Confirmation);
        assert!((level(0.05, stages.len()) - 0.0125).abs() < 1e-15);
    }
}
