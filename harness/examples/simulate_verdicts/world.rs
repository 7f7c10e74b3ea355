//! A made-up machine: noise, drift and what a change does, attempt by attempt.

use bench_run::experiment::model::Better;
use bench_run::plan::order;
use bench_run::stats::null_calibration::NullContrast;
use bench_run::stats::random::SplitMix64;
use bench_run::verdict::null_check::cell_noise;
use bench_run::verdict::rule::{ArmCopy, CellData, Revision};

/// Noise of one attempt, natural logarithm.
pub(crate) const SIGMA: f64 = 0.006;

/// The one metric.
pub(crate) const METRIC: &str = "decode_tok_s";

/// Drift from the first to the last attempt of a cell: ±2 %.
const DRIFT: f64 = 0.04;

/// Share of attempts with a spike, and its mean size.
const SPIKES: (f64, f64) = (0.05, 0.02);

/// How far copies of one program lie apart where they do, natural logarithm: what comes with
/// the name of a folder or the layout of memory.
const APART: f64 = 0.0025;

/// Contrasts that earlier runs have left, at least.
const HISTORY: usize = 20;

/// In a history that is too calm, copies lay this much nearer than they do now.
const CALMER: f64 = 0.5;

/// What kind of noise a machine has. All drift by ±2 % over a cell's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noise {
    /// Normal.
    Calm,
    /// Normal with a spike in 5 % of the attempts, 2 % on average: the everyday machine.
    Spikes,
    /// Each attempt keeps half of the one before: AR(0.5).
    Correlated,
    /// Two clock levels 3 % apart, changed after one attempt in ten.
    Bimodal,
    /// Student's t with 3 degrees of freedom.
    HeavyTails,
    /// The candidate has twice the base's noise.
    Unequal,
    /// The everyday machine, on which every arm is a little faster or slower for the whole run.
    Apart,
}

/// What earlier runs on the machine have left in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum History {
    /// Nothing.
    None,
    /// Runs of the same world.
    Honest,
    /// Runs in which copies lay nearer to each other than they do now.
    TooCalm,
}

impl History {
    /// For tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            History::None => "none",
            History::Honest => "honest",
            History::TooCalm => "too calm",
        }
    }
}

impl Noise {
    /// Every kind whose copies are alike, the everyday one first.
    pub(crate) const ALL: [Noise; 6] = [
        Noise::Spikes,
        Noise::Calm,
        Noise::Correlated,
        Noise::Bimodal,
        Noise::HeavyTails,
        Noise::Unequal,
    ];

    /// For tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Noise::Calm => "normal",
            Noise::Spikes => "5 % spikes",
            Noise::Correlated => "AR(0.5)",
            Noise::Bimodal => "two clock levels",
            Noise::HeavyTails => "heavy tails (t₃)",
            Noise::Unequal => "candidate twice as noisy",
            Noise::Apart => "spikes, copies apart",
        }
    }
}

/// A machine and an experiment on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct World {
    pub(crate) noise: Noise,
    pub(crate) cells: usize,
    pub(crate) rounds: usize,
    /// δ of the candidate, larger is slower.
    pub(crate) effect: f64,
    /// It has this effect in so many cells, the first ones.
    pub(crate) hit: usize,
    /// What is known of the machine.
    pub(crate) history: History,
}

impl World {
    /// One in which the candidate is the base.
    pub(crate) fn still(noise: Noise, cells: usize, rounds: usize) -> Self {
        Self {
            noise,
            cells,
            rounds,
            effect: 0.0,
            hit: 0,
            history: History::None,
        }
    }

    /// The same with a history.
    pub(crate) fn remembered(self, history: History) -> Self {
        Self { history, ..self }
    }

    /// The same with `effect` in the first `hit` cells.
    pub(crate) fn changed(self, effect: f64, hit: usize) -> Self {
        Self {
            effect,
            hit,
            ..self
        }
    }
}

/// One run of base, one null arm and candidate in every cell, ordered as a plan orders it.
pub(crate) fn run(world: &World, random: &mut SplitMix64) -> Vec<CellData> {
    (0..world.cells)
        .map(|cell| {
            let effect = if cell < world.hit { world.effect } else { 0.0 };
            let (order, balanced) = order::order(3, world.rounds, random.next_u64());
            let in_time: Vec<usize> = order.iter().flatten().copied().collect();
            let sigma = cell_sigma(world.cells, random);
            let y = session(world.noise, sigma, &in_time, &[0.0, 0.0, effect], random);
            cell_data(cell, &order, balanced, &y)
        })
        .collect()
}

/// The contrasts between copies of the base that earlier runs of the same experiment left.
pub(crate) fn history(world: &World, random: &mut SplitMix64) -> Vec<NullContrast> {
    let factor = match world.history {
        History::None => return Vec::new(),
        History::Honest => 1.0,
        History::TooCalm => CALMER,
    };
    let runs = HISTORY.div_ceil(world.cells);
    let cells = (0..runs).flat_map(|_| run(&world.changed(0.0, 0), random));
    cells
        .filter_map(|data| cell_noise(&data, Revision::CURRENT))
        .flat_map(|noise| noise.contrasts)
        .map(|one| NullContrast {
            t: factor * one.t,
            ..one
        })
        .collect()
}

/// Cells differ in noise by a factor of about 1.35; a single cell has exactly [`SIGMA`].
pub(crate) fn cell_sigma(cells: usize, random: &mut SplitMix64) -> f64 {
    let spread = if cells > 1 {
        0.3 * random.normal()
    } else {
        0.0
    };
    SIGMA * spread.exp()
}

/// The logarithms of attempts in the order in which they run; `arms[t]` runs at time t
/// and is `effects[arm]` slower. The last arm is the candidate.
pub(crate) fn session(
    noise: Noise,
    sigma: f64,
    arms: &[usize],
    effects: &[f64],
    random: &mut SplitMix64,
) -> Vec<f64> {
    let apart: Vec<f64> = match noise {
        Noise::Apart => effects.iter().map(|_| APART * random.normal()).collect(),
        _ => vec![0.0; effects.len()],
    };
    let mut carried = random.normal();
    let mut slow_clock = random.unit() < 0.5;
    let length = arms.len() as f64;
    arms.iter()
        .enumerate()
        .map(|(time, &arm)| {
            let own = sigma * random.normal();
            let noise = match noise {
                Noise::Calm => own,
                Noise::Spikes | Noise::Apart if random.unit() < SPIKES.0 => {
                    own - SPIKES.1 * (1.0 - random.unit()).ln()
                }
                Noise::Spikes | Noise::Apart => own,
                Noise::Correlated => {
                    // Innovations of 1 − ρ² keep the variance at σ².
                    carried = 0.5 * carried + 0.75_f64.sqrt() * own / sigma;
                    sigma * carried
                }
                Noise::Bimodal => {
                    slow_clock ^= random.unit() < 0.1;
                    own + if slow_clock { 0.03 } else { 0.0 }
                }
                Noise::HeavyTails => {
                    let chi: f64 = (0..3).map(|_| random.normal().powi(2)).sum();
                    // t₃ has variance 3.
                    own / chi.sqrt()
                }
                Noise::Unequal if arm + 1 == effects.len() => 2.0 * own,
                Noise::Unequal => own,
            };
            noise + DRIFT * time as f64 / length + effects[arm] + apart[arm]
        })
        .collect()
}

fn cell_data(cell: usize, order: &[Vec<usize>], balanced: bool, y: &[f64]) -> CellData {
    let arm = |name: &str, treatment, of: Option<&str>| ArmCopy {
        name: name.into(),
        treatment,
        null_of: of.map(Into::into),
        declared: of.is_none(),
        injected: None,
    };
    let mut rounds = vec![vec![0.0; 3]; order.len()];
    let mut slots = vec![vec![0; 3]; order.len()];
    for (round, arms) in order.iter().enumerate() {
        for (slot, &arm) in arms.iter().enumerate() {
            rounds[round][arm] = 60.0 * (-y[3 * round + slot]).exp();
            slots[round][arm] = slot;
        }
    }
    CellData {
        cell: format!("cell-{cell}"),
        metric: METRIC.into(),
        better: Better::Higher,
        unit: "tok/s".into(),
        gated: true,
        arms: vec![
            arm("base", 0, None),
            arm("base-null", 0, Some("base")),
            arm("main", 1, None),
        ],
        base: 0,
        rounds,
        slots,
        balanced,
        invalid: vec![],
    }
}
