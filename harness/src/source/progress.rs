//! What `source` tells while it works; the caller decides how to show it.

use std::fmt;

/// One step of getting the sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceProgress {
    /// A repository with a URL is fetched into the mirror.
    Fetching {
        /// The repository, without credentials.
        repo: String,
        /// The last line that `git` printed; may be empty.
        last_line: String,
    },
    /// Another process works with the same repository's files.
    Waiting {
        /// What is waited for.
        what: String,
    },
    /// Files are written.
    CheckingOut {
        /// Full commit.
        commit: String,
        /// Files done.
        done: usize,
        /// Files that differ from what lies there.
        total: usize,
    },
}

/// Receives the steps.
pub type Tell<'a> = dyn FnMut(SourceProgress) + 'a;

/// One line for a reader.
impl fmt::Display for SourceProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fetching { repo, last_line } => write!(f, "fetching {repo} {last_line}"),
            Self::Waiting { what } => write!(f, "waiting for {what}"),
            Self::CheckingOut {
                commit,
                done,
                total,
            } => {
                write!(f, "checking out {:.12} ({done} of {total} files)", commit)
            }
        }
    }
}
