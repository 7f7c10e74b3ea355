//! `mlxcel check`: exit codes, JSON, and limits that real mistakes do not pass.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn check(folder: &Path, options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .arg("check")
        .arg(folder)
        .args(options)
        .output()
        .unwrap()
}

fn json_report(folder: &Path, options: &[&str]) -> (Option<i32>, Value) {
    let output = check(folder, &[options, &["--json"]].concat());
    (
        output.status.code(),
        serde_json::from_slice(&output.stdout).unwrap(),
    )
}

/// A copy of a fixture with a changed config.json: the weights then run through the wrong formula,
/// as they would with a mistake in the engine.
fn mistaken(family: &str, change: impl FnOnce(&mut Value)) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["model.safetensors", "reference.safetensors"] {
        std::fs::copy(fixture(family).join(name), dir.path().join(name)).unwrap();
    }
    let text = std::fs::read(fixture(family).join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&text).unwrap();
    change(&mut config);
    std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
    dir
}

#[test]
fn a_folder_within_limits_exits_with_zero_and_says_what_ran() {
    let output = check(&fixture("llama"), &[]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "float32",
        "fast",
        "equal ids",
        "64 of 64",
        "affine 4-bit g32",
        ": ok",
    ] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
}

#[test]
fn json_has_the_figures_and_the_limits_of_each_arithmetic() {
    let (code, report) = json_report(&fixture("gemma3_text"), &[]);
    assert_eq!((code, &report["passed"]), (Some(0), &json!(true)));
    let modes = report["modes"].as_array().unwrap();
    let names: Vec<&Value> = modes.iter().map(|mode| &mode["arithmetic"]).collect();
    assert_eq!(names, ["float32", "fast"]);
    for mode in modes {
        assert!(mode["logits"]["rms"].as_f64().unwrap() <= mode["limits"]["rms"].as_f64().unwrap());
        assert!(!mode["kernels"]["by_role"].as_array().unwrap().is_empty());
    }
    assert_eq!(modes[0]["equal_ids"], 64);
}

#[test]
fn one_arithmetic_can_be_asked_for() {
    let (_, report) = json_report(&fixture("qwen3"), &["--arithmetic", "fast"]);
    assert_eq!(report["modes"].as_array().unwrap().len(), 1);
    assert_eq!(report["modes"][0]["arithmetic"], "fast");
}

#[test]
fn float32_limits_catch_mistakes_that_bf16_noise_would_hide() {
    type Change = fn(&mut Value);
    let mistakes: [(&str, Change); 6] = [
        ("gemma3_text", |c| c["sliding_window"] = json!(31)),
        ("gemma3_text", |c| c["query_pre_attn_scalar"] = json!(49)),
        ("gemma3_text", |c| {
            c["rope_local_base_freq"] = json!(10_100.0)
        }),
        ("gemma3_text", |c| c["rms_norm_eps"] = json!(1e-4)),
        ("llama", |c| {
            c["rope_scaling"]["high_freq_factor"] = json!(4.1)
        }),
        ("qwen3", |c| c["rope_theta"] = json!(990_000.0)),
    ];
    for (family, change) in mistakes {
        let dir = mistaken(family, change);
        let (code, report) = json_report(dir.path(), &["--arithmetic", "float32"]);
        assert_eq!(code, Some(1), "{report}");
        assert!(
            !report["modes"][0]["failures"]
                .as_array()
                .unwrap()
                .is_empty()
        );
    }
}

#[test]
fn fast_limits_catch_mistakes_of_formula() {
    type Change = fn(&mut Value);
    let mistakes: [(&str, Change); 5] = [
        ("gemma3_text", |c| c["sliding_window"] = json!(16)),
        ("gemma3_text", |c| c["sliding_window_pattern"] = json!(6)),
        ("gemma3_text", |c| c["query_pre_attn_scalar"] = json!(64)),
        ("llama", |c| {
            drop(c.as_object_mut().unwrap().remove("rope_scaling"))
        }),
        ("qwen3", |c| c["rope_theta"] = json!(10_000.0)),
    ];
    for (family, change) in mistakes {
        let dir = mistaken(family, change);
        let (code, report) = json_report(dir.path(), &["--arithmetic", "fast"]);
        assert_eq!(code, Some(1), "{family}: {report}");
    }
}

#[test]
fn a_folder_without_a_reference_is_an_error_that_names_the_file() {
    let dir = mistaken("llama", |_| {});
    std::fs::remove_file(dir.path().join("reference.safetensors")).unwrap();
    let output = check(dir.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("reference.safetensors")
    );
}
