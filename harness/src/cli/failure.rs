//! From an error to the exit code that tells scripts whose fault it was.

use crate::bundle::error::BundleError;
use crate::exit_code;
use crate::experiment::diagnostic::Diagnostics;
use crate::guard::interface::GuardError;
use crate::record::error::RecordError;
use crate::replay::convention::NeedsMapping;
use crate::session::error::SessionError;

/// The exit code of an error that ended a sub-command.
#[must_use]
pub fn exit_code(error: &anyhow::Error) -> i32 {
    for cause in error.chain() {
        if let Some(error) = cause.downcast_ref::<SessionError>() {
            return of_session(error);
        }
        if let Some(error) = cause.downcast_ref::<RecordError>() {
            return of_record(error);
        }
        if let Some(error) = cause.downcast_ref::<BundleError>() {
            return of_bundle(error);
        }
        if cause.is::<Diagnostics>() || cause.is::<NeedsMapping>() {
            return exit_code::USAGE;
        }
        if cause.is::<std::io::Error>() {
            return exit_code::IO;
        }
    }
    exit_code::INTERNAL
}

fn of_session(error: &SessionError) -> i32 {
    match error {
        SessionError::Experiment(_)
        | SessionError::Identity(_)
        | SessionError::Template(_)
        | SessionError::Usage(_)
        | SessionError::OutOfStep(_) => exit_code::USAGE,
        SessionError::Pins(_)
        | SessionError::Changed(_)
        | SessionError::Source(_)
        | SessionError::BaseBuild { .. }
        | SessionError::Build { .. }
        | SessionError::Setup(_)
        | SessionError::NothingToCompare(_) => exit_code::UNAVAILABLE,
        SessionError::Record(error) => of_record(error),
        SessionError::Guard(error) => of_guard(error),
        // The same command works once that run has ended.
        SessionError::CacheInUse => exit_code::TRY_AGAIN,
        SessionError::Output { .. } => exit_code::IO,
        SessionError::Interrupted { signal, .. } | SessionError::InterruptedEarly { signal } => {
            exit_code::of_signal(*signal)
        }
    }
}

fn of_bundle(error: &BundleError) -> i32 {
    match error {
        BundleError::Io { .. } => exit_code::IO,
        BundleError::Build(_) | BundleError::Library { .. } => exit_code::UNAVAILABLE,
        BundleError::Record(error) => of_record(error),
        _ => exit_code::USAGE,
    }
}

fn of_guard(error: &GuardError) -> i32 {
    match error {
        GuardError::LockHeld { .. } | GuardError::NeverIdle { .. } => exit_code::TRY_AGAIN,
        GuardError::Interrupted { signal } => exit_code::of_signal(*signal),
        GuardError::Unavailable { .. } => exit_code::UNAVAILABLE,
    }
}

fn of_record(error: &RecordError) -> i32 {
    match error {
        RecordError::Io { .. } | RecordError::Append { .. } | RecordError::Poisoned { .. } => {
            exit_code::IO
        }
        // The same command works once the other run has ended.
        RecordError::Busy { .. } => exit_code::TRY_AGAIN,
        RecordError::Unstorable { .. } => exit_code::INTERNAL,
        _ => exit_code::USAGE,
    }
}
