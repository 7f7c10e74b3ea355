//! `-m DIR` or `-m synthetic:<name>`: from the argument to a folder.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::progress::ByteProgress;
use crate::weights::synthetic::manifest::Manifest;
use crate::weights::synthetic::{CacheRoot, PREFIX, cached_folder};

/// The folder of the model; a synthetic one is made first when it is not there.
///
/// # Errors
/// An unknown synthetic name, a cache that cannot be written, a path that is
/// not a folder.
pub fn folder(model: &str) -> anyhow::Result<PathBuf> {
    if let Some(name) = model.strip_prefix(PREFIX) {
        let root = CacheRoot::from_environment(|name| std::env::var_os(name))?;
        let mut bar = ByteProgress::new(format!("writing {model}"));
        return cached_folder(name, &root, &mut |progress| {
            bar.update(progress.written_bytes, progress.total_bytes);
        })
        .with_context(|| format!("failed to provide {model}"));
    }
    let path = Path::new(model);
    let metadata = std::fs::metadata(path).with_context(|| format!("no model at {model}"))?;
    anyhow::ensure!(
        metadata.is_dir(),
        "{model} is not a folder: expected an MLX model folder"
    );
    // A synthetic folder says what it should hold: find out before loading it.
    if let Some(manifest) = Manifest::read(path)? {
        manifest.check_quickly(path, &manifest.name)?;
    }
    Ok(path.to_owned())
}
