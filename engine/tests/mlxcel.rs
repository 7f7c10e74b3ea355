//! The program `mlxcel`, run as a user runs it.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::process::{Command, Output};

fn mlxcel(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mlxcel"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn synth_writes_a_folder_once_and_verifies_it() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("models/tiny");
    let folder_text = folder.to_str().unwrap();
    let first = mlxcel(&["synth", "tiny-qwen3", folder_text]);
    assert!(text(&first.stdout).starts_with("wrote synthetic:tiny-qwen3 in "));
    let again = mlxcel(&["synth", "synthetic:tiny-qwen3", folder_text]);
    assert!(text(&again.stdout).starts_with("already there: synthetic:tiny-qwen3"));
    let verified = mlxcel(&["synth", "tiny-qwen3", folder_text, "--verify"]);
    assert!(text(&verified.stdout).starts_with("verified synthetic:tiny-qwen3"));

    let weights = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&weights, bytes).unwrap();
    let spoiled = mlxcel(&["synth", "tiny-qwen3", folder_text, "--verify"]);
    assert_eq!(spoiled.status.code(), Some(1));
    let error = text(&spoiled.stderr);
    assert!(
        error.contains("model.safetensors: sha256: expected"),
        "{error}"
    );
}

#[test]
fn synth_never_touches_a_folder_that_it_did_not_make() {
    let temporary = tempfile::tempdir().unwrap();
    std::fs::write(temporary.path().join("letter.txt"), "dear").unwrap();
    let output = mlxcel(&["synth", "tiny-qwen3", temporary.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("was not made by `mlxcel synth`"));
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 1);
}

#[test]
fn a_disk_that_cannot_be_written_is_one_line_and_leaves_nothing() {
    let output = mlxcel(&["synth", "tiny-qwen3", "/proc/no/such/place"]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("/proc/no/such"), "{error}");
}

#[test]
fn usage_errors_are_exit_code_2() {
    for arguments in [&[][..], &["--json"], &["synth"], &["dance"]] {
        assert_eq!(mlxcel(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn both_programs_print_the_same_receipt() {
    let receipt = |program: &str| {
        let output = Command::new(program).arg("--version").output().unwrap();
        assert!(output.status.success());
        let line = text(&output.stdout);
        let (name, rest) = line.split_once(' ').unwrap();
        (name.to_owned(), rest.to_owned())
    };
    let mlxcel = receipt(env!("CARGO_BIN_EXE_mlxcel"));
    let bench = receipt(env!("CARGO_BIN_EXE_mlxcel-bench-decode"));
    assert_eq!(mlxcel.0, "mlxcel");
    assert_eq!(bench.0, "mlxcel-bench-decode");
    assert_eq!(mlxcel.1, bench.1);
    assert_eq!(mlxcel.1.lines().count(), 1);
    for field in [
        "commit=",
        "dirty=",
        "features=",
        "target=",
        "profile=",
        "images=",
    ] {
        assert!(mlxcel.1.contains(field), "{field}: {}", mlxcel.1);
    }
}

#[test]
fn the_receipt_is_also_one_json_object() {
    let output = mlxcel(&["--version", "--json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["program"], "mlxcel");
    assert_eq!(value["version"], env!("CARGO_PKG_VERSION"));
    assert!(value["commit"].is_string() && value["features"].is_array());
}

#[cfg(target_os = "linux")]
#[test]
fn the_receipt_lies_in_one_place_of_the_program() {
    let line = text(&mlxcel(&["--version"]).stdout);
    let commit = line
        .split(' ')
        .find(|field| field.starts_with("commit="))
        .unwrap();
    let program = std::fs::read(env!("CARGO_BIN_EXE_mlxcel")).unwrap();
    let found = |needle: &[u8]| {
        let windows = program.windows(needle.len());
        windows.filter(|window| *window == needle).count()
    };
    assert_eq!(found(b".note.mlxcel_receipt\0"), 1);
    // The rest of the program must not know what it was built from, or equal
    // code of two commits would not be equal bytes.
    assert_eq!(found(format!("{commit} dirty=").as_bytes()), 1);
    if let Some(sha) = commit.strip_prefix("commit=").filter(|sha| sha.len() == 40) {
        assert_eq!(found(sha.as_bytes()), 1);
    }
}

#[test]
fn processes_that_start_together_share_one_model() {
    let cache = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..4)
        .map(|_| {
            Command::new(env!("CARGO_BIN_EXE_mlxcel-bench-decode"))
                .args([
                    "-m",
                    "synthetic:tiny-qwen3",
                    "--prompt-tokens",
                    "4",
                    "-n",
                    "4",
                    "--json",
                ])
                .env("MLXCEL_SYNTH_CACHE", cache.path())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let tokens: Vec<String> = children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success());
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            report["token_sha256"].as_str().unwrap().to_owned()
        })
        .collect();
    assert!(tokens.iter().all(|hash| *hash == tokens[0]));
    // One folder, and neither lock nor unfinished copy beside it.
    assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 1);
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_one_line_that_names_the_file_and_leaves_nothing() {
    let temporary = tempfile::tempdir().unwrap();
    // A limit on the size of files, with its signal ignored, is what a full
    // disk looks like to a writer.
    let output = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 64; exec \"$0\" synth tiny-llama \"$1\"",
        ])
        .arg(env!("CARGO_BIN_EXE_mlxcel"))
        .arg(temporary.path().join("model"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.contains("model.safetensors"), "{error}");
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
}
