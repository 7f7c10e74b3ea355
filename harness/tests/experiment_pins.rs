//! Every experiment of this repository loads, and its pins stay in the history.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;

use bench_run::experiment::load;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn experiments() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("experiments")).unwrap();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "yaml"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// An experiment for CI compares the commit under test with a pin, so only one of them is fixed.
fn is_rolling(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("ci-")
}

fn is_ancestor_of_head(commit: &str) -> bool {
    let arguments = ["merge-base", "--is-ancestor", commit, "HEAD"];
    let status = Command::new("git")
        .args(arguments)
        .current_dir(root())
        .status();
    status.unwrap().success()
}

#[test]
fn every_experiment_loads() {
    for file in experiments() {
        if let Err(errors) = load::load(&file) {
            panic!("{errors}");
        }
    }
}

#[test]
fn pins_of_this_repository_are_full_commits_of_its_history() {
    let mut checked = 0;
    for file in experiments() {
        let experiment = load::load(&file).unwrap().experiment;
        let own = experiment
            .source
            .as_ref()
            .is_some_and(|source| source.repo == ".");
        let pins = experiment
            .arms
            .iter()
            .filter(|(_, arm)| own && arm.repo.is_none());
        for (name, arm) in pins {
            let Some(rev) = &arm.rev else { continue };
            let place = format!("{}: arm {name}: {rev}", file.display());
            if rev == "HEAD" && is_rolling(&file) && *name != experiment.base {
                continue;
            }
            assert!(
                rev.len() == 40 && rev.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{place}"
            );
            assert!(
                is_ancestor_of_head(rev),
                "{place} is no ancestor of HEAD (or the clone is shallow)"
            );
            checked += 1;
        }
    }
    assert!(checked >= 2);
}

#[test]
fn the_check_of_ancestry_can_fail() {
    assert!(!is_ancestor_of_head(
        "0123456789012345678901234567890123456789"
    ));
}

#[test]
fn every_experiment_stands_in_the_index() {
    let index = std::fs::read_to_string(root().join("experiments/README.md")).unwrap();
    for file in experiments() {
        let name = file.file_name().unwrap().to_string_lossy();
        assert!(
            index.contains(name.as_ref()),
            "{name} is not in experiments/README.md"
        );
    }
}
