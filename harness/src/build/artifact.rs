//! What a file that a build left is: its kind, its hashes.
//!
//! `file_sha256` is the whole file, `code_sha256` what decides whether two arms
//! run the same code: of an ELF file only what is loaded to run (see `elf`), of
//! anything else the whole file.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::elf::{self, Elf};
use super::error::{BuildError, IoContext as _};
use crate::hash::sha256_hex;
use crate::record::format::{ArtifactKind, PlannedArtifact};

/// Bytes of a script that are searched for libtool's mark.
const SCRIPT_HEAD_BYTES: usize = 8 * 1024;

/// What is known of an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inspected {
    /// Kind, sizes and hashes; the libraries are not looked up yet.
    pub planned: PlannedArtifact,
    /// The loader that starts it, for an ELF program.
    pub interpreter: Option<PathBuf>,
    /// Libraries that it asks for by itself.
    pub needed: Vec<String>,
}

/// Looks at `file`, a file or a folder; `name` is what records call it.
///
/// # Errors
/// It cannot be read.
pub fn inspect(file: &Path, name: &str) -> Result<Inspected, BuildError> {
    let about = std::fs::metadata(file).doing("read", file)?;
    if about.is_dir() {
        return inspect_folder(file, name);
    }
    if !about.is_file() {
        return Err(BuildError::NotAFile { path: file.into() });
    }
    let content = std::fs::read(file).doing("read", file)?;
    let parsed = elf::parse(&content);
    let file_sha256 = sha256_hex(&content);
    let code_sha256 = parsed
        .as_ref()
        .and_then(|parsed| parsed.code_sha256.clone())
        .unwrap_or_else(|| file_sha256.clone());
    Ok(Inspected {
        planned: PlannedArtifact {
            path: name.to_owned(),
            file_sha256,
            code_sha256,
            bytes: about.len(),
            kind: kind(&content, parsed.as_ref()),
            libraries: Vec::new(),
        },
        interpreter: parsed
            .as_ref()
            .and_then(|parsed| parsed.interpreter.as_ref().map(PathBuf::from)),
        needed: parsed.map(|parsed| parsed.needed).unwrap_or_default(),
    })
}

/// Refuses a script, unless `allowed`. `beside` is the folder in which the build
/// left it, for the hint.
///
/// # Errors
/// [`BuildError::Script`], which says what the file is and where the program lies.
pub fn refuse_script(file: &Path, name: &Path, allowed: bool) -> Result<(), BuildError> {
    if allowed || !file.is_file() {
        return Ok(());
    }
    let content = std::fs::read(file).doing("read", file)?;
    if !content.starts_with(b"#!") {
        return Ok(());
    }
    let head = String::from_utf8_lossy(&content[..content.len().min(SCRIPT_HEAD_BYTES)]);
    let first_line = head.lines().next().unwrap_or_default().trim();
    let libtool = head.to_lowercase().contains("libtool");
    let real = name
        .parent()
        .unwrap_or(Path::new(""))
        .join(".libs")
        .join(name.file_name().unwrap_or_default());
    let real_is_there = file.parent().is_some_and(|folder| {
        folder
            .join(".libs")
            .join(file.file_name().unwrap_or_default())
            .exists()
    });
    Err(BuildError::Script {
        path: name.to_owned(),
        what: if libtool {
            "a libtool wrapper".into()
        } else {
            format!("a script ({first_line})")
        },
        hint: if libtool || real_is_there {
            format!(
                "name {} and the libraries it loads from there, or build with --disable-shared",
                real.display()
            )
        } else {
            "name the program that it starts".into()
        },
    })
}

/// SHA-256 over the code hashes, in the experiment's order: what decides whether
/// two builds run the same code.
#[must_use]
pub fn combined_code_sha256(artifacts: &[PlannedArtifact]) -> String {
    let text: String = artifacts
        .iter()
        .map(|artifact| format!("{}\n", artifact.code_sha256))
        .collect();
    sha256_hex(text.as_bytes())
}

fn kind(content: &[u8], parsed: Option<&Elf>) -> ArtifactKind {
    match parsed {
        Some(parsed) if !parsed.needed.is_empty() || parsed.interpreter.is_some() => {
            ArtifactKind::ElfDynamic
        }
        Some(_) => ArtifactKind::ElfStatic,
        None if content.starts_with(b"#!") => ArtifactKind::Script,
        None => ArtifactKind::Other,
    }
}

/// A folder's hashes are over its files' paths and hashes, sorted by path.
fn inspect_folder(folder: &Path, name: &str) -> Result<Inspected, BuildError> {
    let mut files = Vec::new();
    list(folder, Path::new(""), &mut files)?;
    files.sort();
    let (mut whole, mut code, mut bytes) = (String::new(), String::new(), 0);
    for path in files {
        let one = inspect(&folder.join(&path), &path.display().to_string())?.planned;
        whole.push_str(&format!("{} {}\n", one.path, one.file_sha256));
        code.push_str(&format!("{} {}\n", one.path, one.code_sha256));
        bytes += one.bytes;
    }
    Ok(Inspected {
        planned: PlannedArtifact {
            path: name.to_owned(),
            file_sha256: sha256_hex(whole.as_bytes()),
            code_sha256: sha256_hex(code.as_bytes()),
            bytes,
            kind: ArtifactKind::Directory,
            libraries: Vec::new(),
        },
        interpreter: None,
        needed: Vec::new(),
    })
}

fn list(root: &Path, folder: &Path, into: &mut Vec<PathBuf>) -> Result<(), BuildError> {
    let here = root.join(folder);
    for entry in std::fs::read_dir(&here).doing("list", &here)? {
        let entry = entry.doing("list", &here)?;
        let path = folder.join(entry.file_name());
        if entry.path().is_dir() {
            list(root, &path, into)?;
        } else {
            into.push(path);
        }
    }
    Ok(())
}
