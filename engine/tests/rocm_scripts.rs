//! `scripts/bench_decode.sh` and `scripts/verify_rocm.sh`, with a cargo of the test's own: what they
//! run, from where, and how they end.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Writes down what it is asked; "builds" a program into a folder that is not `target`; fails where
/// the arguments match `$FAILS`.
const CARGO: &str = r#"#!/bin/sh
echo "$*" >>"$PLACE/calls"
if [ -n "$FAILS" ] && echo "$*" | grep -q -e "$FAILS"; then
    echo "cargo: no" >&2
    exit 101
fi
case "$*" in
*--message-format*)
    echo '{"reason":"compiler-artifact","executable":null}'
    echo "{\"reason\":\"compiler-artifact\",\"executable\":\"$PLACE/built here/program\"}"
    echo '{"reason":"build-finished","success":true}' ;;
esac
"#;

const PROGRAM: &str = r#"#!/bin/sh
for word; do printf '<%s>' "$word"; done
"#;

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(place.path("bin")).unwrap();
        fs::create_dir(place.path("built here")).unwrap();
        for (name, text) in [("bin/cargo", CARGO), ("built here/program", PROGRAM)] {
            fs::write(place.path(name), text).unwrap();
            let executable = fs::Permissions::from_mode(0o755);
            fs::set_permissions(place.path(name), executable).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, program: &Path) -> Command {
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(program);
        command
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("PLACE", self.folder.path())
            // No AMD GPU, whatever is in this machine.
            .env("ROCM_KFD_TOPOLOGY", self.path("none"))
            .env("FAILS", "");
        for variable in [
            "BENCH_DECODE",
            "ALLOW_NOT_RUN",
            "MODEL",
            "MAKEFLAGS",
            "MFLAGS",
        ] {
            command.env_remove(variable);
        }
        command
    }

    /// Starts a script by its path from the root, there, with a CDPATH that leads elsewhere.
    fn script(&self, name: &str) -> Command {
        let mut command = self.command(&Path::new("scripts").join(name));
        command
            .current_dir(root())
            .env("CDPATH", self.folder.path());
        command
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.path("calls")).unwrap_or_default()
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn ended(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    (output.status.code(), stdout, stderr)
}

#[test]
fn the_program_that_cargo_has_just_built_is_the_one_that_is_measured() {
    let place = Place::new();
    fs::create_dir(place.path("scripts")).unwrap();
    let output = place
        .script("bench_decode.sh")
        .args(["models/a b", "-n", "5"])
        .output();
    let (code, stdout, stderr) = ended(&output.unwrap());
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(
        stdout,
        "<--model><models/a b><--prompt-tokens><2048><--max-tokens><128><-n><5>"
    );
    assert!(place.calls().contains("--bin mlxcel-bench-decode"));
}

#[test]
fn a_build_that_fails_measures_nothing() {
    let place = Place::new();
    let mut command = place.script("bench_decode.sh");
    let output = command.arg("models/x").env("FAILS", "build").output();
    let (code, stdout, stderr) = ended(&output.unwrap());
    assert_eq!((code, stdout.as_str()), (Some(101), ""), "{stderr}");
}

#[test]
fn arguments_that_name_no_model_and_no_program_end_with_2_and_build_nothing() {
    let place = Place::new();
    for arguments in [&[][..], &[""], &["--json", "models/x"]] {
        let output = place.script("bench_decode.sh").args(arguments).output();
        let (code, stdout, stderr) = ended(&output.unwrap());
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(stderr.contains("usage: scripts/bench_decode.sh MODEL"));
    }
    let mut command = place.script("bench_decode.sh");
    let gone = place.path("gone");
    let output = command.arg("models/x").env("BENCH_DECODE", &gone).output();
    let (code, _, stderr) = ended(&output.unwrap());
    assert_eq!(code, Some(2), "{stderr}");
    let gone = gone.display().to_string();
    assert!(
        stderr.contains("BENCH_DECODE") && stderr.contains(&gone),
        "{stderr}"
    );
    assert_eq!(place.calls(), "");
    let output = place.script("bench_decode.sh").arg("--help").output();
    let (code, stdout, _) = ended(&output.unwrap());
    assert_eq!(code, Some(0));
    assert!(stdout.starts_with("usage: "), "{stdout}");
}

#[test]
fn what_did_not_run_is_listed_and_is_neither_success_nor_failure() {
    let place = Place::new();
    let verify = |halves: &[&str], allow: &str, fails: &str| {
        let mut command = place.script("verify_rocm.sh");
        command.args(halves).env("ALLOW_NOT_RUN", allow);
        ended(&command.env("FAILS", fails).output().unwrap())
    };
    for halves in [&["engine"][..], &["overlay"], &["engine", "overlay"]] {
        let (code, stdout, stderr) = verify(halves, "0", "");
        assert_eq!(code, Some(77), "{halves:?}: {stdout}{stderr}");
        assert!(stdout.contains("not run  "), "{stdout}");
        assert!(stdout.contains("no AMD GPU here"), "{stdout}");
        assert_eq!(verify(halves, "1", "").0, Some(0), "{halves:?}");
    }
    // A failure is told apart, and what did not run does not hide it.
    for (half, fails) in [
        ("engine", "rocm_qmm_dequant_cache"),
        ("overlay", "route_table"),
    ] {
        for allow in ["0", "1"] {
            let (code, stdout, _) = verify(&[half], allow, fails);
            assert_eq!(code, Some(1), "{half}: {stdout}");
            assert!(stdout.contains("FAILED   "), "{stdout}");
            assert!(stdout.contains("cargo: no"), "{stdout}");
        }
    }
    for halves in [&[][..], &["other"], &["engine", "other"]] {
        assert_eq!(verify(halves, "1", "").0, Some(2), "{halves:?}");
    }
}

#[test]
fn make_runs_both_halves_even_if_the_first_was_not_all() {
    let place = Place::new();
    let make = |allow: &str| {
        let mut command = place.command(Path::new("make"));
        command.args(["verify-rocm", "verify-rocm-overlay"]);
        command.current_dir(root()).env("ALLOW_NOT_RUN", allow);
        ended(&command.output().unwrap())
    };
    let (code, stdout, stderr) = make("0");
    // Make's own code for every recipe that fails; it prints the recipe's.
    assert_eq!(code, Some(2), "{stdout}{stderr}");
    assert_eq!(stderr.matches("Error 77").count(), 2, "{stderr}");
    assert!(
        stdout.contains("the route table is the reviewed one"),
        "{stdout}"
    );
    assert_eq!(make("1").0, Some(0));
}
