//! The rule against simulated machines, small: the bounds of docs/calibration/simulated.md
//! hold for every kind of noise. `examples/simulate_verdicts` is the large version.

#![expect(
    clippy::cast_precision_loss,
    reason = "counts of simulated runs are far below 2^52"
)]

#[path = "../examples/simulate_verdicts/bounds.rs"]
mod bounds;
#[path = "../examples/simulate_verdicts/trial.rs"]
mod trial;
#[path = "../examples/simulate_verdicts/world.rs"]
mod world;

use bench_run::verdict::foresight::{Comparison, PlannedShape};
use bench_run::verdict::rule::Rule;

use trial::{rule, tau, trial};
use world::{History, Noise, SIGMA, World};

/// The bounds that a world breaks, without a change and exactly at the gate.
fn broken(world: World, runs: u64, seed: u64) -> Vec<String> {
    let mut broken = bounds::broken_by_no_change(&world, &trial(&world, &rule(), runs, seed));
    let at_gate = world.changed(tau(), world.cells);
    let seen = trial(&at_gate, &rule(), runs, seed + 1);
    broken.extend(bounds::broken_at_the_gate(&at_gate, &seen));
    broken
}

#[test]
fn the_bounds_hold_in_one_cell_whatever_the_noise() {
    for (index, noise) in Noise::ALL.into_iter().enumerate() {
        let found = broken(World::still(noise, 1, 5), 300, 100 * index as u64);
        assert_eq!(found, Vec::<String>::new());
    }
}

#[test]
fn the_bounds_hold_where_cells_lend_each_other_their_noise() {
    for (seed, noise) in [(1, Noise::Spikes), (2, Noise::Unequal)] {
        let found = broken(World::still(noise, 12, 4), 60, 1000 * seed);
        assert_eq!(found, Vec::<String>::new());
    }
}

/// Copies that lie apart are noise that no round averages out: a history tells, and one that
/// is too calm does no harm where they lie together.
#[test]
fn the_bounds_hold_with_a_history_of_the_host() {
    for (seed, noise, history) in [
        (5, Noise::Spikes, History::TooCalm),
        (6, Noise::Apart, History::Honest),
    ] {
        let world = World::still(noise, 1, 5).remembered(history);
        assert_eq!(broken(world, 300, 1000 * seed), Vec::<String>::new());
    }
    let forgotten = World::still(Noise::Apart, 1, 10).remembered(History::None);
    assert!(!broken(forgotten, 300, 77).is_empty());
}

#[test]
fn a_loss_of_two_percent_is_found_and_an_unchanged_program_passes() {
    let world = World::still(Noise::Spikes, 1, 7);
    let lost = trial(&world.changed(0.02, 1), &rule(), 300, 7);
    assert!(lost.slower.is_between(0.92, 1.0, 300), "{:?}", lost.slower);
    assert!(lost.fails.is_between(0.92, 1.0, 300), "{:?}", lost.fails);
    let unchanged = trial(&world, &rule(), 300, 8);
    assert!(
        unchanged.passes.is_between(0.78, 0.86, 300),
        "{:?}",
        unchanged.passes
    );
}

/// What the rule says of itself holds where noise is what it takes it to be.
#[test]
fn the_predicted_chances_come_true() {
    let plain = Rule {
        unequal_noise: false,
        ..rule()
    };
    let shape = PlannedShape {
        rounds: 5,
        arms: 3,
        treatments: 2,
        base_copies: 2,
        candidate_copies: 1,
    };
    let comparison = Comparison::planned(shape, SIGMA, tau(), 1);
    let power = comparison.power(&plain).unwrap();
    let world = World::still(Noise::Calm, 1, 5);
    let runs = 500;
    let of = |effect, seed| trial(&world.changed(effect, 1), &plain, runs, seed);
    for (found, predicted) in [
        (of(0.0, 51).passes, power.pass_if_unchanged),
        (of(power.detectable, 52).slower, 0.9),
        (of(power.fails_gate, 53).fails, 0.9),
    ] {
        // The drift within rounds is noise that the prediction does not know.
        assert!(
            found.is_between(predicted - 0.03, predicted, runs),
            "{found:?} {predicted}"
        );
    }
}
