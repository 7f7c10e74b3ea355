//! Whether the programs under test are still the ones that the plan names.
//!
//! A prebuilt program lies where its owner builds it again, and an attempt may write
//! into its own artifacts. What the file system says of a file is compared around every
//! attempt; only where that has changed the content is hashed again.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::build::builder;
use crate::record::format::{Plan, PlannedBuild};

use super::command::Workplace;
use super::error::SessionError;

/// Watches every artifact of a plan.
#[derive(Debug)]
pub struct Artifacts<'a> {
    builds: Vec<Watched<'a>>,
}

#[derive(Debug)]
struct Watched<'a> {
    build: &'a PlannedBuild,
    folder: &'a Path,
    /// What the files looked like when they were hashed last.
    hashed: Option<Vec<Stamp>>,
}

/// What tells that a file may have changed, without reading it: device, inode, size in
/// bytes, and the time of its last change in seconds and nanoseconds.
type Stamp = (u64, u64, u64, i64, i64);

impl<'a> Artifacts<'a> {
    /// Nothing is looked at yet.
    #[must_use]
    pub fn new(plan: &'a Plan, workplace: &'a Workplace) -> Self {
        let folders = workplace.artifact_dirs.iter();
        let builds = plan.builds.iter().zip(folders);
        Artifacts {
            builds: builds
                .map(|(build, folder)| Watched {
                    build,
                    folder,
                    hashed: None,
                })
                .collect(),
        }
    }

    /// Looks at every artifact; the first time, and where a file looks different, by hash.
    ///
    /// # Errors
    /// [`SessionError::Changed`] for the first artifact that is gone or not the plan's.
    pub fn check(&mut self) -> Result<(), SessionError> {
        for watched in &mut self.builds {
            let now = watched.stamps();
            if now.is_some() && watched.hashed == now {
                continue;
            }
            builder::unchanged(watched.build, watched.folder).map_err(SessionError::Changed)?;
            watched.hashed = now;
        }
        Ok(())
    }
}

impl Watched<'_> {
    /// `None` where a file cannot be looked at: the hash will say why.
    fn stamps(&self) -> Option<Vec<Stamp>> {
        let mut stamps = Vec::new();
        for artifact in &self.build.artifacts {
            collect(&self.folder.join(&artifact.path), &mut stamps)?;
        }
        Some(stamps)
    }
}

fn collect(path: &Path, stamps: &mut Vec<Stamp>) -> Option<()> {
    let itself = std::fs::symlink_metadata(path).ok()?;
    stamps.push(stamp(&itself));
    if itself.is_symlink() {
        // Not descended into: a link may lead back up.
        stamps.push(stamp(&std::fs::metadata(path).ok()?));
    }
    if itself.is_dir() {
        let mut inside: Vec<_> = std::fs::read_dir(path).ok()?.flatten().collect();
        inside.sort_by_key(std::fs::DirEntry::file_name);
        for entry in inside {
            collect(&entry.path(), stamps)?;
        }
    }
    Some(())
}

fn stamp(about: &Metadata) -> Stamp {
    (
        about.dev(),
        about.ino(),
        about.len(),
        about.ctime(),
        about.ctime_nsec(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::artifact;

    fn planned(folder: &Path) -> PlannedBuild {
        PlannedBuild {
            commit: None,
            dirty: false,
            patch_sha256: None,
            key: String::new(),
            artifacts: vec![
                artifact::inspect(&folder.join("app"), "app")
                    .unwrap()
                    .planned,
            ],
            code_sha256: String::new(),
            receipt: None,
        }
    }

    fn watch<'a>(build: &'a PlannedBuild, folder: &'a Path) -> Artifacts<'a> {
        Artifacts {
            builds: vec![Watched {
                build,
                folder,
                hashed: None,
            }],
        }
    }

    #[test]
    fn a_file_of_the_same_size_and_age_but_other_content_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("app");
        std::fs::write(&file, "one").unwrap();
        let modified = std::fs::metadata(&file).unwrap().modified().unwrap();
        let build = planned(folder.path());
        let mut artifacts = watch(&build, folder.path());
        artifacts.check().unwrap();
        std::fs::write(&file, "two").unwrap();
        let opened = std::fs::File::options().append(true).open(&file).unwrap();
        opened.set_modified(modified).unwrap();
        let error = artifacts.check().unwrap_err();
        assert!(error.to_string().contains("app has changed"), "{error}");
    }

    #[test]
    fn a_file_that_was_only_touched_is_the_same_program() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("app"), "one").unwrap();
        let build = planned(folder.path());
        let mut artifacts = watch(&build, folder.path());
        artifacts.check().unwrap();
        std::fs::write(folder.path().join("app"), "one").unwrap();
        artifacts.check().unwrap();
    }

    #[test]
    fn a_file_deep_in_a_folder_and_a_file_that_is_gone_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("app/lib");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("a"), "one").unwrap();
        let build = planned(folder.path());
        let mut artifacts = watch(&build, folder.path());
        artifacts.check().unwrap();
        std::fs::write(deep.join("a"), "two").unwrap();
        assert!(artifacts.check().is_err());
        std::fs::remove_dir_all(folder.path().join("app")).unwrap();
        assert!(artifacts.check().is_err());
    }
}
