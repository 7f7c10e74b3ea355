//! The plans of a calibration: pilot runs that settle the sizes, then runs with the same
//! program as a candidate, a positive control, and injected slow-downs. Pure.

use crate::analysis::calibration::{MULTIPLES, SAME, Sizes, injected_name};
use crate::experiment::control::{Clock, Control, SlowDownPct, control_name, gated_clocks};
use crate::record::format::{Plan, PlannedArm, SlowDown};
use crate::unit;

use super::control::round_up;
use super::prepare::orders;

/// Runs that settle the sizes and are not counted.
pub const PILOTS: u32 = 10;

/// The name of a run's folder.
#[must_use]
pub fn folder(sizes: Option<Sizes>, number: u32) -> String {
    let kind = if sizes.is_some() { "run" } else { "pilot" };
    format!("{kind}-{number:03}")
}

/// The plan of one run; without `sizes` of a pilot run. `base` holds the base and its null arm.
#[must_use]
pub fn plan(base: &Plan, sizes: Option<Sizes>, number: u32) -> Plan {
    let mut plan = base.clone();
    let experiment = &mut plan.experiment;
    let name = experiment.base.clone();
    experiment.name = format!("{}-calibration", experiment.name);
    // Pilots and runs do not share an order.
    let series = if sizes.is_some() { 1000 } else { 0 };
    experiment.seed = experiment.seed.wrapping_add(series + u64::from(number));
    if let Some(arm) = experiment.arms.get(&name).cloned() {
        experiment.arms.insert(SAME.to_owned(), arm);
    }
    let clocks = gated_clocks(experiment);
    let Some(arm) = plan.arms.iter().find(|arm| arm.name == name).cloned() else {
        return plan;
    };
    let mut add = |name: &str, label: String, pct: Option<f64>| {
        let treatment = plan.arms.iter().map(|arm| arm.treatment + 1).max();
        plan.arms.push(PlannedArm {
            name: name.to_owned(),
            label,
            treatment: treatment.unwrap_or(0),
            slow_down: pct.map(|pct| SlowDown {
                pct,
                inside: clocks.contains(&Clock::Inside),
                wall: clocks.contains(&Clock::Wall),
                cpu: clocks.contains(&Clock::Cpu),
            }),
            ..arm.clone()
        });
    };
    add(SAME, format!("{name} once more, as a candidate"), None);
    if let Some(sizes) = sizes {
        let slowed = |pct: f64| format!("{name} slowed down by {} %", unit::value(pct));
        let pct = round_up(percent(sizes.fails_gate));
        add(&control_name(&name), slowed(pct), Some(pct));
        plan.experiment.control = Some(Control {
            of: name.clone(),
            slow_down_pct: SlowDownPct::Pct(pct),
        });
        for multiple in MULTIPLES {
            let pct = percent(multiple * sizes.detectable);
            add(&injected_name(multiple), slowed(pct), Some(pct));
        }
    }
    let (order, balanced) = orders(&plan.experiment, &plan.arms, plan.cells.len());
    (plan.order, plan.balanced) = (order, balanced);
    plan
}

fn percent(delta: f64) -> f64 {
    100.0 * delta.exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::example;

    fn base() -> Plan {
        let mut plan = example::plan();
        plan.experiment.arms.retain(|name, _| name == "base");
        plan.arms.truncate(2);
        plan
    }

    const SIZES: Sizes = Sizes {
        detectable: 0.02,
        fails_gate: 0.0312,
    };

    #[test]
    fn a_pilot_compares_the_program_with_itself_and_a_run_adds_slow_downs() {
        let names =
            |plan: &Plan| -> Vec<String> { plan.arms.iter().map(|arm| arm.name.clone()).collect() };
        let pilot = plan(&base(), None, 1);
        assert_eq!(names(&pilot), ["base", "base-null", "same"]);
        let run = plan(&base(), Some(SIZES), 1);
        let expected = [
            "base",
            "base-null",
            "same",
            "base-control",
            "x0.5",
            "x1",
            "x2",
            "x4",
        ];
        assert_eq!(names(&run), expected);
        let treatments: Vec<usize> = run.arms.iter().map(|arm| arm.treatment).collect();
        assert_eq!(treatments, [0, 0, 1, 2, 3, 4, 5, 6]);
        let pct = |name: &str| {
            let arm = run.arms.iter().find(|arm| arm.name == name).unwrap();
            arm.slow_down.unwrap().pct
        };
        assert!((pct("x2") - 100.0 * 0.04_f64.exp_m1()).abs() < 1e-9);
        assert!((pct("base-control") - 3.2).abs() < 1e-9);
        assert!(run.order[0].iter().all(|round| round.len() == 8));
        assert_ne!(run.order, plan(&base(), Some(SIZES), 2).order);
    }
}
