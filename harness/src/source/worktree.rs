//! `rev: worktree`: the user's files as they are now, as a tree in the mirror.
//!
//! The changed and the new (not ignored) files are read, not the index, and
//! stored as objects of the mirror; the user's repository is only read. From
//! then on the build does not depend on what the user edits meanwhile.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use git2::{Delta, DiffOptions, Index, IndexEntry, IndexTime, Oid, Repository};

use super::error::{GitContext as _, IoContext as _, SourceError};
use super::mirror::Mirror;
use super::patch;
use super::pin::{Pin, WORKTREE};

const FILE: u32 = 0o100_644;
const EXECUTABLE: u32 = 0o100_755;
const LINK: u32 = 0o120_000;

/// Stores the working tree's state in the mirror.
///
/// # Errors
/// There is no working tree or no commit, a merge is unresolved, or a file cannot
/// be read.
pub(super) fn capture(mirror: &Mirror) -> Result<Pin, SourceError> {
    let repo = mirror.repo();
    let no_worktree = || SourceError::NoWorktree {
        repo: repo.to_string(),
    };
    let origin = mirror.origin().ok_or_else(no_worktree)?;
    let root = origin.workdir().ok_or_else(no_worktree)?.to_owned();
    let head = origin
        .head()
        .and_then(|head| head.peel_to_commit())
        .map_err(|_| SourceError::NoCommits {
            rev: WORKTREE.into(),
            repo: repo.to_string(),
        })?;
    let changed = changed_paths(origin, &head, repo)?;
    let tree = tree_with(mirror.bare(), head.tree_id(), &root, &changed, repo)?;
    let dirty = tree != head.tree_id();
    let patch_sha256 = if dirty {
        Some(patch::diff_sha256(mirror, head.tree_id(), tree)?)
    } else {
        None
    };
    Ok(Pin {
        commit: head.id().to_string(),
        tree: tree.to_string(),
        dirty,
        patch_sha256,
    })
}

/// Every path that may differ between `head` and the files.
fn changed_paths(
    origin: &Repository,
    head: &git2::Commit<'_>,
    repo: &dyn std::fmt::Display,
) -> Result<Vec<PathBuf>, SourceError> {
    const ACTION: &str = "compare the working tree with HEAD";
    let mut options = DiffOptions::new();
    options
        .include_untracked(true)
        .recurse_untracked_dirs(true)
        .include_typechange(true)
        .ignore_submodules(true);
    let tree = head.tree().doing_in(ACTION, repo)?;
    let diff = origin
        .diff_tree_to_workdir_with_index(Some(&tree), Some(&mut options))
        .doing_in(ACTION, repo)?;
    let path_of = |delta: &git2::DiffDelta<'_>| {
        delta
            .new_file()
            .path()
            .or_else(|| delta.old_file().path())
            .map(Path::to_owned)
    };
    let conflicts: Vec<String> = diff
        .deltas()
        .filter(|delta| delta.status() == Delta::Conflicted)
        .filter_map(|delta| path_of(&delta))
        .map(|path| path.display().to_string())
        .collect();
    if !conflicts.is_empty() {
        return Err(SourceError::Conflicts {
            repo: repo.to_string(),
            paths: conflicts,
        });
    }
    Ok(diff.deltas().filter_map(|delta| path_of(&delta)).collect())
}

/// `base` with each of `changed` as it lies under `root`, or without it.
fn tree_with(
    bare: &Repository,
    base: Oid,
    root: &Path,
    changed: &[PathBuf],
    repo: &dyn std::fmt::Display,
) -> Result<Oid, SourceError> {
    const ACTION: &str = "store the working tree";
    let mut index = Index::new().doing_in(ACTION, repo)?;
    let base = bare.find_tree(base).doing_in(ACTION, repo)?;
    index.read_tree(&base).doing_in(ACTION, repo)?;
    for path in changed {
        let file = root.join(path);
        let Ok(about) = std::fs::symlink_metadata(&file) else {
            index.remove_path(path).doing_in(ACTION, repo)?;
            continue;
        };
        let (mode, content) = if about.is_symlink() {
            let target = std::fs::read_link(&file).doing("read the link", &file)?;
            (LINK, target.as_os_str().as_bytes().to_vec())
        } else if about.is_file() {
            let executable = about.permissions().mode() & 0o100 != 0;
            let content = std::fs::read(&file).doing("read", &file)?;
            (if executable { EXECUTABLE } else { FILE }, content)
        } else {
            // A repository inside the repository, or a pipe: not a file of this tree.
            continue;
        };
        let id = bare.blob(&content).doing_in(ACTION, repo)?;
        index.add(&entry(path, mode, id)).doing_in(ACTION, repo)?;
    }
    index.write_tree_to(bare).doing_in(ACTION, repo)
}

fn entry(path: &Path, mode: u32, id: Oid) -> IndexEntry {
    IndexEntry {
        ctime: IndexTime::new(0, 0),
        mtime: IndexTime::new(0, 0),
        dev: 0,
        ino: 0,
        mode,
        uid: 0,
        gid: 0,
        file_size: 0,
        id,
        flags: 0,
        flags_extended: 0,
        path: path.as_os_str().as_bytes().to_vec(),
    }
}
