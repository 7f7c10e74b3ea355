//! The positive control in a whole run.

use crate::fixture::{Project, stderr, stdout};

/// Works for some 30 ms, so that there is a time that can be slowed down.
const WORK: &str = "i=0; while [ $i -lt 15000 ]; do i=$((i+1)); done";

#[test]
fn a_control_that_is_found_stands_in_report_and_gate_and_is_no_candidate() {
    let project = Project::new();
    let base = project.commit_with(1000, "fast", WORK);
    let main = project.commit_with(1000, "other", WORK);
    let file = project.experiment(&base, &main, "control: { of: base, slow_down_pct: 150 }\n");
    let text = std::fs::read_to_string(&file).unwrap();
    let metrics = "metrics: { cpu_seconds: { rusage: cpu_seconds, better: lower, gate: true } }\n\
                   verdict: { threshold_pct: 60 }";
    let old = "metrics: { rate_tok_s: { json: rate_tok_s, better: higher, gate: true } }";
    std::fs::write(&file, text.replace(old, metrics)).unwrap();
    let output = project.bench_run(&["x.yaml", "--gate"]);
    let shown = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}{}", stderr(&output));
    assert!(shown.contains("The positive control was found"), "{shown}");
    assert!(shown.contains("control found"), "{shown}");
    let record = project.records().remove(0);
    let json = project.bench_run(&["gate", record.to_str().unwrap(), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(json["judgements"].as_array().unwrap().len(), 1);
    assert_eq!(json["judgements"][0]["candidate"], "main");
    assert_eq!(json["controls"][0]["found"], true);
    let rows = project.rows(&record);
    let of_control = rows.iter().filter(|row| row.contains("\"base-control\""));
    assert_eq!(
        of_control.count(),
        1 + 5,
        "primed and interleaved like any arm"
    );
}

#[test]
fn a_metric_that_does_not_follow_the_programs_speed_makes_the_run_invalid() {
    let project = Project::new();
    // The rate is a constant in the program: whatever slows it down, it prints the same.
    let (base, main) = (project.commit(1000), project.commit(1050));
    project.experiment(&base, &main, "control: { of: base, slow_down_pct: 20 }\n");
    let output = project.bench_run(&["x.yaml", "--gate"]);
    let shown = stdout(&output);
    assert_eq!(output.status.code(), Some(12), "{shown}{}", stderr(&output));
    assert!(shown.contains("The positive control was missed"), "{shown}");
    assert!(
        shown.contains("known to be slower, was not found"),
        "{shown}"
    );
}

#[test]
fn a_control_of_unknown_or_too_little_use_is_told_before_anything_runs() {
    let project = Project::new();
    let (base, main) = (project.commit(1000), project.commit(1050));
    project.experiment(&base, &main, "control: { of: base, slow_down_pct: 0.1 }\n");
    let plan = project.bench_run(&["plan", "x.yaml"]);
    assert!(
        stdout(&plan).contains("warning: the control of 0.1 % is weaker than"),
        "{}",
        stdout(&plan)
    );
    project.experiment(&base, &main, "control: { of: main }\n");
    let check = project.bench_run(&["check", "x.yaml"]);
    assert_eq!(check.status.code(), Some(2));
    assert!(
        stderr(&check).contains("control.of: expected the base (`base`), got `main`"),
        "{}",
        stderr(&check)
    );
}
