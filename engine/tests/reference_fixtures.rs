//! Tiny models of every family against outputs of the reference implementation.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use mlxcel_engine::check::{CheckOptions, CheckReport, check};
use mlxcel_engine::{Arithmetic, BackendChoice};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn check_fixture(name: &str, arithmetic: Arithmetic, threads: usize) -> CheckReport {
    let options = CheckOptions {
        backend: BackendChoice::Cpu,
        arithmetics: vec![arithmetic],
        threads,
    };
    check(&fixture(name), &options, &mut |_| {}).unwrap()
}

fn assert_passes(name: &str, arithmetic: Arithmetic) {
    let report = check_fixture(name, arithmetic, 2);
    assert!(report.passed, "{report}");
}

#[test]
fn gemma3_in_float32_is_the_reference() {
    assert_passes("gemma3_text", Arithmetic::Float32);
}

#[test]
fn llama_in_float32_is_the_reference() {
    assert_passes("llama", Arithmetic::Float32);
}

#[test]
fn qwen3_in_float32_is_the_reference() {
    assert_passes("qwen3", Arithmetic::Float32);
}

#[test]
fn gemma3_in_fast_arithmetic_is_near_the_reference() {
    assert_passes("gemma3_text", Arithmetic::Fast);
}

#[test]
fn llama_in_fast_arithmetic_is_near_the_reference() {
    assert_passes("llama", Arithmetic::Fast);
}

#[test]
fn qwen3_in_fast_arithmetic_is_near_the_reference() {
    assert_passes("qwen3", Arithmetic::Fast);
}

#[test]
fn figures_do_not_depend_on_the_number_of_threads() {
    for arithmetic in [Arithmetic::Float32, Arithmetic::Fast] {
        let one = check_fixture("gemma3_text", arithmetic, 1);
        let three = check_fixture("gemma3_text", arithmetic, 3);
        assert_eq!(one.modes, three.modes);
    }
}
