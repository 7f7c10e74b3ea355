//! A patch file on top of a pin, as a tree in the mirror.

use std::cell::RefCell;
use std::path::Path;

use git2::{ApplyOptions, Diff, DiffFormat, DiffOptions, Oid};

use super::error::{GitContext as _, IoContext as _, SourceError};
use super::mirror::Mirror;
use super::pin::Pin;
use super::unified;
use crate::hash::sha256_hex;

/// The pin with the unified diff in the file `patch` applied on top.
///
/// # Errors
/// The file cannot be read, is no diff or changes nothing, or does not apply;
/// then the error names the file and the hunk.
pub fn apply(mirror: &Mirror, pin: &Pin, patch: &Path) -> Result<Pin, SourceError> {
    let content = std::fs::read(patch).doing("read the patch", patch)?;
    let unreadable = |reason: &str| SourceError::PatchUnreadable {
        patch: patch.to_owned(),
        reason: reason.to_owned(),
    };
    let with_headers = unified::with_git_headers(&content);
    let diff = Diff::from_buffer(&with_headers).map_err(|error| unreadable(error.message()))?;
    if diff.deltas().len() == 0 {
        return Err(unreadable("it changes no file"));
    }
    let tree = apply_to_tree(mirror, pin, patch, &diff)?;
    let sha256 = sha256_hex(&content);
    let patch_sha256 = match &pin.patch_sha256 {
        // A patch on top of uncommitted changes: both count.
        Some(below) => sha256_hex(format!("{below}\n{sha256}\n").as_bytes()),
        None => sha256,
    };
    Ok(Pin {
        tree: tree.to_string(),
        patch_sha256: Some(patch_sha256),
        ..pin.clone()
    })
}

fn apply_to_tree(
    mirror: &Mirror,
    pin: &Pin,
    patch: &Path,
    diff: &Diff<'_>,
) -> Result<Oid, SourceError> {
    const ACTION: &str = "apply the patch";
    let (bare, repo) = (mirror.bare(), mirror.repo());
    let base = Oid::from_str(&pin.tree)
        .and_then(|tree| bare.find_tree(tree))
        .doing_in("find the tree", repo)?;
    // libgit2's error does not say where; the callbacks see each step before it is tried.
    let file = RefCell::new(String::new());
    let hunk = RefCell::new(String::new());
    let mut options = ApplyOptions::new();
    options.delta_callback(|delta| {
        let path = delta.and_then(|delta| {
            let path = delta.new_file().path().or_else(|| delta.old_file().path());
            path.map(|path| path.display().to_string())
        });
        *file.borrow_mut() = path.unwrap_or_default();
        *hunk.borrow_mut() = "before its first hunk".into();
        true
    });
    options.hunk_callback(|part| {
        if let Some(part) = part {
            let header = String::from_utf8_lossy(part.header()).trim().to_owned();
            *hunk.borrow_mut() = format!("hunk {header}");
        }
        true
    });
    let applied = bare.apply_to_tree(&base, diff, Some(&mut options));
    drop(options);
    let mut index = applied.map_err(|error| SourceError::PatchDoesNotApply {
        patch: patch.to_owned(),
        commit: pin.commit.clone(),
        file: file.into_inner(),
        hunk: hunk.into_inner(),
        reason: error.message().to_owned(),
    })?;
    index.write_tree_to(bare).doing_in(ACTION, repo)
}

/// SHA-256 of the unified diff, binary content included, between two trees.
pub(super) fn diff_sha256(mirror: &Mirror, from: Oid, to: Oid) -> Result<String, SourceError> {
    let bare = mirror.bare();
    let print = || -> Result<Vec<u8>, git2::Error> {
        let (from, to) = (bare.find_tree(from)?, bare.find_tree(to)?);
        let mut options = DiffOptions::new();
        options.show_binary(true);
        let diff = bare.diff_tree_to_tree(Some(&from), Some(&to), Some(&mut options))?;
        let mut text = Vec::new();
        diff.print(DiffFormat::Patch, |_, _, line| {
            if matches!(line.origin(), ' ' | '+' | '-') {
                text.push(line.origin() as u8);
            }
            text.extend_from_slice(line.content());
            true
        })?;
        Ok(text)
    };
    Ok(sha256_hex(
        &print().doing_in("print the diff", mirror.repo())?,
    ))
}
