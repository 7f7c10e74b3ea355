//! A calibration as a user runs it: interrupted, gone on with, and written down.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use bench_run::session::calibrate::PILOTS;

use crate::fixture::{Project, stderr, stdout};

/// The names of what lies in a folder, sorted.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_calibration_goes_on_where_it_was_killed_and_writes_its_page_from_the_records() {
    let project = Project::new();
    // The rate is the program's own, so that stops reach it however short it runs.
    let work = "began=$(date +%s%N); i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done; \
                rate=$(( 10000000000 / ($(date +%s%N) - began) ))";
    let base = project.commit_with(1000, "fast", work);
    project.experiment(&base, &base, "rounds: 3\nidentical: as-null\n");
    let arguments = [
        "calibrate",
        "x.yaml",
        "--runs",
        "2",
        "--host",
        "testbed",
        "--quiet",
    ];
    let records = project.root().join("results/calibration/toy-testbed");
    let mut child = project.command(&arguments).spawn().unwrap();
    while !records.join("pilot-002").exists() && child.try_wait().unwrap().is_none() {
        sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let output = project.bench_run(&arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        stdout(&output),
        "calibration  docs/calibration/testbed.md\n"
    );
    let folders = names_in(&records);
    let pilots = (1..=PILOTS).map(|number| format!("pilot-{number:03}"));
    let expected: Vec<String> = pilots.chain(["run-001".into(), "run-002".into()]).collect();
    assert_eq!(folders, expected);
    for folder in &folders {
        let inside = names_in(&records.join(folder)).into_iter();
        let kept = inside.filter(|name| !name.starts_with('.'));
        assert_eq!(kept.count(), 1, "{folder} has one record");
    }
    let page = || fs::read_to_string(project.root().join("docs/calibration/testbed.md")).unwrap();
    let first = page();
    for expected in [
        "False alarms:",
        "Positive control:",
        "| 4 × detectable |",
        "measured\nagainst itself 2 times",
    ] {
        assert!(first.contains(expected), "no {expected} in\n{first}");
    }
    let data = project.root().join("docs/calibration/data/testbed");
    let json = fs::read_to_string(data.join("calibration.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["same"]["judged"], 2);
    assert_eq!(json["injected"].as_array().unwrap().len(), 4);
    assert!(data.join("found.svg").exists() && data.join("estimates.svg").exists());
    let again = project.bench_run(&arguments);
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(page(), first, "nothing is measured twice");
    let fewer = project.bench_run(&[&arguments[..2], &["--runs", "1"], &arguments[4..]].concat());
    assert!(fewer.status.success(), "{}", stderr(&fewer));
    assert_eq!(page(), first, "what is on record is not lost");
    project.experiment(&base, &base, "rounds: 4\nidentical: as-null\n");
    let other = project.bench_run(&arguments);
    assert_eq!(other.status.code(), Some(2));
    assert!(stderr(&other).contains("pilot-001"), "{}", stderr(&other));
    assert_eq!(page(), first);
}
