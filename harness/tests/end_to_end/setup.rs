//! What attempts read is made once, hashed, and refused when it is no longer what it was.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::fixture::{Project, stderr, stdout};

/// Counts how often it was run, and writes a file that holds its first argument.
const MAKER: &str = "#!/bin/sh
echo run >>made
mkdir -p \"$2\"
echo half >\"$2/text\"
[ ! -e slow ] || sleep 71
echo \"text of $1\" >\"$2/text\"
";

/// A project whose attempts read `{text}`, which `steps` make; two cells.
fn project(steps: &str) -> Project {
    let project = Project::new();
    let reads = "[ \"$(cat \"$1\")\" = \"text of $2\" ] || exit 9";
    let (base, main) = (
        project.commit_with(1000, "fast", reads),
        project.commit_with(990, "fast", reads),
    );
    let more =
        format!("cells: {{ matrix: {{ n: [1, 2] }} }}\nrounds: 3\nsetup:\n  text: {{ {steps} }}\n");
    let file = project.experiment(&base, &main, &more);
    let text = fs::read_to_string(&file).unwrap();
    let command = "command: '{artifact} {text}/text {n}'";
    fs::write(&file, text.replace("command: '{artifact}'", command)).unwrap();
    fs::write(project.root().join("maker.sh"), MAKER).unwrap();
    project
}

const FILLS: &str = "command: 'sh maker.sh {n} {out}', inputs: [maker.sh]";
const PRINTS: &str = "command: 'sh -c \"sh maker.sh {n} data/{n} && echo data/{n}\"', prints: path";

fn run(project: &Project) -> std::process::Output {
    project.bench_run(&["run", "x.yaml", "--quiet", "--no-report"])
}

/// How often the maker was run.
fn made(project: &Project) -> usize {
    let text = fs::read_to_string(project.root().join("made")).unwrap_or_default();
    text.lines().count()
}

/// The files called `text` that steps filled, in the harness's cache.
fn kept(project: &Project) -> Vec<PathBuf> {
    let entries = fs::read_dir(project.root().join("cache/setup")).unwrap();
    let texts = entries.map(|entry| entry.unwrap().path().join("out/text"));
    let mut texts: Vec<PathBuf> = texts.filter(|path| path.exists()).collect();
    texts.sort();
    texts
}

fn wait_for(what: &str, condition: &dyn Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "never {what}");
        sleep(Duration::from_millis(20));
    }
}

fn start(project: &Project) -> Child {
    let mut command = project.command(&["run", "x.yaml", "--quiet", "--no-report"]);
    command.stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_fixture_is_made_once_shown_by_the_plan_and_read_by_attempts() {
    for steps in [FILLS, PRINTS] {
        let project = project(steps);
        let plan = project.bench_run(&["plan", "x.yaml"]);
        assert!(plan.status.success(), "{}", stderr(&plan));
        let shown = stdout(&plan);
        assert!(
            shown.contains("\nsetup text: 1 file, 10 B, tree "),
            "{shown}"
        );
        assert!(shown.contains(", for 2; made by sh "), "{shown}");
        let output = run(&project);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(made(&project), 2, "once per cell");
        let record = project.records().remove(0);
        let rows = project.rows(&record);
        assert!(
            rows.iter().all(|row| row.contains(r#""kind":"ok""#)),
            "{rows:?}"
        );
    }
}

#[test]
fn cells_with_the_same_command_share_a_fixture() {
    let project = project("command: 'sh maker.sh 1 {out}'");
    let file = project.root().join("x.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("/text {n}'", "/text 1 {n}'")).unwrap();
    let output = run(&project);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(made(&project), 1);
}

#[test]
fn a_declared_input_that_changes_makes_the_fixture_anew() {
    let project = project(FILLS);
    assert!(project.bench_run(&["plan", "x.yaml"]).status.success());
    fs::write(project.root().join("maker.sh"), format!("{MAKER}# new\n")).unwrap();
    assert!(project.bench_run(&["plan", "x.yaml"]).status.success());
    assert_eq!(made(&project), 4);
}

#[test]
fn a_changed_fixture_is_refused_and_named_before_anything_is_measured() {
    for steps in [FILLS, PRINTS] {
        let project = project(steps);
        assert!(project.bench_run(&["plan", "x.yaml"]).status.success());
        let text = match steps {
            FILLS => kept(&project).remove(0),
            _ => project.root().join("data/1/text"),
        };
        fs::write(&text, "another text\n").unwrap();
        let output = run(&project);
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(69), "{told}");
        assert!(told.contains("setup step `text` for cell "), "{told}");
        assert!(
            told.contains("has changed since it was made: text: expected sha256"),
            "{told}"
        );
        assert!(project.records().is_empty());
    }
}

#[test]
fn a_fixture_that_changes_during_the_run_ends_it() {
    let project = project(PRINTS);
    let file = project.root().join("x.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace("rounds: 3", "rounds: 9\nenv: { NAP: '0.1' }"),
    )
    .unwrap();
    let child = start(&project);
    let rows = || {
        let record = project.records().into_iter().next();
        let text = record.and_then(|record| fs::read_to_string(record.join("attempts.jsonl")).ok());
        text.unwrap_or_default()
    };
    wait_for("three rows", &|| rows().lines().count() >= 3);
    fs::write(project.root().join("data/2/text"), "text of 3\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(69), "{told}");
    assert!(
        told.contains("what setup step `text` made has changed since the plan"),
        "{told}"
    );
    assert!(!rows().contains(r#""cell":"2""#), "{}", rows());
}

#[test]
fn a_failing_step_ends_everything_with_the_end_of_its_log() {
    let project = project("command: 'sh -c \"echo no such model {n}; exit 3\"', prints: path");
    let output = run(&project);
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(69), "{told}");
    for cell in ["1", "2"] {
        let expected = format!("setup step `text` for cell {cell}: failed with exit status: 3");
        assert!(told.contains(&expected), "{told}");
        assert!(told.contains(&format!("no such model {cell}")), "{told}");
    }
    assert!(project.records().is_empty());
}

#[test]
fn a_step_that_leaves_nothing_or_cannot_run_says_so() {
    for (steps, expected) in [
        ("command: 'true {out}'", "left no file in {out}"),
        (
            "command: 'true', prints: path",
            "as its last line, got nothing",
        ),
        (
            "command: 'echo nowhere', prints: path",
            "got `nowhere`, which does not exist",
        ),
        (
            "command: 'no-such-program {out}'",
            "cannot start no-such-program",
        ),
        ("command: 'sleep {out} 61', timeout_secs: 1", "failed"),
        (
            "command: 'sh -c \"sleep 61\" {out}', timeout_secs: 1",
            "was stopped after 1 s",
        ),
        (
            "command: 'true {out}', inputs: [gone]",
            "cannot read the input",
        ),
    ] {
        let project = project(steps);
        let output = run(&project);
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(69), "{steps}: {told}");
        assert!(told.contains(expected), "{steps}: {told}");
    }
}

#[test]
fn a_step_may_run_the_program_of_an_arm_that_was_built() {
    let project = project(
        "arm: main, command: 'sh -c \"cat {artifact} >{out}/script; echo text of {n} >{out}/text\"'",
    );
    let output = run(&project);
    assert!(output.status.success(), "{}", stderr(&output));
    let script = fs::read_to_string(kept(&project)[0].with_file_name("script")).unwrap();
    assert!(script.contains("rate=990"), "{script}");

    let file = project.root().join("x.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let broken = "build_command: 'false' }\n  other: { rev: ";
    let commit = text
        .split("main: { rev: ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let with_broken = text.replace(
        &format!("main: {{ rev: {commit} }}"),
        &format!("main: {{ rev: {commit}, {broken}{commit} }}"),
    );
    fs::write(&file, with_broken).unwrap();
    let told = stderr(&run(&project));
    assert!(
        told.contains("runs a program of arm `main`, which did not build"),
        "{told}"
    );
}

#[test]
fn two_runs_at_once_make_it_once() {
    let project = project(FILLS);
    // Built beforehand, so that both come to the step at once.
    fs::write(project.root().join("slow"), "").unwrap();
    let mut first = start(&project);
    wait_for("started", &|| made(&project) == 1);
    let second = start(&project);
    sleep(Duration::from_millis(300));
    fs::remove_file(project.root().join("slow")).unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    // The second waited for the first, ended what it left running, and made it anew.
    let output = second.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(made(&project), 3);
    let texts = kept(&project);
    let texts: Vec<String> = texts
        .iter()
        .map(|p| fs::read_to_string(p).unwrap())
        .collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(
        texts.iter().all(|text| text.starts_with("text of ")),
        "{texts:?}"
    );
    assert!(run(&project).status.success());
    assert_eq!(made(&project), 3);
}

#[test]
fn a_signal_ends_the_step_and_leaves_nothing_half() {
    let project = project(FILLS);
    fs::write(project.root().join("slow"), "").unwrap();
    let child = start(&project);
    wait_for("started", &|| made(&project) == 1);
    let kill = std::process::Command::new("kill")
        .args(["-s", "TERM", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{}", stderr(&output));
    assert!(kept(&project).is_empty());
    assert!(project.records().is_empty());
}

#[test]
fn the_report_names_the_steps_and_no_place_of_this_machine() {
    let project = project(PRINTS);
    let mut command = project.command(&["x.yaml", "--quiet", "--host", "t"]);
    let output = command.env("HOME", project.root()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let plan = fs::read_to_string(project.records()[0].join("plan.json")).unwrap();
    assert!(plan.contains(r#""place": "{repo}/data/2""#), "{plan}");
    let folder = fs::read_dir(project.root().join("docs/benchmark_results")).unwrap();
    let mut paths = folder.map(|entry| entry.unwrap().path());
    let report = paths.find(|path| path.extension().is_some_and(|end| end == "md"));
    let report = fs::read_to_string(report.unwrap()).unwrap();
    for expected in [
        "What the attempts read, made beforehand",
        "# text for 2: 1 file, 10 B, tree ",
        "\nsh -c 'sh maker.sh 2 data/2 && echo data/2'\n",
        " data/2/text 2\n",
    ] {
        assert!(report.contains(expected), "no {expected} in {report}");
    }
    assert!(
        !report.contains(project.root().to_str().unwrap()),
        "{report}"
    );
}
