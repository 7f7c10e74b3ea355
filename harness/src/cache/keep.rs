//! Which parts of the cache stay. Pure.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::experiment::model::Experiment;

/// Digits that make a revision an abbreviated commit.
const MIN_COMMIT_DIGITS: usize = 7;

/// What an entry was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A build of a commit.
    Build {
        /// The repository's folder in the cache.
        source: String,
        /// Full commit.
        commit: String,
    },
    /// The result of a setup step.
    Fixture {
        /// The project in which the step ran.
        root: PathBuf,
        /// The step's command as the experiment has it.
        command: String,
    },
    /// The mirror and the checkout of a repository.
    Source {
        /// Its folder in the cache.
        name: String,
    },
    /// What earlier runs of one program on this host were like: the noise that plans are made with.
    History {
        /// The host.
        host: String,
        /// Runs on file.
        runs: usize,
    },
    /// The log of a failed build or step, or an entry that cannot be read.
    Remains,
    /// What a killed run or removal left half made.
    Half,
}

/// What the experiments of a project need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins {
    /// Revisions, as written.
    pub revisions: BTreeSet<String>,
    /// Full commits that the revisions which are no commits stand for.
    pub commits: BTreeSet<String>,
    /// Commands of setup steps.
    pub commands: BTreeSet<String>,
}

/// Why an entry stays or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// An experiment of the project needs it.
    Pinned,
    /// It cannot be made again.
    Kept,
    /// It was used a short while ago.
    Recent,
    /// Nothing speaks for it.
    Goes,
}

impl Pins {
    /// Adds what one experiment needs.
    pub fn add(&mut self, experiment: &Experiment) {
        let revisions = experiment.arms.values().filter_map(|arm| arm.rev.clone());
        self.revisions.extend(revisions);
        let steps = experiment.setup.values();
        self.commands.extend(steps.map(|step| step.command.clone()));
    }

    /// The revisions that have to be looked up: tags and branches.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let revisions = self.revisions.iter().map(String::as_str);
        revisions.filter(|revision| !is_commit(revision))
    }

    fn has_commit(&self, commit: &str) -> bool {
        let mut written = self.revisions.iter();
        self.commits.contains(commit)
            || written.any(|revision| is_commit(revision) && commit.starts_with(revision.as_str()))
    }
}

fn is_commit(revision: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    revision.len() >= MIN_COMMIT_DIGITS && revision.bytes().all(digit)
}

/// The fate of an entry that was used last `unused_days` ago, among `all` origins of the
/// cache; `root` is the project whose experiments the pins are.
#[must_use]
pub fn fate(
    origin: &Origin,
    unused_days: u64,
    all: &[Origin],
    (pins, root): (&Pins, &Path),
    keep_days: u64,
) -> Fate {
    let is_pinned = |origin: &Origin| match origin {
        Origin::Build { commit, .. } => pins.has_commit(commit),
        Origin::Fixture { root: of, command } => of == root && pins.commands.contains(command),
        Origin::Source { .. } | Origin::History { .. } | Origin::Remains | Origin::Half => false,
    };
    let source_of_pinned = |name: &str| {
        let mut builds = all.iter().filter(|other| is_pinned(other));
        builds.any(|build| matches!(build, Origin::Build { source, .. } if source == name))
    };
    match origin {
        Origin::Half => Fate::Goes,
        Origin::History { .. } => Fate::Kept,
        Origin::Source { name } if source_of_pinned(name) => Fate::Pinned,
        other if is_pinned(other) => Fate::Pinned,
        _ if unused_days < keep_days => Fate::Recent,
        _ => Fate::Goes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(commit: &str) -> Origin {
        Origin::Build {
            source: "code-1".into(),
            commit: commit.repeat(40),
        }
    }

    fn fixture(root: &str) -> Origin {
        Origin::Fixture {
            root: root.into(),
            command: "make {out}".into(),
        }
    }

    fn fate_of(origin: &Origin, days: u64) -> Fate {
        let pins = Pins {
            revisions: ["aaaaaaaaa".to_owned(), "v1".to_owned(), "cafe".to_owned()].into(),
            commits: ["b".repeat(40)].into(),
            commands: ["make {out}".to_owned()].into(),
        };
        let all = [build("a"), build("c")];
        fate(origin, days, &all, (&pins, Path::new("/p")), 30)
    }

    #[test]
    fn what_an_experiment_names_stays_however_old_it_is() {
        assert_eq!(fate_of(&build("a"), 900), Fate::Pinned);
        assert_eq!(fate_of(&build("b"), 900), Fate::Pinned, "by a tag");
        assert_eq!(fate_of(&fixture("/p"), 900), Fate::Pinned);
        let source = |name: &str| Origin::Source { name: name.into() };
        assert_eq!(fate_of(&source("code-1"), 900), Fate::Pinned);
        assert_eq!(fate_of(&source("other-2"), 900), Fate::Goes);
    }

    #[test]
    fn what_nobody_names_goes_when_it_was_not_used_for_long() {
        assert_eq!(fate_of(&build("c"), 29), Fate::Recent);
        assert_eq!(fate_of(&build("c"), 30), Fate::Goes);
        assert_eq!(fate_of(&fixture("/elsewhere"), 30), Fate::Goes);
        assert_eq!(fate_of(&Origin::Remains, 3), Fate::Recent);
    }

    #[test]
    fn what_was_measured_stays_however_old_it_is() {
        let (host, runs) = ("a-host".to_owned(), 3);
        assert_eq!(fate_of(&Origin::History { host, runs }, 900), Fate::Kept);
    }

    #[test]
    fn what_is_half_made_goes_at_once() {
        assert_eq!(fate_of(&Origin::Half, 0), Fate::Goes);
    }

    #[test]
    fn a_short_word_of_hex_digits_is_a_name() {
        let pins = Pins {
            revisions: ["cafe".to_owned(), "1234567".to_owned()].into(),
            ..Pins::default()
        };
        assert_eq!(pins.names().collect::<Vec<_>>(), ["cafe"]);
    }
}
