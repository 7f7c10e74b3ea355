//! Reads the cache folder: what there is, how large, when it was used last.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::keep::Origin;
use crate::build::cache as builds;
use crate::setup::store as fixtures;
use crate::source::cache_root::CacheRoot;

/// Ending of what is half made.
pub(super) const HALF: &str = ".partial";
const SECONDS_PER_DAY: u64 = 24 * 3600;

/// Something in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// `build`, `setup`, `source` or `history`: where it lies.
    pub kind: &'static str,
    /// Its key, the repository's name, or what the programs of a history have in common.
    pub name: String,
    /// What it was made from.
    pub origin: Origin,
    /// The folder or file.
    pub path: PathBuf,
    /// Held while it is used; its time tells when that was.
    pub lock: Option<PathBuf>,
    /// Size of all files.
    pub bytes: u64,
    /// Whole days since it was used last.
    pub unused_days: u64,
}

/// Everything in the cache, builds first, by name.
///
/// # Errors
/// A folder cannot be listed.
pub fn read(cache: &CacheRoot, now: SystemTime) -> std::io::Result<Vec<Entry>> {
    let mut entries = keyed("build", &cache.builds(), now, &|path| {
        let (source, commit) = builds::origin(path)?;
        Some(Origin::Build { source, commit })
    })?;
    entries.extend(keyed("setup", &cache.fixtures(), now, &|path| {
        let (root, command) = fixtures::origin(path)?;
        Some(Origin::Fixture { root, command })
    })?);
    entries.extend(sources(&cache.sources(), now)?);
    entries.extend(histories(&cache.history(), now)?);
    Ok(entries)
}

/// The entries of a folder with `<key>`, `<key>.lock`, `<key>.log` and `<key>.partial`.
fn keyed(
    kind: &'static str,
    folder: &Path,
    now: SystemTime,
    origin: &dyn Fn(&Path) -> Option<Origin>,
) -> std::io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for path in names(folder)? {
        let name = file_name(&path);
        let lock_of = |stem: &str| folder.join(format!("{stem}.lock"));
        let (origin, lock) = if let Some(stem) = name.strip_suffix(".lock") {
            if folder.join(stem).exists() {
                continue;
            }
            (Origin::Remains, None)
        } else if name.ends_with(HALF) {
            (Origin::Half, None)
        } else {
            let origin = origin(&path).unwrap_or(Origin::Remains);
            (origin, Some(lock_of(&name)).filter(|lock| lock.exists()))
        };
        entries.push(entry(kind, path, origin, lock, now));
    }
    Ok(entries)
}

fn sources(folder: &Path, now: SystemTime) -> std::io::Result<Vec<Entry>> {
    let of = |path: PathBuf| {
        let name = file_name(&path);
        let origin = match name.ends_with(HALF) {
            true => Origin::Half,
            false => Origin::Source { name },
        };
        let lock = Some(path.join("mirror.lock")).filter(|lock| lock.exists());
        entry("source", path, origin, lock, now)
    };
    Ok(names(folder)?.into_iter().map(of).collect())
}

/// A folder for each host, a file for each program.
fn histories(folder: &Path, now: SystemTime) -> std::io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for host in names(folder)?.into_iter().filter(|path| path.is_dir()) {
        for path in names(&host)? {
            let text = fs::read(&path).unwrap_or_default();
            let origin = Origin::History {
                host: file_name(&host),
                runs: text
                    .split(|byte| *byte == b'\n')
                    .filter(|line| !line.is_empty())
                    .count(),
            };
            entries.push(entry("history", path, origin, None, now));
        }
    }
    Ok(entries)
}

fn entry(
    kind: &'static str,
    path: PathBuf,
    origin: Origin,
    lock: Option<PathBuf>,
    now: SystemTime,
) -> Entry {
    let used = fs::metadata(lock.as_ref().unwrap_or(&path)).and_then(|about| about.modified());
    // A time in the future, or none at all, counts as now.
    let unused = used.ok().and_then(|used| now.duration_since(used).ok());
    Entry {
        kind,
        name: file_name(&path),
        bytes: size(&path),
        unused_days: unused.map_or(0, |unused| unused.as_secs() / SECONDS_PER_DAY),
        origin,
        path,
        lock,
    }
}

/// What lies in a folder, sorted; nothing where there is none.
fn names(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let paths: std::io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths?;
    paths.sort();
    Ok(paths)
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Size of all files; links are not followed.
fn size(path: &Path) -> u64 {
    let Ok(about) = fs::symlink_metadata(path) else {
        return 0;
    };
    if !about.is_dir() {
        return about.len();
    }
    let inside = fs::read_dir(path).into_iter().flatten().flatten();
    inside.map(|entry| size(&entry.path())).sum()
}
