//! Everything that can go wrong between a revision and its files.

use std::path::{Path, PathBuf};

/// Why a source could not be had. Each text names the repository or file, what
/// was asked and what to do.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No environment variable says where the cache may lie.
    #[error("no cache folder: set BENCH_RUN_CACHE, XDG_CACHE_HOME or HOME")]
    NoCacheFolder,
    /// The path does not exist.
    #[error("repository {} does not exist", path.display())]
    Missing {
        /// As given, made absolute.
        path: PathBuf,
    },
    /// The path exists and is no repository.
    #[error("{} is not a git repository{}", path.display(), enclosing.as_ref()
        .map(|root| format!("; it lies inside {}, give that path if it is meant", root.display()))
        .unwrap_or_default())]
    NotARepository {
        /// As given, made absolute.
        path: PathBuf,
        /// The repository around it, if there is one.
        enclosing: Option<PathBuf>,
    },
    /// libgit2 refuses a repository that belongs to another user.
    #[error(
        "repository {repo} belongs to another user, and git trusts only your own; if you trust it, \
         run `git config --global --add safe.directory {repo}`"
    )]
    UnsafeOwner {
        /// The repository.
        repo: String,
    },
    /// There is no such revision.
    #[error("unknown revision {rev:?} in {repo}{}", near_text(near))]
    UnknownRevision {
        /// As written in the experiment.
        rev: String,
        /// The repository.
        repo: String,
        /// Names that look alike, the likeliest first.
        near: Vec<String>,
    },
    /// A commit that is not here, asked of a clone without its history.
    #[error(
        "revision {rev:?} is not in {repo}, which is a shallow clone; \
         get its history with `git -C {repo} fetch --unshallow` and try again{}",
        near_text(near)
    )]
    Shallow {
        /// As written in the experiment.
        rev: String,
        /// The repository.
        repo: String,
        /// Names that look alike.
        near: Vec<String>,
    },
    /// A short hash that fits several objects.
    #[error("revision {rev:?} is ambiguous in {repo}: write more of its digits")]
    AmbiguousRevision {
        /// As written in the experiment.
        rev: String,
        /// The repository.
        repo: String,
    },
    /// A name of something else than a commit.
    #[error("revision {rev:?} in {repo} names a {kind}, expected a commit")]
    NotACommit {
        /// As written in the experiment.
        rev: String,
        /// The repository.
        repo: String,
        /// `tree`, `blob`….
        kind: String,
    },
    /// Nothing was ever committed.
    #[error("repository {repo} has no commits yet, so {rev:?} names nothing")]
    NoCommits {
        /// As written in the experiment.
        rev: String,
        /// The repository.
        repo: String,
    },
    /// `rev: worktree` where there is no working tree.
    #[error("`rev: worktree` needs a local repository with a working tree, and {repo} has none")]
    NoWorktree {
        /// The repository.
        repo: String,
    },
    /// `rev: worktree` in the middle of a merge.
    #[error("`rev: worktree`: {repo} has unresolved conflicts: {}", list(paths))]
    Conflicts {
        /// The repository.
        repo: String,
        /// Conflicted files.
        paths: Vec<String>,
    },
    /// A plain checkout leaves submodules empty.
    #[error(
        "commit {commit} of {repo} has submodules, which stay empty in a checkout: {}; \
         if the build does not need them, say `submodules: ignore` under `source`",
        list(paths)
    )]
    Submodules {
        /// The repository.
        repo: String,
        /// Full commit.
        commit: String,
        /// Their paths.
        paths: Vec<String>,
    },
    /// A plain checkout leaves pointers where LFS keeps the content elsewhere.
    #[error(
        "commit {commit} of {repo} keeps files in git LFS, and a checkout would hold only their pointers: {}; \
         pin a commit without them, or measure a program built elsewhere with `binary:`",
        list(paths)
    )]
    LfsPointers {
        /// The repository.
        repo: String,
        /// Full commit.
        commit: String,
        /// The pointer files.
        paths: Vec<String>,
    },
    /// The commit is there, but not all of its files are.
    #[error(
        "commit {commit} is not complete in {repo} ({reason}); \
         if that is a partial clone, clone it again without `--filter`"
    )]
    Incomplete {
        /// The repository.
        repo: String,
        /// Full commit.
        commit: String,
        /// What libgit2 misses.
        reason: String,
    },
    /// The patch file is no patch.
    #[error("patch {} cannot be read as a unified diff: {reason}", patch.display())]
    PatchUnreadable {
        /// The patch file.
        patch: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// The patch is for something else.
    #[error("patch {} does not apply to {commit}: {file}, {hunk}: {reason}", patch.display())]
    PatchDoesNotApply {
        /// The patch file.
        patch: PathBuf,
        /// Full commit.
        commit: String,
        /// The file in which it failed.
        file: String,
        /// The hunk that failed, by its `@@` line.
        hunk: String,
        /// What libgit2 said.
        reason: String,
    },
    /// The checkout is not what the commit says.
    #[error("checkout of {commit} at {} differs from the commit in {}", path.display(), list(paths))]
    CheckoutDiffers {
        /// Full commit.
        commit: String,
        /// The checkout.
        path: PathBuf,
        /// Files that differ.
        paths: Vec<String>,
    },
    /// A path of the experiment would leave the checkout.
    #[error("{key}: {} must be a path inside the checkout: relative, without `..`", path.display())]
    OutsideCheckout {
        /// The experiment's key.
        key: &'static str,
        /// As written.
        path: PathBuf,
    },
    /// `git fetch` failed; its own words say why.
    #[error("cannot fetch {repo}: {reason}")]
    Fetch {
        /// The repository, without credentials.
        repo: String,
        /// The last lines that `git` printed.
        reason: String,
    },
    /// Anything else that libgit2 reports.
    #[error("cannot {action} in {repo}: {}", source.message())]
    Git {
        /// What was tried.
        action: &'static str,
        /// The repository.
        repo: String,
        /// What libgit2 said.
        source: git2::Error,
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

fn near_text(near: &[String]) -> String {
    if near.is_empty() {
        return String::new();
    }
    format!("; did you mean {}?", near.join(" or "))
}

/// The first few of many names.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN {
        return format!("{shown} and {} more", names.len() - SHOWN);
    }
    shown
}

/// Turns a system error into one that names the action and the path.
pub(crate) trait IoContext<T> {
    /// `action` fits after "cannot".
    fn doing(self, action: &'static str, path: &Path) -> Result<T, SourceError>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn doing(self, action: &'static str, path: &Path) -> Result<T, SourceError> {
        self.map_err(|source| SourceError::Io {
            action,
            path: path.to_owned(),
            source,
        })
    }
}

/// Turns a libgit2 error into one that names the action and the repository.
pub(crate) trait GitContext<T> {
    /// `action` fits after "cannot".
    fn doing_in(self, action: &'static str, repo: &dyn std::fmt::Display)
    -> Result<T, SourceError>;
}

impl<T> GitContext<T> for Result<T, git2::Error> {
    fn doing_in(
        self,
        action: &'static str,
        repo: &dyn std::fmt::Display,
    ) -> Result<T, SourceError> {
        self.map_err(|source| {
            let repo = repo.to_string();
            match source.code() {
                git2::ErrorCode::Owner => SourceError::UnsafeOwner { repo },
                _ => SourceError::Git {
                    action,
                    repo,
                    source,
                },
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_refusal_says_how_to_trust_the_repository() {
        let refused = git2::Error::new(
            git2::ErrorCode::Owner,
            git2::ErrorClass::Config,
            "not owned by current user",
        );
        let error = Err::<(), _>(refused)
            .doing_in("open the repository", &"/srv/code")
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("git config --global --add safe.directory /srv/code"),
            "{text}"
        );
    }

    #[test]
    fn long_lists_are_cut_and_counted() {
        let names: Vec<String> = (0..7).map(|number| format!("f{number}")).collect();
        assert_eq!(list(&names), "f0, f1, f2, f3, f4 and 2 more");
        assert_eq!(list(&names[..2]), "f0, f1");
    }
}
