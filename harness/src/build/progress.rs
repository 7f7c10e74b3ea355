//! What a build tells while it works; the caller decides how to show it.

use std::fmt;
use std::time::Duration;

use crate::source::progress::SourceProgress;

/// One step of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildProgress {
    /// The build was made before; nothing is built.
    Cached {
        /// The build's key.
        key: String,
    },
    /// A cached build is damaged and is made again.
    Rebuilding {
        /// What is wrong with it.
        reason: String,
    },
    /// Another process makes the same build.
    Waiting {
        /// What is waited for.
        what: String,
    },
    /// The sources are being laid out.
    Source(SourceProgress),
    /// The build command runs; told about twice a second.
    Building {
        /// Full commit.
        commit: String,
        /// Since the command was started.
        elapsed: Duration,
        /// The last line of its log; may be empty.
        last_line: String,
    },
    /// The artifacts are copied and hashed.
    Collecting,
}

/// Receives the steps.
pub type Tell<'a> = dyn FnMut(BuildProgress) + 'a;

/// One line for a reader.
impl fmt::Display for BuildProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cached { .. } => f.write_str("built before"),
            Self::Rebuilding { reason } => write!(f, "building again: {reason}"),
            Self::Waiting { what } => write!(f, "waiting for {what}"),
            Self::Source(step) => step.fmt(f),
            Self::Building {
                commit,
                elapsed,
                last_line,
            } => {
                write!(
                    f,
                    "building {commit:.12} for {} s: {last_line}",
                    elapsed.as_secs()
                )
            }
            Self::Collecting => f.write_str("hashing artifacts"),
        }
    }
}
