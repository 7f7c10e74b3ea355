//! Where along a line of commits did an effect begin? A noisy bisection: every answer may be
//! wrong, so none throws a commit away; each shifts probabilities.
//!
//! Commits are numbered from 0, the last is the bad one; exactly one of them is the first with
//! the effect. Given that it is commit j, a measurement of commit k against the good one is
//! distributed around the whole effect D if k ≥ j and around 0 if k < j:
//!
//!   P(first = j | data) ∝ Π_k t_ν((δ̂_k − D·\[k ≥ j\]) / s) / s,   s² = s_k² + s_D²·\[k ≥ j\],
//!
//! with D and s_D from the measurement of the bad commit, a uniform prior, and the density of
//! Student's t, whose tails forgive an odd run. The commit that halves the probability is
//! measured next (Horstein 1963; Waeber, Frazier and Henderson 2013).

use crate::stats::count::count;
use crate::stats::student::two_sided_p;
use crate::verdict::rule::{Direction, Judgement, Verdict};

/// A measured effect, natural logarithm, larger is slower.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// δ̂.
    pub delta: f64,
    /// Its standard error.
    pub error: f64,
    /// Its degrees of freedom.
    pub df: f64,
}

/// One comparison of a run: the effect of its head against the good commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The whole judgement.
    pub judgement: Judgement,
    /// Its estimate, or none at all for equal code.
    pub effect: Effect,
}

/// The gated comparison of `subject` (cell and metric), else the one that shows an effect most
/// clearly, in the wanted direction where there is one. Equal code has no effect.
#[must_use]
pub fn strongest(
    judgements: Vec<Judgement>,
    subject: Option<&(String, String)>,
    wanted: Option<Direction>,
) -> Option<Measured> {
    let is_it = |one: &Measured| match (subject, wanted) {
        (Some((cell, metric)), _) => (&one.judgement.cell, &one.judgement.metric) == (cell, metric),
        (None, Some(Direction::Slower)) => one.effect.delta > 0.0,
        (None, Some(Direction::Faster)) => one.effect.delta < 0.0,
        (None, None | Some(Direction::Undetermined)) => true,
    };
    let gated = judgements.into_iter().filter(|one| one.gated);
    gated.filter_map(measured).filter(is_it).max_by(|a, b| {
        let size = |one: &Measured| one.effect.delta.abs() / one.effect.error.max(LEAST_ERROR);
        size(a).total_cmp(&size(b))
    })
}

fn measured(judgement: Judgement) -> Option<Measured> {
    let effect = match (judgement.verdict, judgement.estimate) {
        (Verdict::Identical, _) => Effect {
            delta: 0.0,
            error: 0.0,
            df: 1e6,
        },
        (_, Some(estimate)) => Effect {
            delta: estimate.delta,
            error: estimate.standard_error,
            df: estimate.degrees_of_freedom,
        },
        (_, None) => return None,
    };
    Some(Measured { judgement, effect })
}

/// What is known about one commit of the line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Commit {
    /// Its measurements against the good commit.
    pub seen: Vec<Effect>,
    /// It does not build, or nothing of it can be measured.
    pub broken: bool,
}

/// An effect below this is none: it keeps a metric without noise from dividing by zero.
const LEAST_ERROR: f64 = 1e-6;

/// P(first = j) for every commit of `line`; `whole` is the bad commit's effect.
#[must_use]
pub fn posterior(line: &[Commit], whole: Effect) -> Vec<f64> {
    let logarithms: Vec<f64> = (0..line.len())
        .map(|first| {
            let commits = line.iter().enumerate();
            let each = commits.flat_map(|(at, commit)| {
                commit
                    .seen
                    .iter()
                    .map(move |seen| log_density(*seen, whole, at >= first))
            });
            each.sum()
        })
        .collect();
    let most = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shares: Vec<f64> = logarithms.iter().map(|one| (one - most).exp()).collect();
    let sum: f64 = shares.iter().sum();
    shares.into_iter().map(|share| share / sum).collect()
}

/// ln of the density of `seen`, up to a constant that is the same for all commits.
fn log_density(seen: Effect, whole: Effect, has_effect: bool) -> f64 {
    let (z, scale, df) = standardised(seen, whole, has_effect);
    -0.5 * (df + 1.0) * (z * z / df).ln_1p() - scale.ln()
}

/// How far `seen` is from where it should be, in units of its scale; the scale; the degrees of
/// freedom.
fn standardised(seen: Effect, whole: Effect, has_effect: bool) -> (f64, f64, f64) {
    let (mean, extra) = if has_effect {
        (whole.delta, whole.error)
    } else {
        (0.0, 0.0)
    };
    let scale = seen.error.hypot(extra).max(LEAST_ERROR);
    ((seen.delta - mean) / scale, scale, seen.df.max(1.0))
}

/// Error level of [`misfits`], over all measurements together.
const MISFIT_ALPHA: f64 = 0.01;

/// Commits whose measurements fit neither no effect nor the whole one: more than one commit of
/// the line may have changed something. Student's t, two-sided, by Bonferroni's inequality at 1 %
/// over all measurements.
#[must_use]
pub fn misfits(line: &[Commit], whole: Effect) -> Vec<usize> {
    let measurements: usize = line.iter().map(|commit| commit.seen.len()).sum();
    let level = MISFIT_ALPHA / count(measurements.max(1));
    let is_odd = |seen: &Effect| {
        [false, true].into_iter().all(|has_effect| {
            let (z, _, df) = standardised(*seen, whole, has_effect);
            two_sided_p(z, df) < level
        })
    };
    let commits = line.iter().enumerate();
    commits
        .filter(|(_, commit)| commit.seen.iter().any(is_odd))
        .map(|(at, _)| at)
        .collect()
}

/// Commits that no measurement can tell apart, as a range of the line: those that do not
/// build count with the next one that does.
#[must_use]
pub fn groups(line: &[Commit]) -> Vec<std::ops::RangeInclusive<usize>> {
    let mut groups = Vec::new();
    let mut start = 0;
    for (at, commit) in line.iter().enumerate() {
        if !commit.broken || at + 1 == line.len() {
            groups.push(start..=at);
            start = at + 1;
        }
    }
    groups
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Measure this commit, once more where it was measured before.
    Measure(usize),
    /// The first commit with the effect is one of these, with this probability.
    Found(std::ops::RangeInclusive<usize>, f64),
}

/// The commit that halves the probability best, or the end of the search as soon as one
/// group holds at least `confidence`.
#[must_use]
pub fn next(line: &[Commit], posterior: &[f64], confidence: f64) -> Next {
    let (best, best_share) = best_group(line, posterior);
    let mut below = 0.0;
    let mut halving: Option<(usize, f64)> = None;
    for (at, commit) in line.iter().enumerate().take(line.len().saturating_sub(1)) {
        below += posterior.get(at).copied().unwrap_or_default();
        let away = (below - 0.5).abs();
        if !commit.broken && halving.is_none_or(|(_, least)| away < least) {
            halving = Some((at, away));
        }
    }
    match halving {
        Some((at, _)) if best_share < confidence => Next::Measure(at),
        _ => Next::Found(best, best_share),
    }
}

/// The probability of the likeliest commits that nothing can tell apart.
#[must_use]
pub fn likeliest(line: &[Commit], posterior: &[f64]) -> f64 {
    best_group(line, posterior).1
}

fn best_group(line: &[Commit], posterior: &[f64]) -> (std::ops::RangeInclusive<usize>, f64) {
    let with_share = groups(line).into_iter().map(|group| {
        let share = posterior
            .get(group.clone())
            .unwrap_or_default()
            .iter()
            .sum();
        (group, share)
    });
    let best = with_share.max_by(|a, b: &(_, f64)| a.1.total_cmp(&b.1));
    best.unwrap_or((0..=0, 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::random::SplitMix64;

    const WHOLE: Effect = Effect {
        delta: 0.05,
        error: 0.005,
        df: 9.0,
    };

    fn effect(delta: f64, error: f64) -> Effect {
        Effect {
            delta,
            error,
            df: 9.0,
        }
    }

    /// Searches a line of 60 commits; gives the answer, its probability and the runs it took.
    fn search(first: usize, broken: &[usize], noise: f64, seed: u64) -> (Vec<usize>, f64, usize) {
        let mut random = SplitMix64::new(seed);
        let mut line = vec![Commit::default(); 60];
        for runs in 0..400 {
            match next(&line, &posterior(&line, WHOLE), 0.95) {
                Next::Found(group, probability) => return (group.collect(), probability, runs),
                Next::Measure(at) if broken.contains(&at) => line[at].broken = true,
                Next::Measure(at) => {
                    let truth = if at >= first { WHOLE.delta } else { 0.0 };
                    let seen = effect(truth + noise * random.normal(), noise);
                    line[at].seen.push(seen);
                }
            }
        }
        panic!("no answer after 400 runs");
    }

    #[test]
    fn an_effect_in_two_steps_fits_no_single_commit() {
        let line = |deltas: [f64; 4]| {
            deltas.map(|delta| Commit {
                seen: vec![effect(delta, 0.002)],
                broken: false,
            })
        };
        let one_step = line([0.001, -0.002, 0.051, 0.05]);
        assert_eq!(misfits(&one_step, WHOLE), Vec::<usize>::new());
        let two_steps = line([0.001, 0.025, 0.024, 0.05]);
        assert_eq!(misfits(&two_steps, WHOLE), [1, 2]);
        assert_eq!(misfits(&[], WHOLE), Vec::<usize>::new());
    }

    #[test]
    fn quiet_runs_find_the_commit_in_about_as_many_steps_as_a_bisection() {
        for first in [0, 1, 17, 58, 59] {
            let (found, probability, runs) = search(first, &[], 0.002, 1);
            assert_eq!(found, [first]);
            assert!(probability >= 0.95 && runs <= 8, "{first}: {runs} runs");
        }
    }

    #[test]
    fn commits_that_do_not_build_are_named_with_the_next_that_does() {
        let broken = [20, 21, 22, 40];
        let (found, ..) = search(21, &broken, 0.002, 1);
        assert_eq!(found, [20, 21, 22, 23]);
        let (found, ..) = search(24, &broken, 0.002, 1);
        assert_eq!(found, [24]);
    }

    #[test]
    fn noise_as_large_as_the_effect_costs_runs_and_not_the_answer() {
        let searches: Vec<bool> = (0..200)
            .map(|seed| search(33, &[], 0.03, seed).0 == [33])
            .collect();
        let right = searches.iter().filter(|right| **right).count();
        // 95 % are promised; 200 searches leave a 99 % margin of 3.6 %.
        assert!(right >= 182, "{right} of 200");
    }

    #[test]
    fn one_odd_run_is_outvoted() {
        let mut line = vec![Commit::default(); 9];
        line[3].seen = vec![effect(0.05, 0.004), effect(0.0, 0.004), effect(0.0, 0.004)];
        line[4].seen = vec![effect(0.05, 0.004); 2];
        let shares = posterior(&line, WHOLE);
        assert!(shares[4] > 0.9, "{shares:?}");
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_metric_without_noise_gives_certainty() {
        let mut line = vec![Commit::default(); 3];
        line[0].seen = vec![effect(0.0, 0.0)];
        line[1].seen = vec![effect(0.05, 0.0)];
        let whole = effect(0.05, 0.0);
        let shares = posterior(&line, whole);
        assert!(shares[1] > 0.99, "{shares:?}");
    }
}
