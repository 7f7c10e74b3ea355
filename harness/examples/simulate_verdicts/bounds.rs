//! What must hold, whatever the noise; docs/METHODOLOGY.md states it.

use super::trial::{ALPHA, Seen};
use super::world::{History, Noise, World};

/// Intervals cover the truth this often: 95 % are promised; the guard against a noisier
/// candidate makes them wider than that (docs/adr/0016).
pub(crate) const COVERAGE: (f64, f64) = (0.94, 0.975);

/// Under correlated noise this many false alarms, or the run is Invalid.
const CORRELATED: f64 = 0.06;

/// The bounds that runs without a change break, each in a line.
pub(crate) fn broken_by_no_change(world: &World, seen: &Seen) -> Vec<String> {
    let mut broken = Vec::new();
    let mut check = |holds: bool, what: String| {
        if !holds {
            broken.push(format!("{}: {what}", place(world)));
        }
    };
    let most = if world.noise == Noise::Correlated {
        CORRELATED
    } else {
        ALPHA
    };
    let alarms = seen.any_slower;
    check(
        alarms.is_at_most(most),
        format!("{:.2} % of false alarms", 100.0 * alarms.value()),
    );
    let relabelled = seen.any_relabelled;
    check(
        !is_exchangeable(world) || relabelled.is_at_most(most),
        format!("{:.2} % differ by relabelling", 100.0 * relabelled.value()),
    );
    let covered = seen.covered;
    check(
        covered.is_between(COVERAGE.0, COVERAGE.1, alarms.of),
        format!("intervals cover {:.2} %", 100.0 * covered.value()),
    );
    broken
}

/// The bounds that runs with a candidate exactly at the gate break.
pub(crate) fn broken_at_the_gate(world: &World, seen: &Seen) -> Vec<String> {
    [
        (seen.passes, "pass"),
        (seen.equivalent, "are Equivalent"),
        (seen.relabelled_pass, "pass by relabelling"),
    ]
    .into_iter()
    .filter(|(share, what)| {
        let excused = !is_exchangeable(world) && what.contains("relabelling");
        !(excused || share.is_at_most(ALPHA))
    })
    .map(|(share, what)| {
        let pct = 100.0 * share.value();
        format!("{}: {pct:.2} % {what} exactly at the gate", place(world))
    })
    .collect()
}

/// Relabelling takes the runs of a round to be exchangeable. Those of a noisier candidate are
/// not, nor are copies that lie apart: this is what it cannot do.
fn is_exchangeable(world: &World) -> bool {
    !matches!(world.noise, Noise::Unequal | Noise::Apart)
}

fn place(world: &World) -> String {
    let history = match world.history {
        History::None => String::new(),
        history => format!(", history {}", history.name()),
    };
    format!(
        "{}{history}, {} cells, {} rounds",
        world.noise.name(),
        world.cells,
        world.rounds
    )
}
