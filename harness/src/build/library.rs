//! The shared libraries that an artifact loads, and which files answer.
//!
//! The artifact's own loader is asked (`--list`, which both glibc and musl know)
//! in the environment of the attempts: search paths, caches and preloads are then
//! exactly those of the measured process. The program itself is not started.
//! Libraries that a program opens later by itself (`dlopen`) are not seen.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indexmap::IndexMap;

use super::artifact::Inspected;
use super::error::{BuildError, IoContext as _};
use crate::hash::sha256_file;
use crate::record::format::{ArtifactKind, PlannedArtifact, PlannedLibrary};

/// The loader only maps files; if that takes longer, something is broken.
const PATIENCE: Duration = Duration::from_secs(10);

/// A library and the file that answers for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// For the record.
    pub planned: PlannedLibrary,
    /// Where it lies; `None` where it was not found.
    pub path: Option<PathBuf>,
}

/// The warning about libraries of `artifact` that were not found.
#[must_use]
pub fn missing(artifact: &PlannedArtifact) -> Option<String> {
    let libraries = artifact.libraries.iter();
    let missing: Vec<&str> = libraries
        .filter(|library| library.sha256.is_none())
        .map(|library| library.soname.as_str())
        .collect();
    let names = missing.join(", ");
    (!names.is_empty()).then(|| format!("{} asks for what is not found: {names}", artifact.path))
}

/// Libraries of `file`, sorted by name. `loader` stands in for a library without
/// a loader of its own. Where the loader cannot be asked, the libraries that the
/// file names are listed as not found.
///
/// # Errors
/// A library that was found cannot be read.
pub fn loaded(
    file: &Path,
    inspected: &Inspected,
    loader: Option<&Path>,
    environment: &IndexMap<String, String>,
) -> Result<Vec<Loaded>, BuildError> {
    if inspected.planned.kind != ArtifactKind::ElfDynamic {
        return Ok(Vec::new());
    }
    let asked = inspected
        .interpreter
        .as_deref()
        .or(loader)
        .and_then(|loader| ask(loader, file, environment));
    let answers = asked.map(|text| parse(&text)).unwrap_or_else(|| {
        inspected
            .needed
            .iter()
            .map(|name| (name.clone(), None))
            .collect()
    });
    let mut libraries = Vec::new();
    for (soname, path) in answers {
        let sha256 = match &path {
            Some(path) => Some(sha256_file(path).doing("hash the library", path)?),
            None => None,
        };
        libraries.push(Loaded {
            planned: PlannedLibrary { soname, sha256 },
            path,
        });
    }
    Ok(libraries)
}

/// Only what steers the loader; the rest cannot change its answer.
fn ask(loader: &Path, file: &Path, environment: &IndexMap<String, String>) -> Option<String> {
    let steering: Vec<(OsString, OsString)> = environment
        .iter()
        .filter(|(name, _)| name.starts_with("LD_") || *name == "GLIBC_TUNABLES")
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let handle = duct::cmd(loader, [OsString::from("--list"), file.into()])
        .full_env(steering)
        .stdin_null()
        .stdout_capture()
        .stderr_null()
        // A missing library is a failure to the loader and an answer here.
        .unchecked()
        .start()
        .ok()?;
    let Ok(Some(output)) = handle.wait_timeout(PATIENCE) else {
        let _ = handle.kill();
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.contains("=>").then_some(text)
}

/// Reads `libc.so.6 => /lib/libc.so.6 (0x…)`, `libx.so => not found` and
/// `/lib64/ld-linux-x86-64.so.2 (0x…)`. The kernel's own page (`linux-vdso`) is no file.
fn parse(text: &str) -> BTreeMap<String, Option<PathBuf>> {
    let mut found = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        let line = line.rsplit_once(" (0x").map_or(line, |(line, _)| line);
        let (name, path) = match line.split_once(" => ") {
            Some((name, "not found")) => (name, None),
            Some((name, path)) => (name, Some(path)),
            None if line.starts_with('/') => (line, Some(line)),
            None => continue,
        };
        let short = Path::new(name).file_name().unwrap_or_default();
        let name = short.to_string_lossy().into_owned();
        let path = path.map(PathBuf::from);
        // The loader lists itself by both its names: one file, one row.
        if path.is_some() || !found.contains_key(&name) {
            found.insert(name, path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_answer_is_read_line_by_line() {
        let text = "\tlinux-vdso.so.1 (0x00007f)\n\tlibx.so.1 => not found\n\
                    \tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\t/lib64/ld-linux.so.2 (0x00007f)\n";
        let expected = BTreeMap::from([
            (
                "ld-linux.so.2".to_owned(),
                Some("/lib64/ld-linux.so.2".into()),
            ),
            ("libc.so.6".to_owned(), Some("/lib/libc.so.6".into())),
            ("libx.so.1".to_owned(), None),
        ]);
        assert_eq!(parse(text), expected);
    }
}
