//! Claims: about an arm that is compared, a metric that is measured, a change that can be.

use super::super::claim::{Claim, Claims};
use super::super::diagnostic::{did_you_mean, names, printable};
use super::super::key_path::{child, item};
use super::super::model::Experiment;
use super::super::report::Report;
use super::not_blank;
use super::output::when;

pub(super) fn check(experiment: &Experiment, report: &mut Report) {
    match &experiment.claim {
        Claims::One(claim) => one("claim", claim, experiment, report),
        Claims::Many(claims) => {
            for (index, claim) in claims.iter().enumerate() {
                one(&item("claim", index), claim, experiment, report);
            }
        }
    }
}

fn one(path: &str, claim: &Claim, experiment: &Experiment, report: &mut Report) {
    subject(path, claim, experiment, report);
    let metrics = || experiment.metrics.keys().map(String::as_str);
    if !experiment.metrics.contains_key(&claim.metric) && !report.is_touched("metrics") {
        let expected = format!("one of the metrics ({})", names(metrics()));
        let got = format!("`{}`", printable(&claim.metric));
        let hint = did_you_mean(&claim.metric, metrics());
        report.value(&child(path, "metric"), &expected, &got, hint);
    }
    let change = claim.change_pct;
    if !(change.is_finite() && change > -100.0 && change != 0.0) {
        let expected = "a change above −100 % that is not 0";
        report.value(
            &child(path, "change_pct"),
            expected,
            &change.to_string(),
            None,
        );
    }
    not_blank(&child(path, "source"), &claim.source, report);
    when(&child(path, "when"), &claim.when, experiment, report);
}

fn subject(path: &str, claim: &Claim, experiment: &Experiment, report: &mut Report) {
    if report.is_touched("arms") {
        return;
    }
    let candidates = || {
        let arms = experiment.arms.keys().map(String::as_str);
        arms.filter(|arm| *arm != experiment.base)
    };
    let Some(arm) = claim.subject(experiment) else {
        let expected = format!("`arm`, one of {}", names(candidates()));
        report.key(path, &expected, "a claim about no arm", None);
        return;
    };
    if !candidates().any(|candidate| candidate == arm) {
        let expected = format!("an arm beside the base ({})", names(candidates()));
        let got = format!("`{}`", printable(arm));
        let hint = did_you_mean(arm, candidates());
        report.value(&child(path, "arm"), &expected, &got, hint);
    }
}
