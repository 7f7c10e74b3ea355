//! What a file or a folder is, by content: names and hashes, nothing else.
//!
//! Times, permissions and empty folders do not count. A link counts as what it leads to, so
//! that a folder of links into a store (a hub's cache) is told by the files behind them.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::hash::{sha256_file, sha256_hex};

/// A file or a folder by its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// SHA-256 over name and hash of every file.
    pub sha256: String,
    /// Size of all files.
    pub bytes: u64,
    /// Every file, sorted by path.
    pub files: Vec<TreeFile>,
}

/// One file of a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TreeFile {
    /// Relative to the tree; the name of the file where the tree is a single one.
    pub path: String,
    /// SHA-256 of its content.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
}

/// Reads everything below `root`, a file or a folder.
///
/// # Errors
/// Something cannot be read, is neither file nor folder, or is a link that leads back up.
pub fn read(root: &Path) -> io::Result<Tree> {
    let mut found = Vec::new();
    if std::fs::metadata(root).map_err(about(root))?.is_dir() {
        list(root, Path::new(""), &mut Vec::new(), &mut found)?;
    } else {
        found.push(PathBuf::new());
    }
    found.sort();
    let mut whole = Vec::new();
    let mut files = Vec::new();
    for path in found {
        // Joining nothing would add a slash behind a single file.
        let file = if path.as_os_str().is_empty() {
            root.to_owned()
        } else {
            root.join(&path)
        };
        let name = if path.as_os_str().is_empty() {
            PathBuf::from(root.file_name().unwrap_or_default())
        } else {
            path
        };
        let bytes = std::fs::metadata(&file).map_err(about(&file))?.len();
        let sha256 = sha256_file(&file).map_err(about(&file))?;
        whole.extend_from_slice(sha256.as_bytes());
        whole.push(b' ');
        whole.extend_from_slice(name.as_os_str().as_bytes());
        // No name holds this byte.
        whole.push(0);
        files.push(TreeFile {
            path: name.to_string_lossy().into_owned(),
            sha256,
            bytes,
        });
    }
    Ok(Tree {
        sha256: sha256_hex(&whole),
        bytes: files.iter().map(|file| file.bytes).sum(),
        files,
    })
}

/// The files below `root/folder`; `above` holds the real folders that lead there.
fn list(
    root: &Path,
    folder: &Path,
    above: &mut Vec<PathBuf>,
    into: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let here = root.join(folder);
    let real = here.canonicalize().map_err(about(&here))?;
    if above.contains(&real) {
        return Err(about(&here)(io::Error::other("a link that leads back up")));
    }
    above.push(real);
    for entry in std::fs::read_dir(&here).map_err(about(&here))? {
        let path = folder.join(entry.map_err(about(&here))?.file_name());
        let file = root.join(&path);
        let metadata = std::fs::metadata(&file).map_err(about(&file))?;
        if metadata.is_dir() {
            list(root, &path, above, into)?;
        } else if metadata.is_file() {
            into.push(path);
        } else {
            let what = io::Error::other("neither a file nor a folder");
            return Err(about(&file)(what));
        }
    }
    above.pop();
    Ok(())
}

/// Puts the path in front of a system's error.
fn about(path: &Path) -> impl Fn(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| io::Error::new(error.kind(), format!("{path}: {error}"))
}

impl Tree {
    /// The first file in which `now` is another tree, in words; `None` for equal ones.
    #[must_use]
    pub fn difference(&self, now: &Tree) -> Option<String> {
        if self.sha256 == now.sha256 {
            return None;
        }
        let of = |tree: &Tree, path: &str| {
            let file = tree.files.iter().find(|file| file.path == path);
            file.map(|file| file.sha256.clone())
        };
        let mut paths: Vec<&str> = self
            .files
            .iter()
            .chain(&now.files)
            .map(|f| &*f.path)
            .collect();
        paths.sort_unstable();
        let path = paths
            .into_iter()
            .find(|path| of(self, path) != of(now, path))?;
        let words = |hash: Option<String>| {
            hash.map_or("no such file".into(), |hash| format!("sha256 {hash}"))
        };
        let (expected, got) = (words(of(self, path)), words(of(now, path)));
        Some(format!("{path}: expected {expected}, got {got}"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn a_tree_is_its_names_and_contents_wherever_it_lies() {
        let one = read(folder(&[("a/x", "1"), ("b", "22")]).path()).unwrap();
        let other = read(folder(&[("b", "22"), ("a/x", "1")]).path()).unwrap();
        assert_eq!(one, other);
        assert_eq!((one.bytes, one.files.len()), (3, 2));
        for changed in [
            &[("a/x", "2"), ("b", "22")][..],
            &[("a/y", "1"), ("b", "22")],
            &[("a/x", "1")],
        ] {
            assert_ne!(read(folder(changed).path()).unwrap().sha256, one.sha256);
        }
    }

    #[test]
    fn a_link_counts_as_what_it_leads_to() {
        let store = folder(&[("blob", "weights")]);
        let linked = tempfile::tempdir().unwrap();
        symlink(store.path().join("blob"), linked.path().join("model")).unwrap();
        let plain = folder(&[("model", "weights")]);
        assert_eq!(read(linked.path()).unwrap(), read(plain.path()).unwrap());
    }

    #[test]
    fn a_link_that_leads_nowhere_or_back_up_is_an_error() {
        for target in ["nowhere", "."] {
            let place = folder(&[("x", "1")]);
            symlink(target, place.path().join("link")).unwrap();
            let error = read(place.path()).unwrap_err().to_string();
            assert!(error.contains("/link"), "{error}");
        }
    }

    #[test]
    fn the_first_file_that_differs_is_named() {
        let known = read(folder(&[("a", "1"), ("b", "2")]).path()).unwrap();
        let now = read(folder(&[("a", "1"), ("b", "3"), ("c", "")]).path()).unwrap();
        assert!(
            known
                .difference(&now)
                .unwrap()
                .starts_with("b: expected sha256 d4735e3a")
        );
        assert_eq!(known.difference(&known), None);
        let file = folder(&[("single", "1")]);
        let single = read(&file.path().join("single")).unwrap();
        let gone = single.difference(&known).unwrap();
        assert!(gone.starts_with("a: expected no such file, got"), "{gone}");
    }
}
