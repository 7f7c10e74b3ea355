//! Why a setup step left nothing that could be measured with.

use std::path::{Path, PathBuf};

use crate::build::error::LogEnd;
use crate::experiment::template::TemplateError;
use crate::source::error::SourceError;

/// Why a setup step left nothing that could be measured with.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The command ended with an error.
    #[error("failed with {status}; {log}")]
    Failed {
        /// Exit status or signal, in words.
        status: String,
        /// Where the log lies, and its end.
        log: LogEnd,
    },
    /// The command ran into its time limit.
    #[error("was stopped after {limit_seconds} s (its `timeout_secs`); {log}")]
    TimedOut {
        /// The limit.
        limit_seconds: u64,
        /// Where the log lies, and its end.
        log: LogEnd,
    },
    /// The caller asked to stop.
    #[error("was interrupted")]
    Interrupted,
    /// The program cannot be started.
    #[error("cannot start {program}: {source}")]
    NotStarted {
        /// As the command names it.
        program: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The command succeeded and made nothing.
    #[error("succeeded but left no file in {{out}}; {log}")]
    NothingMade {
        /// Where the log lies, and its end.
        log: LogEnd,
    },
    /// The last line is not the path of something that is there.
    #[error("must print the path of a file or a folder as its last line, got {got}; {log}")]
    NoPath {
        /// What it printed, in words.
        got: String,
        /// Where the log lies, and its end.
        log: LogEnd,
    },
    /// What was made before is there, and is not what it was.
    #[error(
        "{} has changed since it was made: {difference}; runs on different fixtures cannot be \
         compared; put it back, or remove {} to have it made again",
        place.display(), entry.display()
    )]
    Changed {
        /// What has changed.
        place: PathBuf,
        /// The first file that differs, expected and got.
        difference: String,
        /// What the harness knows of it.
        entry: PathBuf,
    },
    /// The arm whose program the step runs was not built.
    #[error("runs a program of arm `{arm}`, which did not build")]
    NoProgram {
        /// The arm.
        arm: String,
    },
    /// The command line cannot be filled.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// Waiting for another run failed.
    #[error(transparent)]
    Lock(#[from] SourceError),
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

/// Turns a system error into one that names the action and the path.
pub(super) trait IoContext<T> {
    /// `action` fits after "cannot".
    fn doing(self, action: &'static str, path: &Path) -> Result<T, SetupError>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn doing(self, action: &'static str, path: &Path) -> Result<T, SetupError> {
        self.map_err(|source| SetupError::Io {
            action,
            path: path.to_owned(),
            source,
        })
    }
}
