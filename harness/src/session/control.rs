//! The control arm of a plan: which arm it is, how it is slowed down and by how much. Pure.

use crate::analysis::reach;
use crate::experiment::control::{Clock, SlowDownPct, control_name, gated_clocks};
use crate::experiment::model::Experiment;
use crate::history::known::KnownCell;
use crate::record::format::{Plan, PlannedArm, SlowDown};
use crate::unit;
use crate::verdict::foresight::WANTED;

/// Appends the control arm that the experiment asks for. Its size is 0 until [`size`].
pub(super) fn append(experiment: &Experiment, arms: &mut Vec<PlannedArm>) {
    let Some(control) = &experiment.control else {
        return;
    };
    let Some(of) = arms.iter().find(|arm| arm.name == control.of) else {
        return;
    };
    let clocks = gated_clocks(experiment);
    let next = arms.iter().map(|arm| arm.treatment + 1).max();
    let arm = PlannedArm {
        name: control_name(&control.of),
        label: String::new(),
        null_of: None,
        treatment: next.unwrap_or(0),
        slow_down: Some(SlowDown {
            pct: 0.0,
            inside: clocks.contains(&Clock::Inside),
            wall: clocks.contains(&Clock::Wall),
            cpu: clocks.contains(&Clock::Cpu),
        }),
        ..of.clone()
    };
    arms.push(arm);
}

/// Settles the control's size, and warns of one that the rule may well miss. `known` is what
/// earlier runs tell of the plan's cells, or nothing.
pub(super) fn size(plan: &mut Plan, known: &[KnownCell]) {
    let Some(control) = plan.experiment.control.clone() else {
        return;
    };
    let needed = reach::control_needs(plan, known).map(|delta| round_up(unit::percent_of(delta)));
    let pct = match (control.slow_down_pct, needed) {
        (SlowDownPct::Pct(pct), needed) => {
            if let Some(needed) = needed.filter(|needed| pct < *needed) {
                plan.warnings.push(weak(pct, needed));
            }
            pct
        }
        (SlowDownPct::Auto(_), Some(needed)) => needed,
        // Nothing can be reached at all, and the plan says so elsewhere; a control of
        // three times the gate is as good as any.
        (SlowDownPct::Auto(_), None) => 3.0 * plan.experiment.verdict.threshold_pct,
    };
    for arm in &mut plan.arms {
        if let Some(slow_down) = &mut arm.slow_down {
            slow_down.pct = pct;
            arm.label = format!("{} slowed down by {} %", control.of, unit::value(pct));
        }
    }
}

fn weak(pct: f64, needed: f64) -> String {
    format!(
        "the control of {} % is weaker than {} %, the slow-down that fails the gate in {} % of \
         runs with the noise that is known, or at most bearable: the run may be invalid for a \
         control that could not be found",
        unit::value(pct),
        unit::value(needed),
        unit::value(100.0 * WANTED),
    )
}

/// To two digits, upwards: a control that is a little stronger is found a little more often.
pub(super) fn round_up(pct: f64) -> f64 {
    let step = 10_f64.powf(pct.log10().floor() - 1.0);
    // Divided by the inverse so that 0.1 steps come out as the decimal they look like.
    let inverse = (1.0 / step).round().max(1e-9);
    if step < 1.0 {
        (pct * inverse).ceil() / inverse
    } else {
        (pct / step).ceil() * step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::known::KnownNoise;
    use crate::record::example;

    fn planned(control: &str) -> Plan {
        let mut plan = example::plan();
        plan.experiment.control = serde_yaml::from_str(control).unwrap();
        append(&plan.experiment, &mut plan.arms);
        size(&mut plan, &[]);
        plan
    }

    #[test]
    fn the_control_is_a_treatment_of_its_own_and_slowed_where_the_gate_looks() {
        let plan = planned("{ of: base, slow_down_pct: 12.5 }");
        let arm = plan.arms.last().unwrap();
        assert_eq!((arm.name.as_str(), arm.treatment), ("base-control", 3));
        assert_eq!(arm.label, "base slowed down by 12.5 %");
        assert_eq!(arm.build, plan.arms[0].build);
        let slow_down = arm.slow_down.unwrap();
        assert_eq!(
            slow_down.words().join(" "),
            "slow-down --pct 12.5 --inside --"
        );
        assert_eq!(plan.warnings, Vec::<String>::new());
    }

    #[test]
    fn a_weak_control_is_told_and_auto_is_not_weak() {
        let weak = planned("{ of: base, slow_down_pct: 0.5 }");
        assert!(
            weak.warnings[0].starts_with("the control of 0.5 % is weaker than "),
            "{:?}",
            weak.warnings
        );
        let auto = planned("{ of: base }");
        assert_eq!(auto.warnings, Vec::<String>::new());
        let pct = auto.arms.last().unwrap().slow_down.unwrap().pct;
        assert!(pct > 1.0 && pct < 5.0, "{pct}");
    }

    #[test]
    fn auto_follows_the_noise_that_is_known() {
        let mut plan = planned("{ of: base }");
        let mut pct = |sigma: f64| {
            let noise = KnownNoise {
                sigma: 0.0,
                noisy: sigma,
                runs: 3,
            };
            let cell = KnownCell {
                attempt_seconds: None,
                noise: [("decode_tok_s".to_owned(), noise)].into(),
            };
            size(&mut plan, &[cell.clone(), cell]);
            plan.arms.last().unwrap().slow_down.unwrap().pct
        };
        let (calm, noisy) = (pct(0.002), pct(0.02));
        assert!(1.0 < calm && calm < 2.0 && 5.0 < noisy, "{calm} {noisy}");
    }

    #[test]
    fn sizes_are_rounded_up_to_two_digits() {
        for (pct, rounded) in [
            (1.231, 1.3),
            (1.3, 1.3),
            (0.0871, 0.088),
            (12.2, 13.0),
            (230.1, 240.0),
        ] {
            assert!(
                (round_up(pct) - rounded).abs() < 1e-9,
                "{pct}: {}",
                round_up(pct)
            );
        }
    }
}
