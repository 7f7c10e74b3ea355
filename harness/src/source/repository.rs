//! Where a source lies: a local path or a URL.

use std::fmt;
use std::path::{Path, PathBuf};

/// A repository as the experiment names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RepoRef {
    /// A repository on this machine, by absolute path.
    Path(PathBuf),
    /// Anything that `git fetch` understands.
    Url(String),
}

impl RepoRef {
    /// Reads `text` as a URL (`scheme://…`, `user@host:path`) or as a path relative to `base`.
    /// `${VAR}` must have been expanded before.
    #[must_use]
    pub fn parse(text: &str, base: &Path) -> Self {
        let path = base.join(text);
        let scp_like = text.split_once(':').is_some_and(|(host, rest)| {
            !host.is_empty() && !host.contains('/') && !rest.is_empty()
        });
        if text.contains("://") || (scp_like && !path.exists()) {
            return Self::Url(text.to_owned());
        }
        Self::Path(path)
    }

    /// The last component of the path or URL, for readable folder names:
    /// letters, digits, `-`, `_` and `.` only.
    #[must_use]
    pub fn short_name(&self) -> String {
        let text = match self {
            Self::Path(path) => path
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            Self::Url(url) => url
                .trim_end_matches('/')
                .rsplit(['/', ':'])
                .next()
                .unwrap_or_default()
                .to_owned(),
        };
        let name: String = text
            .trim_end_matches(".git")
            .chars()
            .filter(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(*letter))
            .take(40)
            .collect();
        match name.trim_matches('.') {
            "" => "repository".into(),
            name => name.to_owned(),
        }
    }
}

/// The path, or the URL without user name and password.
impl fmt::Display for RepoRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Url(url) => f.write_str(&without_credentials(url)),
        }
    }
}

/// `https://user:token@host/x` becomes `https://host/x`. An scp-like `git@host:x`
/// holds no secret and stays.
pub(super) fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let authority_end = rest.find('/').unwrap_or(rest.len());
    match rest[..authority_end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> RepoRef {
        RepoRef::Url(text.into())
    }

    #[test]
    fn urls_and_paths_are_told_apart() {
        let base = Path::new("/base");
        assert_eq!(
            RepoRef::parse("https://example.org/a.git", base),
            url("https://example.org/a.git")
        );
        assert_eq!(
            RepoRef::parse("git@example.org:a/b.git", base),
            url("git@example.org:a/b.git")
        );
        assert_eq!(
            RepoRef::parse("../code", base),
            RepoRef::Path("/base/../code".into())
        );
        assert_eq!(
            RepoRef::parse("/srv/code:old", base),
            RepoRef::Path("/srv/code:old".into())
        );
    }

    #[test]
    fn a_local_folder_with_a_colon_in_its_name_is_a_path() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("a:b")).unwrap();
        assert_eq!(
            RepoRef::parse("a:b", folder.path()),
            RepoRef::Path(folder.path().join("a:b"))
        );
    }

    #[test]
    fn credentials_are_never_shown() {
        let shown = url("https://me:secret@example.org/x@y").to_string();
        assert_eq!(shown, "https://example.org/x@y");
        assert_eq!(
            url("git@example.org:x.git").to_string(),
            "git@example.org:x.git"
        );
    }

    #[test]
    fn short_names_are_safe_in_a_path() {
        assert_eq!(url("https://example.org/jq.git").short_name(), "jq");
        assert_eq!(url("git@example.org:a/my tool.git/").short_name(), "mytool");
        assert_eq!(RepoRef::Path("/..".into()).short_name(), "repository");
    }
}
