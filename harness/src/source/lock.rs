//! Exclusive locks between processes: a file that is locked while in use.
//!
//! The system drops such a lock when its holder ends, however it ends, so a
//! lock can never be stale.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::time::SystemTime;

use super::error::{IoContext as _, SourceError};

/// Held until dropped. Child processes do not inherit it.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

impl FileLock {
    /// Waits until nobody else holds `path`, which is made if it is missing.
    /// `waiting` is called once if the lock is taken at the first try.
    ///
    /// # Errors
    /// The file cannot be made or locked.
    pub fn acquire(path: &Path, waiting: &mut dyn FnMut()) -> Result<Self, SourceError> {
        let file = opened(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                waiting();
                file.lock().doing("lock", path)?;
            }
            Err(TryLockError::Error(error)) => Err(error).doing("lock", path)?,
        }
        // Tells when it was used last; a file system that keeps no times keeps everything new.
        let _ = file.set_modified(SystemTime::now());
        Ok(Self { _file: file })
    }

    /// Holds `path` beside others that share it; waits for one who has it alone.
    ///
    /// # Errors
    /// As [`FileLock::acquire`].
    pub fn share(path: &Path) -> Result<Self, SourceError> {
        let file = opened(path)?;
        file.lock_shared().doing("lock", path)?;
        Ok(Self { _file: file })
    }

    /// Holds `path` alone; `None` while others hold it.
    ///
    /// # Errors
    /// As [`FileLock::acquire`].
    pub fn alone(path: &Path) -> Result<Option<Self>, SourceError> {
        let file = opened(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error).doing("lock", path),
        }
    }
}

fn opened(path: &Path) -> Result<File, SourceError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).doing("create", folder)?;
    }
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .doing("open the lock", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_it_alone_gets_it_when_nobody_shares_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let shared = [
            FileLock::share(&path).unwrap(),
            FileLock::share(&path).unwrap(),
        ];
        assert!(FileLock::alone(&path).unwrap().is_none());
        drop(shared);
        assert!(FileLock::alone(&path).unwrap().is_some());
    }

    #[test]
    fn a_second_holder_waits_for_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/lock");
        let first = FileLock::acquire(&path, &mut || panic!("nobody holds it")).unwrap();
        let (told, hears) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn({
            let path = path.clone();
            move || {
                FileLock::acquire(&path, &mut || told.send("waiting").unwrap()).unwrap();
                told.send("acquired").unwrap();
            }
        });
        assert_eq!(hears.recv().unwrap(), "waiting");
        assert!(hears.try_recv().is_err());
        drop(first);
        assert_eq!(hears.recv().unwrap(), "acquired");
        waiter.join().unwrap();
    }
}
