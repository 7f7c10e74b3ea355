//! What no schema can say: names that must exist, keys that exclude each other,
//! ranges that make a measurement possible.
//!
//! Every check reports under its own key path and goes on; [`Report`] drops what
//! only follows from a value that could not be read.

mod arms;
mod claims;
mod control;
mod looks;
mod output;
mod setup;
mod workload;

use super::diagnostic::printable;
use super::model::{Experiment, MAX_ROUNDS, MIN_ROUNDS, SCHEMA, Verdict};
use super::report::Report;

/// Longest name that becomes part of a file name.
const MAX_NAME_CHARACTERS: usize = 64;
/// A round that fails this often will not succeed.
const MAX_RETRIES: u32 = 100;
/// Longest limit of one process or wait: a week.
const MAX_SECONDS: u64 = 7 * 24 * 3600;

/// Checks everything across keys.
pub(crate) fn check(experiment: &Experiment, report: &mut Report) {
    head(experiment, report);
    arms::check(experiment, report);
    control::check(experiment, report);
    workload::check(experiment, report);
    output::check(experiment, report);
    claims::check(experiment, report);
    limits(experiment, report);
    looks::check(experiment, report);
    verdict(&experiment.verdict, report);
}

fn head(experiment: &Experiment, report: &mut Report) {
    schema_and_name((experiment.schema, SCHEMA), &experiment.name, report);
    not_blank("question", &experiment.question, report);
}

/// The first keys of every definition file; `schema` is what stands there and what is known.
pub(crate) fn schema_and_name((got, known): (u32, u32), name: &str, report: &mut Report) {
    if got != known {
        let hint = (got > known).then(|| "the file was written for a newer bench-run".to_owned());
        report.value("schema", &known.to_string(), &got.to_string(), hint);
    }
    if let Some((expected, got)) = file_name_fault(name) {
        report.value("name", &expected, &got, None);
    }
}

fn limits(experiment: &Experiment, report: &mut Report) {
    let rounds = experiment.rounds;
    if !(MIN_ROUNDS..=MAX_ROUNDS).contains(&rounds) {
        let hint = "fewer than three complete rounds can never have a verdict".to_owned();
        report.value(
            "rounds",
            &format!("{MIN_ROUNDS} to {MAX_ROUNDS} rounds"),
            &rounds.to_string(),
            (rounds < MIN_ROUNDS).then_some(hint),
        );
    }
    if experiment.retries > MAX_RETRIES {
        let expected = format!("at most {MAX_RETRIES} retries");
        let got = experiment.retries.to_string();
        report.value("retries", &expected, &got, None);
    }
    seconds("timeout_secs", experiment.timeout_secs, 1, report);
    if let Some(build) = &experiment.build {
        seconds("build.timeout_secs", build.timeout_secs, 1, report);
    }
    let guard = &experiment.guard;
    seconds("guard.idle_secs", guard.idle_secs, 0, report);
    seconds("guard.max_wait_secs", guard.max_wait_secs, 0, report);
    if guard.max_wait_secs != 0 && guard.max_wait_secs < guard.idle_secs {
        let hint = "the guard would give up before the machine could count as quiet".to_owned();
        report.value(
            "guard.max_wait_secs",
            &format!("0 or at least idle_secs ({})", guard.idle_secs),
            &guard.max_wait_secs.to_string(),
            Some(hint),
        );
    }
    positive(
        "guard.max_foreign_cpu_pct",
        guard.max_foreign_cpu_pct,
        100_000.0,
        report,
    );
}

/// The decision rule's numbers.
pub(crate) fn verdict(verdict: &Verdict, report: &mut Report) {
    positive(
        "verdict.threshold_pct",
        verdict.threshold_pct,
        100.0,
        report,
    );
    positive("verdict.alpha", verdict.alpha, 0.5, report);
}

/// A number strictly between 0 and `below`.
fn positive(path: &str, value: f64, below: f64, report: &mut Report) {
    if !(value > 0.0 && value < below) {
        let expected = format!("a number above 0 and below {below}");
        report.value(path, &expected, &value.to_string(), None);
    }
}

fn seconds(path: &str, value: u64, least: u64, report: &mut Report) {
    if !(least..=MAX_SECONDS).contains(&value) {
        let expected = format!("{least} to {MAX_SECONDS} seconds");
        report.value(path, &expected, &value.to_string(), None);
    }
}

/// Text with at least one visible character. True when it has.
pub(crate) fn not_blank(path: &str, text: &str, report: &mut Report) -> bool {
    let blank = text.trim().is_empty();
    if blank {
        report.value(path, "text", "empty text", None);
    }
    !blank
}

/// What is wrong with a name that becomes part of file names: expected and got.
fn file_name_fault(name: &str) -> Option<(String, String)> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    let fits = name.len() <= MAX_NAME_CHARACTERS;
    if starts_well && fits && name.chars().all(good) {
        return None;
    }
    let expected = format!(
        "a name of 1 to {MAX_NAME_CHARACTERS} ASCII letters, digits, `-`, `_`, `.`, \
         beginning with a letter or digit"
    );
    Some((expected, format!("`{}`", printable(name))))
}

fn variable_name(path: &str, name: &str, report: &mut Report) {
    if !super::template::is_identifier(name) {
        let expected = "a variable name of letters, digits and `_`, no digit first";
        report.key(path, expected, &format!("`{}`", printable(name)), None);
    }
}
