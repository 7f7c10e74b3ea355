//! An attempt's output becomes numbers only when everything about it is as it
//! should be; every refusal is one line that says what was expected and got.

use std::path::Path;

use bench_run::experiment::load::load_bytes;
use bench_run::experiment::matrix::{Cell, cells};
use bench_run::experiment::model::Experiment;
use bench_run::metric::expect::same_across_arms;
use bench_run::metric::extract::{Extracted, MAX_PARSED_BYTES, Refusal, extract};
use bench_run::record::format::{PlannedArm, Usage};
use indexmap::IndexMap;
use serde_json::{Value, json};

const FILE: &str = "\
schema: 1
name: x
question: Is it slower?
arms:
  base: { binary: /bin/a }
  next: { binary: /bin/b, requires: { steps: '> 0', mode: fast } }
nulls: [base]
cells: { matrix: { size: [1, 2] } }
command: '{artifact} --size {size}'
metrics:
  rate_tok_s: { json: timings.rate, better: higher, gate: true }
  load_ms: { regex: 'load: ([0-9.]+) ms', better: lower }
  wall_s: { rusage: wall_seconds, better: lower }
expect:
  same_across_arms: [sum]
  json: { tokens: 128 }
  cells: [{ when: { size: 2 }, json: { wrapped: true } }]
";

const OUTPUT: &str = "\
load: 12.5 ms
{\"timings\": {\"rate\": 50}, \"tokens\": 128.0, \"sum\": \"ab\", \"steps\": 3, \"mode\": \"fast\", \"wrapped\": true}
";

fn experiment(text: &str) -> Experiment {
    let loaded = load_bytes(Path::new("x.yaml"), text.as_bytes());
    loaded
        .unwrap_or_else(|errors| panic!("{errors}"))
        .experiment
}

fn usage() -> Usage {
    Usage {
        wall_ns: 2_000_000_000,
        exit_status: Some(0),
        ..Usage::default()
    }
}

/// Arm `next` on the cell with index `cell`.
fn run(file: &str, cell: usize, output: impl AsRef<[u8]>, usage: &Usage) -> Extracted {
    let experiment = experiment(file);
    let cell: Cell = cells(&experiment).swap_remove(cell);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let stdout = folder.path().join("stdout");
    std::fs::write(&stdout, output).expect("room for the output");
    extract(
        &experiment,
        &cell,
        &arm(&experiment, "next", None),
        &stdout,
        usage,
    )
}

/// An arm as a plan has it; `null_of` makes it a null arm.
fn arm(experiment: &Experiment, name: &str, null_of: Option<&str>) -> PlannedArm {
    let repeated = null_of.unwrap_or(name);
    PlannedArm {
        name: name.into(),
        label: name.into(),
        null_of: null_of.map(str::to_owned),
        build: Some(0),
        build_failure: None,
        treatment: 0,
        args: None,
        env: IndexMap::new(),
        requires: experiment.arms[repeated].requires.clone(),
        slow_down: None,
    }
}

#[test]
fn an_expectation_of_some_cells_may_be_about_some_arms_and_then_about_their_null_arms() {
    let file = FILE.replace(
        "{ when: { size: 2 }, json: { wrapped: true } }",
        "{ when: { size: 2 }, arms: [next], json: { wrapped: false } }",
    );
    let experiment = experiment(&file.replace("nulls: [base]", "nulls: [base, next]"));
    let folder = tempfile::tempdir().unwrap();
    let stdout = folder.path().join("stdout");
    std::fs::write(&stdout, OUTPUT).unwrap();
    let accepted = |name, null_of, cell: usize| {
        let cell = cells(&experiment).swap_remove(cell);
        let arm = arm(&experiment, name, null_of);
        extract(&experiment, &cell, &arm, &stdout, &usage())
            .metrics
            .is_ok()
    };
    assert!(accepted("base", None, 1));
    assert!(accepted("base-null", Some("base"), 1));
    assert!(!accepted("next", None, 1));
    assert!(!accepted("next-null", Some("next"), 1));
    assert!(accepted("next", None, 0));
}

fn refusal(output: impl AsRef<[u8]>) -> Refusal {
    let metrics = run(FILE, 1, output, &usage()).metrics;
    metrics.expect_err("this output is to be refused")
}

fn failed(output: impl AsRef<[u8]>) -> String {
    match refusal(output) {
        Refusal::Failed(reason) => reason,
        Refusal::Invalid(reason) => panic!("invalid: {reason}"),
    }
}

fn invalid(output: impl AsRef<[u8]>) -> String {
    match refusal(output) {
        Refusal::Invalid(reason) => reason,
        Refusal::Failed(reason) => panic!("failed: {reason}"),
    }
}

#[test]
fn good_output_gives_every_metric_and_the_fields_looked_at() {
    let extracted = run(FILE, 1, OUTPUT, &usage());
    let metrics = extracted.metrics.unwrap();
    let metrics: Vec<(&str, f64)> = metrics
        .iter()
        .map(|(name, v)| (name.as_str(), *v))
        .collect();
    assert_eq!(
        metrics,
        [("rate_tok_s", 50.0), ("load_ms", 12.5), ("wall_s", 2.0)]
    );
    let names: Vec<&String> = extracted.fields.keys().collect();
    assert_eq!(names, ["tokens", "wrapped", "steps", "mode", "sum"]);
    assert_eq!(extracted.fields["sum"], json!("ab"));
}

#[test]
fn an_expectation_of_another_cell_is_not_asked() {
    let output = OUTPUT.replace("\"wrapped\": true", "\"wrapped\": false");
    assert!(run(FILE, 0, &output, &usage()).metrics.is_ok());
    assert_eq!(invalid(&output), "`wrapped`: expected true, got false");
}

#[test]
fn broken_expectations_are_all_named_and_come_before_any_time() {
    let output = OUTPUT
        .replace("128.0", "\"128\"")
        .replace("\"steps\": 3", "\"steps\": 0")
        .replace("\"mode\": \"fast\", ", "")
        .replace("\"sum\": \"ab\", ", "")
        // A time that could not be read either.
        .replace("\"rate\": 50", "\"rate\": null");
    assert_eq!(
        invalid(&output),
        "`tokens`: expected 128, got \"128\"; `steps`: expected > 0, got 0; \
         `mode`: expected \"fast\", got no such field; `sum`: expected a value, got no such field"
    );
    let fields = run(FILE, 1, &output, &usage()).fields;
    assert_eq!(fields["steps"], json!(0), "the row shows what was seen");
}

#[test]
fn a_wrong_exit_status_or_a_signal_is_a_failure_whatever_was_printed() {
    let ended = |exit_status, signal| Usage {
        exit_status,
        signal,
        ..usage()
    };
    let reason = |usage| run(FILE, 1, OUTPUT, &usage).metrics.unwrap_err();
    assert_eq!(
        reason(ended(Some(3), None)),
        Refusal::Failed("expected exit status 0, got 3".into())
    );
    assert_eq!(
        reason(ended(None, Some(11))),
        Refusal::Failed("expected exit status 0, got death by signal 11".into())
    );
    let leaves = Usage {
        left_processes: 2,
        ..usage()
    };
    assert!(matches!(reason(leaves), Refusal::Failed(why) if why.contains("left running, got 2")));
    let tolerant = FILE.replace("expect:\n", "expect:\n  exit_status: 3\n");
    assert!(
        run(&tolerant, 1, OUTPUT, &ended(Some(3), None))
            .metrics
            .is_ok()
    );
    assert!(run(&tolerant, 1, OUTPUT, &usage()).metrics.is_err());
}

#[test]
fn output_that_is_not_json_shows_what_came() {
    assert_eq!(
        failed(""),
        "expected JSON on standard output, got no output"
    );
    let text = failed("Segmentation fault\n");
    assert!(
        text.starts_with("expected JSON on standard output"),
        "{text}"
    );
    assert!(text.contains("got `Segmentation fault`"), "{text}");
    let text = failed("load: 1 ms\n{\"tokens\": NaN}\n");
    assert!(text.contains("got `{\"tokens\": NaN}`"), "{text}");
    let text = failed("{\n  \"tokens\": 128,\n");
    assert!(text.contains("EOF"), "{text}");
    let text = failed(b"load: \xff\n{}");
    assert!(text.contains("expected UTF-8 text"), "{text}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn a_document_over_several_lines_is_read_as_a_whole() {
    let only_json = FILE.replace(
        "  load_ms: { regex: 'load: ([0-9.]+) ms', better: lower }\n",
        "",
    );
    let document: Value = serde_json::from_str(OUTPUT.lines().last().unwrap()).unwrap();
    let pretty = format!("{document:#}\n\n");
    assert!(run(&only_json, 1, pretty, &usage()).metrics.is_ok());
}

#[test]
fn a_metric_must_be_a_finite_number_above_zero() {
    let rate = |value: &str| failed(OUTPUT.replace("\"rate\": 50", &format!("\"rate\": {value}")));
    for value in ["0", "-1.5", "0.0"] {
        let text = rate(value);
        assert!(
            text.starts_with("metric `rate_tok_s`: expected a finite number above 0"),
            "{text}"
        );
    }
    let text = rate("\"50\"");
    assert!(
        text.contains("expected a number in `timings.rate`, got \"50\""),
        "{text}"
    );
    let text = rate("1e999");
    assert!(text.contains("out of range"), "{text}");
    let text = failed(OUTPUT.replace("\"rate\"", "\"speed\""));
    assert!(text.contains("expected the field `timings.rate`"), "{text}");
    let stopped = Usage {
        wall_ns: 0,
        ..usage()
    };
    let reason = run(FILE, 1, OUTPUT, &stopped)
        .metrics
        .unwrap_err()
        .to_string();
    assert!(reason.starts_with("metric `wall_s`"), "{reason}");
}

#[test]
fn an_ambiguous_pattern_is_refused() {
    let text = failed(format!("load: 1 ms\n{OUTPUT}"));
    assert!(
        text.contains("at least two: `load: 1 ms` and `load: 12.5 ms`"),
        "{text}"
    );
}

#[test]
fn output_beyond_the_limit_is_not_parsed_and_not_needed_for_rusage() {
    let folder = tempfile::tempdir().unwrap();
    let stdout = folder.path().join("stdout");
    // Sparse, so that the gigabyte takes no room.
    std::fs::File::create(&stdout)
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    let on = |file: &str| {
        let experiment = experiment(file);
        let cell = cells(&experiment).swap_remove(0);
        let base = arm(&experiment, "base", None);
        extract(&experiment, &cell, &base, &stdout, &usage()).metrics
    };
    let reason = on(FILE).unwrap_err().to_string();
    assert_eq!(
        reason,
        format!("standard output: expected at most {MAX_PARSED_BYTES} bytes, got more")
    );
    let (head, _) = FILE.split_once("metrics:").unwrap();
    let wall = format!("{head}metrics: {{ wall_s: {{ rusage: wall_seconds, better: lower }} }}\n");
    assert_eq!(on(&wall).unwrap()["wall_s"], 2.0);
}

#[test]
fn standard_output_can_be_held_to_a_checksum() {
    let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let (head, _) = FILE.split_once("metrics:").unwrap();
    let head = head.replace("steps: '> 0', mode: fast", "");
    let file = format!(
        "{head}metrics: {{ wall_s: {{ rusage: wall_seconds, better: lower }} }}\n\
         expect: {{ stdout_sha256: {sum} }}\n"
    );
    assert!(run(&file, 0, "abc", &usage()).metrics.is_ok());
    let reason = run(&file, 0, "abd", &usage()).metrics.unwrap_err();
    assert!(
        matches!(&reason, Refusal::Invalid(text) if text.contains(sum)),
        "{reason}"
    );
}

#[test]
fn a_long_field_is_recorded_as_its_checksum() {
    let long = |fill: &str| {
        let output = OUTPUT.replace("\"ab\"", &format!("\"{}\"", fill.repeat(5000)));
        run(FILE, 1, output, &usage()).fields["sum"].clone()
    };
    let recorded = long("a");
    assert!(
        recorded.as_str().unwrap().starts_with("sha256:"),
        "{recorded}"
    );
    assert_eq!(recorded, long("a"));
    assert_ne!(recorded, long("b"));
}

#[test]
fn arms_that_differ_in_a_shared_field_are_named() {
    let fields = |value: Value| IndexMap::from([("sum".to_owned(), value)]);
    let (base, same, other) = (fields(json!(1)), fields(json!(1.0)), fields(json!(2)));
    let none = IndexMap::new();
    let attempts = [
        ("base", &base),
        ("null", &same),
        ("next", &other),
        ("gone", &none),
    ];
    let differences = same_across_arms(&["sum".to_owned()], &attempts);
    let text: Vec<String> = differences.iter().map(ToString::to_string).collect();
    assert_eq!(
        text,
        [
            "`sum` must be the same in all arms: expected 1 as in `base`, got 2",
            "`sum` must be the same in all arms: expected 1 as in `base`, got no such field",
        ]
    );
    let arms: Vec<&str> = differences.iter().map(|d| d.arm.as_str()).collect();
    assert_eq!(arms, ["next", "gone"]);
}
