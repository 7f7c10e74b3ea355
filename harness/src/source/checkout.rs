//! Laying a pin's files out at the repository's one fixed path.
//!
//! Every pin of a repository is built at the same path, so that equal code gives
//! equal bytes although paths end up in them. Going from one pin to the next
//! writes only the files that differ: those get a new modification time, also when
//! their content is older, and all others keep theirs, which is what make and
//! cargo go by. What earlier builds left behind is removed, except the folders
//! that the experiment keeps.

use std::path::{Component, Path, PathBuf};

use git2::build::CheckoutBuilder;
use git2::{DiffOptions, Oid, Repository, RepositoryInitOptions};

use super::error::{GitContext as _, IoContext as _, SourceError};
use super::leftovers;
use super::lock::FileLock;
use super::mirror::{self, Mirror};
use super::pin::Pin;
use super::progress::{SourceProgress, Tell};
use super::survey::{Survey, survey};
use crate::experiment::model::Submodules;

/// A pin's files. Nobody else changes them as long as the value lives.
#[derive(Debug)]
pub struct Checkout {
    /// The root of the files; a git repository whose HEAD is detached at the pin.
    pub path: PathBuf,
    /// Full commit.
    pub commit: String,
    _lock: FileLock,
}

/// The right to change a repository's checkout; others wait.
#[derive(Debug)]
pub struct Claim<'a> {
    mirror: &'a Mirror,
    lock: FileLock,
}

/// Waits until no other process works in the checkout of `mirror`.
///
/// # Errors
/// The lock cannot be made.
pub fn claim<'a>(mirror: &'a Mirror, tell: &mut Tell<'_>) -> Result<Claim<'a>, SourceError> {
    let lock = FileLock::acquire(&mirror.folder().join("tree.lock"), &mut || {
        tell(SourceProgress::Waiting {
            what: format!("another build of {}", mirror.repo()),
        });
    })?;
    Ok(Claim { mirror, lock })
}

/// Claims the checkout and lays `pin` out, see [`Claim::lay_out`].
///
/// # Errors
/// Those of [`claim`] and [`Claim::lay_out`].
pub fn checkout(
    mirror: &Mirror,
    pin: &Pin,
    submodules: Submodules,
    keep: &[PathBuf],
    tell: &mut Tell<'_>,
) -> Result<Checkout, SourceError> {
    claim(mirror, tell)?.lay_out(pin, submodules, keep, tell)
}

impl Claim<'_> {
    /// Checks `pin` out at [`Mirror::tree_path`]. `keep` are untracked folders to
    /// leave, relative to the root.
    ///
    /// # Errors
    /// The pin has submodules (under [`Submodules::Refuse`]) or LFS pointers, a path in
    /// `keep` leaves the checkout, or reading or writing fails.
    pub fn lay_out(
        self,
        pin: &Pin,
        submodules: Submodules,
        keep: &[PathBuf],
        tell: &mut Tell<'_>,
    ) -> Result<Checkout, SourceError> {
        let mirror = self.mirror;
        for path in keep {
            inside("build.keep", path)?;
        }
        let tree = Oid::from_str(&pin.tree).doing_in("read the pin", mirror.repo())?;
        let survey = complete_survey(mirror, pin, tree)?;
        refuse_hollow(mirror, pin, submodules, &survey)?;
        match lay_out(mirror, pin, tree, &survey, keep, tell) {
            // Whatever a killed run or a stray hand left there: once more, from nothing.
            Err(error) if is_about_the_state(&error) => {
                remove_clone(mirror)?;
                lay_out(mirror, pin, tree, &survey, keep, tell)?;
            }
            other => other?,
        }
        Ok(Checkout {
            path: mirror.tree_path(),
            commit: pin.commit.clone(),
            _lock: self.lock,
        })
    }
}

/// True if the pin has a file of this path (relative to its root).
///
/// # Errors
/// The pin's tree cannot be read.
pub fn has_file(mirror: &Mirror, pin: &Pin, path: &Path) -> Result<bool, SourceError> {
    let tree = Oid::from_str(&pin.tree)
        .and_then(|tree| mirror.bare().find_tree(tree))
        .doing_in("read the commit's files", mirror.repo())?;
    Ok(tree.get_path(path).is_ok())
}

/// Refuses a path of the experiment that is absolute, empty or climbs out.
///
/// # Errors
/// [`SourceError::OutsideCheckout`] with `key` and `path`.
pub fn inside(key: &'static str, path: &Path) -> Result<(), SourceError> {
    let plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if plain && path.components().next().is_some() {
        return Ok(());
    }
    Err(SourceError::OutsideCheckout {
        key,
        path: path.to_owned(),
    })
}

/// True where starting from nothing may help; a full disk is not such a case.
fn is_about_the_state(error: &SourceError) -> bool {
    match error {
        SourceError::Git { source, .. } => source.class() != git2::ErrorClass::Os,
        SourceError::CheckoutDiffers { .. } => true,
        _ => false,
    }
}

fn complete_survey(mirror: &Mirror, pin: &Pin, tree: Oid) -> Result<Survey, SourceError> {
    survey(mirror.bare(), tree).map_err(|error| SourceError::Incomplete {
        repo: mirror.repo().to_string(),
        commit: pin.commit.clone(),
        reason: error.message().to_owned(),
    })
}

fn refuse_hollow(
    mirror: &Mirror,
    pin: &Pin,
    submodules: Submodules,
    survey: &Survey,
) -> Result<(), SourceError> {
    let (repo, commit) = (mirror.repo().to_string(), pin.commit.clone());
    if submodules == Submodules::Refuse && !survey.submodules.is_empty() {
        return Err(SourceError::Submodules {
            repo,
            commit,
            paths: shown(&survey.submodules),
        });
    }
    if !survey.lfs_pointers.is_empty() {
        return Err(SourceError::LfsPointers {
            repo,
            commit,
            paths: shown(&survey.lfs_pointers),
        });
    }
    Ok(())
}

fn shown(paths: &[PathBuf]) -> Vec<String> {
    paths
        .iter()
        .map(|path| path.display().to_string())
        .collect()
}

fn lay_out(
    mirror: &Mirror,
    pin: &Pin,
    tree: Oid,
    survey: &Survey,
    keep: &[PathBuf],
    tell: &mut Tell<'_>,
) -> Result<(), SourceError> {
    let path = mirror.tree_path();
    let commit = Oid::from_str(&pin.commit).doing_in("read the pin", mirror.repo())?;
    let repository = open_clone(mirror)?;
    exclude_kept(&path, keep)?;
    switch(&repository, commit, tree, tell).doing_in("check out the files", mirror.repo())?;
    leftovers::remove(&path, survey, keep).doing("remove leftovers in", &path)?;
    let differing = differing_files(&repository, tree)
        .doing_in("compare the checkout with the commit", mirror.repo())?;
    if differing.is_empty() {
        return Ok(());
    }
    Err(SourceError::CheckoutDiffers {
        commit: pin.commit.clone(),
        path,
        paths: differing,
    })
}

/// Opens the repository around the files, or makes it anew where it is missing or
/// broken. It borrows the mirror's objects, so nothing is copied but tags.
fn open_clone(mirror: &Mirror) -> Result<Repository, SourceError> {
    let path = mirror.tree_path();
    let git_folder = path.join(".git");
    // A killed run leaves its own lock files; the lock of this module is ours now.
    for stale in ["index.lock", "HEAD.lock"] {
        let _ = std::fs::remove_file(git_folder.join(stale));
    }
    let usable = |repository: &Repository| !repository.is_bare() && repository.index().is_ok();
    let repository = match open_exactly(&path).ok().filter(usable) {
        Some(repository) => repository,
        None => {
            remove_clone(mirror)?;
            let mut options = RepositoryInitOptions::new();
            options.external_template(false);
            let made = Repository::init_opts(&path, &options)
                .doing_in("create the checkout", mirror.repo())?;
            mirror::configure(&made)?;
            mirror::borrow_objects(&git_folder, mirror.bare())?;
            // Opened again, because the objects are looked for at opening.
            open_exactly(&path).doing_in("open the checkout", mirror.repo())?
        }
    };
    mirror::copy_tags(mirror.bare(), &repository).doing_in("copy the tags", mirror.repo())?;
    mirror::copy_shallow_boundary(mirror.bare().path(), &git_folder)?;
    Ok(repository)
}

/// Without a search upwards, which might find a repository around the cache.
fn open_exactly(path: &Path) -> Result<Repository, git2::Error> {
    let none: &[&std::ffi::OsStr] = &[];
    Repository::open_ext(path, git2::RepositoryOpenFlags::NO_SEARCH, none)
}

fn remove_clone(mirror: &Mirror) -> Result<(), SourceError> {
    let path = mirror.tree_path();
    match std::fs::remove_dir_all(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).doing("remove the old checkout", &path)
        }
        _ => Ok(()),
    }
}

/// Makes git ignore the kept folders, so that a build that asks `git status`
/// does not see the leavings of another pin.
fn exclude_kept(path: &Path, keep: &[PathBuf]) -> Result<(), SourceError> {
    let file = path.join(".git/info/exclude");
    let lines: String = keep
        .iter()
        .map(|path| format!("/{}/\n", path.display()))
        .collect();
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).doing("create", folder)?;
    }
    std::fs::write(&file, lines).doing("write", &file)
}

fn switch(
    repository: &Repository,
    commit: Oid,
    tree: Oid,
    tell: &mut Tell<'_>,
) -> Result<(), git2::Error> {
    let target = repository.find_tree(tree)?;
    let mut options = CheckoutBuilder::new();
    options.force().progress(|_, done, total| {
        tell(SourceProgress::CheckingOut {
            commit: commit.to_string(),
            done,
            total,
        });
    });
    repository.checkout_tree(target.as_object(), Some(&mut options))?;
    // Writing HEAD even when it stays would make receipts look changed.
    if repository.head().ok().and_then(|head| head.target()) != Some(commit) {
        repository.set_head_detached(commit)?;
    }
    Ok(())
}

/// Hashes every tracked file: nothing may be trusted to modification times here.
fn differing_files(repository: &Repository, tree: Oid) -> Result<Vec<String>, git2::Error> {
    let target = repository.find_tree(tree)?;
    let mut options = DiffOptions::new();
    options.ignore_submodules(true).include_typechange(true);
    let diff = repository.diff_tree_to_workdir(Some(&target), Some(&mut options))?;
    Ok(diff
        .deltas()
        .filter_map(|delta| {
            let path = delta.old_file().path().or_else(|| delta.new_file().path());
            path.map(|path| path.display().to_string())
        })
        .collect())
}
