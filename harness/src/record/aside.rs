//! The folder in which a record is put together before it gets its name.
//!
//! It is locked (`flock`) as long as its maker lives, so one whose lock is free was left
//! by a kill and may go, whatever its name says about a process.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::error::{RecordError, io_error};

/// Start of the name of such a folder.
const PREFIX: &str = ".new-";

/// A folder that is removed when it is dropped, unless it was renamed.
pub(crate) struct Aside {
    path: PathBuf,
    _lock: File,
}

impl Aside {
    /// A new folder below `root`, which is made where it is missing.
    pub(crate) fn new(root: &Path) -> Result<Aside, RecordError> {
        fs::create_dir_all(root).map_err(io_error("create", root))?;
        for number in 1_u32.. {
            let path = root.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made.map_err(io_error("create", &path))?,
            }
            // Between the two calls somebody may have taken it for a leftover.
            if let Some(lock) = locked(&path) {
                return Ok(Aside { path, _lock: lock });
            }
        }
        Err(io_error("create", root)(
            io::ErrorKind::AlreadyExists.into(),
        ))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // What stays behind is hidden, and the next record's maker sweeps it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The open folder with its lock; `None` when another one, or none, lies there by now.
fn locked(path: &Path) -> Option<File> {
    let folder = File::open(path).ok()?;
    // A file system without locks has no sweepers either: theirs fail as well.
    let _ = folder.lock();
    let (ours, there) = (folder.metadata().ok()?, fs::metadata(path).ok()?);
    ((ours.dev(), ours.ino()) == (there.dev(), there.ino())).then_some(folder)
}

/// Whether `name` is that of a folder that is no record yet.
pub(crate) fn is_aside(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Removes what killed runs left below `root`: folders whose lock is free.
pub(crate) fn sweep(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if !is_folder || !is_aside(&entry.file_name().to_string_lossy()) {
            continue;
        }
        if let Ok(folder) = File::open(entry.path())
            && folder.try_lock().is_ok()
        {
            // Held while it goes, so that nobody takes it over. What cannot be removed
            // is in nobody's way.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(root: &Path) -> Vec<String> {
        let entries = fs::read_dir(root).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn only_what_nobody_holds_is_swept() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(".new-1/logs")).unwrap();
        fs::create_dir_all(root.path().join("2026-03-01-epyc-2c")).unwrap();
        let held = Aside::new(root.path()).unwrap();
        sweep(root.path());
        let name = held.path().file_name().unwrap().to_str().unwrap();
        let mut left = names(root.path());
        left.sort();
        assert_eq!(left, [name, "2026-03-01-epyc-2c"]);
    }

    #[test]
    fn two_makers_of_one_process_number_do_not_meet() {
        let root = tempfile::tempdir().unwrap();
        let first = Aside::new(root.path()).unwrap();
        let second = Aside::new(root.path()).unwrap();
        assert_ne!(first.path(), second.path());
        drop((first, second));
        assert!(names(root.path()).is_empty());
    }
}
