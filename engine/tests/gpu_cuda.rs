//! The CUDA back end on the GPU of this machine, where there is one: fixtures within the limits of
//! their arithmetic, decode paths identical. Results of the last run are kept in docs/gpu_records.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::path::Path;
use std::process::{Command, Output};

fn cuda(program: &str, arguments: &str) -> Output {
    Command::new(program)
        .args(arguments.split_whitespace())
        .args(["--backend", "cuda"])
        .output()
        .unwrap()
}

fn fixture(family: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fixtures.join(family).display().to_string()
}

/// Whether there is a GPU; where there is none, the one error that says so.
fn has_gpu() -> bool {
    let arguments = format!("check {}", fixture("llama"));
    let output = cuda(env!("CARGO_BIN_EXE_mlxcel"), &arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    if error.contains("back end `cuda` is not available") {
        assert_eq!(output.status.code(), Some(1));
        assert!(!error.contains("panicked"), "{error}");
        eprintln!("skipped: {}", error.trim());
        return false;
    }
    true
}

#[test]
fn fixtures_are_within_their_limits() {
    if !has_gpu() {
        return;
    }
    for family in ["llama", "qwen3", "gemma3_text"] {
        let arguments = format!("check {}", fixture(family));
        let output = cuda(env!("CARGO_BIN_EXE_mlxcel"), &arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{text}");
    }
}

#[test]
fn decode_paths_are_identical() {
    if !has_gpu() {
        return;
    }
    for family in ["gemma3", "llama", "qwen3"] {
        for arithmetic in ["fast", "float32"] {
            let arguments =
                format!("-m synthetic:tiny-{family} --arithmetic {arithmetic} --expect-identical");
            let output = cuda(env!("CARGO_BIN_EXE_mlxcel-engine-parity"), &arguments);
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(0), "{text}");
        }
    }
}
