//! Killed at any moment and started again: the same rows as if nothing had happened.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use crate::fixture::{Project, stderr};

fn project_with_experiment() -> Project {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(970));
    let more = "env: { NAP: '0.02' }\ncells: { matrix: { n: [1, 2] } }\nrounds: 4\n";
    let file = project.experiment(&base, &main, more);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace("command: '{artifact}'", "command: '{artifact} {n}'"),
    )
    .unwrap();
    // Built once beforehand, so that the kills hit the measuring.
    assert!(project.bench_run(&["plan", "x.yaml"]).status.success());
    project
}

/// Whole rows in the records so far; a row that a kill cut off is none.
fn stored_rows(project: &Project) -> usize {
    let files = project
        .records()
        .into_iter()
        .map(|record| record.join("attempts.jsonl"));
    let texts = files.filter_map(|file| fs::read_to_string(file).ok());
    texts.map(|text| text.matches('\n').count()).sum()
}

#[test]
fn a_run_that_is_killed_again_and_again_ends_with_the_same_rows() {
    let project = project_with_experiment();
    let whole = project.bench_run(&[
        "run",
        "x.yaml",
        "--quiet",
        "--no-report",
        "--results",
        "whole",
    ]);
    assert!(whole.status.success(), "{}", stderr(&whole));
    let whole = fs::read_dir(project.root().join("whole"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut kills = 0;
    for pause_ms in (150..).step_by(37) {
        let mut child = project
            .command(&["run", "x.yaml", "--quiet", "--no-report"])
            .spawn()
            .unwrap();
        sleep(Duration::from_millis(pause_ms));
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            // It ended by itself between the question and the kill.
            break;
        }
        kills += 1;
        if stored_rows(&project) == project.rows(&whole).len() {
            // Killed behind its last row: this record is finished, and the next run
            // would rightly begin another.
            break;
        }
    }
    assert!(kills >= 2, "nothing was killed");
    let records = project.records();
    assert_eq!(records.len(), 1, "a resumed run makes no second record");
    assert_eq!(project.rows(&records[0]), project.rows(&whole));
}

#[test]
fn a_cut_last_line_is_dropped_and_measured_again() {
    let project = project_with_experiment();
    assert!(
        project
            .bench_run(&["run", "x.yaml", "--quiet", "--no-report"])
            .status
            .success()
    );
    let record = project.records().remove(0);
    let before = project.rows(&record);
    let file = record.join("attempts.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, &text[..text.len() - 40]).unwrap();
    let again = project.bench_run(&["run", "x.yaml", "--no-report"]);
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(project.records().len(), 1);
    assert_eq!(project.rows(&record), before);
}

#[test]
fn a_signal_stops_the_run_cleanly_and_says_how_to_go_on() {
    let project = project_with_experiment();
    let child = project
        .command(&["run", "x.yaml", "--quiet", "--no-report"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    while stored_rows(&project) < 2 {
        sleep(Duration::from_millis(10));
    }
    let kill = std::process::Command::new("kill")
        .args(["-s", "TERM", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{}", stderr(&output));
    assert!(stderr(&output).contains("resumes"), "{}", stderr(&output));
}

#[test]
fn another_value_of_a_passed_variable_does_not_go_on_with_the_old_rows() {
    let project = project_with_experiment();
    let file = project.root().join("x.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace("env: { NAP: '0.02' }", "pass_env: [NAP]"),
    )
    .unwrap();
    let run = |nap: &str| {
        let mut command = project.command(&["run", "x.yaml", "--quiet", "--no-report"]);
        command.env("NAP", nap);
        command
    };
    let mut child = run("0.1").spawn().unwrap();
    let rows = || {
        let record = project.records().into_iter().next();
        record.and_then(|record| fs::read_to_string(record.join("attempts.jsonl")).ok())
    };
    while rows().is_none_or(|rows| rows.lines().count() < 3) {
        sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(run("0.01").status().unwrap().success());
    assert_eq!(project.records().len(), 2);
    let plan = fs::read_to_string(project.records()[1].join("plan.json")).unwrap();
    assert!(!plan.contains("0.01"), "the value is not recorded");
}

#[test]
fn a_signal_while_an_arm_is_built_ends_the_build_and_is_no_failed_build() {
    let project = project_with_experiment();
    let file = project.root().join("x.yaml");
    let text = fs::read_to_string(&file).unwrap();
    // Seconds that name this very test process, so that another one's are not counted.
    let nap = format!("sleep 77.{}", std::process::id());
    let slow = text.replace("command: mkdir", &format!("command: {nap}; mkdir"));
    fs::write(&file, slow).unwrap();
    for sub_command in ["run", "plan"] {
        let building = || {
            let child = project
                .command(&[sub_command, "x.yaml", "--quiet"])
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            sleep(Duration::from_millis(700));
            child
        };
        // The second waits for the lock of the first one's build.
        for child in [building(), building()].into_iter().rev() {
            let kill = std::process::Command::new("kill")
                .args(["-s", "TERM", &child.id().to_string()])
                .status();
            assert!(kill.unwrap().success());
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(143), "{}", stderr(&output));
            let text = stderr(&output);
            assert!(text.contains("while preparing"), "{text}");
        }
    }
    let left = std::process::Command::new("pgrep")
        .args(["-f", &nap])
        .output();
    assert!(left.unwrap().stdout.is_empty(), "the build goes on alone");
}
