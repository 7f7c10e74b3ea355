//! `-m DIR`, `-m synthetic:<name>` or `-m hf:<org>/<name>`: from the argument to a folder.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::progress::ByteProgress;
use crate::hub::{self, Fetch, HubError, ModelName, Settings};
use crate::model::ModelConfig;
use crate::weights::synthetic::manifest::Manifest;
use crate::weights::synthetic::{CacheRoot, PREFIX, cached_folder};

/// The folder of the model; a synthetic one is made, one of a hub fetched first when it is not there.
///
/// # Errors
/// An unknown synthetic name, a cache that cannot be written, a model that
/// cannot be fetched, a path that is not a folder.
pub fn folder(model: &str) -> anyhow::Result<PathBuf> {
    if let Some(name) = model.strip_prefix(PREFIX) {
        let root = CacheRoot::from_environment(|name| std::env::var_os(name))?;
        let mut bar = ByteProgress::new(format!("writing {model}"));
        return cached_folder(name, &root, &mut |progress| {
            bar.update(progress.written_bytes, progress.total_bytes);
        })
        .with_context(|| format!("failed to provide {model}"));
    }
    if let Some(name) = model.strip_prefix(hub::PREFIX) {
        return from_hub(name).with_context(|| format!("failed to fetch {model}"));
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

fn from_hub(name: &str) -> Result<PathBuf, HubError> {
    let model = ModelName::parse(name)?;
    let settings = Settings::from_environment(|name| std::env::var_os(name))?;
    let mut bar = ByteProgress::new(format!("fetching {model}"));
    let fetch = Fetch {
        // A family that does not run here is found out before gigabytes of it are fetched.
        before_weights: &|folder| ModelConfig::load(folder).map(|_| ()),
        progress: &mut |done, total| bar.update(done, total),
    };
    hub::fetch(&model, &settings, fetch)
}
