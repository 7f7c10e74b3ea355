//! Published measurements judged again: what their authors printed comes out, and what
//! they overlooked is said.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs/benchmark_results/data")
        .join(file)
}

fn bench_run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench-run"))
        .arg("replay")
        .args(arguments)
        .output()
        .unwrap()
}

fn replay(file: &str) -> Value {
    let output = bench_run(&[data(file).to_str().unwrap(), "--json"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn unified() -> Value {
    replay("replay-rocm-unified-engine/rocm_unified_rounds.csv")
}

/// `cell: change (low..high), null low..high, outcome` of every answer of one rule, in percent.
fn answers(judged: &Value, rule: &str) -> Vec<String> {
    let named = judged["named"].as_array().unwrap().iter();
    let pct = |value: &Value| format!("{:+.2}", 100.0 * value.as_f64().unwrap());
    named
        .filter(|one| one["rule"] == rule)
        .map(|one| {
            let null = match &one["null"] {
                Value::Null => "none".to_owned(),
                null => format!("{}..{}", pct(&null["range"][0]), pct(&null["range"][1])),
            };
            format!(
                "{} {}: {} ({}..{}), null {null}: {}",
                one["cell"].as_str().unwrap(),
                one["candidate"].as_str().unwrap(),
                pct(&one["change"]),
                pct(&one["range"][0]),
                pct(&one["range"][1]),
                one["outcome"].as_str().unwrap(),
            )
        })
        .collect()
}

#[test]
fn the_eleven_published_cells_come_out_under_their_own_rule() {
    assert_eq!(
        answers(&unified(), "adr-0007"),
        [
            "Qwen3-0.6B-4bit.512 new: -0.57 (-0.83..-0.14), null -0.39..+0.64: within",
            "Qwen3-0.6B-4bit.2048 new: -0.71 (-2.76..+2.42), null -2.07..+0.71: within",
            "Meta-Llama-3.1-8B-Instruct-4bit.512 new: +0.00 (-0.79..+1.19), null -0.16..+0.19: within",
            "gemma-3-4b-it-4bit.512 new: -0.56 (-0.81..+0.04), null -0.30..+0.85: within",
            "gemma-3-4b-it-4bit.2048 new: -1.19 (-1.39..-0.86), null -0.48..-0.02: beyond",
            "Qwen3-30B-A3B-4bit.512 new: -0.02 (-0.13..+0.26), null -0.03..+0.37: within",
            "Qwen3-30B-A3B-4bit.2048 new: +0.05 (-0.55..+0.40), null -0.74..+0.19: within",
            "granite-4.0-h-tiny-4bit.512 new: -0.59 (-1.29..+0.18), null -0.62..+0.28: within",
            "NVIDIA-Nemotron-3-Nano-30B-A3B-4bit.512 new: +0.20 (+0.17..+0.31), null +0.08..+0.28: within",
            "gpt-oss-20b-MXFP4-Q4.512 new: -0.12 (-0.23..+1.19), null -0.23..+0.60: within",
            "Mixtral-8x7B-Instruct-v0.1-4bit.512 new: +1.20 (-1.55..+2.31), null -1.71..+8.05: within",
        ]
    );
}

#[test]
fn the_deciding_cell_flips_with_the_estimator_and_the_page_says_so() {
    let judged = unified();
    let of_cell: Vec<String> = answers(&judged, "ratio-of-medians")
        .into_iter()
        .filter(|line| line.starts_with("gemma-3-4b-it-4bit.2048"))
        .collect();
    assert_eq!(
        of_cell,
        ["gemma-3-4b-it-4bit.2048 new: -0.91 (-1.39..-0.86), null -0.48..-0.02: within"]
    );
    let disagreements = judged["disagreements"].as_array().unwrap();
    assert_eq!(disagreements.len(), 1, "{disagreements:?}");
    let text = disagreements[0].as_str().unwrap();
    assert!(
        text.contains("gemma-3-4b-it-4bit.2048")
            && text.contains("−1.19 %")
            && text.contains("−0.91 %"),
        "{text}"
    );
}

#[test]
fn our_own_rule_calls_the_deciding_cell_slower_with_an_interval_and_no_other() {
    let judged = unified();
    let judgements = judged["analysis"]["judgements"].as_array().unwrap();
    let slower: Vec<&Value> = judgements
        .iter()
        .filter(|one| one["gated"] == true && one["direction"] == "slower")
        .collect();
    assert_eq!(slower.len(), 1, "{slower:?}");
    assert_eq!(slower[0]["cell"], "gemma-3-4b-it-4bit.2048");
    let estimate = &slower[0]["estimate"];
    assert!(estimate["low"].as_f64().unwrap() > 0.0);
    let sentence = slower[0]["sentence"].as_str().unwrap();
    assert!(sentence.contains("95 % interval"), "{sentence}");
}

#[test]
fn the_isolation_session_refuses_the_rejected_attempt_and_says_that_it_has_no_null_arm() {
    let judged = replay("replay-gemma3-pp2048-isolation/gemma3_pp2048_from_logs.csv");
    let refused = judged["refused"].as_array().unwrap();
    assert_eq!(refused.len(), 1);
    assert_eq!(
        (
            &refused[0]["round"],
            &refused[0]["arm"],
            &refused[0]["line"]
        ),
        (&Value::from("1"), &Value::from("new"), &Value::from(3))
    );
    let notes = judged["analysis"]["notes"].to_string();
    assert!(
        notes.contains("no null arm") && notes.contains("run again alone"),
        "{notes}"
    );
    // With the refused value of round 1 the range would end at -1.17.
    assert_eq!(
        answers(&judged, "adr-0007"),
        [
            "all new: -1.50 (-1.58..-1.04), null none: beyond",
            "all new-sync: +1.42 (+1.38..+1.53), null none: within",
        ]
    );
}

#[test]
fn a_label_that_holds_arm_and_round_gives_eight_cells() {
    let judged = replay("replay-rocm-bench-engine/rocm_bench_engine_rounds.csv");
    let lines = answers(&judged, "adr-0007");
    assert_eq!(lines.len(), 8, "{lines:#?}");
    assert!(
        lines[3].starts_with("Qwen3-0.6B-4bit.2048.server new:"),
        "{lines:#?}"
    );
    assert!(judged["refused"].as_array().unwrap().is_empty());
}

#[test]
fn the_gate_of_a_replay_is_our_own_rule() {
    let file = data("replay-rocm-unified-engine/rocm_unified_rounds.csv");
    let output = bench_run(&[file.to_str().unwrap(), "--gate"]);
    assert_eq!(output.status.code(), Some(10));
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "adr-0007",
        "ratio-of-medians",
        "beyond threshold",
        "gate: regressed.",
    ] {
        assert!(text.contains(expected), "no {expected} in\n{text}");
    }
}

#[test]
fn published_pages_are_what_the_program_makes_of_the_files_beside_them() {
    for (folder, file) in [
        ("replay-rocm-unified-engine", "rocm_unified_rounds.csv"),
        (
            "replay-gemma3-pp2048-isolation",
            "gemma3_pp2048_from_logs.csv",
        ),
        ("replay-rocm-bench-engine", "rocm_bench_engine_rounds.csv"),
    ] {
        let to = tempfile::tempdir().unwrap();
        let input = data(&format!("{folder}/{file}"));
        let to_path = to.path().to_str().unwrap();
        let output = bench_run(&[input.to_str().unwrap(), "--to", to_path]);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let made = std::fs::read_to_string(to.path().join(format!("{folder}.md"))).unwrap();
        let published = data("..").join(format!("{folder}.md"));
        assert!(
            made == std::fs::read_to_string(published).unwrap(),
            "{folder}.md is another page: `bench-run replay {file} --publish` makes it"
        );
    }
}

#[test]
fn a_table_of_our_own_names_needs_no_mapping_and_bad_ones_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rounds.csv");
    let run = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let output = bench_run(&[file.to_str().unwrap()]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), told)
    };
    let good =
        "arm,round,wall_ms\nbase,1,10\nnew,1,11\nbase,2,10.1\nnew,2,11.1\nbase,3,10\nnew,3,11.2\n";
    assert_eq!(run(good), (Some(0), String::new()));
    let (code, told) = run(&good.replace("11.1", "fast"));
    assert_eq!(code, Some(2));
    assert!(
        told.contains("rounds.csv:5:7: wall_ms: expected a number, got `fast`"),
        "{told}"
    );
    let (code, told) = run("variant,time\nbase,1\n");
    assert_eq!(code, Some(2));
    assert!(
        told.contains("rounds.replay.yaml") && told.contains("schema: 1"),
        "{told}"
    );
    let missing = folder.path().join("none.csv");
    let output = bench_run(&[missing.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
}
