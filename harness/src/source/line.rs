//! The line of commits between two revisions of a local repository.

use std::path::Path;

/// One commit of the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineCommit {
    /// Full commit.
    pub id: String,
    /// First line of its message.
    pub summary: String,
}

/// Why there is no line.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// git cannot read the repository or find a revision.
    #[error("{what}: {source}")]
    Git {
        /// What was looked for.
        what: String,
        /// Why not.
        source: git2::Error,
    },
    /// Both are one commit.
    #[error("expected two commits, got `{good}` and `{bad}`, which are the same")]
    Same {
        /// The first revision.
        good: String,
        /// The second.
        bad: String,
    },
    /// The second revision comes before the first.
    #[error("expected `{good}` before `{bad}`, got it after; swap them")]
    Reversed {
        /// The first revision.
        good: String,
        /// The second.
        bad: String,
    },
    /// The first revision does not come before the second.
    #[error(
        "expected `{good}` among the first parents of `{bad}`, got a history in which it is not; \
         choose two commits of one branch"
    )]
    NotBefore {
        /// The first revision.
        good: String,
        /// The second.
        bad: String,
    },
}

/// The commits behind `good` up to `bad`, oldest first, along first parents: a merge counts
/// as one commit. Gives the full id of `good` beside them.
///
/// # Errors
/// [`LineError`].
pub fn between(
    repository: &Path,
    good: &str,
    bad: &str,
) -> Result<(String, Vec<LineCommit>), LineError> {
    let failed = |what: String| move |source| LineError::Git { what, source };
    let shown = repository.display().to_string();
    let git = git2::Repository::discover(repository).map_err(failed(shown))?;
    let find = |revision: &str| {
        git.revparse_single(revision)
            .and_then(|object| object.peel_to_commit())
            .map_err(failed(format!("revision `{revision}`")))
    };
    let first = find(good)?.id();
    let mut commit = find(bad)?;
    let (good, bad) = (good.to_owned(), bad.to_owned());
    if commit.id() == first {
        return Err(LineError::Same { good, bad });
    }
    if git.graph_descendant_of(first, commit.id()).unwrap_or(false) {
        return Err(LineError::Reversed { good, bad });
    }
    let mut line = Vec::new();
    while commit.id() != first {
        line.push(LineCommit {
            id: commit.id().to_string(),
            summary: summary(&commit),
        });
        if commit.parent_count() == 0 {
            return Err(LineError::NotBefore { good, bad });
        }
        let what = format!("the parent of {}", commit.id());
        commit = commit.parent(0).map_err(failed(what))?;
    }
    line.reverse();
    Ok((first.to_string(), line))
}

fn summary(commit: &git2::Commit<'_>) -> String {
    let bytes = commit.message_bytes();
    let text = String::from_utf8_lossy(bytes);
    text.lines().next().unwrap_or_default().trim().to_owned()
}
