//! Everything that can go wrong while a synthetic model is made or checked.

use std::path::PathBuf;

/// Why a synthetic model could not be provided.
#[derive(Debug, thiserror::Error)]
pub enum SyntheticError {
    /// No configuration has this name.
    #[error("unknown synthetic model `{name}`, expected one of: {known}")]
    UnknownName {
        /// The name as given, without the `synthetic:` prefix.
        name: String,
        /// The public names, separated by commas.
        known: String,
    },
    /// A file or folder operation failed.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb: `write`, `rename`, ….
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// The target of `mlxcel synth` holds something else.
    #[error("refuse to write into {}: the folder is not empty and was not made by `mlxcel synth`", path.display())]
    NotOurs {
        /// The folder that was given.
        path: PathBuf,
    },
    /// A folder does not hold what its manifest, or this program, says.
    #[error("{}: {what}: expected {expected}, got {got}", path.display())]
    Damaged {
        /// The file in question.
        path: PathBuf,
        /// Which property differs.
        what: &'static str,
        /// The recorded value.
        expected: String,
        /// The value found.
        got: String,
    },
    /// The manifest is not readable as one.
    #[error("{}: not a manifest of a synthetic model: {source}", path.display())]
    BadManifest {
        /// The manifest's path.
        path: PathBuf,
        /// The parser's answer.
        source: serde_json::Error,
    },
    /// Neither `MLXCEL_SYNTH_CACHE`, `XDG_CACHE_HOME` nor `HOME` is set.
    #[error("no cache folder: set MLXCEL_SYNTH_CACHE, XDG_CACHE_HOME or HOME")]
    NoCacheFolder,
}

impl SyntheticError {
    /// A closure for `map_err` that adds the action and the path.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
