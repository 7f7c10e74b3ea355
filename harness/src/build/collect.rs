//! Copying what a build left out of the checkout.

use std::path::{Path, PathBuf};

use super::error::{BuildError, IoContext as _};

/// How many look-alikes an error offers.
const NEAR: usize = 3;

/// Copies a file or a folder with its permissions. A link is followed if it is the
/// artifact itself or leads to a file; a link to a folder inside a folder stays a link.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), BuildError> {
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).doing("create", folder)?;
    }
    let about = std::fs::metadata(from).doing("read", from)?;
    if about.is_file() {
        std::fs::copy(from, to).doing("copy", from)?;
        return Ok(());
    }
    if !about.is_dir() {
        return Err(BuildError::NotAFile { path: from.into() });
    }
    std::fs::create_dir_all(to).doing("create", to)?;
    for entry in std::fs::read_dir(from).doing("list", from)? {
        let entry = entry.doing("list", from)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_symlink() && !source.is_file() {
            let link = std::fs::read_link(&source).doing("read the link", &source)?;
            std::os::unix::fs::symlink(link, &target).doing("create the link", &target)?;
        } else {
            copy(&source, &target)?;
        }
    }
    Ok(())
}

/// Files under `root` called like one of `names`, git's own left out, as paths
/// relative to `root`. Links to folders are not entered.
pub(super) fn files_named(root: &Path, names: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        let Ok(entries) = std::fs::read_dir(root.join(&folder)) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = folder.join(entry.file_name());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else if names.iter().any(|name| entry.file_name() == *name) && entry.path().is_file()
            {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Where the missing artifact may have ended up instead.
pub(super) fn near(root: &Path, missing: &Path) -> Vec<PathBuf> {
    let name = missing.file_name().and_then(|name| name.to_str());
    let mut found = files_named(root, name.as_slice());
    found.truncate(NEAR);
    found
}
