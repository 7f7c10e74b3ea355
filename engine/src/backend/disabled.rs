//! What is left of a back end that this build does not have: one clear error.

use crate::error::{BackendError, LoadError};

/// The error for `backend`.
pub fn unavailable(backend: &str) -> LoadError {
    LoadError::Backend(BackendError::Unavailable {
        backend: backend.to_owned(),
        reason: "this build does not contain it".to_owned(),
    })
}
