//! Arms, null arms, sources, builds and environments.

use std::collections::HashMap;
use std::path::{Component, Path};

use indexmap::IndexMap;

use super::super::diagnostic::{did_you_mean, names, printable};
use super::super::expand;
use super::super::key_path::{child, item};
use super::super::model::{Arm, Experiment, Nulls};
use super::super::nulls::null_arms;
use super::super::report::Report;
use super::super::template::{self, VALUE_NAME};
use super::{file_name_fault, not_blank, variable_name};

/// The revision that means the tree as it is.
const WORKTREE: &str = "worktree";
/// Each null arm costs a run per round; more than this are a slip.
const MAX_NULLS: usize = 100;
const CHECKOUT: &str = "the checkout's root";
const WHY_NULLS: &str = "a null arm repeats an arm under another name and so shows the noise of \
                         this very run; without one no difference can be told from noise";

pub(super) fn check(experiment: &Experiment, report: &mut Report) {
    if experiment.arms.is_empty() {
        report.value("arms", "at least one arm", "none", None);
    }
    let mut folded: HashMap<String, &str> = HashMap::new();
    for (name, arm) in &experiment.arms {
        let path = child("arms", name);
        if let Some((expected, got)) = file_name_fault(name) {
            report.key(&path, &expected, &got, None);
        }
        if let Some(twin) = folded.insert(name.to_lowercase(), name) {
            // Output files of the two would be one file on some file systems.
            let got = format!("`{name}` and `{twin}`");
            report.key(&path, "names that differ in more than case", &got, None);
        }
        one_arm(&path, arm, experiment, report);
    }
    base(experiment, report);
    nulls(experiment, report);
    source(experiment, report);
    build(experiment, report);
    outer_environment(experiment, report);
}

fn one_arm(path: &str, arm: &Arm, experiment: &Experiment, report: &mut Report) {
    let at = |key: &str| child(path, key);
    match (&arm.rev, &arm.binary) {
        (None, None) if !report.is_touched(path) => {
            report.key(path, "`rev` or `binary`", "neither", None);
        }
        (Some(_), Some(_)) => report.key(path, "either `rev` or `binary`", "both", None),
        _ => {}
    }
    if let Some(rev) = &arm.rev {
        revision(&at("rev"), rev, experiment, report);
    }
    if arm.binary.is_some() && arm.rev.is_none() {
        for (key, given) in [
            ("repo", arm.repo.is_some()),
            ("patch", arm.patch.is_some()),
            ("build_command", arm.build_command.is_some()),
        ] {
            if given {
                let got = format!("`{key}` beside `binary`");
                report.key(&at(key), "keys that fit a prebuilt program", &got, None);
            }
        }
    }
    for (key, text) in [("binary", &arm.binary), ("repo", &arm.repo)] {
        if let Some(text) = text {
            expandable(&at(key), text, report);
        }
    }
    for (key, text) in [("label", &arm.label), ("build_command", &arm.build_command)] {
        if let Some(text) = text {
            not_blank(&at(key), text, report);
        }
    }
    if let Some(args) = &arm.args {
        not_blank(&at("args"), args, report);
        if shell_words::split(args).is_err() {
            let got = "an unclosed quote or a final backslash";
            report.value(&at("args"), "words as a shell splits them", got, None);
        }
    }
    if let Some(patch) = &arm.patch
        && (patch.as_os_str().is_empty() || patch.is_absolute())
    {
        let got = format!("`{}`", patch.display());
        let expected = "a path relative to the experiment file";
        report.value(&at("patch"), expected, &got, None);
    }
    attempt_environment(&at("env"), &arm.env, report);
}

fn revision(path: &str, rev: &str, experiment: &Experiment, report: &mut Report) {
    let broken = |c: char| c.is_whitespace() || c.is_control();
    if rev.is_empty() || rev.starts_with('-') || rev.contains(broken) {
        let got = format!("`{}`", printable(rev));
        report.value(path, "a commit, tag or branch", &got, None);
    }
    let gated = experiment.metrics.values().any(|metric| metric.gate);
    if rev == WORKTREE && gated {
        let hint = "a gate compares pinned commits: commit the change, or remove `gate: true`";
        let got = "the working tree in an experiment with a gated metric";
        report.value(path, "a pinned revision", got, Some(hint.into()));
    }
}

fn base(experiment: &Experiment, report: &mut Report) {
    known_arm("base", &experiment.base, experiment, report);
}

fn nulls(experiment: &Experiment, report: &mut Report) {
    if let Nulls::Some(list) = &experiment.nulls {
        if list.is_empty() {
            let some = experiment.arms.get_key_value(&experiment.base);
            let example = some.map_or("all".into(), |(name, _)| format!("[{name}]"));
            let hint = format!("write `nulls: {example}`; {WHY_NULLS}");
            report.value("nulls", "`all` or at least one arm", "none", Some(hint));
        }
        if list.len() > MAX_NULLS {
            let expected = format!("at most {MAX_NULLS} null arms");
            report.value("nulls", &expected, &list.len().to_string(), None);
        }
        for (index, name) in list.iter().enumerate() {
            known_arm(&item("nulls", index), name, experiment, report);
        }
    }
    for null in null_arms(experiment) {
        if experiment.arms.contains_key(&null.name) {
            let got = format!("the name of the null arm of `{}`", printable(&null.of));
            report.key(&child("arms", &null.name), "another name", &got, None);
        }
    }
}

pub(super) fn known_arm(path: &str, name: &str, experiment: &Experiment, report: &mut Report) {
    // The arms that could be read are not all of them.
    if experiment.arms.contains_key(name) || report.is_faulty("arms") {
        return;
    }
    let known = || experiment.arms.keys().map(String::as_str);
    let expected = format!("the name of an arm ({})", names(known()));
    let got = format!("`{}`", printable(name));
    let hint = if path == "base" && !report.contains("base") {
        Some("call one of the arms `base`, or add `base: <arm>`".into())
    } else {
        did_you_mean(name, known())
    };
    report.value(path, &expected, &got, hint);
}

fn source(experiment: &Experiment, report: &mut Report) {
    if let Some(source) = &experiment.source {
        expandable("source.repo", &source.repo, report);
        return;
    }
    let needs = |arm: &Arm| arm.rev.is_some() && arm.repo.is_none();
    let arm = experiment.arms.iter().find(|(_, arm)| needs(arm));
    if let Some((name, _)) = arm
        && !report.is_faulty("source")
    {
        let got = format!("none, although arm `{name}` has a revision");
        let hint = "write `source: { repo: . }`".to_owned();
        report.key("", "the key `source`", &got, Some(hint));
    }
}

fn build(experiment: &Experiment, report: &mut Report) {
    let arm = experiment.arms.iter().find(|(_, arm)| arm.rev.is_some());
    let Some(build) = &experiment.build else {
        if let Some((name, _)) = arm
            && !report.is_faulty("build")
        {
            let got = format!("none, although arm `{name}` has a revision");
            let hint = "`build` says how a checkout becomes a program: `command` and `artifacts`";
            report.key("", "the key `build`", &got, Some(hint.into()));
        }
        return;
    };
    not_blank("build.command", &build.command, report);
    environment("build.env", &build.env, report);
    for (index, folder) in build.keep.iter().flatten().enumerate() {
        relative(&item("build.keep", index), folder, CHECKOUT, report);
    }
    if build.artifacts.is_empty() {
        report.value("build.artifacts", "at least one file", "none", None);
    }
    let mut seen = HashMap::new();
    for (index, artifact) in build.artifacts.iter().enumerate() {
        let path = item("build.artifacts", index);
        relative(&path, artifact, CHECKOUT, report);
        if let Some(name) = artifact.file_name()
            && let Some(first) = seen.insert(name, index)
        {
            let got = format!("`{}`, as artifact {}", name.display(), first + 1);
            report.value(&path, "file names that differ", &got, None);
        }
    }
}

/// A path inside the folder that `root` names.
pub(super) fn relative(path: &str, file: &Path, root: &str, report: &mut Report) {
    let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if file.file_name().is_none() || !file.components().all(inside) {
        let got = format!("`{}`", printable(&file.to_string_lossy()));
        let expected = format!("a path below {root}, without `..`");
        report.value(path, &expected, &got, None);
    }
}

fn expandable(path: &str, text: &str, report: &mut Report) {
    if !not_blank(path, text, report) {
        return;
    }
    if let Err(error) = expand::check(text) {
        let got = format!("`{}`", printable(text));
        report.value(path, "well-formed variables", &got, Some(error.to_string()));
    }
}

pub(super) fn environment(path: &str, variables: &IndexMap<String, String>, report: &mut Report) {
    for name in variables.keys() {
        variable_name(&child(path, name), name, report);
    }
}

/// As `environment`; the values may name the artifacts' folder.
fn attempt_environment(path: &str, variables: &IndexMap<String, String>, report: &mut Report) {
    environment(path, variables, report);
    for (name, value) in variables {
        let unknown = template::value_placeholders(value).find(|name| *name != VALUE_NAME);
        if let Some(unknown) = unknown {
            let error = template::unknown(unknown, [VALUE_NAME].into_iter());
            let path = child(path, name);
            report.value(&path, error.expected(), &error.got(), error.hint());
        }
    }
}

fn outer_environment(experiment: &Experiment, report: &mut Report) {
    attempt_environment("env", &experiment.env, report);
    for (index, name) in experiment.pass_env.iter().enumerate() {
        let path = item("pass_env", index);
        variable_name(&path, name, report);
        if experiment.env.contains_key(name) {
            let got = format!("`{}` in both", printable(name));
            report.value(
                &path,
                "a variable in either `env` or `pass_env`",
                &got,
                None,
            );
        }
    }
}
