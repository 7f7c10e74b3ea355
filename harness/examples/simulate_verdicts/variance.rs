//! Which variance a comparison takes, in one cell of normal noise: what a candidate may
//! borrow of the calm that base and null arm show, drawn from the distributions themselves.

use bench_run::stats::random::SplitMix64;
use bench_run::stats::student::two_sided_p;

use super::trial::{ALPHA, Share, tau};
use super::world::SIGMA;

/// Mean squares of a cell: the rounds' differences candidate − base, and the rest.
#[derive(Debug, Clone, Copy)]
struct Squares {
    differences: f64,
    rest: f64,
    df: (f64, f64),
}

impl Squares {
    fn ratio(self) -> f64 {
        self.differences / self.rest
    }

    /// All of them together.
    fn pooled(self) -> (f64, f64) {
        let (first, second) = self.df;
        let sum = first * self.differences + second * self.rest;
        (sum / (first + second), first + second)
    }

    /// The larger of the differences' own and the pooled variance; of the rest's degrees of
    /// freedom the share `kept` counts where it is the differences'.
    fn larger(self, kept: f64) -> (f64, f64) {
        if self.ratio() <= 1.0 {
            return self.pooled();
        }
        (self.differences, self.df.0 + kept * self.df.1)
    }
}

/// A rule: a variance and its degrees of freedom.
type Choose = fn(Squares) -> (f64, f64);

/// What was tried.
const RULES: [(&str, Choose); 8] = [
    ("pooled variance", Squares::pooled),
    ("differences alone (paired t)", |one| {
        (one.differences, one.df.0)
    }),
    (
        "differences alone where the ratio is above 2",
        |one| match one.ratio() > 2.0 {
            true => (one.differences, one.df.0),
            false => one.pooled(),
        },
    ),
    (
        "the larger variance, all of the rest's degrees of freedom",
        |one| one.larger(1.0),
    ),
    ("the larger variance, half of them", |one| one.larger(0.5)),
    ("the larger variance, a quarter (first revision)", |one| {
        one.larger(0.25)
    }),
    ("the larger variance, a tenth (second revision)", |one| {
        one.larger(0.1)
    }),
    ("the larger variance, none", |one| one.larger(0.0)),
];

/// What a rule does with a candidate of one noise.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outcome {
    pub(crate) covers: Share,
    pub(crate) passes_at_gate: Share,
    pub(crate) passes_unchanged: Share,
    pub(crate) finds_two: Share,
}

/// One rule with so many rounds: equal noise, and a candidate twice as noisy.
pub(crate) type Row = (usize, &'static str, [Outcome; 2]);

/// Every rule, in three, five and ten rounds.
pub(crate) fn rows(runs: u64, seed: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for rounds in [3, 5, 10] {
        let [equal, unequal] = [1.0, 2.0].map(|factor| outcomes(rounds, factor, runs, seed));
        for (index, (name, _)) in RULES.into_iter().enumerate() {
            rows.push((rounds, name, [equal[index], unequal[index]]));
        }
    }
    rows
}

/// Base, one null arm and a candidate with `factor` times their noise; every rule sees the
/// same runs.
fn outcomes(rounds: usize, factor: f64, runs: u64, seed: u64) -> [Outcome; RULES.len()] {
    let mut random = SplitMix64::new(seed ^ (rounds as u64) << 8 ^ factor.to_bits());
    let mut found = [Outcome::default(); RULES.len()];
    // A difference of the candidate and the mean of two copies.
    let kappa = (factor.powi(2) + 0.5) / 1.5;
    let df = ((rounds - 1) as f64, rounds as f64);
    for _ in 0..runs {
        let mut mean_square = |number: usize, variance: f64| {
            let squares: f64 = (0..number).map(|_| random.normal().powi(2)).sum();
            variance * squares / number as f64
        };
        let squares = Squares {
            differences: mean_square(rounds - 1, kappa),
            rest: mean_square(rounds, 1.0),
            df,
        };
        // In units of the standard deviation of one attempt.
        let unit = (1.5 / rounds as f64).sqrt();
        let error = kappa.sqrt() * unit * random.normal();
        for ((_, choose), outcome) in RULES.iter().zip(&mut found) {
            let (variance, df) = choose(squares);
            outcome.count(error, variance.sqrt() * unit, df);
        }
    }
    found
}

impl Outcome {
    fn count(&mut self, error: f64, standard_error: f64, df: f64) {
        let p = |t: f64| two_sided_p(t, df);
        let below_gate = |delta: f64| {
            let t = (tau() / SIGMA - delta) / standard_error;
            t > 0.0 && p(t) / 2.0 < ALPHA
        };
        self.covers.add(p(error / standard_error) > ALPHA);
        self.passes_at_gate.add(below_gate(tau() / SIGMA + error));
        self.passes_unchanged.add(below_gate(error));
        let two = 0.02 / SIGMA + error;
        self.finds_two
            .add(two > 0.0 && p(two / standard_error) <= ALPHA);
    }
}
