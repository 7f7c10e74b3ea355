//! Whether programs and fixtures are still the ones that the plan names.
//!
//! A prebuilt program lies where its owner builds it again, and an attempt may write
//! into its own artifacts or into the model that it reads. What the file system says of a file is compared around every
//! attempt; only where that has changed the content is hashed again.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::build::builder::{self, Unlike};
use crate::record::format::{Plan, PlannedBuild, PlannedFixture};
use crate::setup::tree;

use super::command::Workplace;
use super::error::SessionError;

/// Links to folders are followed this deep at most: the kernel itself gives up there.
const MAX_DEPTH: usize = 40;

/// What is measured, asked around every attempt whether it still is what the plan names.
/// `build` is that of the arm whose attempt it is.
pub trait Subjects {
    /// Looks before an attempt. The reason, if the attempt's program was ruined by an
    /// earlier attempt of its own: then it need not be started.
    ///
    /// # Errors
    /// [`SessionError::Changed`] when it was not an attempt of its own that changed something.
    fn before(&mut self, build: Option<usize>) -> Result<Option<String>, SessionError>;

    /// Looks after an attempt. The reason, if its program was ruined while it ran.
    ///
    /// # Errors
    /// As [`Subjects::before`].
    fn after(&mut self, build: Option<usize>) -> Result<Option<String>, SessionError>;
}

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
    /// What the files looked like when they were hashed last, and what was found.
    hashed: Option<(Vec<Stamp>, Option<Fault>)>,
    /// An attempt with it has ruined it.
    blamed: bool,
}

#[derive(Debug, Clone, Copy)]
enum Subject<'a> {
    /// By its place in the plan.
    Build(usize, &'a PlannedBuild),
    Fixture(&'a PlannedFixture),
}

/// A subject that is not what the plan names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    gone: bool,
    text: String,
}

/// What tells that a file may have changed, without reading it: device, inode, size in
/// bytes, and the time of its last change in seconds and nanoseconds.
type Stamp = (u64, u64, u64, i64, i64);

/// What is known of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Circumstances {
    is_fixture: bool,
    is_prebuilt: bool,
    gone: bool,
    /// The attempt before or behind us runs it.
    own: bool,
    /// The attempt is over.
    after: bool,
    /// An attempt with it was blamed before.
    blamed: bool,
}

/// What a fault means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ruling {
    /// Nobody knows any more what is measured.
    EndRun,
    /// The attempt failed, by its own doing.
    FailAttempt,
    /// Another arm's affair, which its own attempts will show.
    Ignore,
}

/// A program that vanishes or changes while it runs itself has ruined itself. A prebuilt one
/// with other content was most likely built anew by its owner, and whatever changes while
/// something else runs was changed by somebody unknown.
fn ruling(found: Circumstances) -> Ruling {
    let by_somebody_else = found.is_fixture || (found.is_prebuilt && !found.gone);
    match (found.own, found.blamed || found.after) {
        _ if by_somebody_else => Ruling::EndRun,
        (true, true) => Ruling::FailAttempt,
        (false, _) if found.blamed => Ruling::Ignore,
        _ => Ruling::EndRun,
    }
}

impl<'a> Watch<'a> {
    /// Nothing is looked at yet.
    #[must_use]
    pub fn new(plan: &'a Plan, workplace: &'a Workplace) -> Self {
        let builds = plan.builds.iter().enumerate();
        let builds = builds.map(|(index, build)| Subject::Build(index, build));
        let builds = builds.zip(&workplace.artifact_dirs);
        let fixtures = plan.fixtures.iter().map(Subject::Fixture);
        let all = builds.chain(fixtures.zip(&workplace.fixtures));
        Watch {
            all: all
                .map(|(subject, place)| Watched::new(subject, place))
                .collect(),
        }
    }

    /// Looks at everything; the first time, and where a file looks different, by hash.
    fn look(&mut self, build: Option<usize>, after: bool) -> Result<Option<String>, SessionError> {
        let mut own_fault = None;
        for watched in &mut self.all {
            let Some(fault) = watched.fault() else {
                continue;
            };
            let own = matches!(watched.subject, Subject::Build(index, _) if Some(index) == build);
            match ruling(watched.circumstances(&fault, own, after)) {
                Ruling::EndRun => return Err(SessionError::Changed(fault.text)),
                Ruling::FailAttempt => {
                    watched.blamed = true;
                    own_fault = Some(fault.text);
                }
                Ruling::Ignore => {}
            }
        }
        Ok(own_fault)
    }
}

impl Subjects for Watch<'_> {
    fn before(&mut self, build: Option<usize>) -> Result<Option<String>, SessionError> {
        let ruined = self.look(build, false)?;
        Ok(ruined.map(|fault| format!("an earlier attempt ruined its program: {fault}")))
    }

    fn after(&mut self, build: Option<usize>) -> Result<Option<String>, SessionError> {
        let ruined = self.look(build, true)?;
        Ok(ruined.map(|fault| format!("its program was ruined while it ran: {fault}")))
    }
}

impl<'a> Watched<'a> {
    fn new(subject: Subject<'a>, place: &'a Path) -> Self {
        Watched {
            subject,
            place,
            hashed: None,
            blamed: false,
        }
    }

    fn fault(&mut self) -> Option<Fault> {
        let now = self.stamps();
        if let (Some(now), Some((stamps, found))) = (&now, &self.hashed)
            && now == stamps
        {
            return found.clone();
        }
        let found = match self.subject {
            Subject::Build(_, build) => build_fault(build, self.place),
            Subject::Fixture(fixture) => fixture_fault(fixture, self.place),
        };
        self.hashed = now.map(|now| (now, found.clone()));
        found
    }

    fn circumstances(&self, fault: &Fault, own: bool, after: bool) -> Circumstances {
        let (is_fixture, is_prebuilt) = match self.subject {
            Subject::Build(_, build) => (false, build.commit.is_none()),
            Subject::Fixture(_) => (true, false),
        };
        Circumstances {
            is_fixture,
            is_prebuilt,
            gone: fault.gone,
            own,
            after,
            blamed: self.blamed,
        }
    }

    /// `None` where a file cannot be looked at: the hash will say why.
    fn stamps(&self) -> Option<Vec<Stamp>> {
        let mut stamps = Vec::new();
        match self.subject {
            Subject::Build(_, build) => {
                for artifact in &build.artifacts {
                    collect(&self.place.join(&artifact.path), 0, &mut stamps)?;
                }
            }
            Subject::Fixture(_) => collect(self.place, 0, &mut stamps)?,
        }
        Some(stamps)
    }
}

fn build_fault(build: &PlannedBuild, place: &Path) -> Option<Fault> {
    let unlike = builder::unchanged(build, place).err()?;
    Some(Fault {
        gone: matches!(unlike, Unlike::Gone { .. }),
        text: unlike.to_string(),
    })
}

fn fixture_fault(fixture: &PlannedFixture, place: &Path) -> Option<Fault> {
    let step = &fixture.step;
    let (gone, text) = match tree::read(place) {
        Ok(now) if now.sha256 == fixture.tree_sha256 => return None,
        Ok(now) => (
            false,
            format!(
                "what setup step `{step}` made has changed since the plan was sealed: expected \
                 tree {}, got {}",
                fixture.tree_sha256, now.sha256
            ),
        ),
        Err(error) => (
            true,
            format!("what setup step `{step}` made cannot be read: {error}"),
        ),
    };
    Some(Fault { gone, text })
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
        Watch {
            all: vec![Watched::new(Subject::Build(0, build), place)],
        }
    }

    /// What the watch says before an attempt of another build, a failed run as text.
    fn seen(watch: &mut Watch<'_>) -> String {
        match watch.before(Some(7)) {
            Ok(reason) => reason.unwrap_or_default(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn only_what_an_attempt_did_to_its_own_program_is_its_own_fault() {
        let self_made = Circumstances {
            is_fixture: false,
            is_prebuilt: false,
            gone: false,
            own: true,
            after: true,
            blamed: false,
        };
        let with = |change: &dyn Fn(&mut Circumstances)| {
            let mut found = self_made;
            change(&mut found);
            ruling(found)
        };
        assert_eq!(ruling(self_made), Ruling::FailAttempt);
        assert_eq!(with(&|f| f.is_fixture = true), Ruling::EndRun);
        assert_eq!(with(&|f| f.is_prebuilt = true), Ruling::EndRun);
        assert_eq!(
            with(&|f| (f.is_prebuilt, f.gone) = (true, true)),
            Ruling::FailAttempt
        );
        assert_eq!(with(&|f| f.after = false), Ruling::EndRun);
        assert_eq!(
            with(&|f| (f.after, f.blamed) = (false, true)),
            Ruling::FailAttempt
        );
        assert_eq!(with(&|f| f.own = false), Ruling::EndRun);
        assert_eq!(with(&|f| (f.own, f.blamed) = (false, true)), Ruling::Ignore);
    }

    #[test]
    fn a_program_that_deletes_itself_fails_its_own_attempts_only() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("app"), "one").unwrap();
        let build = planned(folder.path());
        let mut watch = watch(&build, folder.path());
        assert_eq!(watch.before(Some(0)).unwrap(), None);
        std::fs::remove_file(folder.path().join("app")).unwrap();
        let ruined = watch.after(Some(0)).unwrap().unwrap();
        assert!(
            ruined.contains("artifact app is gone: No such file"),
            "{ruined}"
        );
        assert_eq!(watch.before(Some(7)).unwrap(), None);
        let again = watch.before(Some(0)).unwrap().unwrap();
        assert!(again.starts_with("an earlier attempt ruined"), "{again}");
    }

    #[test]
    fn a_file_of_the_same_size_and_age_but_other_content_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("app");
        std::fs::write(&file, "one").unwrap();
        let modified = std::fs::metadata(&file).unwrap().modified().unwrap();
        let build = planned(folder.path());
        let mut watch = watch(&build, folder.path());
        assert_eq!(seen(&mut watch), "");
        std::fs::write(&file, "two").unwrap();
        let opened = std::fs::File::options().append(true).open(&file).unwrap();
        opened.set_modified(modified).unwrap();
        let error = seen(&mut watch);
        assert!(error.contains("app has changed"), "{error}");
    }

    #[test]
    fn a_file_that_was_only_touched_is_the_same_program() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("app"), "one").unwrap();
        let build = planned(folder.path());
        let mut watch = watch(&build, folder.path());
        assert_eq!(seen(&mut watch), "");
        std::fs::write(folder.path().join("app"), "one").unwrap();
        assert_eq!(seen(&mut watch), "");
    }

    #[test]
    fn a_file_deep_in_a_folder_and_a_file_that_is_gone_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("app/lib");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("a"), "one").unwrap();
        let build = planned(folder.path());
        let mut watch = watch(&build, folder.path());
        assert_eq!(seen(&mut watch), "");
        std::fs::write(deep.join("a"), "two").unwrap();
        assert_ne!(seen(&mut watch), "");
        std::fs::remove_dir_all(folder.path().join("app")).unwrap();
        assert_ne!(seen(&mut watch), "");
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
            all: vec![Watched::new(Subject::Fixture(&fixture), folder.path())],
        };
        assert_eq!(seen(&mut watch), "");
        std::fs::write(&file, "two").unwrap();
        let error = seen(&mut watch);
        assert!(error.contains("setup step `model`"), "{error}");
    }
}
