//! The program `mlxcel-engine-parity`: green where it should be, red where a mistake is planted.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use tempfile::TempDir;

fn cache() -> &'static Path {
    static CACHE: OnceLock<TempDir> = OnceLock::new();
    CACHE.get_or_init(|| tempfile::tempdir().unwrap()).path()
}

fn parity(arguments: &str) -> Output {
    parity_with("slack", arguments)
}

fn parity_with(undo: &str, arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mlxcel-engine-parity"))
        .args(arguments.split_whitespace())
        .env("MLXCEL_SYNTH_CACHE", cache())
        .env("MLXCEL_UNDO", undo)
        .output()
        .unwrap()
}

fn json(arguments: &str) -> (Option<i32>, Value) {
    json_with("slack", arguments)
}

fn json_with(undo: &str, arguments: &str) -> (Option<i32>, Value) {
    let output = parity_with(undo, &format!("{arguments} --json"));
    let code = output.status.code();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout);
    (
        code,
        report.unwrap_or_else(|_| panic!("{arguments}: {error}")),
    )
}

#[test]
fn every_path_gives_the_same_text_in_every_family_and_arithmetic() {
    for family in ["gemma3", "llama", "qwen3"] {
        for arithmetic in ["fast", "float32"] {
            let arguments =
                format!("-m synthetic:tiny-{family} --expect-identical --arithmetic {arithmetic}");
            let (code, report) = json(&arguments);
            assert_eq!(code, Some(0), "{arguments}: {report}");
            let rows = report["rows"].as_array().unwrap();
            assert_eq!(rows.len(), 8);
            assert!(rows.iter().all(|row| row["result"] == "identical"));
            let rewinds = |row: &Value| row["statistics"]["rewinds"].as_u64().unwrap();
            assert!(rewinds(&rows[3]) > 32, "{}", rows[3]);
            assert_eq!(rewinds(&rows[2]), 0);
        }
    }
}

#[test]
fn the_float32_twin_finds_the_fast_text_good() {
    for family in ["gemma3", "llama", "qwen3"] {
        let arguments = format!("-m synthetic:tiny-{family} --expect-identical --twin");
        let (code, report) = json(&arguments);
        assert_eq!(code, Some(0), "{report}");
        let twin = &report["twin"];
        assert_eq!(twin["tokens"], 128);
        assert!(twin["best"].as_u64().unwrap() > 100, "{twin}");
        assert!(twin["rms"].as_f64().unwrap() > 0.0, "{twin}");
    }
}

#[test]
fn the_text_is_the_one_that_bench_decode_times() {
    let (_, report) = json("-m synthetic:tiny-llama --prompt-tokens 40 -n 24");
    // There the first token belongs to the prompt.
    let timed = Command::new(env!("CARGO_BIN_EXE_mlxcel-bench-decode"))
        .args(["-m", "synthetic:tiny-llama", "-p", "x", "--prompt-tokens"])
        .args(["40", "-n", "23", "--ignore-eos", "--json"])
        .env("MLXCEL_SYNTH_CACHE", cache())
        .output()
        .unwrap();
    let timed: Value = serde_json::from_slice(&timed.stdout).unwrap();
    assert_eq!(report["token_sha256"], timed["token_sha256"]);
    assert_eq!(timed["token_sha256"].as_str().unwrap().len(), 64);
}

#[test]
fn float32_has_no_twin() {
    let output = parity("-m synthetic:tiny-llama --twin --arithmetic float32");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("--twin: expected --arithmetic fast"),
        "{error}"
    );
}

#[test]
fn every_undo_policy_that_can_go_on_passes() {
    for undo in ["slack", "in_append", "own_copies", "sync_once_full"] {
        for arithmetic in ["fast", "float32"] {
            let arguments =
                format!("-m synthetic:tiny-gemma3 --expect-identical --arithmetic {arithmetic}");
            let (code, report) = json_with(undo, &arguments);
            assert_eq!(code, Some(0), "{undo}: {report}");
            assert_eq!(report["undo_policy"], undo);
            let rows = &report["rows"][2]["statistics"]["undo_rows_recorded"];
            let records = ["in_append", "own_copies"].contains(&undo);
            assert_eq!(rows.as_u64().unwrap() > 0, records, "{undo}: {rows}");
        }
    }
    let output = parity_with("discard", "-m synthetic:tiny-gemma3");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("cannot be continued"), "{error}");
}

// 130 rows are above every threshold of gfx1151: there the prompt is dequantised, bf16 past the cache.
#[test]
fn every_path_gives_the_same_text_under_another_devices_routes() {
    for model in ["tiny-gemma3", "tiny-gemma3-f16"] {
        let arguments = format!(
            "-m synthetic:{model} --prompt-tokens 130 --expect-identical --route-profile gfx1151"
        );
        let (code, report) = json(&arguments);
        assert_eq!(code, Some(0), "{arguments}: {report}");
        assert_eq!(report["route_profile"], "gfx1151");
        assert_eq!(report["route_profile_foreign"], true);
    }
    let output = parity("-m synthetic:tiny-gemma3 --route-profile gfx1151 --arithmetic float32");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("not for float32"), "{error}");
}

#[test]
fn the_default_text_crosses_the_window() {
    let (_, report) = json("-m synthetic:tiny-gemma3");
    let prompt = report["prompt_tokens"].as_u64().unwrap();
    let window = report["window_tokens"].as_u64().unwrap();
    assert!(prompt < window && prompt + 128 > 2 * window);
    for row in report["rows"].as_array().unwrap() {
        assert_eq!(row["statistics"]["wrapped"], true, "{row}");
        assert!(row["distinct_tokens"].as_u64().unwrap() >= 32, "{row}");
    }
}

#[test]
fn a_planted_rewind_bug_turns_it_red() {
    for arithmetic in ["fast", "float32"] {
        let arguments = format!(
            "-m synthetic:tiny-gemma3 --expect-identical --plant-rewind-bug --arithmetic {arithmetic}"
        );
        let (code, report) = json_with("in_append", &arguments);
        assert_eq!(code, Some(1), "{arguments}");
        assert_eq!(report["passed"], false);
        let rows = report["rows"].as_array().unwrap();
        let result = rows[3]["result"].as_str().unwrap();
        assert!(result.contains("diverge@"), "{result}");
        // The bug is in rewinds, and only that path has any.
        assert_eq!(rows[2]["result"], "identical");
    }
}

#[test]
fn a_text_that_stays_inside_the_window_is_no_gate() {
    let (code, report) = json("-m synthetic:tiny-gemma3 --prompt-tokens 4 -n 8 --expect-identical");
    assert_eq!(code, Some(1));
    let problems = report["problems"].to_string();
    assert!(
        problems.contains("window of 32 tokens was not crossed"),
        "{problems}"
    );
    let (code, _) = json("-m synthetic:tiny-gemma3 --prompt-tokens 4 -n 8");
    assert_eq!(code, Some(0), "without the option it only tells");
}

#[test]
fn the_table_has_a_line_a_path_and_a_verdict() {
    let output = parity("-m synthetic:tiny-gemma3");
    let text = String::from_utf8(output.stdout).unwrap();
    for path in ["sync", "generator", "pipelined", "rewinds"] {
        let lines = text.lines().filter(|line| line.starts_with(path));
        assert_eq!(lines.count(), 2, "{text}");
    }
    assert!(text.ends_with("parity: passed\n"), "{text}");
}

#[test]
fn misuse_is_exit_code_2_and_failure_1() {
    assert_eq!(parity("").status.code(), Some(2));
    assert_eq!(parity("-m x -n 0").status.code(), Some(2));
    let output = parity("-m /no/such/folder");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/folder"));
    assert_eq!(parity("--version").status.code(), Some(0));
}
