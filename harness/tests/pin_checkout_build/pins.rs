//! From a revision to a full commit, and every way in which that fails.

use crate::tiny_repo::{TinyRepo, state};
use bench_run::source::error::SourceError;
use bench_run::source::mirror::Mirror;
use bench_run::source::repository::RepoRef;
use bench_run::source::{patch, pin};

#[test]
fn every_spelling_of_a_revision_gives_the_full_commit() {
    let tiny = TinyRepo::new();
    let first = tiny.commit(&[("a", "1")]);
    let object = tiny.repo.revparse_single(&first).unwrap();
    tiny.repo.tag_lightweight("v1", &object, false).unwrap();
    let signature = git2::Signature::now("Test", "test@example.org").unwrap();
    tiny.repo
        .tag("v1-signed", &object, &signature, "text", false)
        .unwrap();
    let second = tiny.commit(&[("a", "2")]);
    for (rev, expected) in [
        ("HEAD", &second),
        ("trunk", &second),
        ("HEAD~1", &first),
        ("HEAD^", &first),
        ("v1", &first),
        ("v1-signed", &first),
        (&first[..8], &first),
        (&second, &second),
    ] {
        let pin = tiny.pin(rev);
        assert_eq!(&pin.commit, expected, "{rev}");
        assert_eq!((pin.dirty, pin.patch_sha256), (false, None), "{rev}");
    }
}

#[test]
fn an_unknown_revision_names_itself_the_repository_and_look_alikes() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("a", "1")]);
    let head = tiny.repo.head().unwrap().peel_to_commit().unwrap();
    tiny.repo.branch("fast-path", &head, false).unwrap();
    let text = tiny.try_pin("fastpath").unwrap_err().to_string();
    assert!(text.contains("unknown revision \"fastpath\""), "{text}");
    assert!(text.contains("code"), "{text}");
    assert!(text.ends_with("did you mean fast-path?"), "{text}");
    for rev in [
        "0123456789abcdef0123456789abcdef01234567",
        "HEAD~9",
        "a..b",
        "",
    ] {
        let error = tiny.try_pin(rev).unwrap_err();
        assert!(
            matches!(error, SourceError::UnknownRevision { .. }),
            "{rev}: {error}"
        );
    }
}

#[test]
fn a_revision_that_is_no_commit_says_what_it_is() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("a", "1")]);
    let text = tiny.try_pin("HEAD:a").unwrap_err().to_string();
    assert!(text.contains("names a blob, expected a commit"), "{text}");
}

#[test]
fn a_repository_without_commits_says_so() {
    let tiny = TinyRepo::new();
    for rev in ["HEAD", "trunk", "worktree"] {
        let error = tiny.try_pin(rev).unwrap_err();
        assert!(
            matches!(error, SourceError::NoCommits { .. }),
            "{rev}: {error}"
        );
    }
}

#[test]
fn a_missing_repository_and_a_plain_folder_are_told_apart() {
    let tiny = TinyRepo::new();
    let open = |path: &str| {
        let reference = RepoRef::parse(path, tiny.folder.path());
        Mirror::open(&tiny.cache, &reference).unwrap_err()
    };
    assert!(
        open("nowhere")
            .to_string()
            .ends_with("nowhere does not exist")
    );
    assert!(
        open("cache")
            .to_string()
            .ends_with("cache is not a git repository")
    );
    std::fs::create_dir(tiny.root().join("inner")).unwrap();
    let text = open("code/inner").to_string();
    assert!(text.contains("it lies inside"), "{text}");
}

#[test]
fn a_shallow_clone_without_the_commit_says_how_to_unshallow() {
    let tiny = TinyRepo::new();
    let first = tiny.commit(&[("a", "1")]);
    let second = tiny.commit(&[("a", "2")]);
    // What `git clone --depth 1` leaves: the tip, its tree, and the boundary.
    let root = tiny.folder.path().join("shallow");
    let shallow = git2::Repository::init(&root).unwrap();
    let theirs = tiny.repo.odb().unwrap();
    let ours = shallow.odb().unwrap();
    let commit = tiny
        .repo
        .find_commit(git2::Oid::from_str(&second).unwrap())
        .unwrap();
    let blob = commit.tree().unwrap().get(0).unwrap().id();
    for id in [commit.id(), commit.tree_id(), blob] {
        let object = theirs.read(id).unwrap();
        ours.write(object.kind(), object.data()).unwrap();
    }
    std::fs::write(root.join(".git/shallow"), format!("{second}\n")).unwrap();
    shallow.set_head_detached(commit.id()).unwrap();

    let mirror = Mirror::open(&tiny.cache, &RepoRef::Path(root)).unwrap();
    let resolve = |rev: &str| pin::resolve(&mirror, rev, &mut |_| {});
    assert_eq!(resolve("HEAD").unwrap().commit, second);
    for rev in [first.as_str(), "HEAD~1"] {
        let text = resolve(rev).unwrap_err().to_string();
        assert!(text.contains("shallow clone"), "{rev}: {text}");
        assert!(text.contains("fetch --unshallow"), "{rev}: {text}");
    }
}

#[test]
fn an_ambiguous_hash_asks_for_more_digits() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("a", "1")]);
    // Objects until two share their first four digits: about 300 on average.
    let mut seen = std::collections::HashSet::new();
    let shared = (0..10_000)
        .map(|number| tiny.repo.blob(format!("{number}").as_bytes()).unwrap())
        .map(|id| id.to_string()[..4].to_owned())
        .find(|short| !seen.insert(short.clone()))
        .unwrap();
    let error = tiny.try_pin(&shared).unwrap_err();
    assert!(
        matches!(error, SourceError::AmbiguousRevision { .. }),
        "{error}"
    );
}

#[test]
fn a_repository_of_another_user_is_refused_with_the_way_out() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("a", "1")]);
    let nobody = Some(65_534);
    for path in [tiny.root(), tiny.root().join(".git")] {
        if std::os::unix::fs::chown(path, nobody, nobody).is_err() {
            // Only root may give files away; error.rs tests the text for everybody.
            return;
        }
    }
    let error = Mirror::open(&tiny.cache, &tiny.reference()).unwrap_err();
    assert!(matches!(error, SourceError::UnsafeOwner { .. }), "{error}");
    assert!(error.to_string().contains("safe.directory"), "{error}");
}

#[test]
fn the_working_tree_is_pinned_with_its_changes_and_never_written() {
    let tiny = TinyRepo::new();
    let head = tiny.commit(&[
        ("a", "1"),
        ("b", "2"),
        ("gone", "3"),
        (".gitignore", "*.o\n"),
    ]);
    let clean = tiny.pin("worktree");
    assert_eq!((clean.commit.as_str(), clean.dirty), (head.as_str(), false));
    assert_eq!(clean.patch_sha256, None);

    tiny.write("a", "changed");
    tiny.write("new/file", "n");
    tiny.write("a.o", "ignored");
    std::fs::remove_file(tiny.root().join("gone")).unwrap();
    let before = state(&tiny.root());
    let dirty = tiny.pin("worktree");
    assert_eq!(before, state(&tiny.root()));
    assert_eq!(dirty.commit, head);
    assert!(dirty.dirty);
    assert_ne!(dirty.tree, clean.tree);
    assert_eq!(dirty.patch_sha256.as_ref().map(String::len), Some(64));
    assert_eq!(dirty, tiny.pin("worktree"));

    tiny.write("a", "changed again");
    assert_ne!(tiny.pin("worktree").patch_sha256, dirty.patch_sha256);
}

#[test]
fn worktrees_of_one_repository_share_a_mirror_and_have_their_own_head() {
    let tiny = TinyRepo::new();
    let first = tiny.commit(&[("a", "1")]);
    let beside = tiny.folder.path().join("beside");
    tiny.repo.worktree("beside", &beside, None).unwrap();
    let second = tiny.commit(&[("a", "2")]);
    let mirror = Mirror::open(&tiny.cache, &RepoRef::Path(beside.clone())).unwrap();
    assert_eq!(mirror.key(), tiny.mirror().key());
    let resolve = |rev: &str| pin::resolve(&mirror, rev, &mut |_| {}).unwrap();
    assert_eq!(resolve("HEAD").commit, first);
    assert_eq!(resolve("trunk").commit, second);
    std::fs::write(beside.join("a"), "edited").unwrap();
    let here = resolve("worktree");
    assert_eq!((here.commit, here.dirty), (first, true));
    assert!(!tiny.pin("worktree").dirty);
}

#[test]
fn a_bare_repository_has_no_working_tree_to_pin() {
    let tiny = TinyRepo::new();
    let bare = tiny.folder.path().join("bare.git");
    git2::Repository::init_bare(&bare).unwrap();
    let mirror = Mirror::open(&tiny.cache, &RepoRef::Path(bare)).unwrap();
    let error = pin::resolve(&mirror, "worktree", &mut |_| {}).unwrap_err();
    assert!(matches!(error, SourceError::NoWorktree { .. }), "{error}");
}

#[test]
fn a_patch_changes_the_tree_and_carries_its_hash() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("a.c", "one\ntwo\nthree\n")]);
    let file = tiny.folder.path().join("p.patch");
    let text = "--- a/a.c\n+++ b/a.c\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n";
    std::fs::write(&file, text).unwrap();
    let pin = tiny.pin("HEAD");
    let patched = patch::apply(&tiny.mirror(), &pin, &file).unwrap();
    assert_eq!(patched.commit, pin.commit);
    assert_ne!(patched.tree, pin.tree);
    let expected = bench_run::hash::sha256_hex(text.as_bytes());
    assert_eq!(patched.patch_sha256, Some(expected));
}

#[test]
fn a_patch_that_does_not_apply_names_file_and_hunk() {
    let tiny = TinyRepo::new();
    tiny.commit(&[("a.c", "one\ntwo\nthree\n"), ("b.c", "x\ny\nz\n")]);
    let pin = tiny.pin("HEAD");
    let apply = |text: &str| {
        let file = tiny.folder.path().join("p.patch");
        std::fs::write(&file, text).unwrap();
        patch::apply(&tiny.mirror(), &pin, &file)
            .unwrap_err()
            .to_string()
    };
    let good = "--- a/a.c\n+++ b/a.c\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n";
    let text = apply(&format!(
        "{good}--- a/b.c\n+++ b/b.c\n@@ -1,3 +1,3 @@\n x\n-other\n+new\n z\n"
    ));
    assert!(text.contains("b.c, hunk @@ -1,3 +1,3 @@"), "{text}");
    assert!(text.contains(&pin.commit), "{text}");
    let text = apply("--- a/none.c\n+++ b/none.c\n@@ -1 +1 @@\n-x\n+y\n");
    assert!(text.contains("none.c"), "{text}");
    let text = apply("this is a letter\n");
    assert!(text.contains("cannot be read as a unified diff"), "{text}");
    let text = apply("");
    assert!(text.contains("p.patch"), "{text}");
}

#[test]
fn a_url_is_fetched_with_git_and_its_head_followed() {
    let tiny = TinyRepo::new();
    let first = tiny.commit(&[("a", "1")]);
    let url = RepoRef::parse(
        &format!("file://{}", tiny.root().display()),
        tiny.folder.path(),
    );
    let mirror = Mirror::open(&tiny.cache, &url).unwrap();
    let mut steps = 0;
    let mut resolve = |mirror: &Mirror, rev: &str| {
        pin::resolve(mirror, rev, &mut |_| steps += 1).map(|pin| pin.commit)
    };
    assert_eq!(resolve(&mirror, "HEAD").unwrap(), first);
    assert_eq!(resolve(&mirror, "trunk").unwrap(), first);
    let second = tiny.commit(&[("a", "2")]);
    // A new value fetches anew, and finds what is new.
    let again = Mirror::open(&tiny.cache, &url).unwrap();
    assert_eq!(resolve(&again, "HEAD").unwrap(), second);
    assert!(steps > 0);
    // A full commit that the mirror holds needs no fetch, even with the source gone.
    std::fs::rename(tiny.root(), tiny.folder.path().join("moved")).unwrap();
    let offline = Mirror::open(&tiny.cache, &url).unwrap();
    let mut told = 0;
    assert_eq!(
        pin::resolve(&offline, &first, &mut |_| told += 1)
            .unwrap()
            .commit,
        first
    );
    assert_eq!(told, 0);
    let text = pin::resolve(&offline, "HEAD", &mut |_| {})
        .unwrap_err()
        .to_string();
    assert!(text.contains("cannot fetch file://"), "{text}");
}
