//! A git repository in a temporary folder, made with libgit2 only.

use std::path::{Path, PathBuf};

use bench_run::source::cache_root::CacheRoot;
use bench_run::source::error::SourceError;
use bench_run::source::mirror::Mirror;
use bench_run::source::pin::{self, Pin};
use bench_run::source::repository::RepoRef;
use tempfile::TempDir;

pub(crate) struct TinyRepo {
    pub(crate) folder: TempDir,
    pub(crate) repo: git2::Repository,
    pub(crate) cache: CacheRoot,
}

impl TinyRepo {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = git2::RepositoryInitOptions::new();
        options.initial_head("trunk");
        let root = folder.path().join("code");
        let repo = git2::Repository::init_opts(root, &options).unwrap();
        let cache = CacheRoot::at(&folder.path().join("cache")).unwrap();
        Self {
            folder,
            repo,
            cache,
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.repo.workdir().unwrap().to_owned()
    }

    pub(crate) fn reference(&self) -> RepoRef {
        RepoRef::Path(self.root())
    }

    pub(crate) fn write(&self, path: &str, content: &str) {
        let file = self.root().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }

    /// Commits exactly `files`: every other file is gone in this commit.
    pub(crate) fn commit(&self, files: &[(&str, &str)]) -> String {
        let mut index = self.repo.index().unwrap();
        let old: Vec<Vec<u8>> = index.iter().map(|entry| entry.path).collect();
        for path in old {
            let path = String::from_utf8(path).unwrap();
            let _ = std::fs::remove_file(self.root().join(&path));
            index.remove_path(Path::new(&path)).unwrap();
        }
        for (path, content) in files {
            self.write(path, content);
            index.add_path(Path::new(path)).unwrap();
        }
        index.write().unwrap();
        self.commit_index()
    }

    /// Commits what the index holds.
    pub(crate) fn commit_index(&self) -> String {
        let mut index = self.repo.index().unwrap();
        let tree = self.repo.find_tree(index.write_tree().unwrap()).unwrap();
        let time = git2::Time::new(1_700_000_000, 0);
        let author = git2::Signature::new("Test", "test@example.org", &time).unwrap();
        let parent = self
            .repo
            .head()
            .ok()
            .map(|head| head.peel_to_commit().unwrap());
        let parents: Vec<&git2::Commit<'_>> = parent.iter().collect();
        self.repo
            .commit(Some("HEAD"), &author, &author, "a commit", &tree, &parents)
            .unwrap()
            .to_string()
    }

    pub(crate) fn mirror(&self) -> Mirror {
        Mirror::open(&self.cache, &self.reference()).unwrap()
    }

    pub(crate) fn pin(&self, rev: &str) -> Pin {
        self.try_pin(rev).unwrap()
    }

    pub(crate) fn try_pin(&self, rev: &str) -> Result<Pin, SourceError> {
        pin::resolve(&self.mirror(), rev, &mut |_| {})
    }
}

/// Every file below `root` with its content and modification time.
pub(crate) fn state(root: &Path) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let about = entry.metadata().unwrap();
            if about.is_dir() {
                open.push(entry.path());
            } else {
                let content = std::fs::read(entry.path()).unwrap_or_default();
                found.push((entry.path(), content, about.modified().unwrap()));
            }
        }
    }
    found.sort();
    found
}
