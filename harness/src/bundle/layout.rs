//! What lies where in a bundle, and the file that describes it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::{BundleError, io_error};

/// The file that describes a bundle.
pub const BUNDLE_FILE: &str = "bundle.json";
/// The program that packed it and runs it.
pub const PROGRAM_FILE: &str = "bench-run";
/// Where attempts run: the files that were asked for, as below the project's root.
pub const ROOT_FOLDER: &str = "root";
/// The record, unless another place is named.
pub const RECORD_FOLDER: &str = "record";

/// Version of the layout; another one is refused.
pub const SCHEMA: u32 = 1;

/// `bundle.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`SCHEMA`] of the packer.
    pub schema: u32,
    /// Version line of the packer.
    pub tool: String,
    /// SHA-256 of the packer.
    pub program_sha256: String,
    /// SHA-256 of the sealed plan.
    pub plan_sha256: String,
    /// For each fixture of the plan, where it lies, relative to the bundle.
    pub fixtures: Vec<PathBuf>,
    /// Files and folders below [`ROOT_FOLDER`].
    pub files: Vec<PackedFile>,
}

/// A file or folder of the project that attempts read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PackedFile {
    /// Relative to the project's root.
    pub path: PathBuf,
    /// SHA-256 over names and content.
    pub tree_sha256: String,
}

/// Where the artifacts of a build lie.
#[must_use]
pub fn artifacts(folder: &Path, build: usize) -> PathBuf {
    folder.join("artifacts").join(build.to_string())
}

/// Reads `bundle.json` in `folder`.
///
/// # Errors
/// There is none, or it is not ours.
pub fn manifest(folder: &Path) -> Result<Manifest, BundleError> {
    let path = folder.join(BUNDLE_FILE);
    let bytes = match std::fs::read(&path) {
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Err(BundleError::NotABundle {
                folder: folder.to_owned(),
                file: BUNDLE_FILE.to_owned(),
            });
        }
        read => read.map_err(io_error("read", &path))?,
    };
    let unreadable = |reason: String| BundleError::Unreadable {
        path: path.clone(),
        reason,
    };
    let manifest: Manifest =
        serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
    if manifest.schema != SCHEMA {
        let got = manifest.schema;
        return Err(unreadable(format!("expected schema {SCHEMA}, got {got}")));
    }
    Ok(manifest)
}
