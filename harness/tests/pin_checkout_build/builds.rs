//! One build per key, and every way in which a build goes wrong.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use bench_run::build::builder::{self, BuildRequest, Built};
use bench_run::build::error::BuildError;
use bench_run::build::identity;
use bench_run::build::prebuilt::prebuilt;
use bench_run::build::progress::BuildProgress;
use bench_run::build::toolchain::Toolchain;
use bench_run::experiment::model::{Build, Receipt, Submodules};
use bench_run::record::format::ArtifactKind;
use bench_run::source::patch;
use bench_run::source::pin::Pin;
use indexmap::IndexMap;

use crate::tiny_repo::TinyRepo;

static TOOLCHAIN: LazyLock<Toolchain> =
    LazyLock::new(|| Toolchain::detect(&|name| std::env::var_os(name)));

fn recipe(command: &str, artifacts: &[&str]) -> Build {
    Build {
        command: command.into(),
        artifacts: artifacts.iter().map(PathBuf::from).collect(),
        env: IndexMap::new(),
        timeout_secs: 60,
        receipt: Receipt::Optional,
        keep: None,
        allow_script: false,
    }
}

/// A build of `pin` that also returns the steps it told.
fn steps_of(
    tiny: &TinyRepo,
    pin: &Pin,
    build: &Build,
    run_env: &[(&str, &str)],
) -> (Result<Built, BuildError>, Vec<BuildProgress>) {
    let run_env = run_env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let mirror = tiny.mirror();
    let request = BuildRequest {
        cache: &tiny.cache,
        mirror: &mirror,
        pin,
        submodules: Submodules::Refuse,
        build,
        command: &build.command,
        run_env: &run_env,
        toolchain: &TOOLCHAIN,
        stop: None,
    };
    let mut steps = Vec::new();
    let built = builder::build(&request, &mut |step| steps.push(step));
    (built, steps)
}

fn build_pin(tiny: &TinyRepo, pin: &Pin, build: &Build) -> Result<Built, BuildError> {
    steps_of(tiny, pin, build, &[]).0
}

fn build_rev(tiny: &TinyRepo, rev: &str, build: &Build) -> Result<Built, BuildError> {
    build_pin(tiny, &tiny.pin(rev), build)
}

fn ran(steps: &[BuildProgress]) -> bool {
    steps
        .iter()
        .any(|step| matches!(step, BuildProgress::Building { .. }))
}

fn failure(result: Result<Built, BuildError>) -> String {
    result.unwrap_err().to_string()
}

/// What lies in the builds folder, locks and logs left out.
fn entries(tiny: &TinyRepo) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(tiny.cache.builds())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".lock") && !name.ends_with(".log"))
        .collect();
    names.sort();
    names
}

const PROGRAM: &str = "int main(void) { return 0; }\n";

#[test]
fn equal_code_of_two_pins_hashes_equal_and_other_code_does_not() {
    let tiny = TinyRepo::new();
    // The file's path ends up in the program twice: as text and as debug information.
    let source = |comment: &str, value: u32| {
        format!(
            "#include <stdio.h>\nint main(void) {{ printf(\"%s %d\\n\", __FILE__, {value}); return 0; }} // {comment}\n"
        )
    };
    let one = tiny.commit(&[("main.c", &source("first", 1))]);
    let two = tiny.commit(&[("main.c", &source("a longer comment", 1))]);
    let three = tiny.commit(&[("main.c", &source("first", 2))]);
    let build = recipe("cc -g -O1 -o app \"$PWD/main.c\"", &["app"]);
    let [one, two, three] = [one, two, three].map(|rev| build_rev(&tiny, &rev, &build).unwrap());
    assert_ne!(one.planned.key, two.planned.key);
    assert_eq!(one.planned.code_sha256, two.planned.code_sha256);
    assert!(identity::same_code(&one.planned, &two.planned));
    assert_ne!(one.planned.code_sha256, three.planned.code_sha256);
    assert!(!identity::same_code(&one.planned, &three.planned));
    let artifact = &one.planned.artifacts[0];
    assert_eq!(artifact.kind, ArtifactKind::ElfDynamic);
    let libc = artifact
        .libraries
        .iter()
        .find(|library| library.soname.starts_with("libc."))
        .unwrap();
    assert_eq!(libc.sha256.as_ref().map(String::len), Some(64));
    assert_eq!(one.warnings, [""; 0]);
}

#[test]
fn the_receipts_own_section_does_not_make_other_code() {
    let tiny = TinyRepo::new();
    let source = |commit: &str| {
        format!(
            "__attribute__((section(\".note.app_receipt\"), used)) static const char receipt[] = \"{commit}\";\n{PROGRAM}"
        )
    };
    let one = tiny.commit(&[("main.c", &source("aaaa"))]);
    let two = tiny.commit(&[("main.c", &source("bbbb"))]);
    let build = recipe("cc -o app main.c", &["app"]);
    let [one, two] = [one, two].map(|rev| build_rev(&tiny, &rev, &build).unwrap());
    assert_ne!(
        one.planned.artifacts[0].file_sha256,
        two.planned.artifacts[0].file_sha256
    );
    assert_eq!(one.planned.code_sha256, two.planned.code_sha256);
}

#[test]
fn a_build_is_made_once_and_kept_with_its_names_and_log() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("main.c", PROGRAM)]);
    let build = recipe(
        "mkdir -p out; cc -o out/app main.c; echo built it",
        &["out/app", "main.c"],
    );
    let pin = tiny.pin("HEAD");
    let (first, steps) = steps_of(&tiny, &pin, &build, &[]);
    let first = first.unwrap();
    assert!(ran(&steps) && !first.cached);
    let (second, steps) = steps_of(&tiny, &pin, &build, &[]);
    let second = second.unwrap();
    assert!(!ran(&steps) && second.cached);
    assert_eq!(first.planned, second.planned);
    assert_eq!(first.artifacts, second.artifacts);
    assert_eq!(first.artifacts[0], first.directory.join("out/app"));
    assert!(first.artifacts.iter().all(|file| file.is_file()));
    let log = std::fs::read_to_string(first.log.unwrap()).unwrap();
    assert_eq!(log, "built it\n");
    assert_eq!(entries(&tiny), [first.planned.key]);
    builder::unchanged(&second.planned, &second.directory).unwrap();
}

#[test]
fn another_command_environment_or_patch_is_another_build() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("main.c", PROGRAM), ("x", "one\n")]);
    let base = recipe("cc -o app main.c", &["app"]);
    let pin = tiny.pin("HEAD");
    let patch_file = tiny.folder.path().join("p.patch");
    std::fs::write(&patch_file, "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+two\n").unwrap();
    let patched = patch::apply(&tiny.mirror(), &pin, &patch_file).unwrap();
    let mut keys = vec![
        build_pin(&tiny, &pin, &base).unwrap().planned.key,
        build_pin(&tiny, &patched, &base).unwrap().planned.key,
    ];
    let flags = recipe("cc -O2 -o app main.c", &["app"]);
    keys.push(build_pin(&tiny, &pin, &flags).unwrap().planned.key);
    let mut environment = base.clone();
    environment.env.insert("CFLAGS".into(), "-O3".into());
    keys.push(build_pin(&tiny, &pin, &environment).unwrap().planned.key);
    assert_eq!(entries(&tiny).len(), 4);
    keys.sort();
    assert_eq!(entries(&tiny), keys);
}

#[test]
fn only_the_fixed_and_the_declared_environment_reach_a_build() {
    let tiny = TinyRepo::new();
    let commit = tiny.commit(&[("a", "1")]);
    let mut build = recipe("env > app; pwd >> app", &["app"]);
    build.env.insert("DECLARED".into(), "yes".into());
    let built = build_rev(&tiny, "HEAD", &build).unwrap();
    let text = std::fs::read_to_string(&built.artifacts[0]).unwrap();
    let mut names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once('=').map(|(name, _)| name))
        .filter(|name| !["CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "HOME"].contains(name))
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "BENCH_RUN_CHECKOUT",
            "BENCH_RUN_COMMIT",
            "DECLARED",
            "LANG",
            "PATH",
            "PWD",
            "SOURCE_DATE_EPOCH"
        ]
    );
    assert!(
        text.contains(&format!("BENCH_RUN_COMMIT={commit}\n")),
        "{text}"
    );
    assert!(text.ends_with("/tree\n"), "{text}");
}

#[test]
fn a_failing_build_gives_its_status_and_the_end_of_its_log() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("main.c", "this is no C\n")]);
    let error = build_rev(&tiny, "HEAD", &recipe("cc -o app main.c", &["app"])).unwrap_err();
    assert!(error.is_the_arms_own());
    assert!(error.log_tail().unwrap().contains("main.c:1"), "{error}");
    assert!(error.to_string().contains("exit status: 1"), "{error}");
    assert_eq!(entries(&tiny), [""; 0]);
    // The first failing line ends the command.
    let error = build_rev(&tiny, "HEAD", &recipe("false; echo on", &["app"])).unwrap_err();
    assert_eq!(error.log_tail(), Some(""));
}

#[test]
fn a_hanging_build_is_stopped_at_its_limit() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("a", "1")]);
    let mut build = recipe("echo started; sleep 60", &["app"]);
    build.timeout_secs = 1;
    let started = std::time::Instant::now();
    let text = failure(build_rev(&tiny, "HEAD", &build));
    assert!(started.elapsed() < Duration::from_secs(20));
    assert!(text.contains("stopped after 1 s"), "{text}");
    assert!(text.ends_with("started"), "{text}");
    assert_eq!(entries(&tiny), [""; 0]);
}

#[test]
fn a_missing_artifact_names_files_like_it() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("main.c", PROGRAM)]);
    let build = recipe("mkdir -p out; cc -o out/app main.c", &["app"]);
    let text = failure(build_rev(&tiny, "HEAD", &build));
    assert!(
        text.contains("left no app; did you mean out/app?"),
        "{text}"
    );
}

#[test]
fn an_artifact_of_another_pin_never_passes_for_this_ones() {
    let tiny = TinyRepo::new();
    tiny.commit(&[
        ("main.c", PROGRAM),
        ("make.sh", "cc -o target/app main.c\n"),
    ]);
    tiny.commit(&[("main.c", PROGRAM), ("make.sh", "true\n")]);
    let mut build = recipe("mkdir -p target; . ./make.sh", &["target/app"]);
    build.keep = Some(vec!["target".into()]);
    build_rev(&tiny, "HEAD~1", &build).unwrap();
    let error = build_rev(&tiny, "HEAD", &build).unwrap_err();
    assert!(
        matches!(error, BuildError::ArtifactMissing { .. }),
        "{error}"
    );
}

#[test]
fn declared_paths_must_stay_inside_the_checkout() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("a", "1")]);
    for path in ["../a", "/bin/true", ""] {
        let text = failure(build_rev(&tiny, "HEAD", &recipe("true", &[path])));
        assert!(text.starts_with("build.artifacts: "), "{text}");
    }
    let text = failure(build_rev(&tiny, "HEAD", &recipe("true", &[])));
    assert!(text.contains("`build.artifacts` is empty"), "{text}");
}

#[test]
fn scripts_and_libtool_wrappers_are_refused_unless_declared() {
    let tiny = TinyRepo::new();
    let wrapper =
        "#!/bin/sh\n# app - temporary wrapper script for .libs/app\n# Generated by libtool\n";
    tiny.commit(&[("wrapper", wrapper), ("plain", "#!/usr/bin/env python3\n")]);
    let mut build = recipe(
        "cp wrapper app; chmod +x app; mkdir .libs; touch .libs/app",
        &["app"],
    );
    let text = failure(build_rev(&tiny, "HEAD", &build));
    assert!(text.contains("artifact app is a libtool wrapper"), "{text}");
    assert!(text.contains(".libs/app"), "{text}");
    let text = failure(build_rev(&tiny, "HEAD", &recipe("true", &["plain"])));
    assert!(text.contains("a script (#!/usr/bin/env python3)"), "{text}");
    assert!(text.contains("allow_script: true"), "{text}");
    build.allow_script = true;
    let built = build_rev(&tiny, "HEAD", &build).unwrap();
    assert_eq!(built.planned.artifacts[0].kind, ArtifactKind::Script);
}

#[test]
fn a_library_built_beside_its_program_must_be_the_one_that_is_loaded() {
    let tiny = TinyRepo::new();
    tiny.commit(&[
        ("lib.c", "int answer(void) { return 42; }\n"),
        (
            "main.c",
            "int answer(void);\nint main(void) { return answer() - 42; }\n",
        ),
    ]);
    let command = "mkdir .libs; cc -shared -fPIC -Wl,-soname,libtiny.so.1 -o .libs/libtiny.so.1 lib.c; \
                   cc -o .libs/app main.c .libs/libtiny.so.1";
    let pin = tiny.pin("HEAD");
    let alone = recipe(command, &[".libs/app"]);
    let text = failure(build_pin(&tiny, &pin, &alone));
    assert!(text.contains("loads libtiny.so.1 from nowhere"), "{text}");
    assert!(
        text.contains("add .libs/libtiny.so.1 to `build.artifacts`"),
        "{text}"
    );
    let in_tree = format!("{command} -Wl,-rpath,$PWD/.libs");
    let text = failure(build_pin(&tiny, &pin, &recipe(&in_tree, &[".libs/app"])));
    assert!(
        text.contains("from the checkout, where the next arm's build"),
        "{text}"
    );

    let both = recipe(command, &[".libs/app", ".libs/libtiny.so.1"]);
    let text = failure(build_pin(&tiny, &pin, &both));
    assert!(text.contains("{artifact_dir}/.libs"), "{text}");
    assert!(!text.contains("add .libs"), "{text}");
    let run_env = [("LD_LIBRARY_PATH", "{artifact_dir}/.libs")];
    let built = steps_of(&tiny, &pin, &both, &run_env).0.unwrap();
    let program = &built.planned.artifacts[0];
    let library = program
        .libraries
        .iter()
        .find(|library| library.soname == "libtiny.so.1")
        .unwrap();
    assert_eq!(
        library.sha256.as_ref(),
        Some(&built.planned.artifacts[1].file_sha256)
    );
}

#[test]
fn arms_that_are_linked_differently_are_told_apart() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("main.c", PROGRAM)]);
    let dynamic = build_rev(&tiny, "HEAD", &recipe("cc -o app main.c", &["app"])).unwrap();
    let fixed = build_rev(&tiny, "HEAD", &recipe("cc -static -o app main.c", &["app"])).unwrap();
    assert_eq!(fixed.planned.artifacts[0].kind, ArtifactKind::ElfStatic);
    let text = identity::link_difference(&dynamic.planned, &fixed.planned).unwrap();
    assert!(text.contains("statically linked"), "{text}");
}

#[test]
fn a_receipt_of_another_commit_is_an_error_also_from_the_cache() {
    let tiny = TinyRepo::new();
    let first = tiny.commit(&[("a", "1")]);
    tiny.commit(&[("a", "2")]);
    let right = "printf '#!/bin/sh\\necho app 1.0 %s\\n' $(git rev-parse HEAD) > app; chmod +x app";
    let wrong = format!("printf '#!/bin/sh\\necho app 1.0 {first}\\n' > app; chmod +x app");
    let script = |command: &str, receipt: Receipt| Build {
        allow_script: true,
        receipt,
        ..recipe(command, &["app"])
    };
    let built = build_rev(&tiny, "HEAD", &script(right, Receipt::Commit)).unwrap();
    let head = tiny.pin("HEAD").commit;
    assert_eq!(built.planned.receipt, Some(format!("app 1.0 {head}")));
    for _ in 0..2 {
        let text = failure(build_rev(&tiny, "HEAD", &script(&wrong, Receipt::Optional)));
        assert!(text.contains("wrong receipt"), "{text}");
        assert!(text.contains(&first) && text.contains(&head), "{text}");
    }
    build_rev(&tiny, "HEAD", &script(&wrong, Receipt::None)).unwrap();
}

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
        .args(["builds::a_build_for_another_test_to_kill", "--exact"])
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
fn a_folder_can_be_an_artifact() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("share/a", "1"), ("share/sub/b", "2"), ("main.c", PROGRAM)]);
    let build = recipe("cc -o app main.c; ln -s sub share/link", &["app", "share"]);
    let built = build_rev(&tiny, "HEAD", &build).unwrap();
    let folder = &built.planned.artifacts[1];
    assert_eq!(folder.kind, ArtifactKind::Directory);
    assert_eq!(
        std::fs::read_to_string(built.directory.join("share/link/b")).unwrap(),
        "2"
    );
    tiny.commit(&[("share/a", "1"), ("share/sub/b", "3"), ("main.c", PROGRAM)]);
    let other = build_rev(&tiny, "HEAD", &build).unwrap();
    assert_ne!(other.planned.code_sha256, built.planned.code_sha256);
    assert!(build_rev(&tiny, "HEAD", &build).unwrap().cached);
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

#[test]
fn a_prebuilt_program_is_described_where_it_lies() {
    let tiny = TinyRepo::new();
    let describe = |path: &Path, allow: bool| {
        prebuilt(path, allow, Receipt::Optional, &IndexMap::new(), &TOOLCHAIN)
    };
    let built = describe(Path::new("/bin/cat"), false).unwrap();
    assert_eq!(built.planned.commit, None);
    assert_eq!(built.artifacts, [PathBuf::from("/bin/cat")]);
    assert!(built.planned.receipt.unwrap().contains("cat"));
    let text = failure(describe(Path::new("/no/such/program"), false));
    assert_eq!(text, "binary /no/such/program does not exist");
    let script = tiny.folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh\necho v1\n").unwrap();
    assert!(failure(describe(&script, false)).contains("a script (#!/bin/sh)"));
    describe(&script, true).unwrap();
}
