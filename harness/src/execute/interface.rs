//! What it takes to run one attempt: the trait between the run loop and a process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::record::format::Usage;

/// One process to run. Its environment is exactly `env`: nothing is inherited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSpec {
    /// Program and arguments; at least one word.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory.
    pub directory: PathBuf,
    /// Kill the whole group after this time.
    pub timeout: Duration,
    /// Standard output goes here (created, never overwritten).
    pub stdout: PathBuf,
    /// Standard error goes here (created, never overwritten).
    pub stderr: PathBuf,
    /// Kill the group when an output file grows beyond this many bytes.
    pub max_output_bytes: u64,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// By itself or by a signal from elsewhere: see [`Usage`].
    Exited(Usage),
    /// Killed with its group at the time limit.
    TimedOut(Usage),
    /// Killed with its group because a sample asked for it; the text says why.
    Stopped(Usage, String),
    /// Killed with its group because it printed more than allowed.
    OutputTooLarge(Usage, u64),
    /// Never started; one line says why.
    NotStarted(String),
}

/// Asked about once a second while a process runs; `Some(reason)` stops it.
pub type Watch<'a> = dyn FnMut() -> Option<String> + 'a;

/// Runs attempts.
pub trait Executor {
    /// Runs `spec` to its end. `watch` is called at most once a second, with the
    /// process's group id first set by `started`.
    ///
    /// # Errors
    /// Only faults of the harness's own side (cannot create the output files);
    /// whatever the process does is an [`Ended`].
    fn run(
        &mut self,
        spec: &ProcessSpec,
        started: &mut dyn FnMut(u32),
        watch: &mut Watch<'_>,
    ) -> std::io::Result<Ended>;
}
