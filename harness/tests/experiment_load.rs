//! An experiment file that is in order is read with its defaults, and its cells
//! and command lines come out as the page says.

use std::path::Path;

use bench_run::experiment::load::{Loaded, load_bytes};
use bench_run::experiment::matrix::cells;
use bench_run::experiment::model::{GuardKind, Nulls, Scalar};
use bench_run::experiment::nulls::null_arms;
use bench_run::experiment::template::fill;
use indexmap::IndexMap;

const GEMMA3: &str = "\
schema: 1
name: gemma3-pp2048
question: Does the pipelined loop lose once the sliding window is full?
source:
  repo: .
build:
  command: cargo build --release --locked --bin mlxcel-bench-decode
  artifacts: [target/release/mlxcel-bench-decode]
arms:
  base: { rev: 3bac7467bd2f1d19ee1ff9b1d1a5d9d4a4e4a5f1, label: first loop }
  main: { rev: \"1234567890123456789012345678901234567890\", requires: { lookahead_steps: '> 0', wrapped: true } }
  sync: { rev: v1.2, env: { FORCE_SYNC: \"1\" } }
nulls: [base]
cells:
  matrix:
    model: [synthetic:gemma3-270m]
    prompt_tokens: [256, 2048]
command: >-
  {artifact} -m {model} -p x --prompt-tokens {prompt_tokens} -n 128 --json
metrics:
  decode_tok_s:  { json: decode_tok_s, better: higher, gate: true }
  peak_bytes:    { json: peak_bytes, better: lower }
expect:
  same_across_arms: [token_sha256]
  json: { generated_tokens: 128 }
  cells:
    - when: { prompt_tokens: 2048 }
      json: { wrapped: true }
";

fn loaded(text: &str) -> Loaded {
    load_bytes(Path::new("x.yaml"), text.as_bytes()).unwrap_or_else(|errors| panic!("{errors}"))
}

#[test]
fn a_good_file_is_read_with_its_defaults() {
    let loaded = loaded(GEMMA3);
    let experiment = loaded.experiment;
    assert_eq!(experiment.base, "base");
    assert_eq!(experiment.rounds, 5);
    assert_eq!(experiment.guard.kind, GuardKind::Auto);
    assert_eq!(experiment.nulls, Nulls::Some(vec!["base".into()]));
    let requires = &experiment.arms["main"].requires;
    assert_eq!(requires["wrapped"], Scalar::Bool(true));
    assert_eq!(requires["lookahead_steps"], Scalar::Text("> 0".into()));
    assert_eq!(loaded.warnings, vec![]);
    assert_eq!(loaded.bytes_sha256.len(), 64);
}

#[test]
fn cells_are_the_product_of_the_matrix_in_reading_order() {
    let ids: Vec<String> = cells(&loaded(GEMMA3).experiment)
        .into_iter()
        .map(|cell| cell.id)
        .collect();
    assert_eq!(ids, ["gemma3-270m.256", "gemma3-270m.2048"]);
}

#[test]
fn the_command_is_filled_word_by_word() {
    let experiment = loaded(GEMMA3).experiment;
    let mut vars: IndexMap<String, String> = cells(&experiment)[1]
        .values
        .iter()
        .map(|(name, value)| (name.clone(), value.to_string()))
        .collect();
    vars.insert("artifact".into(), "/cache/my builds/bench; rm".into());
    let words = fill(&experiment.command, &vars).unwrap();
    assert_eq!(words[0], "/cache/my builds/bench; rm");
    assert_eq!(words[1..3], ["-m", "synthetic:gemma3-270m"]);
    assert_eq!(words[6], "2048");
}

#[test]
fn null_arms_are_named_after_what_they_repeat() {
    let names = |nulls: &str| {
        let text = GEMMA3.replace("nulls: [base]", nulls);
        let arms = null_arms(&loaded(&text).experiment);
        arms.into_iter().map(|arm| arm.name).collect::<Vec<_>>()
    };
    assert_eq!(names("nulls: all"), ["base-null", "main-null", "sync-null"]);
    assert_eq!(
        names("nulls: [base, main, base]"),
        ["base-null", "main-null", "base-null-2"]
    );
}
