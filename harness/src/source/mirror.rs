//! A bare repository in the cache for each source repository.
//!
//! The mirror of a local repository borrows its objects (`objects/info/alternates`)
//! and copies only its tags: opening it costs no time and no disk, and new objects
//! (a patched tree, uncommitted files) are written to the mirror, never to the
//! user's repository. The mirror of a URL holds everything that was ever fetched.

use std::cell::Cell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use git2::{Oid, Repository, RepositoryOpenFlags};

use super::cache_root::CacheRoot;
use super::error::{GitContext as _, IoContext as _, SourceError};
use super::fetch;
use super::lock::FileLock;
use super::progress::{SourceProgress, Tell};
use super::repository::RepoRef;
use crate::hash::sha256_hex;

/// Hex digits of the location's hash in a folder name: enough never to collide,
/// short enough to read.
const KEY_DIGITS: usize = 12;

/// An opened mirror, with the user's own repository beside it if it is local.
pub struct Mirror {
    repo: RepoRef,
    key: String,
    folder: PathBuf,
    bare: Repository,
    /// The user's repository; only ever read.
    origin: Option<Repository>,
    fetched: Cell<bool>,
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mirror")
            .field("repo", &self.repo)
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl Mirror {
    /// Opens the mirror of `repo`, making it if need be. Nothing is fetched yet.
    ///
    /// # Errors
    /// The repository is missing, is none, or belongs to another user; the cache
    /// cannot be written.
    pub fn open(cache: &CacheRoot, repo: &RepoRef) -> Result<Self, SourceError> {
        let origin = match repo {
            RepoRef::Path(path) => Some(open_local(path)?),
            RepoRef::Url(_) => None,
        };
        let key = key(repo, origin.as_ref());
        let folder = cache.sources().join(&key);
        let _lock = FileLock::acquire(&folder.join("mirror.lock"), &mut || {})?;
        let bare_path = folder.join("mirror.git");
        if !bare_path.join("HEAD").exists() {
            create(&bare_path)?;
        }
        if let Some(origin) = &origin {
            borrow_objects(&bare_path, origin)?;
            copy_shallow_boundary(origin.commondir(), &bare_path)?;
        }
        let bare =
            Repository::open_bare(&bare_path).doing_in("open the mirror", &bare_path.display())?;
        if let Some(origin) = &origin {
            copy_tags(origin, &bare).doing_in("copy the tags", repo)?;
        }
        Ok(Self {
            repo: repo.clone(),
            key,
            folder,
            bare,
            origin,
            fetched: Cell::new(false),
        })
    }

    /// The repository as the experiment names it.
    #[must_use]
    pub fn repo(&self) -> &RepoRef {
        &self.repo
    }

    /// Name of the repository's folder in the cache; equal for all worktrees of
    /// one local repository.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The one path at which commits of this repository are checked out and built.
    #[must_use]
    pub fn tree_path(&self) -> PathBuf {
        self.folder.join("tree")
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The cache's own repository: the only one that is written.
    pub(super) fn bare(&self) -> &Repository {
        &self.bare
    }

    /// The user's repository, for reading.
    pub(super) fn origin(&self) -> Option<&Repository> {
        self.origin.as_ref()
    }

    /// Where revisions are looked up.
    pub(super) fn reading(&self) -> &Repository {
        self.origin.as_ref().unwrap_or(&self.bare)
    }

    /// Brings all branches and tags of a URL into the mirror, once per value.
    pub(super) fn fetch_all(&self, tell: &mut Tell<'_>) -> Result<(), SourceError> {
        let RepoRef::Url(url) = &self.repo else {
            return Ok(());
        };
        if self.fetched.get() {
            return Ok(());
        }
        let _lock = self.lock(tell)?;
        fetch::branches_and_tags(&self.bare, url, tell)?;
        self.fetched.set(true);
        Ok(())
    }

    /// Asks a URL for one commit that no branch or tag reaches.
    pub(super) fn fetch_commit(&self, commit: Oid, tell: &mut Tell<'_>) -> Result<(), SourceError> {
        let RepoRef::Url(url) = &self.repo else {
            return Ok(());
        };
        let _lock = self.lock(tell)?;
        fetch::commit(&self.bare, url, commit, tell)
    }

    fn lock(&self, tell: &mut Tell<'_>) -> Result<FileLock, SourceError> {
        FileLock::acquire(&self.folder.join("mirror.lock"), &mut || {
            tell(SourceProgress::Waiting {
                what: format!("another fetch of {}", self.repo),
            });
        })
    }
}

/// The full commit that a tag or branch stands for in the mirror called `name`, if it has it.
#[must_use]
pub fn commit_of(cache: &CacheRoot, name: &str, revision: &str) -> Option<String> {
    let bare = Repository::open_bare(cache.sources().join(name).join("mirror.git")).ok()?;
    let found = bare.revparse_single(revision).ok()?;
    Some(found.peel_to_commit().ok()?.id().to_string())
}

/// The root of the working tree around `path`, or of the bare repository there.
#[must_use]
pub fn repository_root(path: &Path) -> Option<PathBuf> {
    let found = Repository::discover(path).ok()?;
    let root = found.workdir().unwrap_or_else(|| found.path());
    root.canonicalize().ok()
}

fn open_local(path: &Path) -> Result<Repository, SourceError> {
    if !path.exists() {
        return Err(SourceError::Missing {
            path: path.to_owned(),
        });
    }
    // Without a search upwards: a folder inside some other repository must not
    // silently stand for that repository.
    let opened = Repository::open_ext(path, RepositoryOpenFlags::NO_SEARCH, &[] as &[&OsStr]);
    match opened {
        Err(error) if error.code() == git2::ErrorCode::NotFound => {
            Err(SourceError::NotARepository {
                path: path.to_owned(),
                enclosing: repository_root(path),
            })
        }
        other => other.doing_in("open the repository", &path.display()),
    }
}

/// Worktrees of one repository share a mirror, so the common folder is hashed.
fn key(repo: &RepoRef, origin: Option<&Repository>) -> String {
    let (name, location) = match (repo, origin) {
        (RepoRef::Path(path), Some(origin)) => {
            let common = origin.commondir();
            let common = common.canonicalize().unwrap_or_else(|_| common.to_owned());
            let named = match common.file_name() {
                Some(file_name) if file_name == ".git" => common.parent().map(Path::to_owned),
                _ => Some(common.clone()),
            };
            let named = RepoRef::Path(named.unwrap_or_else(|| path.clone()));
            (named.short_name(), common.as_os_str().as_bytes().to_vec())
        }
        (RepoRef::Path(path), None) => (repo.short_name(), path.as_os_str().as_bytes().to_vec()),
        (RepoRef::Url(url), _) => (repo.short_name(), url.as_bytes().to_vec()),
    };
    format!("{name}-{}", &sha256_hex(&location)[..KEY_DIGITS])
}

fn create(bare_path: &Path) -> Result<(), SourceError> {
    let mut options = git2::RepositoryInitOptions::new();
    options.bare(true).external_template(false);
    let bare = Repository::init_opts(bare_path, &options)
        .doing_in("create the mirror", &bare_path.display())?;
    configure(&bare)
}

/// Settings of a repository that the harness made itself.
pub(super) fn configure(ours: &Repository) -> Result<(), SourceError> {
    let settings = || -> Result<(), git2::Error> {
        let mut config = ours.config()?.open_level(git2::ConfigLevel::Local)?;
        // The user's own settings must not change what a checkout holds.
        config.set_str("core.autocrlf", "false")?;
        config.set_bool("core.symlinks", true)?;
        config.set_bool("core.fileMode", true)?;
        config.set_str("core.hooksPath", "/dev/null")?;
        // Pins that no branch reaches any more must stay.
        config.set_i32("gc.auto", 0)?;
        config.set_bool("maintenance.auto", false)
    };
    settings().doing_in("configure", &ours.path().display())
}

/// Lets the repository in `git_folder` read the objects of `lender`.
pub(super) fn borrow_objects(git_folder: &Path, lender: &Repository) -> Result<(), SourceError> {
    let common = lender.commondir();
    let common = common
        .canonicalize()
        .doing("resolve the repository's folder", common)?;
    let mut line = common.join("objects").into_os_string().as_bytes().to_vec();
    line.push(b'\n');
    write_if_changed(&git_folder.join("objects/info/alternates"), &line)
}

/// Shares the list of commits whose parents a shallow clone left out.
pub(super) fn copy_shallow_boundary(from: &Path, to: &Path) -> Result<(), SourceError> {
    let ours = to.join("shallow");
    match std::fs::read(from.join("shallow")) {
        Ok(boundary) => write_if_changed(&ours, &boundary),
        Err(_) if ours.exists() => {
            std::fs::remove_file(&ours).doing("remove the shallow boundary", &ours)
        }
        Err(_) => Ok(()),
    }
}

fn write_if_changed(path: &Path, content: &[u8]) -> Result<(), SourceError> {
    if std::fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).doing("create", folder)?;
    }
    std::fs::write(path, content).doing("write", path)
}

/// Builds that ask `git describe` need the tags.
pub(super) fn copy_tags(from: &Repository, to: &Repository) -> Result<(), git2::Error> {
    for tag in from.references_glob("refs/tags/*")? {
        let tag = tag?;
        let (Ok(name), Some(target)) = (tag.name(), tag.target()) else {
            continue;
        };
        let known = to.find_reference(name).ok().and_then(|tag| tag.target());
        if known != Some(target) {
            to.reference(name, target, true, "copied")?;
        }
    }
    Ok(())
}
