//! Why a run cannot go on. Each names what was expected and what was found.

use std::io;

use crate::build::error::BuildError;
use crate::experiment::diagnostic::Diagnostics;
use crate::experiment::template::TemplateError;
use crate::guard::interface::GuardError;
use crate::record::error::RecordError;
use crate::record::rounds::OutOfStep;
use crate::source::error::SourceError;

use super::treatment::IdentityError;

/// Why a run cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The experiment file is wrong: every error at once.
    #[error(transparent)]
    Experiment(#[from] Diagnostics),
    /// One or more pins cannot be resolved.
    #[error("{}", list(.0))]
    Pins(Vec<String>),
    /// A source cannot be reached or checked out.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The base did not build, so there is nothing to compare with.
    #[error("the base arm `{arm}` did not build: {error}")]
    BaseBuild {
        /// Name of the base arm.
        arm: String,
        /// What the builder said.
        error: Box<BuildError>,
    },
    /// An arm cannot be built for a reason that is not its own.
    #[error("arm `{arm}`: {error}")]
    Build {
        /// Name of the arm.
        arm: String,
        /// What the builder said.
        error: Box<BuildError>,
    },
    /// One or more setup steps left nothing to measure with.
    #[error("{}", list(.0))]
    Setup(Vec<String>),
    /// No arm but the base was built.
    #[error("no arm beside the base was built:\n{0}")]
    NothingToCompare(String),
    /// Two arms are the same thing.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The command line cannot be filled.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The record cannot be written or read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The rows do not follow from the plan.
    #[error("attempts.jsonl: {0}")]
    OutOfStep(OutOfStep),
    /// A program or a fixture was changed after its plan was sealed.
    #[error(
        "{0}: an attempt with it would be about something else than the plan names; \
         the attempts on record stay as they are"
    )]
    Changed(String),
    /// Something is to be removed from the cache while a run uses it.
    #[error(
        "a run uses the cache, expected none; nothing was removed, try again when it has ended"
    )]
    CacheInUse,
    /// An option that cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The machine never became quiet.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The output files of an attempt cannot be made, or may have been cut short.
    #[error(
        "{source}; the attempt that writes {path} is not kept, and once that is mended the same \
         command goes on"
    )]
    Output {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Ended by a signal before anything was measured.
    #[error(
        "interrupted by signal {signal} while preparing; nothing was measured, finished builds \
         and setup steps are kept"
    )]
    InterruptedEarly {
        /// The signal.
        signal: i32,
    },
    /// Ended by a signal; the record can be resumed.
    #[error("interrupted by signal {signal}; the same command resumes after {done} attempts")]
    Interrupted {
        /// The signal.
        signal: i32,
        /// Attempts on record.
        done: usize,
    },
}

fn list(lines: &[String]) -> String {
    lines.join("\n")
}
