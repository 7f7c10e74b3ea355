//! Metrics, expectations and requirements.

use indexmap::IndexMap;

use super::super::condition;
use super::super::diagnostic::{did_you_mean, names, printable};
use super::super::key_path::{child, item};
use super::super::matrix;
use super::super::model::{Condition, Experiment, Metric, Scalar};
use super::super::report::Report;
use super::super::template::is_identifier;
use super::arms;

pub(super) fn check(experiment: &Experiment, report: &mut Report) {
    if experiment.metrics.is_empty() {
        report.value("metrics", "at least one metric", "none", None);
    }
    for (name, metric) in &experiment.metrics {
        one_metric(&child("metrics", name), name, metric, report);
    }
    if !experiment.metrics.values().any(|metric| metric.gate) {
        let got = "none";
        let hint = "the gate would have nothing to decide".to_owned();
        report.warn("metrics", "a metric with `gate: true`", got, Some(hint));
    }
    for (name, arm) in &experiment.arms {
        let path = child(&child("arms", name), "requires");
        conditions(&path, &arm.requires, report);
    }
    expectations(experiment, report);
}

fn one_metric(path: &str, name: &str, metric: &Metric, report: &mut Report) {
    if !is_identifier(name) {
        let expected = "a metric name of letters, digits and `_`, no digit first";
        report.key(path, expected, &format!("`{}`", printable(name)), None);
    }
    let sources = [
        ("json", metric.json.is_some()),
        ("regex", metric.regex.is_some()),
        ("rusage", metric.rusage.is_some()),
    ];
    let given: Vec<&str> = sources
        .iter()
        .filter_map(|(key, given)| given.then_some(*key))
        .collect();
    if given.len() != 1 && !(given.is_empty() && report.is_touched(path)) {
        let got = names(given.into_iter());
        report.key(path, "exactly one of `json`, `regex`, `rusage`", &got, None);
    }
    if let Some(field) = &metric.json {
        field_path(&child(path, "json"), field, report);
    }
    if let Some(pattern) = &metric.regex {
        regex(&child(path, "regex"), pattern, report);
    }
}

fn regex(path: &str, pattern: &str, report: &mut Report) {
    match regex::Regex::new(pattern) {
        Ok(regex) if regex.captures_len() == 2 => {}
        Ok(regex) => {
            let got = format!("{} groups", regex.captures_len() - 1);
            let hint = "the group holds the number; write `(?:…)` for a group that does not";
            report.value(path, "exactly one group", &got, Some(hint.into()));
        }
        Err(error) => {
            // The library draws the pattern over several lines; its last one says why.
            let text = error.to_string();
            let why = text.lines().last().unwrap_or_default();
            let why = why.trim().trim_start_matches("error: ").to_owned();
            let got = format!("`{}`", printable(pattern));
            report.value(path, "a regular expression", &got, Some(why));
        }
    }
}

fn expectations(experiment: &Experiment, report: &mut Report) {
    let expect = &experiment.expect;
    for (index, field) in expect.same_across_arms.iter().enumerate() {
        field_path(&item("expect.same_across_arms", index), field, report);
    }
    conditions("expect.json", &expect.json, report);
    if let Some(sum) = &expect.stdout_sha256 {
        let good = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        if sum.len() != 64 || !sum.chars().all(good) {
            let got = format!("`{}`", printable(sum));
            let expected = "64 lower-case hex digits";
            report.value("expect.stdout_sha256", expected, &got, None);
        }
    }
    if !(0..=255).contains(&expect.exit_status) {
        let got = expect.exit_status.to_string();
        report.value("expect.exit_status", "a status from 0 to 255", &got, None);
    }
    for (index, one) in expect.cells.iter().enumerate() {
        let path = item("expect.cells", index);
        if one.json.is_empty() {
            let path = child(&path, "json");
            report.value(&path, "at least one field", "none", None);
        }
        conditions(&child(&path, "json"), &one.json, report);
        let when_path = child(&path, "when");
        if one.when.is_empty() {
            let hint = "what holds in every cell belongs under `expect.json`".to_owned();
            report.value(&when_path, "at least one variable", "none", Some(hint));
        }
        when(&when_path, &one.when, experiment, report);
        for (index, arm) in one.arms.iter().enumerate() {
            let path = item(&child(&path, "arms"), index);
            arms::known_arm(&path, arm, experiment, report);
        }
    }
}

/// A selector must select something.
pub(super) fn when(
    path: &str,
    when: &IndexMap<String, Scalar>,
    experiment: &Experiment,
    report: &mut Report,
) {
    let too_many = matrix::count(&experiment.cells).is_none_or(|count| count > 1000);
    if report.is_touched("cells") || too_many {
        return;
    }
    let all = matrix::combinations(&experiment.cells);
    let mut known: Vec<&str> = all
        .iter()
        .flat_map(|c| c.keys().map(String::as_str))
        .collect();
    known.sort_unstable();
    known.dedup();
    let mut unknown = false;
    for name in when.keys().filter(|name| !known.contains(&name.as_str())) {
        unknown = true;
        let expected = format!("a variable of the cells ({})", names(known.iter().copied()));
        let hint = did_you_mean(name, known.iter().copied());
        let got = format!("`{}`", printable(name));
        report.key(&child(path, name), &expected, &got, hint);
    }
    let selects = |cell: &IndexMap<String, Scalar>| matrix::selects(when, cell);
    if !unknown && !when.is_empty() && !all.iter().any(selects) {
        let hint = "the entry would never apply".to_owned();
        report.value(
            path,
            "values that some cell has",
            "none with these",
            Some(hint),
        );
    }
}

fn conditions(path: &str, all: &IndexMap<String, Condition>, report: &mut Report) {
    for (field, value) in all {
        let path = child(path, field);
        field_path(&path, field, report);
        let finite = !matches!(value, Scalar::Float(number) if !number.is_finite());
        if !finite {
            report.value(&path, "a finite number", &value.to_string(), None);
        } else if let Err(error) = condition::parse(value) {
            let got = format!("`{}`", printable(&value.to_string()));
            report.value(&path, &error.to_string(), &got, None);
        }
    }
}

fn field_path(path: &str, field: &str, report: &mut Report) {
    if field.is_empty() || field.split('.').any(str::is_empty) {
        let got = format!("`{}`", printable(field));
        let expected = "a field such as `tok_s` or `timings.decode_ms`";
        report.value(path, expected, &got, None);
    }
}
