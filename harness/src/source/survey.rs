//! What a tree holds: its files, and what a plain checkout would leave hollow.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use git2::{ObjectType, Oid, Repository, TreeWalkMode, TreeWalkResult};

/// Larger files are no LFS pointers: the format's own limit.
const LFS_POINTER_MAX_BYTES: usize = 1024;
const LFS_POINTER_START: &[u8] = b"version https://git-lfs.github.com/spec/";

/// The paths of a tree, relative to its root.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Files and links.
    pub(super) files: HashSet<PathBuf>,
    /// Folders that hold at least one of them.
    pub(super) folders: HashSet<PathBuf>,
    /// Submodules.
    pub(super) submodules: Vec<PathBuf>,
    /// Files whose content is an LFS pointer.
    pub(super) lfs_pointers: Vec<PathBuf>,
}

/// Reads the whole tree, but the content of small files only.
pub(super) fn survey(bare: &Repository, tree: Oid) -> Result<Survey, git2::Error> {
    let tree = bare.find_tree(tree)?;
    let odb = bare.odb()?;
    let mut survey = Survey::default();
    let mut failure = None;
    tree.walk(TreeWalkMode::PreOrder, |folder, entry| {
        let path = join(folder, entry.name_bytes());
        match entry.kind() {
            Some(ObjectType::Tree) => {
                survey.folders.insert(path);
            }
            Some(ObjectType::Commit) => survey.submodules.push(path),
            _ => {
                match is_lfs_pointer(&odb, entry.id()) {
                    Ok(true) => survey.lfs_pointers.push(path.clone()),
                    Ok(false) => {}
                    Err(error) => {
                        failure = Some(error);
                        return TreeWalkResult::Abort;
                    }
                }
                survey.files.insert(path);
            }
        }
        TreeWalkResult::Ok
    })
    .map_err(|error| failure.take().unwrap_or(error))?;
    match failure {
        Some(error) => Err(error),
        None => Ok(survey),
    }
}

fn join(folder: &str, name: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(folder).join(std::ffi::OsStr::from_bytes(name))
}

fn is_lfs_pointer(odb: &git2::Odb<'_>, blob: Oid) -> Result<bool, git2::Error> {
    let (size, _) = odb.read_header(blob)?;
    if !(LFS_POINTER_START.len()..LFS_POINTER_MAX_BYTES).contains(&size) {
        return Ok(false);
    }
    Ok(odb.read(blob)?.data().starts_with(LFS_POINTER_START))
}
