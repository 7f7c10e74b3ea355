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

pub(crate) static TOOLCHAIN: LazyLock<Toolchain> =
    LazyLock::new(|| Toolchain::detect(&|name| std::env::var_os(name)));

pub(crate) fn recipe(command: &str, artifacts: &[&str]) -> Build {
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
pub(crate) fn steps_of(
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

pub(crate) fn build_rev(tiny: &TinyRepo, rev: &str, build: &Build) -> Result<Built, BuildError> {
    build_pin(tiny, &tiny.pin(rev), build)
}

pub(crate) fn ran(steps: &[BuildProgress]) -> bool {
    steps
        .iter()
        .any(|step| matches!(step, BuildProgress::Building { .. }))
}

fn failure(result: Result<Built, BuildError>) -> String {
    result.unwrap_err().to_string()
}

/// What lies in the builds folder, locks and logs left out.
pub(crate) fn entries(tiny: &TinyRepo) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(tiny.cache.builds())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".lock") && !name.ends_with(".log"))
        .collect();
    names.sort();
    names
}

pub(crate) const PROGRAM: &str = "int main(void) { return 0; }\n";

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
