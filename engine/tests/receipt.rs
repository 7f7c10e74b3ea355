//! The build script as a program of its own, in repositories made for it.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// The compiled build script.
fn script() -> &'static Path {
    static SCRIPT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = SCRIPT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("build-script");
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
        let status = Command::new(rustc)
            .args(["--edition", "2024", "-o"])
            .arg(&path)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/build.rs"))
            .status()
            .unwrap();
        assert!(status.success());
        (folder, path)
    });
    path
}

/// Runs the script for the package at `folder`; its output, or its complaint.
fn run(folder: &Path, variables: &[(&str, &str)]) -> Result<String, String> {
    let output = Command::new(script())
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap())
        .env("HOME", folder)
        .env("CARGO_MANIFEST_DIR", folder)
        .env("CARGO_PKG_VERSION", "1.2.3")
        .env("TARGET", "some-target")
        .env("OUT_DIR", "/t/target/bench/build/package-123/out")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

fn receipt(folder: &Path, variables: &[(&str, &str)]) -> String {
    let output = run(folder, variables).unwrap();
    let line = output
        .lines()
        .find_map(|line| line.strip_prefix("cargo:rustc-env=MLXCEL_RECEIPT="));
    line.unwrap().to_owned()
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@t"])
        .args(["-c", "init.defaultBranch=trunk"])
        .args(arguments)
        .current_dir(folder)
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A repository with a package in `engine`, committed once.
fn repository() -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let package = root.path().join("engine");
    std::fs::create_dir_all(package.join("src")).unwrap();
    std::fs::write(package.join("Cargo.toml"), "[package]\n").unwrap();
    std::fs::write(package.join("src/lib.rs"), "// one\n").unwrap();
    git(root.path(), &["init", "-q"]);
    git(root.path(), &["add", "."]);
    git(root.path(), &["commit", "-qm", "one"]);
    (root, package)
}

/// The files whose change makes cargo run the script again.
fn watched(folder: &Path) -> Vec<PathBuf> {
    run(folder, &[])
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("cargo:rerun-if-changed="))
        .map(|path| folder.join(path))
        .collect()
}

#[test]
fn a_clean_checkout_gives_its_commit_and_a_changed_one_is_dirty() {
    let (root, package) = repository();
    let commit = git(root.path(), &["rev-parse", "HEAD"]);
    let clean = format!(
        "version=1.2.3 commit={commit} dirty=false features=none target=some-target profile=bench images=none"
    );
    assert_eq!(receipt(&package, &[]), clean);
    std::fs::write(package.join("src/lib.rs"), "// two\n").unwrap();
    assert!(receipt(&package, &[]).contains(" dirty=true "));
}

#[test]
fn a_new_source_file_is_dirt_and_a_document_is_not() {
    let (root, package) = repository();
    std::fs::write(root.path().join("README.md"), "text").unwrap();
    assert!(receipt(&package, &[]).contains(" dirty=false "));
    std::fs::write(package.join("src/new.rs"), "").unwrap();
    assert!(receipt(&package, &[]).contains(" dirty=true "));
}

#[test]
fn a_worktree_has_its_own_commit() {
    let (root, _) = repository();
    let other = tempfile::tempdir().unwrap();
    let worktree = other.path().join("tree");
    let path = worktree.to_str().unwrap();
    git(root.path(), &["worktree", "add", "-q", "-b", "side", path]);
    std::fs::write(worktree.join("engine/src/lib.rs"), "// side\n").unwrap();
    git(&worktree, &["commit", "-qam", "side"]);
    let commit = git(&worktree, &["rev-parse", "HEAD"]);
    assert!(worktree.join(".git").is_file());
    let line = receipt(&worktree.join("engine"), &[]);
    assert!(
        line.contains(&format!("commit={commit} dirty=false")),
        "{line}"
    );
}

#[test]
fn whatever_moves_the_commit_touches_a_watched_file() {
    let (root, package) = repository();
    let moves: [&[&str]; 4] = [
        &["commit", "-q", "--allow-empty", "-m", "two"],
        &["checkout", "-q", "--detach"],
        &["checkout", "-q", "-b", "other", "HEAD~1"],
        &["reset", "-q", "--hard", "trunk"],
    ];
    for arguments in moves {
        let stamps = |paths: &[PathBuf]| -> Vec<_> {
            paths
                .iter()
                .map(|path| {
                    std::fs::metadata(path)
                        .and_then(|meta| meta.modified())
                        .ok()
                })
                .collect()
        };
        let paths = watched(&package);
        assert!(paths.iter().all(|path| path.exists()), "{paths:?}");
        let before = stamps(&paths);
        // File times may have a granularity of some milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(20));
        git(root.path(), arguments);
        assert_ne!(before, stamps(&paths), "git {arguments:?}");
    }
}

#[test]
fn asking_git_does_not_touch_what_is_watched() {
    let (_root, package) = repository();
    // A file with a new time but old content would make `git status` refresh.
    std::fs::write(package.join("src/lib.rs"), "// one\n").unwrap();
    let index = |package: &Path| {
        let path = package.join("../.git/index");
        std::fs::metadata(path).unwrap().modified().unwrap()
    };
    let before = index(&package);
    std::thread::sleep(std::time::Duration::from_millis(20));
    receipt(&package, &[]);
    assert_eq!(before, index(&package));
}

#[test]
fn a_builder_that_knows_better_is_believed() {
    let (_root, package) = repository();
    let line = receipt(
        &package,
        &[
            ("MLXCEL_BUILD_COMMIT", "abc+patch-12"),
            ("MLXCEL_BUILD_DIRTY", "false"),
        ],
    );
    assert!(line.contains("commit=abc+patch-12 dirty=false"), "{line}");
    let line = receipt(&package, &[("MLXCEL_BUILD_COMMIT", "abc")]);
    assert!(line.contains("commit=abc dirty=unknown"), "{line}");
}

#[test]
fn nonsense_from_a_builder_stops_the_build() {
    let (_root, package) = repository();
    for (name, value) in [
        ("MLXCEL_BUILD_COMMIT", "two words"),
        ("MLXCEL_BUILD_DIRTY", "maybe"),
    ] {
        let error = run(&package, &[(name, value)]).unwrap_err();
        assert!(error.contains(value), "{error}");
    }
}

#[test]
fn outside_git_and_inside_a_foreign_repository_the_commit_is_unknown() {
    let plain = tempfile::tempdir().unwrap();
    std::fs::write(plain.path().join("Cargo.toml"), "").unwrap();
    assert!(receipt(plain.path(), &[]).contains("commit=unknown dirty=unknown"));

    let (root, _) = repository();
    let vendored = root.path().join("vendored");
    std::fs::create_dir(&vendored).unwrap();
    std::fs::write(vendored.join("Cargo.toml"), "").unwrap();
    assert!(receipt(&vendored, &[]).contains("commit=unknown dirty=unknown"));
}

#[test]
fn features_are_listed_in_order() {
    let plain = tempfile::tempdir().unwrap();
    // None of those for which the script compiles kernels: there are none in an empty folder.
    let variables = [
        ("CARGO_FEATURE_ROCM", "1"),
        ("CARGO_FEATURE_DEFAULT", "1"),
        ("CARGO_FEATURE_EXTRA", "1"),
    ];
    assert!(receipt(plain.path(), &variables).contains("features=extra,rocm"));
}
