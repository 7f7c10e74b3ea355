//! Removing what earlier builds left in a checkout.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::survey::Survey;

/// Removes everything under `root` that `survey` does not list, except the
/// folders in `keep` and git's own entry. Folders left empty go too; submodules
/// stay as empty folders. Links are removed, never followed.
pub(super) fn remove(root: &Path, survey: &Survey, keep: &[PathBuf]) -> io::Result<()> {
    sweep(root, Path::new(""), survey, keep)?;
    for submodule in &survey.submodules {
        std::fs::create_dir_all(root.join(submodule))?;
    }
    Ok(())
}

fn sweep(root: &Path, folder: &Path, survey: &Survey, keep: &[PathBuf]) -> io::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        let git_entry = folder.as_os_str().is_empty() && entry.file_name() == ".git";
        if git_entry || keep.contains(&path) {
            continue;
        }
        let is_folder = entry.file_type()?.is_dir();
        if is_folder {
            let leads_to_kept = keep.iter().any(|kept| kept.starts_with(&path));
            if survey.folders.contains(&path) || leads_to_kept {
                sweep(root, &path, survey, keep)?;
            } else {
                remove_folder(&entry.path())?;
            }
        } else if !survey.files.contains(&path) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Removes a folder. Some tools write-protect their caches, so that a plain removal fails.
pub(crate) fn remove_folder(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_writable(path)?;
            std::fs::remove_dir_all(path)
        }
        other => other,
    }
}

fn make_writable(folder: &Path) -> io::Result<()> {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(root: &Path, path: &str) {
        let file = root.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "x").unwrap();
    }

    fn listing(root: &Path, folder: &Path, into: &mut Vec<String>) {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            into.push(path.display().to_string());
            if root.join(&path).is_dir() && !root.join(&path).is_symlink() {
                listing(root, &path, into);
            }
        }
        into.sort();
    }

    #[test]
    fn only_tracked_files_kept_folders_and_git_remain() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for path in [
            ".git",
            "src/main.c",
            "src/main.o",
            "old/left/over.o",
            "target/debug/app",
            "sub/target/x",
            "deep/cache/y",
            "deep/junk",
            "vendor/onig/stale.c",
        ] {
            touch(root, path);
        }
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        let survey = Survey {
            files: [PathBuf::from("src/main.c")].into(),
            folders: [PathBuf::from("src"), PathBuf::from("vendor")].into(),
            submodules: vec!["vendor/onig".into()],
            lfs_pointers: Vec::new(),
        };
        remove(root, &survey, &["target".into(), "deep/cache".into()]).unwrap();
        let mut left = Vec::new();
        listing(root, Path::new(""), &mut left);
        assert_eq!(
            left,
            [
                ".git",
                "deep",
                "deep/cache",
                "deep/cache/y",
                "src",
                "src/main.c",
                "target",
                "target/debug",
                "target/debug/app",
                "vendor",
                "vendor/onig",
            ]
        );
        assert!(Path::new("/etc").exists());
    }
}
