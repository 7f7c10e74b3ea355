//! What can be wrong with a bundle or with a record that comes back from one.

use std::io;
use std::path::{Path, PathBuf};

use crate::build::builder::Unlike;
use crate::build::error::BuildError;
use crate::record::error::RecordError;

/// A bundle that cannot be made or used, a record that cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The operating system refused an operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A folder that no bundle was packed into.
    #[error("{} is no bundle: expected {file} in it, got none", folder.display())]
    NotABundle {
        /// The folder.
        folder: PathBuf,
        /// What is missing.
        file: String,
    },
    /// The description of a bundle that this program cannot read.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Expected and got.
        reason: String,
    },
    /// A file of the bundle is not the one that was packed.
    #[error("{} has changed since it was packed: expected sha256 {expected}, got {got}", path.display())]
    Changed {
        /// The file or folder.
        path: PathBuf,
        /// As packed.
        expected: String,
        /// As it is.
        got: String,
    },
    /// An artifact of the bundle is not the plan's.
    #[error("{}: {unlike}", folder.display())]
    Artifact {
        /// The folder of the build.
        folder: PathBuf,
        /// What differs.
        unlike: Unlike,
    },
    /// Another program than the one that packed the bundle.
    #[error(
        "the bundle was packed by another program: expected {expected}, got {got}; run the \
         bench-run that lies in the bundle"
    )]
    OtherProgram {
        /// Version line and hash of the packer.
        expected: String,
        /// Of this program.
        got: String,
    },
    /// A library that this machine lacks.
    #[error("artifact {artifact} asks for {soname}, which is not found on this machine")]
    Library {
        /// As the plan names it.
        artifact: String,
        /// As the loader asks for it.
        soname: String,
    },
    /// A record of another plan.
    #[error(
        "{} is a record of another plan: expected {expected}, got {got}",
        record.display()
    )]
    OtherPlan {
        /// The record.
        record: PathBuf,
        /// Hash of the bundle's plan.
        expected: String,
        /// Hash of the record's plan.
        got: String,
    },
    /// A row about other code than the plan's.
    #[error(
        "{}:{line}: code of arm `{arm}`: expected {expected}, got {got}",
        path.display()
    )]
    OtherCode {
        /// The file of rows.
        path: PathBuf,
        /// 1-based line.
        line: usize,
        /// The arm.
        arm: String,
        /// Code hash in the plan.
        expected: String,
        /// Code hash in the row.
        got: String,
    },
    /// What is to be packed does not exist, or lies elsewhere.
    #[error("--with {}: expected a file or folder below {}, got {got}", path.display(), root.display())]
    With {
        /// As given.
        path: PathBuf,
        /// The project's root.
        root: PathBuf,
        /// What is wrong.
        got: &'static str,
    },
    /// The record itself.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Copying or looking at an artifact.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Turns an I/O error into one that says what was tried on which path.
pub(super) fn io_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> BundleError + use<> {
    let path = path.to_path_buf();
    move |source| BundleError::Io {
        action,
        path,
        source,
    }
}
