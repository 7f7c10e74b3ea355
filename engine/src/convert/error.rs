//! What can be wrong with a conversion.

use std::path::{Path, PathBuf};

use crate::error::LoadError;

/// A conversion that cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The GGUF file itself.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A key that is missing or of the wrong kind.
    #[error("{}: key `{key}`: expected {expected}, got {got}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What this family needs there.
        expected: String,
        /// What is there.
        got: String,
    },
    /// A tensor that is missing, of the wrong shape, or not known to the family.
    #[error("{}: tensor `{tensor}`: expected {expected}, got {got}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// Its name in the file.
        tensor: String,
        /// What the family needs.
        expected: String,
        /// What is there.
        got: String,
    },
    /// A vocabulary that cannot be written as tokenizer.json.
    #[error("{}: vocabulary: {problem}", path.display())]
    Vocabulary {
        /// The file.
        path: PathBuf,
        /// What is wrong, with expected and got.
        problem: String,
    },
    /// The target holds something already.
    #[error("{}: expected a new or empty folder, got {got}", path.display())]
    Target {
        /// The folder.
        path: PathBuf,
        /// What is there.
        got: String,
    },
    /// The operating system refused.
    #[error("could not {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// File or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl ConvertError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn tensor(path: &Path, tensor: &str, expected: String, got: String) -> Self {
        Self::Tensor {
            path: path.to_owned(),
            tensor: tensor.to_owned(),
            expected,
            got,
        }
    }
}
