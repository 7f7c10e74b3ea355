//! Where files lie: the layout of `huggingface_hub`, so that both find the other's.
//!
//! `models--ORG--NAME/blobs/HASH` holds content, `snapshots/COMMIT/FILE` leads to it,
//! `refs/REVISION` names the commit. A file that is being fetched is `HASH.incomplete`.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::error::HubError;
use super::listing::RemoteFile;
use super::name::ModelName;

/// Lists a snapshot's files and sizes once all were checked; written by this engine only.
const COMPLETE: &str = ".mlxcel-complete.json";

/// The folder of one repository.
#[derive(Debug)]
pub(super) struct Cache {
    root: PathBuf,
}

impl Cache {
    pub(super) fn new(cache: &Path, model: &ModelName) -> Self {
        let folder = format!("models--{}--{}", model.organisation, model.name);
        Self {
            root: cache.join(folder),
        }
    }

    pub(super) fn blob(&self, file: &RemoteFile) -> PathBuf {
        self.root.join("blobs").join(file.hash.hex())
    }

    pub(super) fn incomplete(&self, file: &RemoteFile) -> PathBuf {
        let name = format!("{}.incomplete", file.hash.hex());
        self.root.join("blobs").join(name)
    }

    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    /// Makes the folders.
    pub(super) fn prepare(&self, commit: &str) -> Result<(), HubError> {
        for folder in [
            self.root.join("blobs"),
            self.root.join("refs"),
            self.snapshot(commit),
        ] {
            std::fs::create_dir_all(&folder).map_err(HubError::io("create", &folder))?;
        }
        Ok(())
    }

    /// Held while the repository is written; a second process waits and then finds the files.
    pub(super) fn lock(&self) -> Result<File, HubError> {
        let path = self.root.join(".mlxcel.lock");
        let file = File::create(&path).map_err(HubError::io("create", &path))?;
        file.lock().map_err(HubError::io("lock", &path))?;
        Ok(file)
    }

    /// Whether the snapshot leads to a file of the right size.
    pub(super) fn has(&self, commit: &str, file: &RemoteFile) -> bool {
        has_size(&self.snapshot(commit).join(&file.name), file.bytes)
    }

    /// Whether the content is there; it was checked when it got its name.
    pub(super) fn has_blob(&self, file: &RemoteFile) -> bool {
        has_size(&self.blob(file), file.bytes)
    }

    /// Makes the snapshot lead to the content.
    pub(super) fn link(&self, commit: &str, file: &RemoteFile) -> Result<(), HubError> {
        let path = self.snapshot(commit).join(&file.name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(HubError::io("replace", &path)(error));
            }
            _ => {}
        }
        let target = Path::new("../../blobs").join(file.hash.hex());
        link(&target, &self.blob(file), &path).map_err(HubError::io("link", &path))
    }

    /// Notes which commit a revision is, and that its files are all there.
    pub(super) fn finish(
        &self,
        model: &ModelName,
        commit: &str,
        files: &[&RemoteFile],
    ) -> Result<(), HubError> {
        if !model.is_pinned() {
            let path = self.root.join("refs").join(&model.revision);
            std::fs::write(&path, commit).map_err(HubError::io("write", &path))?;
        }
        let sizes = files
            .iter()
            .map(|file| (file.name.clone(), file.bytes.into()));
        let list = serde_json::Value::Object(sizes.collect());
        let path = self.snapshot(commit).join(COMPLETE);
        std::fs::write(&path, list.to_string()).map_err(HubError::io("write", &path))
    }

    /// The snapshot of a commit, if it is known to be whole and still has all its files.
    pub(super) fn complete(&self, commit: &str) -> Option<PathBuf> {
        let folder = self.snapshot(commit);
        let text = std::fs::read(folder.join(COMPLETE)).ok()?;
        let list: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&text).ok()?;
        let whole = list.iter().all(|(name, bytes)| {
            let bytes = bytes.as_u64();
            bytes.is_some_and(|bytes| has_size(&folder.join(name), bytes))
        });
        (whole && !list.is_empty()).then_some(folder)
    }
}

/// Follows links.
fn has_size(path: &Path, bytes: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == bytes)
}

#[cfg(unix)]
fn link(target: &Path, _blob: &Path, path: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

#[cfg(not(unix))]
fn link(_target: &Path, blob: &Path, path: &Path) -> std::io::Result<()> {
    std::fs::hard_link(blob, path)
}
