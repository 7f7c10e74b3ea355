//! Folders of synthetic models: the cache behind `synthetic:<name>`, and
//! folders that `mlxcel synth` is asked for.
//!
//! A model is written aside and renamed into place, so a folder is whole or
//! absent. A lock file keeps a second process from making the same model
//! twice; it waits and then finds the first one's.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};

use super::catalogue::{Configuration, FORMAT_VERSION, find};
use super::error::SyntheticError;
use super::manifest::Manifest;
use super::writer::{WriteProgress, write_model};

/// Between a folder's name and the process id in the name of its unfinished twin.
const PARTIAL: &str = ".partial-";

/// Where cached models live. Read from the environment once, at the edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheRoot(PathBuf);

impl CacheRoot {
    /// A root chosen by the caller.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// `MLXCEL_SYNTH_CACHE`, else `mlxcel/synthetic` in `XDG_CACHE_HOME`, else
    /// in `$HOME/.cache`.
    ///
    /// # Errors
    /// [`SyntheticError::NoCacheFolder`] when none of them is set.
    pub fn from_environment(
        get: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SyntheticError> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        if let Some(path) = get("MLXCEL_SYNTH_CACHE") {
            return Ok(Self(path.into()));
        }
        let base = get("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| {
            let home = get("HOME").map(PathBuf::from)?;
            Some(home.join(".cache"))
        });
        base.map(|base| Self(base.join("mlxcel").join("synthetic")))
            .ok_or(SyntheticError::NoCacheFolder)
    }

    /// The folder of a model, whether it exists or not.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}-v{FORMAT_VERSION}"))
    }
}

/// The cached folder of `name`, made first when absent or damaged.
///
/// # Errors
/// An unknown name, or an input/output error naming the file.
pub fn cached_folder(
    name: &str,
    root: &CacheRoot,
    progress: &mut dyn FnMut(WriteProgress),
) -> Result<PathBuf, SyntheticError> {
    let configuration = find(name)?;
    let folder = root.folder(name);
    if is_whole(&folder, name) {
        return Ok(folder);
    }
    make(configuration, &folder, progress)?;
    Ok(folder)
}

/// What [`write_folder`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The model was written.
    Written,
    /// The folder already held it, sizes and recorded hashes as expected.
    AlreadyThere,
}

/// Writes `name` as an MLX folder at `folder`.
///
/// # Errors
/// [`SyntheticError::NotOurs`] when the folder holds anything that this
/// function did not put there; an unknown name; input/output errors.
pub fn write_folder(
    name: &str,
    folder: &Path,
    progress: &mut dyn FnMut(WriteProgress),
) -> Result<Outcome, SyntheticError> {
    let configuration = find(name)?;
    refuse_foreign(folder)?;
    if is_whole(folder, name) {
        return Ok(Outcome::AlreadyThere);
    }
    make(configuration, folder, progress)?;
    Ok(Outcome::Written)
}

/// Is the model there? Damage counts as absence: it is made again.
fn is_whole(folder: &Path, name: &str) -> bool {
    match Manifest::read(folder) {
        Ok(Some(manifest)) => manifest.check_quickly(folder, name).is_ok(),
        _ => false,
    }
}

fn refuse_foreign(folder: &Path) -> Result<(), SyntheticError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(SyntheticError::io("read", folder)(error)),
    };
    let manifest = Manifest::read(folder).ok().flatten();
    for entry in entries {
        let entry = entry.map_err(SyntheticError::io("read", folder))?;
        let ours = manifest
            .as_ref()
            .is_some_and(|manifest| manifest.owns(&entry.file_name()));
        if !ours {
            return Err(SyntheticError::NotOurs {
                path: folder.to_owned(),
            });
        }
    }
    Ok(())
}

fn make(
    configuration: &Configuration,
    folder: &Path,
    progress: &mut dyn FnMut(WriteProgress),
) -> Result<(), SyntheticError> {
    let parent = match folder.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(parent).map_err(SyntheticError::io("create", parent))?;
    let lock_path = beside(folder, ".lock");
    let lock = File::create(&lock_path).map_err(SyntheticError::io("create", &lock_path))?;
    lock.lock()
        .map_err(SyntheticError::io("lock", &lock_path))?;
    // Somebody may have finished it while this process waited.
    let result = if is_whole(folder, configuration.name) {
        Ok(())
    } else {
        write_aside_and_rename(configuration, folder, progress)
    };
    // A waiter may hold this very file open; its next look at the folder finds
    // the model, so losing the name does no harm.
    let _ = std::fs::remove_file(&lock_path);
    result
}

fn write_aside_and_rename(
    configuration: &Configuration,
    folder: &Path,
    progress: &mut dyn FnMut(WriteProgress),
) -> Result<(), SyntheticError> {
    remove_leftovers(folder);
    // The process id keeps two writers apart even where locks do not work
    // (some network file systems).
    let aside = beside(folder, &format!("{PARTIAL}{}", std::process::id()));
    let result = fresh_folder(&aside)
        .and_then(|()| write_model(configuration, &aside, progress))
        .and_then(|manifest| manifest.check_quickly(&aside, configuration.name))
        .and_then(|()| replace(&aside, folder, configuration.name));
    if result.is_err() {
        let _ = std::fs::remove_dir_all(&aside);
    }
    result
}

/// Removes what killed writers of this folder left behind: gigabytes, perhaps.
/// Failure is no error, since nothing depends on it.
fn remove_leftovers(folder: &Path) {
    let processes = Path::new("/proc");
    let prefix = beside(folder, PARTIAL);
    let (Some(parent), Some(prefix)) = (prefix.parent(), prefix.file_name()) else {
        return;
    };
    // Without a process table nobody can tell a leftover from a live writer.
    if !processes.join("self").exists() {
        return;
    }
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix(prefix.to_str()?))
            .and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !processes.join(pid.to_string()).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn fresh_folder(path: &Path) -> Result<(), SyntheticError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(SyntheticError::io("remove", path)(error));
        }
        _ => {}
    }
    std::fs::create_dir(path).map_err(SyntheticError::io("create", path))
}

/// Renames `aside` to `folder`. What stood there (empty, damaged or of an older
/// version) moves away first, since a rename replaces only an empty folder.
fn replace(aside: &Path, folder: &Path, name: &str) -> Result<(), SyntheticError> {
    if std::fs::rename(aside, folder).is_ok() {
        return Ok(());
    }
    let old = beside(folder, &format!(".old-{}", std::process::id()));
    if folder.exists() {
        std::fs::rename(folder, &old).map_err(SyntheticError::io("rename", folder))?;
    }
    let renamed = std::fs::rename(aside, folder);
    let _ = std::fs::remove_dir_all(&old);
    match renamed {
        Ok(()) => Ok(()),
        // Another process put the same model there in between.
        Err(_) if is_whole(folder, name) => {
            let _ = std::fs::remove_dir_all(aside);
            Ok(())
        }
        Err(error) => Err(SyntheticError::io("rename", aside)(error)),
    }
}

/// A hidden sibling of `folder`: on the same file system, so renames are atomic.
fn beside(folder: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(folder.file_name().unwrap_or(OsStr::new("synthetic")));
    name.push(suffix);
    folder.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::super::manifest::WEIGHTS_FILE;
    use super::*;

    fn quiet() -> impl FnMut(WriteProgress) {
        |_| {}
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_environment_is_read_in_the_documented_order() {
        let root = |pairs: &[(&str, &str)]| {
            CacheRoot::from_environment(|name| {
                let found = pairs.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        let all = [
            ("MLXCEL_SYNTH_CACHE", "/a"),
            ("XDG_CACHE_HOME", "/b"),
            ("HOME", "/c"),
        ];
        assert_eq!(root(&all).unwrap(), CacheRoot::new("/a"));
        assert_eq!(
            root(&all[1..]).unwrap(),
            CacheRoot::new("/b/mlxcel/synthetic")
        );
        assert_eq!(
            root(&all[2..]).unwrap(),
            CacheRoot::new("/c/.cache/mlxcel/synthetic")
        );
        assert!(matches!(root(&[]), Err(SyntheticError::NoCacheFolder)));
        assert!(root(&[("MLXCEL_SYNTH_CACHE", "")]).is_err());
    }

    #[test]
    fn a_second_call_finds_the_model_and_writes_nothing() {
        let temporary = tempfile::tempdir().unwrap();
        let root = CacheRoot::new(temporary.path().join("cache"));
        let folder = cached_folder("tiny-gemma3", &root, &mut quiet()).unwrap();
        let before = std::fs::metadata(folder.join(WEIGHTS_FILE)).unwrap();
        let mut calls = 0;
        let again = cached_folder("tiny-gemma3", &root, &mut |_| calls += 1).unwrap();
        assert_eq!((again, calls), (folder.clone(), 0));
        let after = std::fs::metadata(folder.join(WEIGHTS_FILE)).unwrap();
        assert_eq!(before.modified().unwrap(), after.modified().unwrap());
        assert_eq!(names(&temporary.path().join("cache")).len(), 1);
    }

    #[test]
    fn a_truncated_cache_is_made_again() {
        let temporary = tempfile::tempdir().unwrap();
        let root = CacheRoot::new(temporary.path());
        let folder = cached_folder("tiny-llama", &root, &mut quiet()).unwrap();
        let weights = folder.join(WEIGHTS_FILE);
        let bytes = std::fs::read(&weights).unwrap();
        std::fs::write(&weights, &bytes[..1000]).unwrap();
        cached_folder("tiny-llama", &root, &mut quiet()).unwrap();
        assert_eq!(std::fs::read(&weights).unwrap(), bytes);
    }

    #[test]
    fn a_cache_whose_recorded_hash_is_not_the_known_one_is_made_again() {
        let temporary = tempfile::tempdir().unwrap();
        let root = CacheRoot::new(temporary.path());
        let folder = cached_folder("tiny-llama", &root, &mut quiet()).unwrap();
        let path = folder.join("synthetic.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let manifest = Manifest::read(&folder).unwrap().unwrap();
        let recorded = manifest.weights_sha256().unwrap();
        std::fs::write(&path, text.replace(recorded, &"0".repeat(64))).unwrap();
        cached_folder("tiny-llama", &root, &mut quiet()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn flipped_bytes_pass_the_cheap_check_and_fail_the_full_one() {
        let temporary = tempfile::tempdir().unwrap();
        let root = CacheRoot::new(temporary.path());
        let folder = cached_folder("tiny-llama", &root, &mut quiet()).unwrap();
        let manifest = Manifest::read(&folder).unwrap().unwrap();
        manifest.check_fully(&folder).unwrap();
        let weights = folder.join(WEIGHTS_FILE);
        let mut bytes = std::fs::read(&weights).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&weights, &bytes).unwrap();
        manifest.check_quickly(&folder, "tiny-llama").unwrap();
        let text = manifest.check_fully(&folder).unwrap_err().to_string();
        assert!(
            text.contains("model.safetensors") && text.contains("sha256"),
            "{text}"
        );
    }

    #[test]
    fn eight_processes_worth_of_callers_leave_one_whole_model() {
        let temporary = tempfile::tempdir().unwrap();
        let root = CacheRoot::new(temporary.path().join("cache"));
        std::thread::scope(|scope| {
            let callers: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| cached_folder("tiny-qwen3", &root, &mut |_| {})))
                .collect();
            for caller in callers {
                caller.join().unwrap().unwrap();
            }
        });
        let folder = root.folder("tiny-qwen3");
        let manifest = Manifest::read(&folder).unwrap().unwrap();
        manifest.check_fully(&folder).unwrap();
        assert_eq!(names(&temporary.path().join("cache")), ["tiny-qwen3-v1"]);
    }

    #[test]
    fn what_a_killed_writer_left_is_removed_and_a_live_one_is_not() {
        let temporary = tempfile::tempdir().unwrap();
        let root = CacheRoot::new(temporary.path());
        // Process ids are below 2^22 on Linux; process 1 always lives.
        for pid in ["99999999", "1"] {
            let name = format!(".tiny-llama-v{FORMAT_VERSION}.partial-{pid}");
            std::fs::create_dir(temporary.path().join(name)).unwrap();
        }
        cached_folder("tiny-llama", &root, &mut quiet()).unwrap();
        assert_eq!(
            names(temporary.path()),
            [".tiny-llama-v1.partial-1", "tiny-llama-v1"]
        );
    }

    #[test]
    fn a_folder_that_somebody_else_filled_is_refused_and_untouched() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("mine");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("thesis.txt"), "ten years").unwrap();
        let error = write_folder("tiny-llama", &folder, &mut quiet()).unwrap_err();
        assert!(matches!(error, SyntheticError::NotOurs { .. }), "{error}");
        assert_eq!(names(&folder), ["thesis.txt"]);
    }

    #[test]
    fn an_extra_file_beside_our_model_is_refused_too() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("model");
        write_folder("tiny-llama", &folder, &mut quiet()).unwrap();
        std::fs::write(folder.join("notes.txt"), "mine").unwrap();
        let error = write_folder("tiny-qwen3", &folder, &mut quiet()).unwrap_err();
        assert!(matches!(error, SyntheticError::NotOurs { .. }), "{error}");
    }

    #[test]
    fn our_own_folder_is_kept_when_whole_and_replaced_by_another_model() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("model");
        std::fs::create_dir(&folder).unwrap();
        let written = write_folder("tiny-llama", &folder, &mut quiet()).unwrap();
        let again = write_folder("tiny-llama", &folder, &mut quiet()).unwrap();
        assert_eq!((written, again), (Outcome::Written, Outcome::AlreadyThere));
        write_folder("tiny-qwen3", &folder, &mut quiet()).unwrap();
        let manifest = Manifest::read(&folder).unwrap().unwrap();
        assert_eq!(manifest.name, "tiny-qwen3");
        manifest.check_fully(&folder).unwrap();
        assert_eq!(names(temporary.path()), ["model"]);
    }
}
