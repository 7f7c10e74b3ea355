//! Everything that can go wrong between a pin and its artifacts.

use std::path::PathBuf;

use crate::source::error::SourceError;

/// Why there is no build.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The sources could not be had.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The build command failed.
    #[error("build of {commit} failed with {status}; {log}")]
    Failed {
        /// Full commit.
        commit: String,
        /// Exit status or signal, in words.
        status: String,
        /// Where the log lies, and its end.
        log: Box<LogEnd>,
    },
    /// The build command ran into its time limit.
    #[error("build of {commit} was stopped after {limit_seconds} s (`build.timeout_secs`); {log}")]
    TimedOut {
        /// Full commit.
        commit: String,
        /// The limit.
        limit_seconds: u64,
        /// Where the log lies, and its end.
        log: Box<LogEnd>,
    },
    /// The caller asked to stop.
    #[error("build of {commit} was interrupted")]
    Interrupted {
        /// Full commit.
        commit: String,
    },
    /// The command succeeded and did not leave what the experiment names.
    #[error(
        "build of {commit} succeeded but left no {}{}; {log}",
        path.display(), near_text(near)
    )]
    ArtifactMissing {
        /// Full commit.
        commit: String,
        /// As written in the experiment.
        path: PathBuf,
        /// Files of that name elsewhere in the checkout.
        near: Vec<PathBuf>,
        /// Where the log lies, and its end.
        log: Box<LogEnd>,
    },
    /// The experiment names no artifact.
    #[error("`build.artifacts` is empty: name at least the program that is measured")]
    NoArtifacts,
    /// A prebuilt program is missing.
    #[error("binary {} does not exist", path.display())]
    BinaryMissing {
        /// As given, made absolute.
        path: PathBuf,
    },
    /// An artifact is neither a file nor a folder.
    #[error("artifact {} is neither a file nor a folder", path.display())]
    NotAFile {
        /// The artifact.
        path: PathBuf,
    },
    /// The artifact starts another program, which nobody pinned.
    #[error(
        "artifact {} is {what}, so what runs is some other program; {hint}, or say \
         `allow_script: true` if the script itself is meant",
        path.display()
    )]
    Script {
        /// The artifact.
        path: PathBuf,
        /// `a libtool wrapper` or `a script (#!…)`.
        what: String,
        /// Where the program usually lies.
        hint: String,
    },
    /// The artifact would not load the library that was built with it, but another
    /// one, or one that the next arm's build overwrites.
    #[error(transparent)]
    ForeignLibrary(Box<ForeignLibrary>),
    /// The artifact says that it was built from something else.
    #[error(
        "wrong receipt: `{artifact} --version` says {got:?}, expected {expected}; a stale build, \
         or a build that does not notice a new commit"
    )]
    ReceiptMismatch {
        /// The artifact.
        artifact: String,
        /// The pin, in words.
        expected: String,
        /// The version line.
        got: String,
    },
    /// A receipt is required and there is none.
    #[error(
        "no receipt: `{artifact} --version` must print the full commit {commit} (`build.receipt: commit`), got {got}"
    )]
    ReceiptMissing {
        /// The artifact.
        artifact: String,
        /// Full commit.
        commit: String,
        /// What it printed, or why it did not.
        got: String,
    },
    /// Reading or writing failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// The end of a build's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEnd {
    /// The whole log.
    pub path: PathBuf,
    /// Its last lines.
    pub tail: String,
}

impl std::fmt::Display for LogEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "last lines of {}:\n{}", self.path.display(), self.tail)
    }
}

/// An artifact that does not load the library built with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "artifact {artifact} loads {soname} from {from}, and this build's own is {library}; {}set \
     `env: {{ LD_LIBRARY_PATH: \"{{artifact_dir}}/{folder}\" }}`, or link it statically",
    if *listed { String::new() } else { format!("add {library} to `build.artifacts` and ") }
)]
pub struct ForeignLibrary {
    /// The artifact.
    pub artifact: String,
    /// As the loader asks for it.
    pub soname: String,
    /// Where the loader finds it, in words.
    pub from: String,
    /// The build's own, relative to the checkout.
    pub library: String,
    /// Its folder, relative to the checkout.
    pub folder: String,
    /// True if it is among the artifacts already.
    pub listed: bool,
}

impl BuildError {
    /// True if the arm itself is at fault (it does not compile, leaves no artifact):
    /// then the other arms go on. False if nothing else can be expected to work.
    #[must_use]
    pub fn is_the_arms_own(&self) -> bool {
        matches!(
            self,
            Self::Failed { .. } | Self::TimedOut { .. } | Self::ArtifactMissing { .. }
        )
    }

    /// The last lines of the build's log, where there is one.
    #[must_use]
    pub fn log_tail(&self) -> Option<&str> {
        match self {
            Self::Failed { log, .. }
            | Self::TimedOut { log, .. }
            | Self::ArtifactMissing { log, .. } => Some(&log.tail),
            _ => None,
        }
    }
}

fn near_text(near: &[PathBuf]) -> String {
    if near.is_empty() {
        return String::new();
    }
    let names: Vec<String> = near.iter().map(|path| path.display().to_string()).collect();
    format!("; did you mean {}?", names.join(" or "))
}

/// Turns a system error into one that names the action and the path.
pub(super) trait IoContext<T> {
    /// `action` fits after "cannot".
    fn doing(self, action: &'static str, path: &std::path::Path) -> Result<T, BuildError>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn doing(self, action: &'static str, path: &std::path::Path) -> Result<T, BuildError> {
        self.map_err(|source| BuildError::Io {
            action,
            path: path.to_owned(),
            source,
        })
    }
}
