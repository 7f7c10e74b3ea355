//! Finished builds, one folder per key, never changed once they are there.
//!
//! `<key>/artifacts/…` holds the copied artifacts under their own names,
//! `<key>/build.log` the log, `<key>/manifest.json` what was built from what. A
//! build is put together in `<key>.partial` and renamed when it is whole, so what
//! a killed run leaves is never taken for a build. What is found is hashed again
//! before it is used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::artifact::{self, Inspected};
use super::error::{BuildError, IoContext as _};
use super::key::KeyInputs;
use crate::source::cache_root::CacheRoot;
use crate::source::lock::FileLock;

/// Layout of `manifest.json`; another one is built again.
const SCHEMA: u32 = 1;

/// `manifest.json`: what a cached build is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Layout version.
    pub schema: u32,
    /// What it was built from.
    pub inputs: KeyInputs,
    /// The whole environment of the build command.
    pub environment: BTreeMap<String, String>,
    /// Seconds that the build command ran.
    pub build_seconds: f64,
    /// The artifacts in the experiment's order, without their libraries.
    pub artifacts: Vec<Inspected>,
    /// Shared libraries that this build made itself.
    pub own_libraries: Vec<OwnLibrary>,
}

/// A shared library that a build made, and that its artifacts must load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnLibrary {
    /// As the loader asks for it.
    pub soname: String,
    /// Relative to the checkout.
    pub path: PathBuf,
}

/// What lies under a key.
#[derive(Debug)]
pub enum Lookup {
    /// Nothing.
    Absent,
    /// Something that must not be used.
    Damaged(String),
    /// A whole build.
    Found(Box<Manifest>),
}

/// What the build in the folder `entry` was made from: the repository's folder in the cache,
/// and the commit. `None` where there is no manifest to read.
#[must_use]
pub fn origin(entry: &Path) -> Option<(String, String)> {
    let text = std::fs::read(entry.join("manifest.json")).ok()?;
    let inputs = serde_json::from_slice::<Manifest>(&text).ok()?.inputs;
    Some((inputs.checkout, inputs.commit))
}

/// The folder of finished builds.
#[derive(Debug, Clone)]
pub struct BuildCache {
    folder: PathBuf,
}

impl BuildCache {
    /// The builds under `root`.
    #[must_use]
    pub fn new(root: &CacheRoot) -> Self {
        Self {
            folder: root.builds(),
        }
    }

    /// Where the build `key` lies, or would.
    #[must_use]
    pub fn entry(&self, key: &str) -> PathBuf {
        self.folder.join(key)
    }

    /// The folder of copied artifacts of the build `key`.
    #[must_use]
    pub fn artifacts(&self, key: &str) -> PathBuf {
        self.entry(key).join("artifacts")
    }

    /// The log of the build `key`.
    #[must_use]
    pub fn log(&self, key: &str) -> PathBuf {
        self.entry(key).join("build.log")
    }

    /// The log while the command runs, and of a try that came to nothing.
    pub(super) fn trial_log(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.log"))
    }

    /// Holds the build `key`, so that nobody else makes it at the same time.
    pub(super) fn lock(
        &self,
        key: &str,
        waiting: &mut dyn FnMut(),
    ) -> Result<FileLock, BuildError> {
        let path = self.folder.join(format!("{key}.lock"));
        Ok(FileLock::acquire(&path, waiting)?)
    }

    /// Looks for the build `key`, and whether its artifacts are still what they were.
    pub(super) fn find(&self, key: &str) -> Lookup {
        let entry = self.entry(key);
        if !entry.exists() {
            return Lookup::Absent;
        }
        match self.checked(key) {
            Ok(manifest) => Lookup::Found(Box::new(manifest)),
            Err(reason) => Lookup::Damaged(reason),
        }
    }

    fn checked(&self, key: &str) -> Result<Manifest, String> {
        let text = std::fs::read(self.entry(key).join("manifest.json"))
            .map_err(|error| format!("manifest.json: {error}"))?;
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|error| format!("manifest.json: {error}"))?;
        if manifest.schema != SCHEMA || manifest.inputs.key() != key {
            return Err("manifest.json is about another build".into());
        }
        for known in &manifest.artifacts {
            let planned = &known.planned;
            let file = self.artifacts(key).join(&planned.path);
            let now = artifact::inspect(&file, &planned.path).map_err(|error| error.to_string())?;
            if now.planned.file_sha256 != planned.file_sha256 {
                return Err(format!("{} has changed since it was built", planned.path));
            }
        }
        Ok(manifest)
    }

    /// An empty folder in which a build is put together.
    pub(super) fn start(&self, key: &str) -> Result<PathBuf, BuildError> {
        let partial = self.folder.join(format!("{key}.partial"));
        remove(&partial)?;
        std::fs::create_dir_all(partial.join("artifacts")).doing("create", &partial)?;
        Ok(partial)
    }

    /// Drops a build that came to nothing.
    pub(super) fn abandon(&self, key: &str) -> Result<(), BuildError> {
        remove(&self.folder.join(format!("{key}.partial")))
    }

    /// Makes what [`Self::start`] gave the build `key`.
    pub(super) fn finish(&self, key: &str, manifest: &Manifest) -> Result<(), BuildError> {
        let partial = self.folder.join(format!("{key}.partial"));
        let file = partial.join("manifest.json");
        let text = serde_json::to_string_pretty(manifest)
            .map_err(std::io::Error::from)
            .doing("write", &file)?;
        std::fs::write(&file, text).doing("write", &file)?;
        let entry = self.entry(key);
        remove(&entry)?;
        std::fs::rename(&partial, &entry).doing("rename", &partial)
    }
}

impl Manifest {
    /// A manifest of this program's layout.
    #[must_use]
    pub fn new(inputs: KeyInputs) -> Self {
        Self {
            schema: SCHEMA,
            inputs,
            environment: BTreeMap::new(),
            build_seconds: 0.0,
            artifacts: Vec::new(),
            own_libraries: Vec::new(),
        }
    }
}

fn remove(folder: &Path) -> Result<(), BuildError> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).doing("remove", folder)
        }
        _ => Ok(()),
    }
}
