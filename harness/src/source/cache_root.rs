//! Where the harness keeps mirrors, checkouts, builds and what setup steps made.
//!
//! The folder's real path is part of every build (paths end up in debug
//! information), so it is resolved once and never goes through a link.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::{IoContext as _, SourceError};
use super::lock::FileLock;

/// Names the cache folder and wins over every default.
pub const CACHE_VARIABLE: &str = "BENCH_RUN_CACHE";

/// The lock that everybody shares who uses the cache.
const IN_USE: &str = "in-use.lock";

/// The cache folder; it exists and its path is absolute and free of links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheRoot {
    path: PathBuf,
}

impl CacheRoot {
    /// `$BENCH_RUN_CACHE`, else `$XDG_CACHE_HOME/bench-run`, else `$HOME/.cache/bench-run`.
    ///
    /// # Errors
    /// None of the three is set, or the folder cannot be made.
    pub fn find(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, SourceError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let path = set(CACHE_VARIABLE)
            .map(PathBuf::from)
            .or_else(|| set("XDG_CACHE_HOME").map(|base| PathBuf::from(base).join("bench-run")))
            .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache/bench-run")))
            .ok_or(SourceError::NoCacheFolder)?;
        Self::at(&path)
    }

    /// The cache at `path`, which is made if it is missing.
    ///
    /// # Errors
    /// The folder cannot be made or resolved.
    pub fn at(path: &Path) -> Result<Self, SourceError> {
        std::fs::create_dir_all(path).doing("create the cache folder", path)?;
        let path = path
            .canonicalize()
            .doing("resolve the cache folder", path)?;
        Ok(Self { path })
    }

    /// The folder itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says that this process uses the cache, so that nothing is removed from it.
    ///
    /// # Errors
    /// The lock cannot be made.
    pub fn in_use(&self) -> Result<FileLock, SourceError> {
        FileLock::share(&self.path.join(IN_USE))
    }

    /// Keeps everybody else from using the cache; `None` while somebody does.
    ///
    /// # Errors
    /// The lock cannot be made.
    pub fn alone(&self) -> Result<Option<FileLock>, SourceError> {
        FileLock::alone(&self.path.join(IN_USE))
    }

    /// Mirrors and checkouts, one folder per repository.
    #[must_use]
    pub fn sources(&self) -> PathBuf {
        self.path.join("src")
    }

    /// What earlier runs measured, one folder per host.
    #[must_use]
    pub fn history(&self) -> PathBuf {
        self.path.join("history")
    }

    /// Finished builds, one folder per key.
    #[must_use]
    pub fn builds(&self) -> PathBuf {
        self.path.join("builds")
    }

    /// What setup steps made, one folder per key.
    #[must_use]
    pub fn fixtures(&self) -> PathBuf {
        self.path.join("setup")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pairs: &[(&str, &Path)]) -> Result<CacheRoot, SourceError> {
        CacheRoot::find(&|name| {
            pairs
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, path)| path.as_os_str().to_owned())
        })
    }

    #[test]
    fn the_own_variable_wins_then_xdg_then_home() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (own, xdg, home) = (root.join("own"), root.join("xdg"), root.join("home"));
        let all = [
            (CACHE_VARIABLE, own.as_path()),
            ("XDG_CACHE_HOME", xdg.as_path()),
            ("HOME", home.as_path()),
        ];
        assert_eq!(found(&all).unwrap().path(), own);
        assert_eq!(found(&all[1..]).unwrap().path(), xdg.join("bench-run"));
        assert_eq!(
            found(&all[2..]).unwrap().path(),
            home.join(".cache/bench-run")
        );
        assert!(matches!(found(&[]), Err(SourceError::NoCacheFolder)));
    }

    #[test]
    fn a_link_to_the_cache_is_resolved() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
        let cache = CacheRoot::at(&root.join("link")).unwrap();
        assert_eq!(cache.path(), root.join("real"));
    }
}
