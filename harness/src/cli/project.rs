//! Where an experiment belongs: its project's root, and the folders below it.

use std::path::{Path, PathBuf};

/// The nearest folder above `file` that holds a `.git`, else the current folder.
#[must_use]
pub fn root_of(file: &Path) -> PathBuf {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let above = absolute
        .ancestors()
        .skip(1)
        .find(|folder| folder.join(".git").exists());
    above.map_or_else(
        || std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
        Path::to_owned,
    )
}

/// `path` as a reader of a report types it: relative to `root` where it lies below.
#[must_use]
pub fn relative(path: &Path, root: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match absolute.strip_prefix(root) {
        Ok(inside) => inside.to_string_lossy().into_owned(),
        Err(_) => path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy()
            .into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_nearest_repository() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("a/.git")).unwrap();
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        let file = folder.path().join("a/b/x.yaml");
        assert_eq!(root_of(&file), folder.path().join("a"));
        assert_eq!(relative(&file, &root_of(&file)), "b/x.yaml");
    }

    #[test]
    fn a_file_outside_the_root_shows_no_folder() {
        assert_eq!(
            relative(Path::new("/elsewhere/x.yaml"), Path::new("/project")),
            "x.yaml"
        );
    }
}
