//! What is kept of builds: made once, damaged, half made, shared by commits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bench_run::build::builder::{self, BuildRequest, Built};
use bench_run::build::progress::BuildProgress;
use bench_run::experiment::model::{Build, Submodules};
use bench_run::source::pin::Pin;
use indexmap::IndexMap;

use crate::builds::{PROGRAM, TOOLCHAIN, build_rev, entries, ran, recipe, steps_of};
use crate::tiny_repo::TinyRepo;

#[test]
fn a_damaged_build_is_noticed_and_made_again() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("main.c", PROGRAM)]);
    let build = recipe("cc -o app main.c", &["app"]);
    let first = build_rev(&tiny, "HEAD", &build).unwrap();
    let entry = first.directory.parent().unwrap().to_owned();
    let damages: [&dyn Fn(); 3] = [
        &|| std::fs::write(&first.artifacts[0], "x").unwrap(),
        &|| std::fs::remove_file(entry.join("manifest.json")).unwrap(),
        &|| std::fs::write(entry.join("manifest.json"), "{}").unwrap(),
    ];
    for damage in damages {
        damage();
        let (again, steps) = steps_of(&tiny, &tiny.pin("HEAD"), &build, &[]);
        let again = again.unwrap();
        assert!(
            steps
                .iter()
                .any(|step| matches!(step, BuildProgress::Rebuilding { .. }))
        );
        assert!(ran(&steps));
        assert_eq!(again.planned, first.planned);
    }
    std::fs::write(&first.artifacts[0], "x").unwrap();
    let unlike = builder::unchanged(&first.planned, &first.directory).unwrap_err();
    let text = unlike.to_string();
    assert!(text.contains("artifact app has changed"), "{text}");
}

#[test]
fn two_builders_of_one_key_build_once() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("a", "1")]);
    let count = tiny.folder.path().join("count");
    let command = format!("echo x >> {}; sleep 0.3; echo done > app", count.display());
    let build = recipe(&command, &["app"]);
    let pin = tiny.pin("HEAD");
    let (cache, root) = (&tiny.cache, &tiny.root());
    let both: Vec<Built> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| build_pin_at(cache, root, &pin, &build)))
            .collect();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(std::fs::read_to_string(count).unwrap(), "x\n");
    assert_eq!(both.iter().filter(|built| !built.cached).count(), 1);
}

/// A build with a mirror of its own, as another process would have.
fn build_pin_at(
    cache: &bench_run::source::cache_root::CacheRoot,
    root: &Path,
    pin: &Pin,
    build: &Build,
) -> Built {
    let reference = bench_run::source::repository::RepoRef::Path(root.to_owned());
    let mirror = bench_run::source::mirror::Mirror::open(cache, &reference).unwrap();
    let request = BuildRequest {
        cache,
        mirror: &mirror,
        pin,
        submodules: Submodules::Refuse,
        build,
        command: &build.command,
        run_env: &IndexMap::new(),
        toolchain: &TOOLCHAIN,
        stop: None,
    };
    builder::build(&request, &mut |_| {}).unwrap()
}

#[test]
fn what_a_killed_run_left_is_no_build_and_its_processes_are_ended() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("main.c", PROGRAM)]);
    let build = recipe("cc -o app main.c", &["app"]);
    let first = build_rev(&tiny, "HEAD", &build).unwrap();
    let key = first.planned.key.clone();
    // As a kill -9 between copying and renaming leaves it.
    let entry = tiny.cache.builds().join(&key);
    let partial = tiny.cache.builds().join(format!("{key}.partial"));
    std::fs::rename(&entry, &partial).unwrap();
    std::fs::write(partial.join("artifacts/app"), "half").unwrap();
    let mut orphan = std::process::Command::new("sleep")
        .arg("60")
        .env("BENCH_RUN_CHECKOUT", tiny.mirror().tree_path())
        .spawn()
        .unwrap();
    let again = build_rev(&tiny, "HEAD", &build).unwrap();
    assert!(!again.cached);
    assert_eq!(again.planned, first.planned);
    assert_eq!(entries(&tiny), [key]);
    assert!(!orphan.wait().unwrap().success());
}

/// Not a test of its own: what the next test runs as another process and kills.
#[test]
fn a_build_for_another_test_to_kill() {
    let Some(folder) = std::env::var_os("BENCH_RUN_TEST_KILLED_BUILD") else {
        return;
    };
    let folder = PathBuf::from(folder);
    let cache = bench_run::source::cache_root::CacheRoot::at(&folder.join("cache")).unwrap();
    let reference = bench_run::source::repository::RepoRef::Path(folder.join("code"));
    let mirror = bench_run::source::mirror::Mirror::open(&cache, &reference).unwrap();
    let pin = bench_run::source::pin::resolve(&mirror, "HEAD", &mut |_| {}).unwrap();
    build_pin_at(&cache, &folder.join("code"), &pin, &killed_build(&folder));
}

/// Hangs at the first run, after writing half an artifact; a second run finishes.
fn killed_build(folder: &Path) -> Build {
    let mark = folder.join("first-run");
    let mark = mark.display();
    recipe(
        &format!(
            "if [ ! -e {mark} ]; then echo half > app; touch {mark}; sleep 4720.25; fi; echo whole > app"
        ),
        &["app"],
    )
}

#[test]
fn a_harness_killed_in_mid_build_leaves_no_build_and_no_running_process() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("a", "1")]);
    let folder = tiny.folder.path();
    let mut harness = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["build_cache::a_build_for_another_test_to_kill", "--exact"])
        .env("BENCH_RUN_TEST_KILLED_BUILD", folder)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while !folder.join("first-run").exists() {
        assert_eq!(harness.try_wait().unwrap(), None);
        std::thread::sleep(Duration::from_millis(20));
    }
    harness.kill().unwrap();
    harness.wait().unwrap();
    let left = entries(&tiny);
    assert!(
        left.iter().all(|name| name.ends_with(".partial")),
        "{left:?}"
    );

    let (built, steps) = steps_of(&tiny, &tiny.pin("HEAD"), &killed_build(folder), &[]);
    let built = built.unwrap();
    assert!(ran(&steps));
    assert_eq!(
        std::fs::read_to_string(&built.artifacts[0]).unwrap(),
        "whole\n"
    );
    assert_eq!(entries(&tiny), [built.planned.key]);
    let sleeping = std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line.ends_with(b"4720.25\0"))
    });
    assert!(!sleeping);
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("a", "1")]);
    std::fs::write(tiny.cache.builds(), "in the way").unwrap();
    let error = build_rev(&tiny, "HEAD", &recipe("true", &["a"])).unwrap_err();
    assert!(!error.is_the_arms_own());
    let text = error.to_string();
    assert!(
        text.contains(&tiny.cache.builds().display().to_string()),
        "{text}"
    );
}

#[test]
fn cargo_builds_in_one_shared_target_folder_what_changed_and_only_that() {
    let tiny = TinyRepo::new();
    let manifest = "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[lib]\npath = \"lib.rs\"\n[[bin]]\nname = \"app\"\npath = \"main.rs\"\n";
    let lock = "version = 3\n[[package]]\nname = \"app\"\nversion = \"0.1.0\"\n";
    let main = |number: u32| format!("fn main() {{ println!(\"{{}}\", app::BASE + {number}); }}\n");
    let commit = |number: u32, comment: &str| {
        tiny.commit(&[
            ("Cargo.toml", manifest),
            ("Cargo.lock", lock),
            ("lib.rs", "pub const BASE: u32 = 40;\n"),
            ("main.rs", &(main(number) + comment)),
            ("rust-toolchain", "some-toolchain-that-does-not-exist\n"),
        ])
    };
    let one = commit(1, "");
    let two = commit(2, "");
    let comment = commit(1, "// a comment\n");
    let build = recipe("cargo build --offline --locked", &["target/debug/app"]);
    let say = |built: &Built| duct::cmd(&built.artifacts[0], [""; 0]).read().unwrap();
    let newest = build_rev(&tiny, &two, &build).unwrap();
    assert_eq!(say(&newest), "42");
    // Going back in time must build the older code, not keep the newer.
    let older = build_rev(&tiny, &one, &build).unwrap();
    assert_eq!(say(&older), "41");
    let log = std::fs::read_to_string(older.log.as_ref().unwrap()).unwrap();
    assert!(log.contains("Compiling app"), "{log}");
    let commented = build_rev(&tiny, &comment, &build).unwrap();
    assert_eq!(commented.planned.code_sha256, older.planned.code_sha256);
    assert_ne!(newest.planned.code_sha256, older.planned.code_sha256);
    // A commit that touches no source builds nothing.
    tiny.write("README", "text");
    let mut index = tiny.repo.index().unwrap();
    index.add_path(Path::new("README")).unwrap();
    index.write().unwrap();
    tiny.commit_index();
    let documented = build_rev(&tiny, "HEAD", &build).unwrap();
    let log = std::fs::read_to_string(documented.log.as_ref().unwrap()).unwrap();
    assert!(!log.contains("Compiling"), "{log}");
    assert_eq!(
        documented.planned.code_sha256,
        commented.planned.code_sha256
    );
}
