//! Whether programs and fixtures are still the ones that the plan names.
//!
//! A prebuilt program lies where its owner builds it again, and an attempt may write
//! into its own artifacts or into the model that it reads. What the file system says of a file is compared around every
//! attempt; only where that has changed the content is hashed again.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::build::builder;
use crate::record::format::{Plan, PlannedBuild, PlannedFixture};
use crate::setup::tree;

use super::command::Workplace;
use super::error::SessionError;

/// Links to folders are followed this deep at most: the kernel itself gives up there.
const MAX_DEPTH: usize = 40;

/// Watches every artifact and every fixture of a plan.
#[derive(Debug)]
pub struct Watch<'a> {
    all: Vec<Watched<'a>>,
}

#[derive(Debug)]
struct Watched<'a> {
    subject: Subject<'a>,
    /// Where it lies; of a build, the folder of its artifacts.
    place: &'a Path,
    /// What the files looked like when they were hashed last.
    hashed: Option<Vec<Stamp>>,
}

#[derive(Debug, Clone, Copy)]
enum Subject<'a> {
    Build(&'a PlannedBuild),
    Fixture(&'a PlannedFixture),
}

/// What tells that a file may have changed, without reading it: device, inode, size in
/// bytes, and the time of its last change in seconds and nanoseconds.
type Stamp = (u64, u64, u64, i64, i64);

impl<'a> Watch<'a> {
    /// Nothing is looked at yet.
    #[must_use]
    pub fn new(plan: &'a Plan, workplace: &'a Workplace) -> Self {
        let builds = plan.builds.iter().map(Subject::Build);
        let fixtures = plan.fixtures.iter().map(Subject::Fixture);
        let builds = builds.zip(&workplace.artifact_dirs);
        Watch {
            all: builds
                .chain(fixtures.zip(&workplace.fixtures))
                .map(|(subject, place)| Watched {
                    subject,
                    place,
                    hashed: None,
                })
                .collect(),
        }
    }

    /// Looks at everything; the first time, and where a file looks different, by hash.
    ///
    /// # Errors
    /// [`SessionError::Changed`] for the first thing that is gone or not the plan's.
    pub fn check(&mut self) -> Result<(), SessionError> {
        for watched in &mut self.all {
            let now = watched.stamps();
            if now.is_some() && watched.hashed == now {
                continue;
            }
            watched.unchanged().map_err(SessionError::Changed)?;
            watched.hashed = now;
        }
        Ok(())
    }
}

impl Watched<'_> {
    /// By hash.
    fn unchanged(&self) -> Result<(), String> {
        match self.subject {
            Subject::Build(build) => builder::unchanged(build, self.place),
            Subject::Fixture(fixture) => fixture_unchanged(fixture, self.place),
        }
    }

    /// `None` where a file cannot be looked at: the hash will say why.
    fn stamps(&self) -> Option<Vec<Stamp>> {
        let mut stamps = Vec::new();
        match self.subject {
            Subject::Build(build) => {
                for artifact in &build.artifacts {
                    collect(&self.place.join(&artifact.path), 0, &mut stamps)?;
                }
            }
            Subject::Fixture(_) => collect(self.place, 0, &mut stamps)?,
        }
        Some(stamps)
    }
}

fn fixture_unchanged(fixture: &PlannedFixture, place: &Path) -> Result<(), String> {
    let step = &fixture.step;
    let now =
        tree::read(place).map_err(|error| format!("what setup step `{step}` made: {error}"))?;
    if now.sha256 == fixture.tree_sha256 {
        return Ok(());
    }
    Err(format!(
        "what setup step `{step}` made has changed since the plan was sealed: expected tree {}, got {}",
        fixture.tree_sha256, now.sha256
    ))
}

fn collect(path: &Path, depth: usize, stamps: &mut Vec<Stamp>) -> Option<()> {
    let itself = std::fs::symlink_metadata(path).ok()?;
    stamps.push(stamp(&itself));
    let target = if itself.is_symlink() {
        let target = std::fs::metadata(path).ok()?;
        stamps.push(stamp(&target));
        target
    } else {
        itself
    };
    if target.is_dir() && depth < MAX_DEPTH {
        let mut inside: Vec<_> = std::fs::read_dir(path).ok()?.flatten().collect();
        inside.sort_by_key(std::fs::DirEntry::file_name);
        for entry in inside {
            collect(&entry.path(), depth + 1, stamps)?;
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

    fn watch<'a>(build: &'a PlannedBuild, place: &'a Path) -> Watch<'a> {
        let subject = Subject::Build(build);
        Watch {
            all: vec![Watched {
                subject,
                place,
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
        let mut watch = watch(&build, folder.path());
        watch.check().unwrap();
        std::fs::write(&file, "two").unwrap();
        let opened = std::fs::File::options().append(true).open(&file).unwrap();
        opened.set_modified(modified).unwrap();
        let error = watch.check().unwrap_err();
        assert!(error.to_string().contains("app has changed"), "{error}");
    }

    #[test]
    fn a_file_that_was_only_touched_is_the_same_program() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("app"), "one").unwrap();
        let build = planned(folder.path());
        let mut watch = watch(&build, folder.path());
        watch.check().unwrap();
        std::fs::write(folder.path().join("app"), "one").unwrap();
        watch.check().unwrap();
    }

    #[test]
    fn a_file_deep_in_a_folder_and_a_file_that_is_gone_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("app/lib");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("a"), "one").unwrap();
        let build = planned(folder.path());
        let mut watch = watch(&build, folder.path());
        watch.check().unwrap();
        std::fs::write(deep.join("a"), "two").unwrap();
        assert!(watch.check().is_err());
        std::fs::remove_dir_all(folder.path().join("app")).unwrap();
        assert!(watch.check().is_err());
    }

    #[test]
    fn a_fixture_behind_links_is_told_by_its_content() {
        let store = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(store.path().join("deep")).unwrap();
        let file = store.path().join("deep/weights");
        std::fs::write(&file, "one").unwrap();
        std::os::unix::fs::symlink(store.path(), folder.path().join("link")).unwrap();
        let fixture = PlannedFixture {
            step: "model".into(),
            cells: Vec::new(),
            command: String::new(),
            place: None,
            tree_sha256: tree::read(folder.path()).unwrap().sha256,
            files: 1,
            bytes: 3,
        };
        let mut watch = Watch {
            all: vec![Watched {
                subject: Subject::Fixture(&fixture),
                place: folder.path(),
                hashed: None,
            }],
        };
        watch.check().unwrap();
        std::fs::write(&file, "two").unwrap();
        let error = watch.check().unwrap_err().to_string();
        assert!(error.contains("setup step `model`"), "{error}");
    }
}
