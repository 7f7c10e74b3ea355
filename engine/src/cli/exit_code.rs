//! Exit codes, and the one place where an error is printed.

use std::io::Write;
use std::process::ExitCode;

/// The work was done and its checks passed.
pub const SUCCESS: u8 = 0;

/// The work failed, or a check found a difference.
pub const FAILURE: u8 = 1;

/// The command line was not understood. clap exits with the same code.
pub const USAGE: u8 = 2;

/// Ended by SIGINT: 128 and its number, as shells count.
pub const INTERRUPTED: u8 = 130;

/// Turns a result into an exit code; an error becomes one line on standard error.
pub fn finish(program: &str, result: anyhow::Result<u8>) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::from(SUCCESS),
        Err(error) => {
            // Nothing is left to do if standard error is gone too.
            let _ = writeln!(std::io::stderr(), "{program}: {error:#}");
            ExitCode::from(FAILURE)
        }
    }
}

/// The reader of our output has seen enough (`| head -1`): no failure of ours.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
