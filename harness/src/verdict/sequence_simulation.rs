//! Looks and confirmation against simulated machines, through the code that decides, by the rule
//! that a new plan is sealed with.
//!
//! Noise of 0.6 % per attempt, 5 % of the attempts with a spike of 2 % on average, a drift of
//! 4 % over the session, a plan's order, one null arm of the base. Seeds are fixed and were not
//! chosen.

use super::decide::{decide_briefly, decide_raw, tau};
use super::example::{RULE, cell, sealed_rule};
use super::rule::{CellData, Direction, Gate, Judgement, Rule, Verdict};
use super::sequence::{Decide, Sequence};
use crate::experiment::model::Better;
use crate::plan::looks::level;
use crate::plan::order;
use crate::stats::random::SplitMix64;

const NOISE: f64 = 0.006;

/// How a run is bought, and what is true of it.
#[derive(Debug, Clone, Copy)]
struct World {
    looks: &'static [usize],
    confirm: bool,
    cells: usize,
    /// Effect on the first cell, larger is slower.
    delta: f64,
}

/// What came of many runs.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    runs: u32,
    slower: u32,
    fails: u32,
    passes: u32,
    equivalent: u32,
    /// Rounds that were run, over all cells.
    rounds: u64,
}

/// The rounds of one cell.
fn rounds_of(world: &World, name: usize, random: &mut SplitMix64) -> CellData {
    let planned = world.looks.last().copied().unwrap();
    let (order, balanced) = order::order(3, planned, random.next_u64());
    let mut rounds = vec![[0.0; 3]; planned];
    let mut slots = vec![vec![0; 3]; planned];
    for (time, (round, slot)) in (0..planned)
        .flat_map(|round| (0..3).map(move |slot| (round, slot)))
        .enumerate()
    {
        let arm = order[round][slot];
        let noise = NOISE * random.normal();
        let spike = match random.unit() < 0.05 {
            true => -0.02 * (1.0 - random.unit()).ln(),
            false => 0.0,
        };
        let drift = 0.04 * time as f64 / (planned as f64 * 3.0);
        let effect = match (arm, name) {
            (2, 0) => world.delta,
            _ => 0.0,
        };
        rounds[round][arm] = 60.0 * (-(noise + spike + drift + effect)).exp();
        slots[round][arm] = slot;
    }
    CellData {
        cell: name.to_string(),
        slots,
        balanced,
        ..cell("decode_tok_s", Better::Higher, &rounds)
    }
}

/// Its first rounds.
fn first(data: &CellData, rounds: usize) -> CellData {
    CellData {
        rounds: data.rounds[..rounds].to_vec(),
        slots: data.slots[..rounds].to_vec(),
        balanced: data.balanced && rounds == data.rounds.len(),
        ..data.clone()
    }
}

/// One run: the answers, and the rounds that it took.
fn run(world: &World, decide: Decide, random: &mut SplitMix64) -> (Vec<Judgement>, u64) {
    let all: Vec<_> = (0..world.cells)
        .map(|cell| rounds_of(world, cell, random))
        .collect();
    let stages = world.looks.len() + usize::from(world.confirm);
    let sealed = sealed_rule();
    let rule = Rule {
        alpha: level(sealed.alpha, stages),
        ..sealed
    };
    let looks = u32::try_from(world.looks.len()).unwrap();
    let mut sequence = Sequence::deciding_by(decide, rule, looks);
    let mut ran = vec![0; world.cells];
    let mut open = vec![true; world.cells];
    let mut last = None;
    for (number, look) in (1..).zip(world.looks) {
        let still = ran.iter_mut().zip(&open).filter(|(_, open)| **open);
        still.for_each(|(ran, _)| *ran = *look);
        let cells: Vec<CellData> = (0..world.cells)
            .map(|cell| first(&all[cell], ran[cell]))
            .collect();
        let decision = sequence.look(number, &cells);
        open = cells
            .iter()
            .map(|data| sequence.is_open(&data.cell, &decision))
            .collect();
        last = Some(decision);
    }
    let failing: Vec<usize> = (0..world.cells)
        .filter(|cell| world.confirm && sequence.fails(&cell.to_string()))
        .collect();
    let fresh: Vec<CellData> = failing
        .iter()
        .map(|&cell| rounds_of(world, cell, random))
        .collect();
    let rounds =
        ran.iter().sum::<usize>() + fresh.iter().map(|one| one.rounds.len()).sum::<usize>();
    let confirmation = (!fresh.is_empty()).then_some(fresh.as_slice());
    let judgements = sequence.finish(last.unwrap(), confirmation).judgements;
    (judgements, rounds as u64)
}

/// `slower` and `fails` tell whether any cell of a run does; the others look at the first.
fn simulate(world: World, runs: u32, seed: u64) -> Seen {
    let mut random = SplitMix64::new(seed);
    let mut seen = Seen::default();
    for _ in 0..runs {
        let (judgements, rounds) = run(&world, decide_briefly, &mut random);
        let any = |what: &dyn Fn(&Judgement) -> bool| u32::from(judgements.iter().any(what));
        seen.runs += 1;
        seen.slower += any(&|one| one.direction == Direction::Slower);
        seen.fails += any(&|one| one.gate == Gate::Fail);
        seen.passes += u32::from(judgements[0].gate == Gate::Pass);
        seen.equivalent += u32::from(judgements[0].verdict == Verdict::Equivalent);
        seen.rounds += rounds;
    }
    seen
}

impl Seen {
    fn share(self, hits: u32) -> f64 {
        f64::from(hits) / f64::from(self.runs)
    }

    /// At most `bound`, up to the one-sided 99 % margin of so many runs.
    fn holds(self, hits: u32, bound: f64) -> bool {
        let margin = 2.326 * (bound * (1.0 - bound) / f64::from(self.runs)).sqrt();
        self.share(hits) <= bound + margin
    }
}

fn gate() -> f64 {
    tau(Better::Higher, RULE.threshold_pct).unwrap()
}

const THREE: &[usize] = &[3, 6, 10];

#[test]
fn looking_three_times_calls_nothing_slower_more_often_than_alpha() {
    for (cells, runs, seed) in [(1, 2000, 71), (6, 350, 72)] {
        let world = World {
            looks: THREE,
            confirm: false,
            cells,
            delta: 0.0,
        };
        let seen = simulate(world, runs, seed);
        assert!(seen.holds(seen.slower, RULE.alpha), "{seen:?}");
        assert!(seen.holds(seen.fails, RULE.alpha / 2.0), "{seen:?}");
        // And buys less than all rounds.
        let all = u64::from(runs) * 10 * cells as u64;
        assert!(seen.rounds < all * 9 / 10, "{seen:?}");
    }
}

#[test]
fn a_change_at_the_gate_passes_no_more_often_than_alpha_over_all_looks_and_the_confirmation() {
    for (looks, confirm, seed) in [(THREE, false, 81), (&[5][..], true, 82), (THREE, true, 83)] {
        let world = World {
            looks,
            confirm,
            cells: 1,
            delta: gate(),
        };
        let seen = simulate(world, 2000, seed);
        assert!(seen.holds(seen.passes, RULE.alpha), "{looks:?} {seen:?}");
        assert!(
            seen.holds(seen.equivalent, RULE.alpha),
            "{looks:?} {seen:?}"
        );
    }
}

#[test]
fn a_confirmed_failure_without_a_change_hardly_ever_happens() {
    let world = World {
        looks: &[3],
        confirm: true,
        cells: 1,
        delta: 0.0,
    };
    let seen = simulate(world, 2000, 91);
    // Both of two independent stages at α/2 two-sided: (α/4)² of the runs, less than one.
    assert!(seen.fails <= 2, "{seen:?}");
    assert!(seen.holds(seen.slower, RULE.alpha), "{seen:?}");
}

/// The simulations leave out what is only for the reader; the whole says the same.
#[test]
fn what_is_added_for_the_reader_changes_no_answer() {
    let world = World {
        looks: THREE,
        confirm: true,
        cells: 3,
        delta: 0.02,
    };
    for seed in 0..5 {
        let of = |decide: Decide| {
            let (judgements, rounds) = run(&world, decide, &mut SplitMix64::new(seed));
            let answers: Vec<_> = judgements
                .into_iter()
                .map(|one| (one.verdict, one.direction, one.decided_at))
                .collect();
            (answers, rounds)
        };
        assert_eq!(of(decide_briefly), of(decide_raw));
    }
}

/// The table of docs/METHODOLOGY.md:
/// `cargo test --release -p bench-run --lib sequence_simulation::figures -- --ignored --nocapture`.
#[test]
#[ignore = "prints a table; takes minutes unless built with --release"]
fn figures() {
    const PLANS: [(&str, &[usize], bool); 6] = [
        ("rounds: 10", &[10], false),
        ("looks: [3, 6, 10]", &[3, 6, 10], false),
        ("looks: [5, 10]", &[5, 10], false),
        ("rounds: 5", &[5], false),
        ("rounds: 5, confirm: true", &[5], true),
        ("looks: [3, 6, 10], confirm: true", &[3, 6, 10], true),
    ];
    const RUNS: u32 = 4000;
    for cells in [1, 6] {
        for (name, looks, confirm) in PLANS {
            let of = |delta: f64, seed: u64| {
                let world = World {
                    looks,
                    confirm,
                    cells,
                    delta,
                };
                simulate(world, RUNS, seed + 1000 * cells as u64)
            };
            let percent = |seen: Seen, hits: u32| format!("{:.1}", 100.0 * seen.share(hits));
            let rounds = |seen: Seen| {
                let per_cell = seen.rounds as f64 / f64::from(seen.runs) / cells as f64;
                format!("{per_cell:.1}")
            };
            let (none, at_gate) = (of(0.0, 1), of(gate(), 2));
            let (two, three) = (of(0.02, 3), of(0.03, 4));
            println!(
                "| {cells} | `{name}` | {} / {} / {} | {} | {} | {} / {} | {} | {} |",
                percent(none, none.slower),
                percent(none, none.fails),
                percent(none, none.passes),
                rounds(none),
                percent(at_gate, at_gate.passes),
                percent(two, two.slower),
                percent(two, two.fails),
                percent(three, three.fails),
                rounds(three),
            );
        }
    }
}
