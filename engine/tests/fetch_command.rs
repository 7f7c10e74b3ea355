//! `mlxcel fetch` as a user calls it; downloads have their tests in hub.rs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn fetch(model: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlxcel"));
    command
        .args(["fetch", model])
        .envs(variables.iter().copied());
    command.output().unwrap()
}

#[test]
fn the_folder_of_a_synthetic_model_is_printed() {
    let cache = tempfile::tempdir().unwrap();
    let at = cache.path().to_str().unwrap();
    let output = fetch("synthetic:tiny-llama", &[("MLXCEL_SYNTH_CACHE", at)]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let folder = std::path::Path::new(text.trim_end());
    assert!(folder.starts_with(at) && folder.join("config.json").exists());
}

#[test]
fn a_name_that_no_hub_can_have_is_refused_without_asking_one() {
    let home = tempfile::tempdir().unwrap();
    let at = home.path().to_str().unwrap();
    for name in ["hf:only-one-part", "hf:../../etc/passwd"] {
        let output = fetch(
            name,
            &[("HF_HOME", at), ("HF_ENDPOINT", "http://127.0.0.1:9")],
        );
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("expected hf:ORGANISATION/NAME"), "{text}");
    }
}
