//! Cells and the command line that runs them.

use std::collections::HashMap;
use std::path::Path;

use indexmap::IndexMap;

use super::super::diagnostic::{names, printable};
use super::super::key_path::{child, item};
use super::super::matrix;
use super::super::model::{Experiment, Scalar};
use super::super::report::Report;
use super::super::template::{
    self, ARGS_NAME, FIXED_NAMES, OUT_NAME, TemplateError, is_identifier,
};
use super::{not_blank, output, setup};

/// More cells than this are a slip, and their names alone would fill memory.
const MAX_CELLS: usize = 1000;

/// What a variable of a cell and a setup step may be called.
pub(super) const EXPECTED_NAME: &str = "a name of letters, digits and `_`, no digit first, none of \
                                        `artifact`, `artifact_dir`, `arm`, `args`, `out`";

pub(super) fn check(experiment: &Experiment, report: &mut Report) {
    let cells = &experiment.cells;
    for (name, values) in &cells.matrix {
        let path = child("cells.matrix", name);
        variable(&path, name, report);
        if values.is_empty() {
            report.value(&path, "at least one value", "none", None);
        }
        for (index, value) in values.iter().enumerate() {
            scalar(&item(&path, index), value, report);
        }
    }
    for (index, values) in cells.list.iter().enumerate() {
        let path = item("cells.list", index);
        if values.is_empty() {
            report.value(&path, "at least one variable", "none", None);
        }
        for (name, value) in values {
            variable(&child(&path, name), name, report);
            scalar(&child(&path, name), value, report);
        }
    }
    match matrix::count(cells) {
        Some(count) if count <= MAX_CELLS => {
            let all = matrix::combinations(cells);
            distinct(&all, report);
            skip(experiment, &all, report);
            setup::check(experiment, &all, report);
            command(experiment, &all, report);
        }
        count => {
            let got = count.map_or("more than can be counted".into(), |n| n.to_string());
            report.value("cells", &format!("at most {MAX_CELLS} cells"), &got, None);
        }
    }
}

fn skip(experiment: &Experiment, all: &[IndexMap<String, Scalar>], report: &mut Report) {
    let entries = &experiment.cells.skip;
    for (index, entry) in entries.iter().enumerate() {
        let path = item("cells.skip", index);
        not_blank(&child(&path, "reason"), &entry.reason, report);
        let when_path = child(&path, "when");
        if entry.when.is_empty() {
            report.value(&when_path, "at least one variable", "none", None);
        }
        output::when(&when_path, &entry.when, experiment, report);
    }
    let skipped = |cell| {
        entries
            .iter()
            .any(|entry| matrix::selects(&entry.when, cell))
    };
    if !all.is_empty() && all.iter().all(skipped) && !report.is_touched("cells") {
        report.value("cells.skip", "at least one cell that is run", "none", None);
    }
}

fn variable(path: &str, name: &str, report: &mut Report) {
    if !is_identifier(name) || is_reserved(name) {
        let got = format!("`{}`", printable(name));
        report.key(path, EXPECTED_NAME, &got, None);
    }
}

fn scalar(path: &str, value: &Scalar, report: &mut Report) {
    if matches!(value, Scalar::Float(number) if !number.is_finite()) {
        report.value(path, "a finite number", &value.to_string(), None);
    }
}

fn distinct(all: &[IndexMap<String, Scalar>], report: &mut Report) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, values) in all.iter().enumerate() {
        // As the command sees them: 1 and '1' are the same word.
        let mut words: Vec<String> = values
            .iter()
            .map(|(name, value)| format!("{name}={value:?}", value = value.to_string()))
            .collect();
        words.sort();
        if let Some(first) = seen.insert(words.join(" "), index) {
            let got = format!(
                "cell {} as cell {} once more: {}",
                index + 1,
                first + 1,
                printable(&words.join(", "))
            );
            report.value("cells", "cells that differ", &got, None);
        }
    }
}

/// Whether the name means something else in some command.
pub(super) fn is_reserved(name: &str) -> bool {
    FIXED_NAMES.contains(&name) || name == OUT_NAME
}

fn command(experiment: &Experiment, all: &[IndexMap<String, Scalar>], report: &mut Report) {
    let mut known: Vec<String> = FIXED_NAMES.map(str::to_owned).into();
    known.extend(artifact_names(experiment));
    known.extend(experiment.setup.keys().cloned());
    let line = Line {
        path: "command",
        text: &experiment.command,
        known: &known,
    };
    let Some(used) = placeholders(&line, all, report) else {
        return;
    };
    unused(experiment, &used, report);
    args(experiment, &used, report);
    shell_syntax(&line, report);
}

/// Words of an arm need a place, and one of their own: between others they would be one word.
fn args(experiment: &Experiment, used: &[String], report: &mut Report) {
    if let Some(word) = template::joined_args(&experiment.command) {
        let got = format!("`{}`", printable(&word));
        report.value("command", "`{args}` as a word of its own", &got, None);
    }
    let with_args = experiment.arms.iter().find(|(_, arm)| arm.args.is_some());
    if let Some((name, _)) = with_args
        && !used.iter().any(|name| name == ARGS_NAME)
    {
        let path = child(&child("arms", name), "args");
        let hint = Some("write `{args}` into `command`, where these words belong".into());
        report.key(&path, "a command with `{args}`", "one without", hint);
    }
}

/// A command line, and the names that it may use beside the variables of a cell.
pub(super) struct Line<'a> {
    pub(super) path: &'a str,
    pub(super) text: &'a str,
    pub(super) known: &'a [String],
}

/// The placeholders of `line`; reports those that are unknown in some cell. `None` where the
/// line is no command at all.
pub(super) fn placeholders(
    line: &Line<'_>,
    all: &[IndexMap<String, Scalar>],
    report: &mut Report,
) -> Option<Vec<String>> {
    let used = match template::placeholders(line.text) {
        Ok(used) => used,
        Err(error) => {
            fault(line.path, &error, report);
            return None;
        }
    };
    let mut reported: Vec<&str> = Vec::new();
    for name in &used {
        let missing = all
            .iter()
            .position(|cell| !cell.contains_key(name) && !line.known.contains(name));
        let Some(missing) = missing else { continue };
        if reported.contains(&name.as_str()) || consequence(name, report) {
            continue;
        }
        reported.push(name);
        if all.iter().any(|cell| cell.contains_key(name)) {
            let got = format!("`{{{name}}}`, which cell {} does not set", missing + 1);
            report.value(line.path, "placeholders that every cell knows", &got, None);
        } else {
            let variables = all[missing].keys().map(String::as_str);
            let known = line.known.iter().map(String::as_str).chain(variables);
            fault(line.path, &template::unknown(name, known), report);
        }
    }
    Some(used)
}

fn fault(path: &str, error: &TemplateError, report: &mut Report) {
    report.value(path, error.expected(), &error.got(), error.hint());
}

/// Whether `name` may be unknown only because another value could not be read.
fn consequence(name: &str, report: &Report) -> bool {
    if name.starts_with("artifact:") {
        report.is_touched("build.artifacts")
    } else {
        report.is_touched("cells") || report.is_touched("setup")
    }
}

/// `artifact:<file name>` of every artifact.
pub(super) fn artifact_names(experiment: &Experiment) -> Vec<String> {
    let artifacts = experiment.build.iter().flat_map(|build| &build.artifacts);
    artifacts
        .filter_map(|artifact| Path::file_name(artifact))
        .map(|name| format!("artifact:{}", name.to_string_lossy()))
        .collect()
}

fn unused(experiment: &Experiment, used: &[String], report: &mut Report) {
    let runs_artifact = used.iter().any(|name| name.starts_with("artifact"));
    if !runs_artifact {
        let got = "a command without it";
        let hint = "every arm would run the same program".to_owned();
        report.warn("command", "`{artifact}`", got, Some(hint));
    }
    for name in experiment.setup.keys() {
        if !used.contains(name) && !report.is_faulty("command") {
            let path = child("setup", name);
            let expected = "a step that the command uses";
            report.warn(&path, expected, &format!("`{name}`"), None);
        }
    }
    let in_a_step = |name: &String| {
        let steps = experiment
            .setup
            .iter()
            .filter(|(step, _)| used.contains(*step));
        let mut names = steps.filter_map(|(_, step)| template::placeholders(&step.command).ok());
        names.any(|names| names.contains(name))
    };
    for (name, values) in &experiment.cells.matrix {
        let is_used = used.contains(name) || in_a_step(name);
        if values.len() > 1 && !is_used && !report.is_faulty("command") {
            let path = child("cells.matrix", name);
            let hint = "its cells would run the same command".to_owned();
            let expected = "a variable that the command uses";
            report.warn(&path, expected, &format!("`{name}`"), Some(hint));
        }
    }
}

/// Words that only a shell would understand.
pub(super) fn shell_syntax(line: &Line<'_>, report: &mut Report) {
    const OPERATORS: [&str; 9] = ["|", "||", "&", "&&", ";", "<", ">", ">>", "2>&1"];
    let words = shell_words::split(line.text).unwrap_or_default();
    let operators = words
        .iter()
        .filter(|word| OPERATORS.contains(&word.as_str()));
    let found = names(operators.map(String::as_str));
    if found != "none" {
        let hint = "no shell runs and it becomes an argument; for a shell write `sh -c '…'`";
        let expected = "a program and its arguments";
        report.warn(line.path, expected, &found, Some(hint.into()));
    }
}
