//! From a revision as people write it to the exact tree that is built.

use git2::{ErrorCode, ObjectType, Oid, Repository};
use serde::{Deserialize, Serialize};

use super::error::{GitContext as _, SourceError};
use super::mirror::Mirror;
use super::progress::Tell;
use super::worktree;

/// The revision that means "my files as they are now".
pub const WORKTREE: &str = "worktree";

/// How many look-alike names an error offers.
const NEAR_MATCHES: usize = 3;
/// Below this likeness (0 to 1) a name is not offered.
const NEAR_ENOUGH: f64 = 0.8;

/// What is built: a commit, possibly with uncommitted changes or a patch on top.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The full commit, 40 hex digits.
    pub commit: String,
    /// The tree to check out, 40 hex digits; the commit's own unless something
    /// was put on top.
    pub tree: String,
    /// True for `rev: worktree` with uncommitted changes.
    pub dirty: bool,
    /// SHA-256 of what was put on top of the commit: the patch file, or the
    /// working tree's diff.
    pub patch_sha256: Option<String>,
}

/// Resolves `rev`: a branch, a tag, a full or short hash, `HEAD`, `HEAD~3`, or
/// [`WORKTREE`]. A URL is fetched first, unless `rev` is a full hash that the
/// mirror already holds.
///
/// # Errors
/// The revision is unknown (with look-alikes), ambiguous, no commit, or missing
/// from a shallow clone; a URL cannot be fetched.
pub fn resolve(mirror: &Mirror, rev: &str, tell: &mut Tell<'_>) -> Result<Pin, SourceError> {
    if rev == WORKTREE {
        return worktree::capture(mirror);
    }
    let full = (rev.len() == 40).then(|| Oid::from_str(rev).ok()).flatten();
    let here = |commit: Oid| mirror.reading().find_commit(commit).is_ok();
    if !full.is_some_and(here) {
        mirror.fetch_all(tell)?;
    }
    if let Some(commit) = full
        && mirror.origin().is_none()
        && !here(commit)
    {
        // A server may refuse this; then the revision is simply unknown.
        let _ = mirror.fetch_commit(commit, tell);
    }
    let commit = look_up(mirror, rev)?;
    Ok(Pin {
        commit: commit.id().to_string(),
        tree: commit.tree_id().to_string(),
        dirty: false,
        patch_sha256: None,
    })
}

fn look_up<'a>(mirror: &'a Mirror, rev: &str) -> Result<git2::Commit<'a>, SourceError> {
    let reading = mirror.reading();
    let repo = || mirror.repo().to_string();
    let unknown = || {
        let near = near_matches(reading, rev);
        if reading.is_shallow() {
            SourceError::Shallow {
                rev: rev.into(),
                repo: repo(),
                near,
            }
        } else {
            SourceError::UnknownRevision {
                rev: rev.into(),
                repo: repo(),
                near,
            }
        }
    };
    let object = match reading.revparse_single(rev) {
        Ok(object) => object,
        Err(error) => {
            return Err(match error.code() {
                ErrorCode::Ambiguous => SourceError::AmbiguousRevision {
                    rev: rev.into(),
                    repo: repo(),
                },
                _ if has_no_references(reading) => SourceError::NoCommits {
                    rev: rev.into(),
                    repo: repo(),
                },
                ErrorCode::NotFound | ErrorCode::InvalidSpec | ErrorCode::UnbornBranch => unknown(),
                _ => Err::<(), _>(error)
                    .doing_in("look up the revision", mirror.repo())
                    .err()
                    .unwrap_or_else(unknown),
            });
        }
    };
    let kind = object.kind().unwrap_or(ObjectType::Any);
    object
        .peel_to_commit()
        .map_err(|_| SourceError::NotACommit {
            rev: rev.into(),
            repo: repo(),
            kind: kind.to_string(),
        })
}

fn has_no_references(reading: &Repository) -> bool {
    reading
        .references()
        .is_ok_and(|mut references| references.next().is_none())
        && reading.head().is_err()
}

/// Branches and tags whose name is like `rev`, the likeliest first. For `HEAD~9`
/// the name is known and only its history too short, so nothing is offered.
fn near_matches(reading: &Repository, rev: &str) -> Vec<String> {
    let name = rev.split(['~', '^', '@', ':']).next().unwrap_or(rev);
    let Ok(references) = reading.references() else {
        return Vec::new();
    };
    let mut scored: Vec<(f64, String)> = references
        .flatten()
        .filter_map(|reference| reference.shorthand().ok().map(str::to_owned))
        .map(|known| {
            let last = known.rsplit('/').next().unwrap_or(&known);
            let likeness = strsim::jaro_winkler(name, &known).max(strsim::jaro_winkler(name, last));
            (likeness, known)
        })
        .filter(|(likeness, known)| *likeness >= NEAR_ENOUGH && known != name)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.truncate(NEAR_MATCHES);
    scored.into_iter().map(|(_, known)| known).collect()
}
