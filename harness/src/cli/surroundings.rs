//! What the commands that take an experiment file share: project root, cache, environment.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::{project, version};
use crate::session::error::SessionError;
use crate::session::prepare::Request;
use crate::source::cache_root::CacheRoot;
use crate::source::lock::FileLock;

/// Where things are for one experiment file.
#[derive(Debug)]
pub struct Surroundings {
    /// The file.
    pub file: PathBuf,
    /// The project's root.
    pub root: PathBuf,
    /// The file as a reader types it, relative to the root.
    pub experiment_path: String,
    /// The harness's own cache.
    pub cache: CacheRoot,
    /// Keeps what lies in it from being removed meanwhile.
    _in_use: FileLock,
}

impl Surroundings {
    /// Finds the project and the cache.
    ///
    /// # Errors
    /// No place for the cache.
    pub fn new(file: &Path) -> Result<Self, SessionError> {
        let root = project::root_of(file);
        let cache = CacheRoot::find(&|name| std::env::var_os(name))?;
        Ok(Surroundings {
            file: file.to_owned(),
            experiment_path: project::relative(file, &root),
            root,
            _in_use: cache.in_use()?,
            cache,
        })
    }

    /// The request to prepare this file.
    #[must_use]
    pub fn request<'a>(&'a self, rounds: Option<u32>, stop: Option<&'a AtomicBool>) -> Request<'a> {
        Request {
            file: &self.file,
            root: &self.root,
            experiment_path: &self.experiment_path,
            cache: &self.cache,
            variable: &|name| std::env::var_os(name),
            tool: version::LINE,
            rounds,
            only_base: false,
            stop,
        }
    }
}
