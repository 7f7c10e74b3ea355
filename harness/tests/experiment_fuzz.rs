//! Whatever the bytes of an experiment file are, the loader answers with an
//! experiment or with errors that have a place; it never panics.

use std::path::Path;

use bench_run::experiment::load::load_bytes;
use bench_run::experiment::matrix::cells;
use proptest::prelude::*;

const GOOD: &str = "\
schema: 1
name: x
question: Is it slower?
source: { repo: '${REPO}' }
build:
  command: make
  artifacts: [out/x, lib]
arms:
  base: { rev: main, env: { A: '{artifact_dir}' } }
  next: { rev: next, requires: { n: '> 0', ok: true } }
nulls: all
cells:
  matrix:
    size: [1, 2.5, x]
  list:
    - size: y
command: >-
  {artifact} --size {size}
metrics:
  run_s: { json: t.seconds, better: lower, gate: true }
  b_ms: { regex: '(\\d+) ms', better: lower }
  c: { rusage: wall_seconds, better: lower }
expect:
  same_across_arms: [sum]
  json: { n: 3 }
  cells: [{ when: { size: 1 }, json: { m: '!= 0' } }]
guard: { kind: none }
verdict: { threshold_pct: 2.0, alpha: 0.05 }
";

/// Loads `bytes`; errors must have places inside the file.
fn answers(bytes: &[u8]) {
    match load_bytes(Path::new("x.yaml"), bytes) {
        Ok(loaded) => assert!(!cells(&loaded.experiment).is_empty()),
        Err(errors) => {
            assert!(!errors.entries.is_empty());
            let lines = bytes
                .iter()
                .filter(|byte| matches!(byte, b'\n' | b'\r'))
                .count()
                + 2;
            for entry in &errors.entries {
                assert!((1..=lines).contains(&entry.position.line), "{entry}");
                assert!(entry.position.column >= 1, "{entry}");
            }
        }
    }
}

#[test]
fn the_unchanged_file_is_in_order() {
    let loaded = load_bytes(Path::new("x.yaml"), GOOD.as_bytes());
    assert_eq!(loaded.map(|loaded| loaded.warnings), Ok(vec![]));
}

/// Snippets that mean something in YAML or in an experiment.
fn snippet() -> impl Strategy<Value = String> {
    prop_oneof![
        "[\\[\\]{}:,\\-?|>&*!#'\"%@` \t\n\r]{1,3}",
        "[0-9.e~]{1,4}",
        prop::sample::select(vec![
            "null",
            "true",
            "{size}",
            "{artifact",
            "${",
            "<<: ",
            "*a",
            "&a ",
            "!!int ",
            "---\n",
            "...\n",
            "  ",
            "1e400",
            "-1",
            "é",
            "\u{feff}",
            "\u{85}",
            "\u{2028}",
            "base",
            "size",
        ])
        .prop_map(str::to_owned),
    ]
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        answers(&bytes);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}") {
        answers(text.as_bytes());
    }

    #[test]
    fn a_damaged_file_never_panics(
        cuts in prop::collection::vec((0..GOOD.len(), 0_usize..12, snippet()), 1..4)
    ) {
        let mut text: Vec<char> = GOOD.chars().collect();
        for (at, length, put) in cuts {
            let at = at.min(text.len());
            let end = (at + length).min(text.len());
            text.splice(at..end, put.chars());
        }
        answers(text.into_iter().collect::<String>().as_bytes());
    }
}
