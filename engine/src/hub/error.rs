//! What can go wrong between a name and a folder.

use std::path::{Path, PathBuf};

use crate::error::LoadError;

/// A model that could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// A name that no hub can have.
    #[error("model name `{got}`: expected hf:ORGANISATION/NAME or hf:ORGANISATION/NAME@REVISION")]
    Name {
        /// What was given.
        got: String,
    },
    /// No place for the cache.
    #[error("no cache folder: set HF_HOME (none of HF_HOME, XDG_CACHE_HOME and HOME is set)")]
    NoCache,
    /// An answer that is no success.
    #[error("{url}: HTTP status {status}{hint}")]
    Status {
        /// What was asked for.
        url: String,
        /// The code.
        status: u16,
        /// What to do about it, or nothing.
        hint: &'static str,
    },
    /// A connection that failed again and again.
    #[error(
        "{url}: {reason} (gave up after {attempts} attempts without progress; what arrived is kept)"
    )]
    Connection {
        /// What was asked for.
        url: String,
        /// What went wrong last.
        reason: String,
        /// Attempts in a row that brought nothing.
        attempts: u32,
    },
    /// A listing that makes no sense.
    #[error("{url}: {problem}")]
    Listing {
        /// Where it came from.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A server whose answer is not as long as the listing says.
    #[error("{url}: expected {expected_bytes} bytes, the server announces {got_bytes}")]
    Length {
        /// What was asked for.
        url: String,
        /// By the listing.
        expected_bytes: u64,
        /// By the answer.
        got_bytes: u64,
    },
    /// A file that is not the one that the listing names.
    #[error("{url}: expected hash {expected}, got {got}; the file was removed")]
    Hash {
        /// What was asked for.
        url: String,
        /// By the listing.
        expected: String,
        /// Of what arrived.
        got: String,
    },
    /// A repository without weights in a format that is read.
    #[error("{model}: expected config.json and model*.safetensors, got {got}")]
    NoModel {
        /// The name.
        model: String,
        /// What there is instead.
        got: String,
    },
    /// The caller looked at config.json and does not want the weights.
    #[error("{model} is not worth fetching: {source}")]
    Unwanted {
        /// The name.
        model: String,
        /// Why.
        source: Box<LoadError>,
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

impl HubError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }
}
