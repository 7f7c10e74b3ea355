//! `mlxcel convert` as a user calls it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

fn convert(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .arg("convert")
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn a_file_without_a_model_is_refused_with_one_line_and_exit_code_1() {
    let scratch = tempfile::tempdir().unwrap();
    let blocks = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf/blocks.gguf");
    let folder = scratch.path().join("out");
    let output = convert(&[blocks.to_str().unwrap(), folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("mlxcel: failed to convert"), "{text}");
    assert!(text.contains("llama.embedding_length"), "{text}");
    assert!(!folder.exists());
}

#[test]
fn a_group_size_without_bits_and_an_impossible_format_are_refused() {
    let output = convert(&["a.gguf", "b", "--group-size", "32"]);
    assert_eq!(output.status.code(), Some(2));
    let output = convert(&["a.gguf", "b", "--bits", "7"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("affine quantisation of 7 bits"), "{text}");
}
