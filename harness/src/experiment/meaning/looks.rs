//! Looks and confirmation.

use super::super::key_path::item;
use super::super::model::{Experiment, MAX_ROUNDS, MIN_ROUNDS};
use super::super::report::Report;

/// Each look takes its part of α: with more than this the rule sees next to nothing.
const MAX_LOOKS: usize = 10;

pub(super) fn check(experiment: &Experiment, report: &mut Report) {
    let looks = &experiment.looks;
    if report.contains("looks") {
        if report.contains("rounds") {
            let hint = "the last look says how many rounds there are at most".to_owned();
            report.key("rounds", "either `rounds` or `looks`", "both", Some(hint));
        }
        if !(2..=MAX_LOOKS).contains(&looks.len()) {
            let expected = format!("2 to {MAX_LOOKS} looks");
            let hint = "a single look is `rounds`".to_owned();
            let hint = (looks.len() == 1).then_some(hint);
            report.value("looks", &expected, &looks.len().to_string(), hint);
        }
    }
    for (index, rounds) in looks.iter().enumerate() {
        let path = item("looks", index);
        if !(MIN_ROUNDS..=MAX_ROUNDS).contains(rounds) {
            let expected = format!("{MIN_ROUNDS} to {MAX_ROUNDS} rounds");
            report.value(&path, &expected, &rounds.to_string(), None);
        }
        if let Some(before) = index.checked_sub(1).and_then(|before| looks.get(before))
            && rounds <= before
        {
            let expected = format!("more rounds than at the look before ({before})");
            report.value(&path, &expected, &rounds.to_string(), None);
        }
    }
    let gated = experiment.metrics.values().any(|metric| metric.gate);
    for (key, given) in [
        ("looks", !looks.is_empty()),
        ("confirm", experiment.confirm),
    ] {
        if given && !gated && !report.is_touched("metrics") {
            let expected = "a metric with `gate: true`";
            let hint = "nothing would ever be decided".to_owned();
            report.key(key, expected, "none", Some(hint));
        }
    }
}
