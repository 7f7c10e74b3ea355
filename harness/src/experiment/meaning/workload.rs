//! Cells and the command line that runs them.

use std::collections::HashMap;
use std::path::Path;

use indexmap::IndexMap;

use super::super::diagnostic::{names, printable};
use super::super::key_path::{child, item};
use super::super::matrix;
use super::super::model::{Experiment, Scalar};
use super::super::report::Report;
use super::super::template::{self, FIXED_NAMES, TemplateError, is_identifier};

/// More cells than this are a slip, and their names alone would fill memory.
const MAX_CELLS: usize = 1000;

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
            command(experiment, &all, report);
        }
        count => {
            let got = count.map_or("more than can be counted".into(), |n| n.to_string());
            report.value("cells", &format!("at most {MAX_CELLS} cells"), &got, None);
        }
    }
}

fn variable(path: &str, name: &str, report: &mut Report) {
    if !is_identifier(name) || FIXED_NAMES.contains(&name) {
        let expected = "a variable name of letters, digits and `_`, no digit first, none of \
                        `artifact`, `artifact_dir`, `arm`";
        report.key(path, expected, &format!("`{}`", printable(name)), None);
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

fn command(experiment: &Experiment, all: &[IndexMap<String, Scalar>], report: &mut Report) {
    let path = "command";
    let used = match template::placeholders(&experiment.command) {
        Ok(used) => used,
        Err(error) => return fault(&error, report),
    };
    let files = artifact_names(experiment);
    let mut reported: Vec<&str> = Vec::new();
    for name in &used {
        let fixed = || {
            FIXED_NAMES
                .into_iter()
                .chain(files.iter().map(String::as_str))
        };
        let missing = all
            .iter()
            .position(|cell| !cell.contains_key(name) && !fixed().any(|known| known == name));
        let Some(missing) = missing else { continue };
        if reported.contains(&name.as_str()) || consequence(name, report) {
            continue;
        }
        reported.push(name);
        if all.iter().any(|cell| cell.contains_key(name)) {
            let got = format!("`{{{name}}}`, which cell {} does not set", missing + 1);
            report.value(path, "placeholders that every cell knows", &got, None);
        } else {
            let variables = all[missing].keys().map(String::as_str);
            let known = fixed().chain(variables);
            fault(&template::unknown(name, known), report);
        }
    }
    unused(experiment, &used, report);
    shell_syntax(&experiment.command, report);
}

fn fault(error: &TemplateError, report: &mut Report) {
    report.value("command", error.expected(), &error.got(), error.hint());
}

/// Whether `name` may be unknown only because another value could not be read.
fn consequence(name: &str, report: &Report) -> bool {
    if name.starts_with("artifact:") {
        report.is_touched("build.artifacts")
    } else {
        report.is_touched("cells")
    }
}

/// `artifact:<file name>` of every artifact.
fn artifact_names(experiment: &Experiment) -> Vec<String> {
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
    for (name, values) in &experiment.cells.matrix {
        if values.len() > 1 && !used.contains(name) && !report.is_faulty("command") {
            let path = child("cells.matrix", name);
            let hint = "its cells would run the same command".to_owned();
            let expected = "a variable that the command uses";
            report.warn(&path, expected, &format!("`{name}`"), Some(hint));
        }
    }
}

/// Words that only a shell would understand.
fn shell_syntax(command: &str, report: &mut Report) {
    const OPERATORS: [&str; 9] = ["|", "||", "&", "&&", ";", "<", ">", ">>", "2>&1"];
    let words = shell_words::split(command).unwrap_or_default();
    let operators = words
        .iter()
        .filter(|word| OPERATORS.contains(&word.as_str()));
    let found = names(operators.map(String::as_str));
    if found != "none" {
        let hint = "no shell runs and it becomes an argument; for a shell write `sh -c '…'`";
        let expected = "a program and its arguments";
        report.warn("command", expected, &found, Some(hint.into()));
    }
}
