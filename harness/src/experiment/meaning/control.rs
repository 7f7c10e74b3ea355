//! The positive control.

use super::super::control::{SlowDownPct, control_name, gated_clocks};
use super::super::diagnostic::printable;
use super::super::key_path::child;
use super::super::model::Experiment;
use super::super::nulls::null_arms;
use super::super::report::Report;

/// A program that takes ten times as long proves nothing more than one that takes twice.
const MAX_SLOW_DOWN_PCT: f64 = 1000.0;

pub(super) fn check(experiment: &Experiment, report: &mut Report) {
    let Some(control) = &experiment.control else {
        return;
    };
    if control.of != experiment.base && !report.is_faulty("base") {
        let expected = format!("the base (`{}`)", printable(&experiment.base));
        let got = format!("`{}`", printable(&control.of));
        let hint = "the rule compares every arm with the base, the control too".to_owned();
        report.value("control.of", &expected, &got, Some(hint));
    }
    if let SlowDownPct::Pct(pct) = control.slow_down_pct
        && !(pct > 0.0 && pct <= MAX_SLOW_DOWN_PCT)
    {
        let expected = format!("a number above 0 and up to {MAX_SLOW_DOWN_PCT}, or `auto`");
        report.value("control.slow_down_pct", &expected, &pct.to_string(), None);
    }
    let name = control_name(&control.of);
    let taken = experiment.arms.contains_key(&name)
        || null_arms(experiment).iter().any(|null| null.name == name);
    if taken {
        let got = "the name of the control arm";
        report.key(&child("arms", &name), "another name", got, None);
    }
    if gated_clocks(experiment).is_empty() && !report.is_touched("metrics") {
        let expected = "a gated metric that a slow-down moves (a time or a rate)";
        let hint = "the run would be invalid, since nothing could find the control".to_owned();
        report.key("control", expected, "none", Some(hint));
    }
}
