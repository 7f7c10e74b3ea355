//! A fake program for tests: deterministic, no process and no clock.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use super::interface::{Ended, Executor, ProcessSpec, Watch};
use crate::record::format::Usage;

/// What one fake run does.
#[derive(Debug, Clone, PartialEq)]
pub struct MockRun {
    /// Written to the standard output file.
    pub stdout: String,
    /// Written to the standard error file.
    pub stderr: String,
    /// Seconds it pretends to run: `watch` is asked once for each.
    pub seconds: u32,
    /// How it ends unless `watch` stops it.
    pub ended: Ended,
}

impl MockRun {
    /// Prints `stdout`, exits with 0, takes `wall_ns`.
    #[must_use]
    pub fn prints(stdout: &str, wall_ns: u64) -> Self {
        MockRun {
            stdout: stdout.to_owned(),
            stderr: String::new(),
            seconds: 0,
            ended: Ended::Exited(Usage {
                wall_ns,
                user_ns: wall_ns,
                exit_status: Some(0),
                ..Usage::default()
            }),
        }
    }
}

/// Answers each call with what `program` makes of the specification and of the number of
/// earlier calls.
pub struct MockExecutor<F> {
    program: F,
    calls: usize,
}

impl<F: FnMut(&ProcessSpec, usize) -> MockRun> MockExecutor<F> {
    /// An executor that pretends to run `program`.
    #[must_use]
    pub fn new(program: F) -> Self {
        MockExecutor { program, calls: 0 }
    }

    /// How often it ran.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls
    }
}

/// The process group that fake runs report.
pub const MOCK_GROUP: u32 = 4_000_000;

impl<F: FnMut(&ProcessSpec, usize) -> MockRun> Executor for MockExecutor<F> {
    fn run(
        &mut self,
        spec: &ProcessSpec,
        started: &mut dyn FnMut(u32),
        watch: &mut Watch<'_>,
    ) -> io::Result<Ended> {
        let run = (self.program)(spec, self.calls);
        self.calls += 1;
        write_new(&spec.stdout, &run.stdout)?;
        write_new(&spec.stderr, &run.stderr)?;
        if matches!(run.ended, Ended::NotStarted(_)) {
            return Ok(run.ended);
        }
        started(MOCK_GROUP);
        for second in 1..=run.seconds {
            if let Some(reason) = watch() {
                let usage = Usage {
                    wall_ns: u64::from(second) * 1_000_000_000,
                    signal: Some(libc::SIGTERM),
                    ..Usage::default()
                };
                return Ok(Ended::Stopped(usage, reason));
            }
        }
        Ok(run.ended)
    }
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)?
        .write_all(text.as_bytes())
}
