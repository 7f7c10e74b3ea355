//! The habits of other tools, as their documentation states them, on two lists of times.
//!
//! Each says whether the candidate is slower. None knows null arms or rounds, so all of
//! their runs are base and candidate.

use bench_run::stats::quantile::{median, quantile};
use bench_run::stats::random::SplitMix64;
use bench_run::stats::student::two_sided_p;

/// Level of every test.
const LEVEL: f64 = 0.05;

/// Resamples of a bootstrap; criterion takes 100,000, which moves its p by 0.01 at most.
const RESAMPLES: usize = 500;

/// What criterion calls noise unless told otherwise: 1 %.
const NOISE_THRESHOLD: f64 = 0.01;

/// Another tool's way to decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rival {
    PairedT,
    Benchstat,
    Criterion,
    Hyperfine,
    MedianOfThree,
}

impl Rival {
    pub(crate) const ALL: [Rival; 5] = [
        Rival::PairedT,
        Rival::Benchstat,
        Rival::Criterion,
        Rival::Hyperfine,
        Rival::MedianOfThree,
    ];

    /// For tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Rival::PairedT => "paired t on logarithms",
            Rival::Benchstat => "benchstat: Mann–Whitney, p < 0.05",
            Rival::Criterion => "criterion: bootstrap t, and interval beyond 1 %",
            Rival::Hyperfine => "hyperfine: mean ± σ do not overlap",
            Rival::MedianOfThree => "median of three over 1 %",
        }
    }

    /// How many runs of each arm it makes of a budget for both.
    pub(crate) fn runs_of_each(self, budget: usize) -> usize {
        match self {
            Rival::MedianOfThree => 3,
            _ => budget / 2,
        }
    }

    /// Whether it calls the candidate slower. Times, in the order in which they ran.
    pub(crate) fn says_slower(
        self,
        base: &[f64],
        candidate: &[f64],
        random: &mut SplitMix64,
    ) -> bool {
        match self {
            Rival::PairedT => paired_t(base, candidate),
            Rival::Benchstat => {
                mann_whitney(base, candidate) < LEVEL && median(candidate) > median(base)
            }
            Rival::Criterion => criterion(base, candidate, random),
            Rival::Hyperfine => {
                mean(candidate) - deviation(candidate) > mean(base) + deviation(base)
            }
            Rival::MedianOfThree => {
                let ratio = median(candidate).zip(median(base));
                ratio.is_some_and(|(candidate, base)| candidate / base > 1.01)
            }
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

fn paired_t(base: &[f64], candidate: &[f64]) -> bool {
    let pairs = candidate.iter().zip(base);
    let differences: Vec<f64> = pairs.map(|(c, b)| (c / b).ln()).collect();
    let number = differences.len() as f64;
    let t = mean(&differences) / (deviation(&differences) / number.sqrt());
    t > 0.0 && two_sided_p(t, number - 1.0) < LEVEL
}

/// Exact two-sided p of the Mann–Whitney U test (Mann and Whitney 1947), without ties.
fn mann_whitney(base: &[f64], candidate: &[f64]) -> f64 {
    let (n, m) = (base.len(), candidate.len());
    let wins = candidate
        .iter()
        .map(|c| base.iter().filter(|b| *b < c).count())
        .sum::<usize>();
    // Ways to reach each U with i of one and j of the other sample.
    let mut ways = vec![vec![vec![0.0_f64; n * m + 1]; m + 1]; n + 1];
    for i in 0..=n {
        for j in 0..=m {
            for u in 0..=i * j {
                let without = if i > 0 && u >= j {
                    ways[i - 1][j][u - j]
                } else {
                    0.0
                };
                let with = if j > 0 { ways[i][j - 1][u] } else { 0.0 };
                ways[i][j][u] = if i == 0 || j == 0 {
                    f64::from(u8::from(u == 0))
                } else {
                    without + with
                };
            }
        }
    }
    let total: f64 = ways[n][m].iter().sum();
    let smaller = wins.min(n * m - wins);
    let tail: f64 = ways[n][m][..=smaller].iter().sum();
    (2.0 * tail / total).min(1.0)
}

/// criterion's two steps: a bootstrap test of Welch's t under the pooled sample, then the
/// bootstrap interval of the relative change of means against its noise threshold.
fn criterion(base: &[f64], candidate: &[f64], random: &mut SplitMix64) -> bool {
    let welch = |a: &[f64], b: &[f64]| {
        let error = deviation(a).powi(2) / a.len() as f64 + deviation(b).powi(2) / b.len() as f64;
        (mean(b) - mean(a)) / error.sqrt()
    };
    let draw = |from: &[f64], number: usize, random: &mut SplitMix64| -> Vec<f64> {
        (0..number)
            .map(|_| from[random.below(from.len())])
            .collect()
    };
    let observed = welch(base, candidate);
    let pooled = [base, candidate].concat();
    let mut beyond = 0;
    for _ in 0..RESAMPLES {
        let a = draw(&pooled, base.len(), random);
        let b = draw(&pooled, candidate.len(), random);
        beyond += usize::from(welch(&a, &b).abs() >= observed.abs());
    }
    if beyond as f64 / RESAMPLES as f64 >= LEVEL || observed <= 0.0 {
        return false;
    }
    let changes: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let a = draw(base, base.len(), random);
            let b = draw(candidate, candidate.len(), random);
            mean(&b) / mean(&a) - 1.0
        })
        .collect();
    quantile(&changes, LEVEL / 2.0).is_some_and(|low| low > NOISE_THRESHOLD)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three against three completely apart: 2 of 20 orders, p = 0.1.
    #[test]
    fn mann_whitney_has_its_exact_values() {
        let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-12, "{got} {want}");
        near(mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 0.1);
        near(
            mann_whitney(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0]),
            2.0 / 70.0,
        );
        near(mann_whitney(&[1.0, 4.0], &[2.0, 3.0]), 1.0);
    }

    #[test]
    fn every_habit_finds_a_large_loss_and_none_finds_a_gain() {
        let mut random = SplitMix64::new(1);
        let base = [1.0, 1.01, 0.99, 1.005, 0.995, 1.002];
        let slower: Vec<f64> = base.iter().rev().map(|time| time * 1.2).collect();
        for rival in Rival::ALL {
            assert!(rival.says_slower(&base, &slower, &mut random), "{rival:?}");
            assert!(!rival.says_slower(&slower, &base, &mut random), "{rival:?}");
        }
    }
}
