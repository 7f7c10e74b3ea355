//! What the harness keeps is listed and goes only when nothing speaks for it.

use std::fs;

use crate::fixture::{Project, stderr, stdout};

/// A project whose cache holds the builds of two arms and one result of a setup step.
fn project() -> Project {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(990));
    let step = "setup: { text: { command: 'sh -c \"echo text >{out}/text\"' } }\n";
    let file = project.experiment(&base, &main, step);
    let text = fs::read_to_string(&file).unwrap();
    let command = text.replace("command: '{artifact}'", "command: '{artifact} {text}'");
    fs::write(&file, command).unwrap();
    let plan = project.bench_run(&["plan", "x.yaml"]);
    assert!(plan.status.success(), "{}", stderr(&plan));
    project
}

fn prune(project: &Project, more: &[&str]) -> String {
    let output = project.bench_run(&[&["cache", "prune", "--days", "0"], more].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn the_list_says_what_there_is_and_prune_changes_nothing_by_itself() {
    let project = project();
    let list = stdout(&project.bench_run(&["cache"]));
    assert_eq!(list.matches("build  ").count(), 2, "{list}");
    assert_eq!(list.matches("setup  ").count(), 1, "{list}");
    assert_eq!(list.matches("source ").count(), 1, "{list}");
    assert!(list.contains("today  recent"), "{list}");
    let would = prune(&project, &[]);
    assert_eq!(would.matches("would go  ").count(), 4, "{would}");
    assert!(would.contains("nothing was removed"), "{would}");
    assert_eq!(stdout(&project.bench_run(&["cache", "list"])), list);
}

#[test]
fn what_an_experiment_of_the_project_pins_stays() {
    let project = project();
    fs::create_dir(project.root().join("experiments")).unwrap();
    fs::rename(
        project.root().join("x.yaml"),
        project.root().join("experiments/x.yaml"),
    )
    .unwrap();
    assert_eq!(prune(&project, &["--yes"]), "nothing to remove\n");
    let list = stdout(&project.bench_run(&["cache"]));
    assert_eq!(list.matches("  pinned  ").count(), 4, "{list}");
}

#[test]
fn what_was_removed_is_made_anew_by_the_next_run() {
    let project = project();
    let removed = prune(&project, &["--yes"]);
    assert_eq!(removed.matches("  removed ").count(), 4, "{removed}");
    assert_eq!(prune(&project, &[]), "nothing to remove\n");
    let run = project.bench_run(&["run", "x.yaml", "--quiet", "--no-report"]);
    assert!(run.status.success(), "{}", stderr(&run));
}

#[test]
fn nothing_is_removed_while_a_run_uses_the_cache() {
    let project = project();
    let file = project.root().join("x.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text + "env: { NAP: '5' }\n").unwrap();
    let mut run = project.command(&["run", "x.yaml", "--quiet", "--no-report"]);
    let mut run = run.spawn().unwrap();
    while project.records().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let output = project.bench_run(&["cache", "prune", "--days", "0", "--yes"]);
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(output.status.code(), Some(75), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("a run uses the cache"),
        "{}",
        stderr(&output)
    );
    assert!(stdout(&output).is_empty());
}

#[test]
fn an_experiment_that_cannot_be_read_might_pin_anything() {
    let project = project();
    fs::create_dir(project.root().join("experiments")).unwrap();
    fs::write(project.root().join("experiments/y.yaml"), "schema: 1\n").unwrap();
    let output = project.bench_run(&["cache", "prune", "--days", "0", "--yes"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    fs::remove_dir_all(project.root().join("experiments")).unwrap();
    let list = stdout(&project.bench_run(&["cache"]));
    assert_eq!(list.lines().count(), 5, "{list}");
}
