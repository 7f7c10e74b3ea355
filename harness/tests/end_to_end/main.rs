//! The main job on a tiny generated repository, as a user runs it.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod bad_input;
mod bisect;
mod bundle;
mod cache;
mod calibrate;
mod control;
mod fixture;
mod full_disk;
mod gate;
mod history;
mod looks;
mod resume;
mod setup;

use std::fs;

use fixture::{Project, stderr, stdout};

#[test]
fn a_slower_commit_is_found_reported_and_gated() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(950));
    project.experiment(&base, &main, "");
    let output = project.bench_run(&["x.yaml", "--gate", "--host", "testbed"]);
    assert_eq!(
        output.status.code(),
        Some(10),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    assert!(stdout(&output).contains("Regressed"), "{}", stdout(&output));
    let reports = project.root().join("docs/benchmark_results");
    let report = fs::read_dir(&reports)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|ending| ending == "md"))
        .unwrap();
    let text = fs::read_to_string(&report).unwrap();
    for expected in [
        base.as_str(),
        main.as_str(),
        "Is it slower?",
        "base-null",
        "bench-run x.yaml",
    ] {
        assert!(text.contains(expected), "no {expected} in\n{text}");
    }
    assert!(
        !text.contains(project.root().to_str().unwrap()),
        "a path of this machine is in the report"
    );
    let data = reports.join("data").join(report.file_stem().unwrap());
    let names: Vec<String> = fs::read_dir(&data)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert!(names.iter().any(|name| name.ends_with(".svg")), "{names:?}");
    assert!(names.contains(&"attempts.jsonl".to_owned()), "{names:?}");
}

#[test]
fn equal_code_under_another_commit_is_refused_before_anything_runs() {
    let project = Project::new();
    let base = project.commit(1000);
    fs::write(project.root().join("README"), "words").unwrap();
    let main = project.commit_all("words only");
    project.experiment(&base, &main, "");
    let output = project.bench_run(&["run", "x.yaml", "--quiet"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("their code is equal"),
        "{}",
        stderr(&output)
    );
    assert!(project.records().is_empty(), "nothing may be measured");
}

#[test]
fn an_environment_is_an_arm_and_a_faster_one_passes() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(1050));
    let file = project.experiment(&base, &main, "");
    let text = fs::read_to_string(&file).unwrap();
    let with_slow = text.replace(
        "nulls:",
        &format!("  slow: {{ rev: {main}, env: {{ SLOW: '1' }} }}\nnulls:"),
    );
    fs::write(&file, with_slow).unwrap();
    let output = project.bench_run(&["run", "x.yaml", "--no-report"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let record = project.records().remove(0);
    let gate = project.bench_run(&["gate", record.to_str().unwrap(), "--json"]);
    let analysis: serde_json::Value = serde_json::from_slice(&gate.stdout).unwrap();
    let verdicts: Vec<(&str, &str)> = analysis["judgements"]
        .as_array()
        .unwrap()
        .iter()
        .map(|judgement| {
            (
                judgement["candidate"].as_str().unwrap(),
                judgement["verdict"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(verdicts[0], ("main", "improved"));
    assert_eq!(verdicts[1].0, "slow");
}

#[test]
fn arms_of_one_build_differ_by_their_arguments() {
    let project = Project::new();
    let slow = "[ \"${1:-}\" = --slow ] && [ \"$2\" = 'a b' ] && rate=950";
    let base = project.commit_with(1000, "fast", slow);
    let file = project.experiment(&base, &base, "");
    let text = fs::read_to_string(&file).unwrap();
    let main = format!("main: {{ rev: {base} }}");
    let args = format!("main: {{ rev: {base}, args: \"--slow 'a b'\" }}");
    let text = text.replace(&main, &args);
    fs::write(&file, text.replace("'{artifact}'", "'{artifact} {args}'")).unwrap();
    let output = project.bench_run(&["x.yaml", "--gate", "--no-report"]);
    assert_eq!(output.status.code(), Some(10), "{}", stderr(&output));
    let record = project.records().remove(0);
    let report = project.bench_run(&["report", record.to_str().unwrap()]);
    let text = stdout(&report);
    assert!(text.contains("| main | main `--slow 'a b'` |"), "{text}");
    assert!(text.contains("prog --slow 'a b'\n"), "{text}");
    assert!(text.contains("by bench-run 0."), "{text}");
}

#[test]
fn the_same_record_gives_the_same_bytes() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(990));
    project.experiment(&base, &main, "");
    assert_eq!(
        project
            .bench_run(&["run", "x.yaml", "--quiet", "--no-report"])
            .status
            .code(),
        Some(0)
    );
    let record = project.records().remove(0);
    let render = |to: &str| {
        let output = project.bench_run(&["report", record.to_str().unwrap(), "--to", to]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let mut files = Vec::new();
        let mut pending = vec![project.root().join(to)];
        while let Some(folder) = pending.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    pending.push(path);
                } else {
                    let name = path
                        .strip_prefix(project.root().join(to))
                        .unwrap()
                        .to_owned();
                    files.push((name, fs::read(path).unwrap()));
                }
            }
        }
        files.sort();
        files
    };
    let first = render("one");
    assert!(first.len() >= 3, "a report and its plots");
    assert!(first == render("two"));
}

#[test]
fn an_arm_that_took_another_path_is_invalid() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit_with(2000, "slow", ""));
    let file = project.experiment(&base, &main, "");
    let text = fs::read_to_string(&file).unwrap();
    let required = text.replace(
        &format!("rev: {main}"),
        &format!("rev: {main}, requires: {{ path: fast }}"),
    );
    fs::write(&file, required).unwrap();
    let output = project.bench_run(&["x.yaml", "--gate", "--no-report"]);
    assert_eq!(
        output.status.code(),
        Some(12),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    assert!(stdout(&output).contains("path"), "{}", stdout(&output));
}

#[test]
fn arms_that_print_different_answers_are_invalid() {
    let project = Project::new();
    let base = project.commit_with(1000, "fast", "");
    let main = project.commit_with(2000, "other", "");
    project.experiment(&base, &main, "expect: { same_across_arms: [path] }\n");
    let output = project.bench_run(&["x.yaml", "--gate", "--no-report"]);
    assert_eq!(
        output.status.code(),
        Some(12),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
}

#[test]
fn a_plan_is_printed_without_measuring() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(990));
    let file = project.experiment(&base, &main, "cells: { matrix: { n: [1, 2] } }\n");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace("command: '{artifact}'", "command: '{artifact} {n}'"),
    )
    .unwrap();
    let output = project.bench_run(&["plan", "x.yaml"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for expected in [
        "base-null",
        "round  5",
        "2 cells",
        "the gate on rate_tok_s of main needs noise of at most 0.",
    ] {
        assert!(
            stdout(&output).contains(expected),
            "no {expected} in {}",
            stdout(&output)
        );
    }
    assert!(project.records().is_empty());
}

#[test]
fn the_command_in_the_report_measures_as_many_rounds_as_the_report_is_about() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(990));
    project.experiment(&base, &main, "rounds: 5\n");
    let output = project.bench_run(&["--rounds", "3", "x.yaml", "--quiet", "--host", "t"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let reports = fs::read_dir(project.root().join("docs/benchmark_results")).unwrap();
    let report = reports
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "md"));
    let text = fs::read_to_string(report.unwrap()).unwrap();
    assert!(text.contains("\nbench-run x.yaml --rounds 3\n"), "{text}");
}
