//! A name to a folder: list, look, fetch, link.

use std::path::{Path, PathBuf};

use super::cache::Cache;
use super::client::Client;
use super::download::download;
use super::error::HubError;
use super::listing::{RemoteFile, list};
use super::name::ModelName;
use super::settings::Settings;
use crate::error::LoadError;

/// What the caller is asked and told on the way.
pub struct Fetch<'a> {
    /// Looks at the folder when all but the weights is there; an error saves their download.
    pub before_weights: &'a dyn Fn(&Path) -> Result<(), LoadError>,
    /// Bytes there of bytes wanted.
    pub progress: &'a mut dyn FnMut(u64, u64),
}

/// The folder of `model` in the cache; what is missing is fetched and checked first.
///
/// A revision that is a full commit and whose files are all there needs no network.
///
/// # Errors
/// [`HubError`]; whatever arrived is kept, and the next call goes on from there.
pub fn fetch(
    model: &ModelName,
    settings: &Settings,
    fetch: Fetch<'_>,
) -> Result<PathBuf, HubError> {
    let cache = Cache::new(&settings.cache, model);
    if model.is_pinned()
        && let Some(folder) = cache.complete(&model.revision)
    {
        return Ok(folder);
    }
    let client = Client::new(settings);
    let listing = list(&client, settings, model)?;
    let commit = listing.commit.as_str();
    cache.prepare(commit)?;
    let _lock = cache.lock()?;
    let small: Vec<&RemoteFile> = listing.small.iter().collect();
    let weights: Vec<&RemoteFile> = listing.weights.iter().collect();
    let all = [small.as_slice(), weights.as_slice()].concat();
    let total: u64 = all.iter().map(|file| file.bytes).sum();
    let mut done = 0;
    let mut fetch_all = |files: &[&RemoteFile]| {
        for file in files {
            let url = format!(
                "{}/{}/resolve/{commit}/{}",
                settings.endpoint,
                model.repository(),
                file.name
            );
            let mut tell = |bytes| (fetch.progress)(done + bytes, total);
            fetch_file(&cache, commit, file, |incomplete, blob| {
                let places = (incomplete, blob);
                download((&client, settings), &url, file, places, &mut tell)
            })?;
            done += file.bytes;
            (fetch.progress)(done, total);
        }
        Ok(())
    };
    fetch_all(&small)?;
    let folder = cache.snapshot(commit);
    (fetch.before_weights)(&folder).map_err(|source| HubError::Unwanted {
        model: model.to_string(),
        source: Box::new(source),
    })?;
    fetch_all(&weights)?;
    cache.finish(model, commit, &all)?;
    Ok(folder)
}

fn fetch_file(
    cache: &Cache,
    commit: &str,
    file: &RemoteFile,
    get: impl FnOnce(&Path, &Path) -> Result<(), HubError>,
) -> Result<(), HubError> {
    if cache.has(commit, file) {
        return Ok(());
    }
    if !cache.has_blob(file) {
        get(&cache.incomplete(file), &cache.blob(file))?;
    }
    cache.link(commit, file)
}
