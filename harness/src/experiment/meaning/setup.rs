//! Setup steps: what they are called and what their commands may name.

use indexmap::IndexMap;

use super::super::diagnostic::printable;
use super::super::key_path::{child, item};
use super::super::model::{Experiment, Scalar, SetupStep};
use super::super::report::Report;
use super::super::template::{OUT_NAME, is_identifier};
use super::workload::{self, EXPECTED_NAME, Line, artifact_names, is_reserved};
use super::{arms, seconds, variable_name};

pub(super) fn check(
    experiment: &Experiment,
    all: &[IndexMap<String, Scalar>],
    report: &mut Report,
) {
    for (name, step) in &experiment.setup {
        let path = child("setup", name);
        if !is_identifier(name) || is_reserved(name) {
            let got = format!("`{}`", printable(name));
            report.key(&path, EXPECTED_NAME, &got, None);
        }
        if all.iter().any(|cell| cell.contains_key(name)) {
            let got = format!("`{}`, a variable of the cells", printable(name));
            report.key(&path, "a name of its own", &got, None);
        }
        command(&path, step, experiment, all, report);
        surroundings(&path, step, experiment, report);
    }
}

fn command(
    path: &str,
    step: &SetupStep,
    experiment: &Experiment,
    all: &[IndexMap<String, Scalar>],
    report: &mut Report,
) {
    let at = child(path, "command");
    let mut known = vec![
        "artifact".to_owned(),
        "artifact_dir".to_owned(),
        OUT_NAME.to_owned(),
    ];
    known.extend(artifact_names(experiment));
    let line = Line {
        path: &at,
        text: &step.command,
        known: &known,
    };
    let Some(used) = workload::placeholders(&line, all, report) else {
        return;
    };
    let fills = used.iter().any(|name| name == OUT_NAME);
    if fills == step.prints.is_some() && !report.is_touched(path) {
        let got = if fills { "both" } else { "neither" };
        let hint = "a step fills the folder `{out}`, or prints the path of what it made";
        let expected = "either `{out}` in the command or `prints: path`";
        report.key(path, expected, got, Some(hint.into()));
    }
    workload::shell_syntax(&line, report);
}

fn surroundings(path: &str, step: &SetupStep, experiment: &Experiment, report: &mut Report) {
    if let Some(arm) = &step.arm {
        arms::known_arm(&child(path, "arm"), arm, experiment, report);
    }
    for (index, input) in step.inputs.iter().enumerate() {
        arms::relative(
            &item(&child(path, "inputs"), index),
            input,
            "the project's root",
            report,
        );
    }
    arms::environment(&child(path, "env"), &step.env, report);
    for (index, name) in step.pass_env.iter().enumerate() {
        let at = item(&child(path, "pass_env"), index);
        variable_name(&at, name, report);
        if step.env.contains_key(name) {
            let got = format!("`{}` in both", printable(name));
            report.value(&at, "a variable in either `env` or `pass_env`", &got, None);
        }
    }
    seconds(&child(path, "timeout_secs"), step.timeout_secs, 1, report);
}
