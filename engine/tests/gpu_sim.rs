//! The GPU back end on fibers of the processor: the kernels and everything around them, against the
//! reference outputs of the fixtures, in both fragment layouts and several schedules.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs a program with the simulated GPU of `layout` whose warps run in `order`.
fn run(program: &str, arguments: &str, (layout, order): (&str, &str)) -> Output {
    let cache = tempfile::tempdir().unwrap();
    Command::new(program)
        .args(arguments.split_whitespace())
        .args(["--backend", "sim", "--json"])
        .env("MLXCEL_SIM_LAYOUT", layout)
        .env("MLXCEL_SIM_ORDER", order)
        .env("MLXCEL_SYNTH_CACHE", cache.path())
        .output()
        .unwrap()
}

fn report(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"))
}

fn fixture(family: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fixtures.join(family).display().to_string()
}

fn assert_within_limits(family: &str, arithmetic: &str, machine: (&str, &str)) {
    let arguments = format!("check {} --arithmetic {arithmetic}", fixture(family));
    let output = run(env!("CARGO_BIN_EXE_mlxcel"), &arguments, machine);
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{machine:?}: {report}");
    assert!(report["device"].as_str().unwrap().contains("simulated GPU"));
}

#[test]
fn fast_arithmetic_is_within_its_limits_in_both_layouts_and_several_schedules() {
    for machine in [("nvidia", "0"), ("rdna3", "1"), ("nvidia", "7")] {
        for family in ["llama", "qwen3", "gemma3_text"] {
            assert_within_limits(family, "fast", machine);
        }
    }
}

#[test]
fn the_slow_twin_is_float32() {
    assert_within_limits("llama", "float32", ("nvidia", "0"));
}

#[test]
fn every_decode_path_gives_the_same_text_across_the_window() {
    let parity = env!("CARGO_BIN_EXE_mlxcel-engine-parity");
    let output = run(
        parity,
        "-m synthetic:tiny-gemma3 -n 64 --expect-identical",
        ("nvidia", "0"),
    );
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{report}");
    for row in report["rows"].as_array().unwrap() {
        assert_eq!(row["result"], "identical", "{row}");
        assert_eq!(row["statistics"]["wrapped"], true, "{row}");
    }
}

#[test]
fn a_planted_rewind_bug_turns_it_red() {
    let parity = env!("CARGO_BIN_EXE_mlxcel-engine-parity");
    let arguments = "-m synthetic:tiny-gemma3 -n 64 --expect-identical --plant-rewind-bug";
    let output = run(parity, arguments, ("nvidia", "0"));
    assert_eq!(output.status.code(), Some(1), "{}", report(&output));
}

#[test]
fn misuse_names_the_variable() {
    let output = run(
        env!("CARGO_BIN_EXE_mlxcel"),
        &format!("check {}", fixture("llama")),
        ("teapot", "0"),
    );
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("MLXCEL_SIM_LAYOUT") && error.contains("teapot"),
        "{error}"
    );
}
