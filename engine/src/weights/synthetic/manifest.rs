//! What lies beside a synthetic model: names, sizes and hashes of its files.
//!
//! The cheap check compares sizes and recorded hashes (against the hashes this
//! program knows for the published configurations); the full check reads every
//! byte again. The manifest is also what marks a folder as ours to replace.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::catalogue::{FORMAT_VERSION, SEED};
use super::error::SyntheticError;

/// Name of the manifest in a model's folder.
pub const MANIFEST_FILE: &str = "synthetic.json";

/// Name of the weights in a model's folder.
pub const WEIGHTS_FILE: &str = "model.safetensors";

/// A file of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Name within the folder.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// SHA-256 in lower-case hexadecimal.
    pub sha256: String,
}

/// The content of [`MANIFEST_FILE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The configuration.
    pub name: String,
    /// The generator's seed.
    pub seed: u64,
    /// The generator's version.
    pub format_version: u32,
    /// Every other file of the folder.
    pub files: Vec<FileEntry>,
}

impl Manifest {
    pub(super) fn new(name: &str, files: Vec<FileEntry>) -> Self {
        Self {
            name: name.to_owned(),
            seed: SEED,
            format_version: FORMAT_VERSION,
            files,
        }
    }

    pub(super) fn write(&self, folder: &Path) -> Result<(), SyntheticError> {
        let path = folder.join(MANIFEST_FILE);
        let bad = |source| SyntheticError::BadManifest {
            path: path.clone(),
            source,
        };
        let text = serde_json::to_string_pretty(self).map_err(bad)? + "\n";
        std::fs::write(&path, text).map_err(SyntheticError::io("write", &path))
    }

    /// Reads the manifest of a folder; `None` where there is none.
    ///
    /// # Errors
    /// When the file exists but cannot be read, or is not a manifest.
    pub fn read(folder: &Path) -> Result<Option<Self>, SyntheticError> {
        let path = folder.join(MANIFEST_FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(SyntheticError::io("read", &path)(error)),
        };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|source| SyntheticError::BadManifest { path, source })
    }

    /// The recorded hash of the weights: the model's identity.
    pub fn weights_sha256(&self) -> Option<&str> {
        self.files
            .iter()
            .find(|entry| entry.name == WEIGHTS_FILE)
            .map(|entry| entry.sha256.as_str())
    }

    /// Is this a file that the manifest's writer put there?
    pub(super) fn owns(&self, name: &std::ffi::OsStr) -> bool {
        name == MANIFEST_FILE || self.files.iter().any(|entry| name == entry.name.as_str())
    }

    /// The cheap check: is this `name` by today's generator, is every file
    /// there with its size, and is the recorded hash the one we know?
    ///
    /// # Errors
    /// [`SyntheticError::Damaged`] with the first difference.
    pub fn check_quickly(&self, folder: &Path, name: &str) -> Result<(), SyntheticError> {
        let manifest = folder.join(MANIFEST_FILE);
        same(&manifest, "name", name, &self.name)?;
        same(&manifest, "seed", SEED, self.seed)?;
        same(
            &manifest,
            "format version",
            FORMAT_VERSION,
            self.format_version,
        )?;
        let recorded = self.weights_sha256().unwrap_or("none");
        if let Some(known) = known_sha256(name) {
            same(&manifest, "sha256 of the weights", known, recorded)?;
        }
        for entry in &self.files {
            let path = folder.join(&entry.name);
            let metadata = std::fs::metadata(&path).map_err(SyntheticError::io("read", &path))?;
            same(&path, "size in bytes", entry.bytes, metadata.len())?;
        }
        Ok(())
    }

    /// The recorded hash of the weights, if `folder` is a synthetic model that
    /// passes the cheap check: no need to read gigabytes again.
    pub fn trusted_hash(folder: &Path) -> Option<String> {
        let manifest = Self::read(folder).ok().flatten()?;
        manifest.check_quickly(folder, &manifest.name).ok()?;
        manifest.weights_sha256().map(str::to_owned)
    }

    /// The full check: every byte of every file is hashed again.
    ///
    /// # Errors
    /// [`SyntheticError::Damaged`] with the first file that differs.
    pub fn check_fully(&self, folder: &Path) -> Result<(), SyntheticError> {
        for entry in &self.files {
            let path = folder.join(&entry.name);
            let found = hash_file(&path)?;
            same(&path, "sha256", entry.sha256.as_str(), found.as_str())?;
        }
        Ok(())
    }
}

fn same<T: PartialEq + std::fmt::Display>(
    path: &Path,
    what: &'static str,
    expected: T,
    got: T,
) -> Result<(), SyntheticError> {
    if expected == got {
        return Ok(());
    }
    Err(SyntheticError::Damaged {
        path: path.to_owned(),
        what,
        expected: expected.to_string(),
        got: got.to_string(),
    })
}

fn hash_file(path: &Path) -> Result<String, SyntheticError> {
    let mut file = File::open(path).map_err(SyntheticError::io("open", path))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 1 << 20];
    loop {
        let count = file
            .read(&mut buffer)
            .map_err(SyntheticError::io("read", path))?;
        if count == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buffer[..count]);
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Hashes of the weights at [`FORMAT_VERSION`]. A change of one of these is a
/// change of the generator and needs a new version.
pub(super) fn known_sha256(name: &str) -> Option<&'static str> {
    KNOWN_SHA256
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, hash)| *hash)
}

const KNOWN_SHA256: [(&str, &str); 9] = [
    (
        "gemma3-270m",
        "0639f37c4c022fb4bb3869653ff0d12d01bbce87375a03eae3c4c38a5f4c3a4d",
    ),
    (
        "gemma3-1b",
        "48f80b18ed27eab841b3265e3090dda6fded42f5f5d43905d18a6c87e8bf7a6b",
    ),
    (
        "gemma3-4b",
        "ff88019f2449f94679378a1814840dda494e152cceb5e25fb584367868e46006",
    ),
    (
        "llama-3.1-8b",
        "805490df43509e420f84a312c4ac6d79721f892174d69d6c953876e115a56350",
    ),
    (
        "qwen3-0.6b",
        "615d397551c6735fe76b6c73f80ade72b0b74ee2f876d5666d77834b2dfbf9e1",
    ),
    (
        "qwen3-4b",
        "dbdda9a3b3244c0bd60c9cffe75dbdb7bc202dbe9e1da4ec8fbc97b1d8b9d534",
    ),
    (
        "tiny-gemma3",
        "6808e8a10f581a3e4a6ac1d59f10e2ba77a5bb5200f022c5c984637b4e5e3696",
    ),
    (
        "tiny-llama",
        "2b3a603c8fbcfc0a62169c6477a3426d315efcde5b5070e843ca7d81e61b8941",
    ),
    (
        "tiny-qwen3",
        "830791f3c5fa77dd3c4fc38927d11bbff8b21989fe0d41ebfcf4b80ad4ce9f94",
    ),
];
