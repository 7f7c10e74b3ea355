//! The complete rule against simulated machines, and against other tools' habits.
//!
//! Writes docs/calibration/simulated.md with its plot; its first lines say how. The same
//! seed gives the same page, whatever the number of threads. Exits with 1 when a bound is
//! broken.
#![expect(
    clippy::cast_precision_loss,
    clippy::print_stderr,
    reason = "counts far below 2^52; progress and broken bounds are for the caller"
)]

mod bounds;
mod page;
mod plot;
mod rivals;
mod trial;
mod variance;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bench_run::stats::random::SplitMix64;
use bench_run::verdict::rule::{Moderation, Revision, Rule};
use clap::Parser;

use rivals::Rival;
use trial::{Seen, Share, rule, tau, trial};
use world::{History, Noise, World, session};

/// Simulates the rule and writes the page.
#[derive(Debug, Parser)]
struct Arguments {
    /// Folder to write into
    #[arg(long, default_value = "docs/calibration")]
    out: PathBuf,
    /// Simulated runs per setting; ten times as many where a bound seems broken
    #[arg(long, default_value_t = 2000)]
    runs: u64,
    /// Seed of everything
    #[arg(long, default_value_t = 20_261_129)]
    seed: u64,
    /// Commit of the code, for the page
    #[arg(long)]
    commit: String,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// One world under one rule.
struct Setting {
    world: World,
    rule: Rule,
}

/// Everything the page shows, in the order of its settings.
struct Results {
    /// Every noise, number of cells and rounds: no change, and exactly at the gate.
    levels: Vec<Level>,
    /// The same for machines with a history.
    histories: Vec<Level>,
    /// Levels that seemed to break a bound, once more with fresh runs.
    again: Vec<Level>,
    /// Revisions of the rule: no change, exactly at the gate, +2 %.
    revisions: Vec<(&'static str, World, [Seen; 3])>,
    /// What variance a comparison takes.
    variances: Vec<variance::Row>,
    /// The everyday machine: +1 %, +2 %, +3 % in the first cell.
    power: Vec<(World, [Seen; 3])>,
    /// Limits of moderation: the name of the rule, the cells and rounds, no change, +2 %.
    limits: Vec<(&'static str, World, Seen, Seen)>,
    /// Rivals: runs of both arms; in blocks and interleaved without a change; interleaved
    /// with +1 %, +2 % and +3 %.
    rivals: Vec<(Rival, usize, [Share; 5])>,
}

/// A world: no change, and exactly at the gate.
type Level = (World, Seen, Seen);

/// Runs of a bound that seems broken, in units of the others'.
const FRESH: u64 = 10;

const CELLS: [usize; 3] = [1, 6, 20];
const ROUNDS: [usize; 4] = [3, 5, 7, 10];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let results = simulate(&arguments);
    let broken: Vec<String> = results.again.iter().flat_map(broken).collect();
    let written = std::fs::create_dir_all(&arguments.out)
        .map_err(|error| error.to_string())
        .and_then(|()| plot::write(&arguments.out.join("simulated-power.svg"), &results))
        .and_then(|()| {
            let text = page::page(&arguments, &results, &broken);
            let path = arguments.out.join("simulated.md");
            std::fs::write(path, text).map_err(|error| error.to_string())
        });
    if let Err(error) = written {
        eprintln!(
            "error: cannot write to {}: {error}",
            arguments.out.display()
        );
        return ExitCode::FAILURE;
    }
    broken.iter().for_each(|line| eprintln!("broken: {line}"));
    ExitCode::from(u8::from(!broken.is_empty()))
}

/// The bounds that a level breaks.
fn broken((world, unchanged, at_gate): &Level) -> Vec<String> {
    let mut broken = bounds::broken_by_no_change(world, unchanged);
    broken.extend(bounds::broken_at_the_gate(world, at_gate));
    broken
}

fn simulate(arguments: &Arguments) -> Results {
    let mut settings = Vec::new();
    let mut add = |world: World, rule: Rule| settings.push(Setting { world, rule });
    let level_worlds: Vec<World> = Noise::ALL
        .into_iter()
        .flat_map(|noise| sizes().map(move |(cells, rounds)| World::still(noise, cells, rounds)))
        .collect();
    let remembered = histories();
    for world in level_worlds.iter().chain(&remembered) {
        add(*world, rule());
        add(world.changed(tau(), world.cells), rule());
    }
    let power_worlds: Vec<World> = sizes()
        .map(|(cells, rounds)| World::still(Noise::Spikes, cells, rounds))
        .collect();
    for world in &power_worlds {
        for effect in [0.01, 0.02, 0.03] {
            add(world.changed(effect, 1), rule());
        }
    }
    let limit_worlds: Vec<(&str, Rule, World)> = [(8, 3), (8, 5), (20, 3)]
        .into_iter()
        .flat_map(|(cells, rounds)| {
            let world = World::still(Noise::Spikes, cells, rounds);
            limits().map(move |(name, rule)| (name, rule, world))
        })
        .collect();
    for (_, rule, world) in &limit_worlds {
        add(*world, rule.clone());
        add(world.changed(0.02, 1), rule.clone());
    }
    let revision_worlds = revisions();
    for (_, world, rule) in &revision_worlds {
        add(*world, rule.clone());
        add(world.changed(tau(), world.cells), rule.clone());
        add(world.changed(0.02, 1), rule.clone());
    }
    let mut seen = run_all(&settings, arguments.runs, arguments).into_iter();
    let mut next = || seen.next().unwrap_or_default();
    let mut levels = |worlds: Vec<World>| -> Vec<Level> {
        let worlds = worlds.into_iter();
        worlds.map(|world| (world, next(), next())).collect()
    };
    let (levels, histories) = (levels(level_worlds), levels(remembered));
    let again = again(levels.iter().chain(&histories), arguments);
    Results {
        levels,
        histories,
        again,
        power: power_worlds
            .into_iter()
            .map(|world| (world, [next(), next(), next()]))
            .collect(),
        limits: limit_worlds
            .into_iter()
            .map(|(name, _, world)| (name, world, next(), next()))
            .collect(),
        revisions: revision_worlds
            .into_iter()
            .map(|(name, world, _)| (name, world, [next(), next(), next()]))
            .collect(),
        variances: variance::rows(20 * arguments.runs, arguments.seed),
        rivals: rivals(arguments),
    }
}

/// The levels that seem to break a bound, with fresh runs: of so many statements some do by
/// chance.
fn again<'a>(levels: impl Iterator<Item = &'a Level>, arguments: &Arguments) -> Vec<Level> {
    let worlds = levels.filter(|level| is_bound(&level.0) && !broken(level).is_empty());
    let worlds: Vec<World> = worlds.map(|(world, ..)| *world).collect();
    let settings: Vec<Setting> = worlds
        .iter()
        .flat_map(|world| [*world, world.changed(tau(), world.cells)])
        .map(|world| Setting {
            world,
            rule: rule(),
        })
        .collect();
    let fresh = Arguments {
        seed: arguments.seed.wrapping_add(1),
        out: arguments.out.clone(),
        commit: arguments.commit.clone(),
        ..*arguments
    };
    let mut seen = run_all(&settings, FRESH * arguments.runs, &fresh).into_iter();
    let mut next = || seen.next().unwrap_or_default();
    let worlds = worlds.into_iter();
    worlds.map(|world| (world, next(), next())).collect()
}

/// Machines of which something is known; the last two are beyond what a rule can know.
fn histories() -> Vec<World> {
    let kinds = [
        (Noise::Spikes, History::Honest),
        (Noise::Spikes, History::TooCalm),
        (Noise::Apart, History::Honest),
        (Noise::Apart, History::TooCalm),
        (Noise::Apart, History::None),
    ];
    let sizes = || {
        [1, 6]
            .into_iter()
            .flat_map(|cells| [5, 10].map(|rounds| (cells, rounds)))
    };
    kinds
        .into_iter()
        .flat_map(|(noise, history)| {
            sizes()
                .map(move |(cells, rounds)| World::still(noise, cells, rounds).remembered(history))
        })
        .collect()
}

/// Whether the bounds are promised in a world: not where copies lie apart and nothing tells.
fn is_bound(world: &World) -> bool {
    world.noise != Noise::Apart || world.history == History::Honest
}

/// The rule as it was first and as it is, where they differ most.
fn revisions() -> Vec<(&'static str, World, Rule)> {
    let rules = [("first", Revision::First), ("second", Revision::Second)];
    let worlds = [Noise::Spikes, Noise::Unequal]
        .into_iter()
        .flat_map(|noise| {
            [(1, 3), (1, 5), (20, 3)].map(|(cells, rounds)| World::still(noise, cells, rounds))
        });
    worlds
        .flat_map(|world| {
            rules.map(|(name, revision)| {
                let rule = Rule { revision, ..rule() };
                (name, world, rule)
            })
        })
        .collect()
}

fn sizes() -> impl Iterator<Item = (usize, usize)> {
    CELLS
        .into_iter()
        .flat_map(|cells| ROUNDS.into_iter().map(move |rounds| (cells, rounds)))
}

/// The rule with other limits of the prior.
fn limits() -> [(&'static str, Rule); 4] {
    let with = |moderation: Option<Moderation>| Rule {
        moderation,
        null_check: None,
        unequal_noise: false,
        ..rule()
    };
    let limit = |largest_prior| {
        with(Some(Moderation {
            largest_prior,
            ..Moderation::DEFAULT
        }))
    };
    [
        ("each cell alone", with(None)),
        ("prior without limit (Smyth 2004)", limit(f64::INFINITY)),
        ("prior at most twice a cell's own", limit(2.0)),
        ("prior at most a cell's own", limit(1.0)),
    ]
}

/// All settings, on some threads; a setting's stream depends on its number alone.
fn run_all(settings: &[Setting], runs: u64, arguments: &Arguments) -> Vec<Seen> {
    let results = Mutex::new(vec![Seen::default(); settings.len()]);
    let number = AtomicUsize::new(0);
    let work = || {
        loop {
            // The longest come last in the list and are started first.
            let done = number.fetch_add(1, Ordering::Relaxed);
            let Some(index) = settings.len().checked_sub(done + 1) else {
                return;
            };
            let Setting { world, rule } = &settings[index];
            let seed = arguments.seed.wrapping_add((index as u64) << 32);
            let seen = trial(world, rule, runs, seed);
            if let Ok(mut results) = results.lock() {
                results[index] = seen;
            }
            eprintln!("{} of {} settings", done + 1, settings.len());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(work);
        }
    });
    results.into_inner().unwrap_or_default()
}

/// Every rival on the everyday machine, with as many runs as ours has with its null arm.
fn rivals(arguments: &Arguments) -> Vec<(Rival, usize, [Share; 5])> {
    let mut found = Vec::new();
    for (index, rival) in Rival::ALL.into_iter().enumerate() {
        for rounds in ROUNDS {
            let each = rival.runs_of_each(3 * rounds);
            let mut random = SplitMix64::new(arguments.seed ^ ((index * 16 + rounds) as u64));
            let shares = [
                (0.0, true),
                (0.0, false),
                (0.01, false),
                (0.02, false),
                (0.03, false),
            ]
            .map(|(effect, blocks)| {
                let mut share = Share::default();
                for _ in 0..arguments.runs {
                    let (base, candidate) = two_arms(each, effect, blocks, &mut random);
                    share.add(rival.says_slower(&base, &candidate, &mut random));
                }
                share
            });
            found.push((rival, 2 * each, shares));
            if rival == Rival::MedianOfThree {
                break;
            }
        }
    }
    found
}

/// Times of two arms on the everyday machine, one block after the other or in pairs whose
/// order is drawn.
fn two_arms(
    each: usize,
    effect: f64,
    blocks: bool,
    random: &mut SplitMix64,
) -> (Vec<f64>, Vec<f64>) {
    let arms: Vec<usize> = if blocks {
        [vec![0; each], vec![1; each]].concat()
    } else {
        (0..each)
            .flat_map(|_| {
                let first = random.below(2);
                [first, 1 - first]
            })
            .collect()
    };
    let y = session(Noise::Spikes, world::SIGMA, &arms, &[0.0, effect], random);
    let of = |wanted: usize| -> Vec<f64> {
        let pairs = arms.iter().zip(&y);
        pairs
            .filter(|(arm, _)| **arm == wanted)
            .map(|(_, y)| y.exp())
            .collect()
    };
    (of(0), of(1))
}
