//! What one run leaves for the next on the same host.

use std::fs;

use serde_json::Value;

use super::fixture::{Project, stderr, stdout};

fn history(project: &Project) -> Vec<Value> {
    let path = project.root().join("cache/history/testbed/prog.jsonl");
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_plan_is_sealed_with_the_null_contrasts_of_earlier_runs_and_forecasts_from_their_noise() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(950));
    project.experiment(&base, &main, "");
    let plan = ["plan", "x.yaml", "--host", "testbed"];
    let before = stdout(&project.bench_run(&plan));
    assert!(before.contains("noise is not known yet"), "{before}");
    let run = ["run", "x.yaml", "--no-report", "--host", "testbed"];
    for number in 1..=2 {
        let output = project.bench_run(&run);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(history(&project).len(), number);
    }
    let sealed = |record: usize| -> Value {
        let path = project.records()[record].join("plan.json");
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    };
    assert_eq!(sealed(0)["noise"]["null_history"], Value::Null);
    let frozen = &sealed(1)["noise"]["null_history"]["rate_tok_s"];
    let contrasts = &history(&project)[0]["cells"][0]["metrics"]["rate_tok_s"]["contrasts"];
    assert_eq!(frozen, contrasts);
    let after = stdout(&project.bench_run(&plan));
    assert!(after.contains("in 2 earlier runs"), "{after}");
    assert!(
        after.contains("as earlier attempts of these cells took"),
        "{after}"
    );
}

#[test]
fn a_record_gives_its_verdict_without_the_history() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(999));
    project.experiment(&base, &main, "");
    for _ in 0..2 {
        project.bench_run(&["run", "x.yaml", "--no-report", "--host", "testbed"]);
    }
    let record = project.records().remove(1);
    let judge = || stdout(&project.bench_run(&["gate", record.to_str().unwrap(), "--json"]));
    let with = judge();
    fs::remove_dir_all(project.root().join("cache/history")).unwrap();
    assert_eq!(judge(), with);
    assert!(with.contains("\"null_contrasts_before\": 1"), "{with}");
}

#[test]
fn a_change_that_does_not_reach_the_artifact_is_identical_passes_and_feeds_the_history() {
    let project = Project::new();
    let base = project.commit(1000);
    fs::write(project.root().join("README"), "words").unwrap();
    let main = project.commit_all("words only");
    project.experiment(&base, &main, "identical: as-null\n");
    let output = project.bench_run(&["run", "x.yaml", "--gate", "--host", "testbed"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("`main` is identical to `base`"), "{text}");
    let run = history(&project).remove(0);
    let contrasts = &run["cells"][0]["metrics"]["rate_tok_s"]["contrasts"];
    // Base, its null arm and main are three copies.
    assert_eq!(contrasts.as_array().unwrap().len(), 2);
}
