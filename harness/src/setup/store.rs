//! What setup steps made, one folder per key, never changed once it is there.
//!
//! `<key>/out/…` is what a step made, `<key>/setup.log` what it printed,
//! `<key>/manifest.json` what was made from what. A step works in `<key>.partial`, which
//! is renamed when it is whole, so what a killed run leaves is never taken for a result.
//! A step that prints a path leaves its result where it is; then the manifest says where.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::{IoContext as _, SetupError};
use super::tree::{self, Tree};
use crate::hash::sha256_hex;
use crate::source::cache_root::CacheRoot;
use crate::source::lock::FileLock;

/// Layout of `manifest.json`; what another one describes is made again.
const SCHEMA: u32 = 1;

/// Everything that decides what a step makes. The caller's `pass_env` is left out: it holds
/// tokens, and what comes of it is known by its hash.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyInputs {
    /// Layout version.
    pub schema: u32,
    /// The project's root: the command runs there and may read what lies there.
    pub root: PathBuf,
    /// As the experiment has it.
    pub command: String,
    /// The cells' variables that the command uses.
    pub values: BTreeMap<String, String>,
    /// Whether the result is where the command says, instead of in `{out}`.
    pub prints: bool,
    /// The declared environment.
    pub env: BTreeMap<String, String>,
    /// Declared inputs, and the program if it belongs to the project: path → tree hash.
    pub inputs: BTreeMap<String, String>,
    /// SHA-256 of the artifacts, where the command runs one.
    pub artifacts: Vec<String>,
}

impl KeyInputs {
    /// The key: SHA-256 of all of them.
    #[must_use]
    pub fn key(&self) -> String {
        let value = serde_json::to_vec(self).unwrap_or_default();
        sha256_hex(&value)
    }

    /// The layout that this program writes.
    #[must_use]
    pub fn schema() -> u32 {
        SCHEMA
    }
}

/// What a step made, or found.
#[derive(Debug, Clone, PartialEq)]
pub struct Fixture {
    /// Where it lies on this machine.
    pub place: PathBuf,
    /// What it is.
    pub tree: Tree,
}

/// `manifest.json`: what a finished step left.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) inputs: KeyInputs,
    /// Where the result lies if the step printed that.
    pub(super) place: Option<PathBuf>,
    pub(super) tree: Tree,
    /// Seconds that the command ran.
    pub(super) seconds: f64,
}

/// What the result in the folder `entry` was made from: the project's root, and the step's
/// command. `None` where there is no manifest to read.
#[must_use]
pub fn origin(entry: &Path) -> Option<(PathBuf, String)> {
    let inputs = manifest(entry)?.inputs;
    Some((inputs.root, inputs.command))
}

fn manifest(entry: &Path) -> Option<Manifest> {
    let text = std::fs::read(entry.join("manifest.json")).ok()?;
    let manifest: Manifest = serde_json::from_slice(&text).ok()?;
    (manifest.inputs.schema == SCHEMA).then_some(manifest)
}

/// The folder of all results.
#[derive(Debug, Clone)]
pub(super) struct Store {
    folder: PathBuf,
}

impl Store {
    /// The results under `root`.
    pub(super) fn new(root: &CacheRoot) -> Self {
        Store {
            folder: root.fixtures(),
        }
    }

    /// Holds the key, so that nobody else makes the same at the same time.
    pub(super) fn lock(
        &self,
        key: &str,
        waiting: &mut dyn FnMut(),
    ) -> Result<FileLock, SetupError> {
        let path = self.folder.join(format!("{key}.lock"));
        Ok(FileLock::acquire(&path, waiting)?)
    }

    /// What was made for the key, if it is still there.
    ///
    /// # Errors
    /// [`SetupError::Changed`] when it is there and not what it was.
    pub(super) fn find(&self, key: &str) -> Result<Option<Fixture>, SetupError> {
        let entry = self.folder.join(key);
        let Some(manifest) = manifest(&entry) else {
            return Ok(None);
        };
        let place = manifest.place.unwrap_or_else(|| entry.join("out"));
        if !place.exists() {
            return Ok(None);
        }
        let now = tree::read(&place).doing("read", &place)?;
        match manifest.tree.difference(&now) {
            Some(difference) => Err(SetupError::Changed {
                place,
                difference,
                entry,
            }),
            None => Ok(Some(Fixture { place, tree: now })),
        }
    }

    /// The folder in which a result is put together, with an empty `out`.
    pub(super) fn start(&self, key: &str) -> Result<PathBuf, SetupError> {
        let partial = self.partial(key);
        remove(&partial)?;
        let out = partial.join("out");
        std::fs::create_dir_all(&out).doing("create", &out)?;
        Ok(partial)
    }

    /// Where [`Store::start`] puts a result together.
    pub(super) fn partial(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.partial"))
    }

    /// The log of a try that came to nothing.
    pub(super) fn trial_log(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.log"))
    }

    /// Drops what came to nothing, but for its log.
    pub(super) fn abandon(&self, key: &str) -> Result<(), SetupError> {
        remove(&self.partial(key))
    }

    /// Makes what [`Store::start`] gave the result of its key.
    pub(super) fn finish(&self, key: &str, manifest: Manifest) -> Result<Fixture, SetupError> {
        let partial = self.partial(key);
        let file = partial.join("manifest.json");
        let text = serde_json::to_string_pretty(&manifest)
            .map_err(std::io::Error::from)
            .doing("write", &file)?;
        std::fs::write(&file, text).doing("write", &file)?;
        let log = self.trial_log(key);
        std::fs::rename(&log, partial.join("setup.log")).doing("keep the log", &log)?;
        sync(&partial).doing("sync", &partial)?;
        let entry = self.folder.join(key);
        remove(&entry)?;
        std::fs::rename(&partial, &entry).doing("rename", &partial)?;
        Ok(Fixture {
            place: manifest.place.unwrap_or_else(|| entry.join("out")),
            tree: manifest.tree,
        })
    }
}

/// Writes through to the disk: after a power cut half a file must not stand under a hash.
fn sync(path: &Path) -> std::io::Result<()> {
    let metadata = std::fs::symlink_metadata(path)?;
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path)? {
            sync(&entry?.path())?;
        }
    } else if !metadata.is_file() {
        return Ok(());
    }
    std::fs::File::open(path)?.sync_all()
}

fn remove(folder: &Path) -> Result<(), SetupError> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).doing("remove", folder)
        }
        _ => Ok(()),
    }
}
