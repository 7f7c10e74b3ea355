//! The rule against simulated machines: how often it errs, and what it finds.
//!
//! Made like the figures of docs/METHODOLOGY.md: noise of 0.6 % per attempt
//! (cells differ by a factor of about 1.35), 5 % of the attempts with a spike of
//! 2 % on average, a drift of 4 % over the session, order at random within
//! rounds, one null arm of the base. Seeds are fixed and were not chosen.

use super::decide::{Weighed, decide, weigh};
use super::example::{RULE, cell};
use super::foresight::{Comparison, PlannedShape};
use super::rule::{CellData, Direction, Gate, Verdict};
use crate::experiment::model::Better;
use crate::stats::random::SplitMix64;

/// The machine and the program that runs on it.
#[derive(Debug, Clone, Copy)]
struct World {
    cells: usize,
    rounds: usize,
    /// Effect on the first `hit` cells, larger is slower.
    delta: f64,
    hit: usize,
    spikes: bool,
    /// Growth of the logarithm over the whole session.
    drift: f64,
}

const NOISE: f64 = 0.006;

fn tau() -> f64 {
    -(0.99_f64.ln())
}

fn world(cells: usize, rounds: usize, delta: f64) -> World {
    World {
        cells,
        rounds,
        delta,
        hit: 1,
        spikes: true,
        drift: 0.04,
    }
}

fn simulate(world: &World, random: &mut SplitMix64) -> Vec<CellData> {
    (0..world.cells)
        .map(|index| {
            let spread = if world.cells > 1 {
                0.3 * random.normal()
            } else {
                0.0
            };
            let sigma = NOISE * spread.exp();
            let delta = if index < world.hit { world.delta } else { 0.0 };
            let rounds: Vec<[f64; 3]> = (0..world.rounds)
                .map(|round| simulate_round(world, (round, sigma, delta), random))
                .collect();
            cell("decode_tok_s", Better::Higher, &rounds)
        })
        .collect()
}

fn simulate_round(
    world: &World,
    (round, sigma, delta): (usize, f64, f64),
    random: &mut SplitMix64,
) -> [f64; 3] {
    let mut slots = [0.0, 1.0, 2.0];
    random.shuffle(&mut slots);
    let mut values = [0.0; 3];
    for (arm, value) in values.iter_mut().enumerate() {
        let spike = if world.spikes && random.unit() < 0.05 {
            -0.02 * (1.0 - random.unit()).ln()
        } else {
            0.0
        };
        let drift = world.drift * (round as f64 * 3.0 + slots[arm]) / (world.rounds as f64 * 3.0);
        let effect = if arm == 2 { delta } else { 0.0 };
        *value = (-(sigma * random.normal() + spike + drift + effect)).exp() * 60.0;
    }
    values
}

/// How often something was seen, out of `of`.
#[derive(Debug, Clone, Copy)]
struct Share {
    hits: u32,
    of: u32,
}

impl Share {
    fn value(self) -> f64 {
        f64::from(self.hits) / f64::from(self.of)
    }

    /// At most `bound`, up to the one-sided 99 % margin of so many runs.
    fn is_at_most(self, bound: f64) -> bool {
        let margin = 2.326 * (bound * (1.0 - bound) / f64::from(self.of)).sqrt();
        self.value() <= bound + margin
    }

    /// Equal to a percentage that was rounded to `digit` and comes from 4000 other
    /// runs, up to three standard errors of the difference: some twenty shares are
    /// compared, and no more than one in twenty of such tests may fail by chance.
    fn reproduces(self, percent: f64, digit: f64) -> bool {
        let share = percent / 100.0;
        let error = (share * (1.0 - share) * (1.0 / 4000.0 + 1.0 / f64::from(self.of))).sqrt();
        (self.value() - share).abs() <= 3.0 * error + digit / 200.0
    }
}

type Seen = fn(&[Weighed<'_>]) -> bool;

/// How often each of `seen` was seen in `runs` simulated runs.
fn shares<const N: usize>(runs: usize, seed: u64, world: World, seen: [Seen; N]) -> [Share; N] {
    let mut random = SplitMix64::new(seed);
    let mut hits = [0; N];
    for _ in 0..runs {
        let cells = simulate(&world, &mut random);
        let weighed = weigh(&cells, &RULE);
        for (count, one) in hits.iter_mut().zip(seen) {
            *count += u32::from(one(&weighed));
        }
    }
    let of = u32::try_from(runs).unwrap();
    hits.map(|hits| Share { hits, of })
}

fn any_slower(weighed: &[Weighed<'_>]) -> bool {
    weighed.iter().any(|one| one.direction == Direction::Slower)
}

fn any_fail(weighed: &[Weighed<'_>]) -> bool {
    weighed.iter().any(|one| one.gate == Gate::Fail)
}

fn first_passes(weighed: &[Weighed<'_>]) -> bool {
    weighed[0].gate == Gate::Pass
}

fn first_is_equal(weighed: &[Weighed<'_>]) -> bool {
    weighed[0].verdict == Verdict::Equivalent
}

fn first_slower(weighed: &[Weighed<'_>]) -> bool {
    weighed[0].direction == Direction::Slower
}

fn first_fails(weighed: &[Weighed<'_>]) -> bool {
    weighed[0].gate == Gate::Fail
}

#[test]
fn an_unchanged_program_is_called_slower_no_more_often_than_alpha() {
    for (cells, rounds, runs, seed) in [(1, 3, 2000, 1), (1, 5, 2000, 2), (6, 5, 300, 3)] {
        let [found] = shares(runs, seed, world(cells, rounds, 0.0), [any_slower]);
        assert!(
            found.is_at_most(RULE.alpha),
            "{cells} cells, {rounds} rounds: {found:?}"
        );
    }
}

#[test]
fn a_program_exactly_at_the_gate_passes_no_more_often_than_alpha() {
    for (rounds, spikes, seed) in [(3, true, 11), (5, false, 12)] {
        let world = World {
            spikes,
            ..world(1, rounds, tau())
        };
        let [passing, equal] = shares(2000, seed, world, [first_passes, first_is_equal]);
        assert!(
            passing.is_at_most(RULE.alpha),
            "{rounds} rounds: {passing:?}"
        );
        assert!(equal.is_at_most(RULE.alpha), "{rounds} rounds: {equal:?}");
    }
}

#[test]
fn intervals_cover_the_truth_at_their_level() {
    let world = World {
        spikes: false,
        ..world(1, 5, 0.004)
    };
    let [found] = shares(
        2000,
        21,
        world,
        [|weighed| {
            let estimate = weighed[0].found.numbers().unwrap().estimate;
            estimate.low <= 0.004 && 0.004 <= estimate.high
        }],
    );
    // Two-sided 99 % margin of 2000 runs.
    assert!((found.value() - 0.95).abs() < 0.0126, "{found:?}");
}

#[test]
fn one_cell_gives_the_reference_figures() {
    for (rounds, percents) in [
        (3, [43.0, 30.0, 27.0, 76.0, 93.0]),
        (5, [72.0, 58.0, 42.0, 93.0, 98.0]),
        (10, [90.0, 83.0, 46.0, 99.0, 100.0]),
    ] {
        let runs = 3000 / rounds;
        let seed = 30 + rounds as u64;
        let of = |delta| world(1, rounds, delta);
        let [passes] = shares(runs, seed, of(0.0), [first_passes]);
        let [slower, fails] = shares(runs, seed, of(0.01), [first_slower, first_fails]);
        let [slower_at_two] = shares(runs, seed, of(0.02), [first_slower]);
        let [fails_at_three] = shares(runs, seed, of(0.03), [first_fails]);
        let got = [passes, slower, fails, slower_at_two, fails_at_three];
        for (found, percent) in got.into_iter().zip(percents) {
            assert!(
                found.reproduces(percent, 1.0),
                "{rounds} rounds, {percent} %: {found:?}"
            );
        }
    }
}

#[test]
fn many_cells_give_the_reference_figures() {
    for (cells, seed, failing, slower_at_two) in [(6, 41, 1.3, 78.0), (20, 42, 1.1, 65.0)] {
        let runs = 1800 / cells;
        let [unchanged] = shares(runs, seed, world(cells, 5, 0.0), [any_fail]);
        assert!(
            unchanged.reproduces(failing, 0.1),
            "{cells} cells: {unchanged:?}"
        );
        let [changed] = shares(runs, seed, world(cells, 5, 0.02), [first_slower]);
        assert!(
            changed.reproduces(slower_at_two, 1.0),
            "{cells} cells: {changed:?}"
        );
    }
}

/// What the rule says of itself holds: the printed chances are the shares that
/// are found, where noise is what it takes it to be.
#[test]
fn the_predicted_chances_come_true() {
    let shape = PlannedShape {
        rounds: 5,
        arms: 3,
        treatments: 2,
        base_copies: 2,
        candidate_copies: 1,
    };
    let power = Comparison::planned(shape, NOISE, tau(), 1)
        .power(&RULE)
        .unwrap();
    let calm = |delta| World {
        spikes: false,
        drift: 0.0,
        ..world(1, 5, delta)
    };
    let [passing] = shares(1500, 51, calm(0.0), [first_passes]);
    let [slower] = shares(1500, 52, calm(power.detectable), [first_slower]);
    let [failing] = shares(1500, 53, calm(power.fails_gate), [first_fails]);
    for (found, predicted) in [
        (passing, power.pass_if_unchanged),
        (slower, 0.9),
        (failing, 0.9),
    ] {
        let margin = 2.576 * (predicted * (1.0 - predicted) / 1500.0_f64).sqrt();
        assert!(
            (found.value() - predicted).abs() < margin,
            "{found:?} {predicted}"
        );
    }
}

/// The simulations above use the deciding half alone; the whole says the same.
#[test]
fn what_is_added_for_the_reader_changes_no_decision() {
    let mut random = SplitMix64::new(61);
    for _ in 0..20 {
        let cells = simulate(&world(3, 5, 0.012), &mut random);
        let (short, long) = (weigh(&cells, &RULE), decide(&cells, &RULE));
        for (one, judged) in short.iter().zip(&long) {
            assert_eq!((one.direction, one.gate), (judged.direction, judged.gate));
            assert_eq!(one.verdict, judged.verdict);
        }
    }
}

/// The table of docs/METHODOLOGY.md:
/// `cargo test --release -p bench-run --lib simulation::figures -- --ignored --nocapture`.
#[test]
#[ignore = "prints a table; takes minutes unless built with --release"]
fn figures() {
    for (cells, rounds) in [(1, 3), (1, 5), (1, 10), (6, 5), (6, 10)] {
        let of = |delta| world(cells, rounds, delta);
        let seed = (100 * cells + rounds) as u64;
        let unchanged = shares(4000, seed, of(0.0), [any_slower, any_fail, first_passes]);
        let one = [first_slower, first_fails, first_passes];
        let at_one = shares(4000, seed, of(0.01), one);
        let at_two = shares(4000, seed, of(0.02), [first_slower, first_fails]);
        let at_three = shares(4000, seed, of(0.03), [first_fails]);
        let at_gate = shares(4000, seed, of(tau()), [first_passes]);
        let text = |found: &[Share]| -> String {
            let percents = found
                .iter()
                .map(|one| format!("{:.1}", 100.0 * one.value()));
            percents.collect::<Vec<_>>().join(" / ")
        };
        println!(
            "| {cells} | {rounds} | {} | {} | {} | {} | {} |",
            text(&unchanged),
            text(&at_one),
            text(&at_two),
            text(&at_three),
            text(&at_gate)
        );
    }
}
