//! Laying files out: what is written, what is left, what is refused.

use std::path::{Path, PathBuf};

use crate::tiny_repo::{TinyRepo, state};
use bench_run::experiment::model::Submodules;
use bench_run::source::checkout::{Checkout, checkout};
use bench_run::source::error::SourceError;
use bench_run::source::pin::Pin;
use bench_run::source::{patch, progress::SourceProgress};

fn lay_out(tiny: &TinyRepo, pin: &Pin, keep: &[&str]) -> Result<Checkout, SourceError> {
    let keep: Vec<PathBuf> = keep.iter().map(PathBuf::from).collect();
    checkout(&tiny.mirror(), pin, Submodules::Refuse, &keep, &mut |_| {})
}

/// Files of a checkout without git's own, as (path, content).
fn files(root: &Path) -> Vec<(String, String)> {
    state(root)
        .into_iter()
        .filter(|(path, ..)| !path.starts_with(root.join(".git")))
        .map(|(path, content, _)| {
            let path = path.strip_prefix(root).unwrap().display().to_string();
            (path, String::from_utf8(content).unwrap())
        })
        .collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected
        .iter()
        .map(|(path, content)| ((*path).to_owned(), (*content).to_owned()))
        .collect()
}

fn modified(file: PathBuf) -> std::time::SystemTime {
    std::fs::metadata(file).unwrap().modified().unwrap()
}

#[test]
fn only_files_that_differ_are_written_and_older_content_is_new_too() {
    let tiny = TinyRepo::new();
    let old = tiny.commit(&[("same", "s"), ("changes", "old"), ("only-old", "x")]);
    let new = tiny.commit(&[("same", "s"), ("changes", "new"), ("only-new", "y")]);
    let first = lay_out(&tiny, &tiny.pin(&new), &[]).unwrap();
    let root = first.path.clone();
    let (same, changes) = (modified(root.join("same")), modified(root.join("changes")));
    drop(first);
    std::thread::sleep(std::time::Duration::from_millis(20));
    let built_at = std::time::SystemTime::now();
    std::thread::sleep(std::time::Duration::from_millis(20));

    let second = lay_out(&tiny, &tiny.pin(&old), &[]).unwrap();
    assert_eq!(second.path, root);
    assert_eq!(
        files(&root),
        pairs(&[("changes", "old"), ("only-old", "x"), ("same", "s")])
    );
    assert_eq!(modified(root.join("same")), same);
    assert!(modified(root.join("changes")) > changes);
    assert!(modified(root.join("changes")) > built_at);
    drop(second);

    let third = lay_out(&tiny, &tiny.pin(&new), &[]).unwrap();
    assert_eq!(modified(root.join("same")), same);
    assert_eq!(
        files(&third.path),
        pairs(&[("changes", "new"), ("only-new", "y"), ("same", "s")])
    );
}

#[test]
fn leavings_of_a_build_go_and_kept_folders_stay() {
    let tiny = TinyRepo::new();
    let one = tiny.commit(&[("src/a", "1")]);
    let two = tiny.commit(&[("src/a", "2")]);
    let root = lay_out(&tiny, &tiny.pin(&one), &["target"]).unwrap().path;
    for path in ["src/a.o", "config.cache", "target/x/lib.o"] {
        std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        std::fs::write(root.join(path), "left").unwrap();
    }
    // A build may also spoil tracked files.
    std::fs::write(root.join("src/a"), "spoilt").unwrap();
    let checkout = lay_out(&tiny, &tiny.pin(&two), &["target"]).unwrap();
    assert_eq!(
        files(&checkout.path),
        pairs(&[("src/a", "2"), ("target/x/lib.o", "left")])
    );
    drop(checkout);
    std::fs::write(root.join("src/a"), "spoilt").unwrap();
    let checkout = lay_out(&tiny, &tiny.pin(&two), &[]).unwrap();
    assert_eq!(files(&checkout.path), pairs(&[("src/a", "2")]));
}

#[test]
fn the_checkout_is_a_clean_git_repository_at_the_pin() {
    let tiny = TinyRepo::new();
    let one = tiny.commit(&[("a", "1")]);
    let object = tiny.repo.revparse_single(&one).unwrap();
    tiny.repo.tag_lightweight("v1", &object, false).unwrap();
    tiny.commit(&[("a", "2")]);
    let checkout = lay_out(&tiny, &tiny.pin("HEAD~1"), &["target"]).unwrap();
    std::fs::create_dir(checkout.path.join("target")).unwrap();
    std::fs::write(checkout.path.join("target/x"), "x").unwrap();
    let git = |words: &[&str]| duct::cmd("git", words).dir(&checkout.path).read().unwrap();
    // Build scripts ask for a folder: `test -d .git`.
    assert!(checkout.path.join(".git").is_dir());
    assert_eq!(git(&["rev-parse", "HEAD"]), one);
    assert_eq!(git(&["status", "--porcelain"]), "");
    assert_eq!(git(&["describe", "--tags"]), "v1");
    assert_eq!(git(&["log", "--format=%s"]), "a commit");
}

#[test]
fn a_patched_pin_and_the_working_tree_are_laid_out_with_their_changes() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("a", "one\n"), ("b", "b\n"), ("gone", "g\n")]);
    let file = tiny.folder.path().join("p.patch");
    std::fs::write(
        &file,
        "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+ONE\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+n\n",
    )
    .unwrap();
    let plain = tiny.pin("HEAD");
    let patched = patch::apply(&tiny.mirror(), &plain, &file).unwrap();
    let checkout = lay_out(&tiny, &patched, &[]).unwrap();
    let root = checkout.path.clone();
    let expected = pairs(&[("a", "ONE\n"), ("b", "b\n"), ("gone", "g\n"), ("n", "n\n")]);
    assert_eq!(files(&root), expected);
    drop(checkout);
    let checkout = lay_out(&tiny, &plain, &[]).unwrap();
    let expected = pairs(&[("a", "one\n"), ("b", "b\n"), ("gone", "g\n")]);
    assert_eq!(files(&root), expected);
    drop(checkout);

    tiny.write("a", "mine\n");
    tiny.write("deep/new", "n\n");
    std::fs::remove_file(tiny.root().join("gone")).unwrap();
    std::fs::remove_file(tiny.root().join("b")).unwrap();
    std::os::unix::fs::symlink("a", tiny.root().join("b")).unwrap();
    let dirty = tiny.pin("worktree");
    tiny.write("a", "edited after the pin\n");
    let checkout = lay_out(&tiny, &dirty, &[]).unwrap();
    let expected = pairs(&[("a", "mine\n"), ("b", "mine\n"), ("deep/new", "n\n")]);
    assert_eq!(files(&checkout.path), expected);
    assert!(checkout.path.join("b").is_symlink());
}

#[test]
fn the_users_repository_is_never_written() {
    let tiny = TinyRepo::new();
    let one = tiny.commit(&[("a", "1")]);
    tiny.commit(&[("a", "2")]);
    tiny.write("a", "being edited");
    let hook = tiny.root().join(".git/hooks/post-checkout");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, "#!/bin/sh\ntouch \"$0.ran\"\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&hook, mode).unwrap();
    let before = state(&tiny.root());
    for rev in [one.as_str(), "HEAD", "worktree"] {
        lay_out(&tiny, &tiny.pin(rev), &[]).unwrap();
    }
    assert_eq!(before, state(&tiny.root()));
}

#[test]
fn a_checkout_that_a_killed_run_left_half_done_is_put_right() {
    let tiny = TinyRepo::new();
    let one = tiny.commit(&[("a", "1"), ("b", "1")]);
    let two = tiny.commit(&[("a", "2"), ("b", "2")]);
    let root = lay_out(&tiny, &tiny.pin(&one), &[]).unwrap().path;
    let admin = root.join(".git");
    std::fs::write(root.join("a"), "2").unwrap();
    std::fs::write(admin.join("index.lock"), "").unwrap();
    let checkout = lay_out(&tiny, &tiny.pin(&two), &[]).unwrap();
    assert_eq!(files(&checkout.path), pairs(&[("a", "2"), ("b", "2")]));
    drop(checkout);
    for broken in [
        admin.join("index"),
        admin.join("HEAD"),
        admin.join("config"),
    ] {
        std::fs::write(&broken, "no such thing").unwrap();
        let checkout = lay_out(&tiny, &tiny.pin(&one), &[]).unwrap();
        let expected = pairs(&[("a", "1"), ("b", "1")]);
        assert_eq!(files(&checkout.path), expected, "{}", broken.display());
    }
}

#[test]
fn submodules_are_refused_or_left_empty_as_declared() {
    let tiny = TinyRepo::new();
    let one = tiny.commit(&[("a", "1")]);
    let mut index = tiny.repo.index().unwrap();
    let mut entry = index.get(0).unwrap();
    entry.mode = 0o160_000;
    entry.path = b"modules/onig".to_vec();
    entry.id = git2::Oid::from_str(&one).unwrap();
    index.add(&entry).unwrap();
    index.write().unwrap();
    tiny.commit_index();
    let pin = tiny.pin("HEAD");
    let text = lay_out(&tiny, &pin, &[]).unwrap_err().to_string();
    assert!(text.contains("modules/onig"), "{text}");
    assert!(text.contains("submodules: ignore"), "{text}");
    let ignoring = || checkout(&tiny.mirror(), &pin, Submodules::Ignore, &[], &mut |_| {});
    let root = ignoring().unwrap().path;
    std::fs::write(root.join("modules/onig/stale.o"), "left").unwrap();
    let root = ignoring().unwrap().path;
    assert!(root.join("modules/onig").is_dir());
    assert_eq!(files(&root), pairs(&[("a", "1")]));
}

#[test]
fn lfs_pointers_are_refused_by_name() {
    let tiny = TinyRepo::new();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
    tiny.commit(&[("data/model.bin", pointer), ("a", "1")]);
    let text = lay_out(&tiny, &tiny.pin("HEAD"), &[])
        .unwrap_err()
        .to_string();
    assert!(text.contains("data/model.bin"), "{text}");
    assert!(text.contains("git LFS"), "{text}");
}

#[test]
fn a_partial_clone_without_a_file_is_named_as_such() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("a", "content that is left out")]);
    let pin = tiny.pin("HEAD");
    let blob = tiny
        .repo
        .revparse_single("HEAD:a")
        .unwrap()
        .id()
        .to_string();
    let (folder, name) = blob.split_at(2);
    let object = tiny.root().join(".git/objects").join(folder).join(name);
    std::fs::remove_file(object).unwrap();
    let text = lay_out(&tiny, &pin, &[]).unwrap_err().to_string();
    assert!(text.contains("is not complete in"), "{text}");
    assert!(text.contains(&blob) && text.contains("--filter"), "{text}");
}

#[test]
fn a_kept_folder_outside_the_checkout_is_refused() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("a", "1")]);
    for keep in ["../x", "/tmp", "", "a/../../b"] {
        let error = lay_out(&tiny, &tiny.pin("HEAD"), &[keep]).unwrap_err();
        assert!(
            matches!(error, SourceError::OutsideCheckout { .. }),
            "{keep}: {error}"
        );
    }
}

#[test]
fn a_second_checkout_of_the_same_repository_waits() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("a", "1")]);
    let pin = tiny.pin("HEAD");
    let first = lay_out(&tiny, &pin, &[]).unwrap();
    let (told, hears) = std::sync::mpsc::channel();
    let mirror = tiny.mirror();
    let second_pin = pin.clone();
    let second = std::thread::spawn(move || {
        let done = checkout(&mirror, &second_pin, Submodules::Refuse, &[], &mut |step| {
            if matches!(step, SourceProgress::Waiting { .. }) {
                told.send(()).unwrap();
            }
        });
        done.map(|checkout| checkout.commit)
    });
    hears.recv().unwrap();
    assert!(!second.is_finished());
    drop(first);
    assert_eq!(second.join().unwrap().unwrap(), pin.commit);
}
