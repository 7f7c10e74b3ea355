//! Removes entries so that a kill in the middle leaves nothing that looks whole.

use std::fs;
use std::io;
use std::path::Path;

use super::entries::{Entry, HALF};
use crate::source::leftovers::remove_folder;

/// Removes one entry: renamed first, so that what is left of it counts as half made.
/// Nobody else may use the cache meanwhile.
///
/// # Errors
/// Something cannot be renamed or removed.
pub fn remove(entry: &Entry) -> io::Result<()> {
    let mut half = entry.path.clone();
    if !entry.name.ends_with(HALF) {
        half.set_file_name(format!("{}{HALF}", entry.name));
        remove_all(&half)?;
        fs::rename(&entry.path, &half)?;
    }
    remove_all(&half)?;
    match &entry.lock {
        // A repository's lock lies inside its folder.
        Some(lock) if lock.exists() => fs::remove_file(lock),
        _ => Ok(()),
    }
}

fn remove_all(path: &Path) -> io::Result<()> {
    let Ok(about) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !about.is_dir() {
        return fs::remove_file(path);
    }
    remove_folder(path)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::keep::Origin;
    use super::*;

    #[test]
    fn an_entry_goes_with_its_lock_and_with_what_was_left_of_it_before() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| -> PathBuf { folder.path().join(name) };
        fs::create_dir_all(at("k/artifacts")).unwrap();
        fs::create_dir_all(at("k.partial/artifacts")).unwrap();
        fs::write(at("k.lock"), "").unwrap();
        fs::write(at("k2"), "").unwrap();
        let entry = Entry {
            kind: "build",
            name: "k".into(),
            origin: Origin::Remains,
            path: at("k"),
            lock: Some(at("k.lock")),
            bytes: 0,
            unused_days: 0,
        };
        remove(&entry).unwrap();
        let left = fs::read_dir(folder.path()).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["k2"]);
    }
}
